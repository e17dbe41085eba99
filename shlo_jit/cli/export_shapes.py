"""`--shapes` of export: types of a call to generate code for, such as `1x16xf32,16x4xf32`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shlo_jit.cli import mistakes

if TYPE_CHECKING:
    import numpy as np

    from shlo_jit.api import Shapes
    from shlo_jit.ir.core import Module, Value


def read(modules: Mapping[str, Module], entries: Sequence[str], texts: Sequence[str]) -> dict[str, list[Shapes]]:
    """Parses calls, by function, as `api.export` takes them. Ends the command for an invalid one. `modules`: the
    program for each of `entries`."""
    found: dict[str, list[Shapes]] = {}
    for text in texts:
        name, _, types = text.rpartition(":")
        if not name and len(entries) > 1:
            mistakes.fail(f"--shapes {text}: several functions are exported: write NAME:{text}")
        entry = (name or entries[0]).removeprefix("@")
        arguments = _arguments(modules, entry)  # api.export reports a missing function
        call = types.split(",") if arguments is None else _call(text, types.split(","), arguments)
        found.setdefault(entry, []).append(call)
    return found


def _arguments(modules: Mapping[str, Module], entry: str) -> Sequence[Value] | None:
    """Arguments that callers pass; None if there is no such function."""
    from shlo_jit.ir.core import is_declaration
    from shlo_jit.passes.context import Context
    from shlo_jit.passes.frontend.first_platform import first_platform

    module = modules.get(entry)
    function = None if module is None else module.function(entry)
    if module is None or function is None or is_declaration(function):
        return None
    return first_platform(function, Context(module)).block().arguments


def _call(text: str, types: Sequence[str], arguments: Sequence[Value]) -> Shapes:
    """Returns the shapes of all arguments. `types` are given for all, or only for those with unknown dimensions."""
    from shlo_jit.ir.dynamic_values import is_dynamic

    unknown = [i for i, argument in enumerate(arguments) if is_dynamic(argument)]
    given = range(len(arguments)) if len(types) == len(arguments) else unknown
    if len(types) != len(given):
        names = ", ".join(f"%{arguments[i].name}" for i in unknown) or "none"
        mistakes.fail(
            f"--shapes {text}: expected {len(arguments)} types, or one for each input with unknown dimensions ({names})"
        )
    call: list[Sequence[int] | str | np.ndarray] = [() if is_dynamic(a) else a.tensor.extents for a in arguments]
    for i, type in zip(given, types, strict=True):
        call[i] = _value(text, *type.split("=", 1)) if "=" in type else type.strip()
    return call


def _value(text: str, type: str, numbers: str) -> np.ndarray:
    """Parses `2xi32=8x4`: an array of integers."""
    import numpy as np

    from shlo_jit.errors import ParseError
    from shlo_jit.ir.types import TensorType
    from shlo_jit.text.types import type_of_text

    try:
        wanted = type_of_text(f"tensor<{type.strip()}>")
        if isinstance(wanted, TensorType) and wanted.is_static and wanted.storage.kind in "iux":
            values = [int(n) for n in numbers.split("x") if n.strip()]
            return np.array(values, wanted.storage.numpy).reshape(wanted.extents)
    except (ParseError, ValueError, OverflowError):
        pass
    mistakes.fail(f"--shapes {text}: expected integers of that type, such as i32=8 or 2xi32=8x4; got {type}={numbers}")
