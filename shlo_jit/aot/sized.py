"""Functions with unknown dimensions. A library has the programs that they are for the shapes it was asked for, each as
a function of its own (`image.Function`), and a sized function over them: it takes the sizes that are not known, and
runs the program for these.

Code for all sizes, which is handed them at run time (`dims` of `codegen/abi.py`), would be one more way to fill a sized
function: `read_calls` is where it is decided that there is a program for each list of shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shlo_jit import pipeline
from shlo_jit.errors import UnsupportedError, VerifyError, diagnose
from shlo_jit.ir.core import Block, Module, Op, Value, function_type
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ir.unknown import has_unknown, is_dynamic
from shlo_jit.ops.shapes import type_text
from shlo_jit.options import CompileOptions
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.first_platform import first_platform
from shlo_jit.passes.frontend.inline import inline_all
from shlo_jit.passes.refine.prelude import shape_operands, sizes_to_compute
from shlo_jit.runtime.dynamic import DynamicPort
from shlo_jit.specialize import read_shapes, refined_module, with_function

Shapes = Sequence[Sequence[object]]
"""Calls, each with the shapes of all arguments, as `api.refine` takes them."""


class Call(NamedTuple):
    """What there is code for."""

    sizes: tuple[int, ...]
    """Of all unknown dimensions of the arguments, in order."""
    values: tuple[bytes, ...]
    """Of the arguments that sizes follow from, in order."""


class Unknown(NamedTuple):
    """A function of a program with unknown dimensions, and the static programs for the calls it was asked for."""

    inputs: tuple[DynamicPort, ...]
    outputs: tuple[DynamicPort, ...]
    by_value: tuple[int, ...]
    """Arguments whose values sizes follow from: integers, whose shapes are known."""
    calls: tuple[Call, ...]
    modules: tuple[Module, ...]
    """Of each call."""


def read_calls(module: Module, options: CompileOptions, shapes: Shapes | None) -> Unknown | None:
    """The function `options.entry` refined for calls; None where it has no unknown dimensions. Raises StableHLOError
    where it cannot have these shapes, or where sizes follow from what it computes; TypeError and ValueError for shapes
    of another kind, and UnsupportedError where there should be shapes and are none."""
    if shapes is None and not has_unknown(module):
        return None
    function = first_platform(pipeline.verified(module, options), Context(module))
    module = with_function(module, function)
    arguments = function.block().arguments
    if not any(map(is_dynamic, arguments)):
        found = refined_module(module, options.entry, [a.type for a in arguments], {})
        if not has_unknown(found):
            if shapes is not None:
                raise ValueError(f"shapes: @{options.entry} has no unknown dimensions")
            return None
        if shapes is None:
            _refuse_computed(found, options)
            return None  # what else is unknown, lowering knows, or refuses
    if shapes is None:
        first = next(i for i, a in enumerate(arguments) if is_dynamic(a))
        what = f"argument {first} (%{arguments[first].name}) is of type {type_text(arguments[first].type)}"
        hint = "say for which shapes there shall be code: shapes=[...] of shlo_jit.export, --shapes of shlo-jit export"
        raise UnsupportedError(diagnose(f"{what}: its dimensions are not all known", function.span, hint=hint))
    return _refined(module, function, options, shapes)


def _refined(module: Module, function: Op, options: CompileOptions, shapes: Shapes) -> Unknown:
    arguments = function.block().arguments
    inputs = tuple(_port(a.name, a.type, f"argument {i} (%{a.name})", function) for i, a in enumerate(arguments))
    results = function_type(function).results
    outputs = tuple(_port("", t, f"result {i}", function) for i, t in enumerate(results))
    given = [_read_call(n, arguments, call) for n, call in enumerate(shapes)]
    modules = [_refined_call(module, options, n, types, {}) for n, (types, _) in enumerate(given)]
    by_value: tuple[int, ...] = ()
    if any(map(has_unknown, modules)):
        by_value = _by_value(arguments, [values for _, values in given])
        if by_value:
            modules = [_refined_call(module, options, n, *call) for n, call in enumerate(given)]
    for refined in modules:
        _refuse_computed(refined, options)
    if not by_value and not any(map(is_dynamic, arguments)):
        raise ValueError(f"shapes: @{options.entry} has no unknown dimensions")
    calls = [
        Call(_sizes(inputs, types), tuple(values[i].tobytes() for i in by_value)) for types, values in given
    ]  # fmt: skip
    for n, call in enumerate(calls):
        if call in calls[:n]:
            raise ValueError(f"shapes: call {n} is call {calls.index(call)} again")
    return Unknown(inputs, outputs, by_value, tuple(calls), tuple(modules))


def _read_call(number: int, arguments: Sequence[Value], call: object) -> tuple[list[Type], dict[int, np.ndarray]]:
    """Types, and values of arguments that are given as arrays, in those arguments' element types."""
    try:
        types, values = read_shapes(arguments, call)
        return types, {i: _cast(i, arguments[i], array) for i, array in values.items()}
    except (TypeError, ValueError) as error:
        raise type(error)(f"call {number} of shapes: {str(error).removeprefix('shapes: ')}") from None


def _cast(index: int, argument: Value, array: np.ndarray) -> np.ndarray:
    dtype = argument.tensor.storage.numpy
    cast = array.astype(dtype)
    if array.dtype != dtype and (array.dtype.kind not in "iu" or not np.array_equal(cast, array)):
        raise ValueError(f"argument {index} (%{argument.name}): expected values of {dtype.name}, got {array!r}")
    return cast


def _refined_call(
    module: Module, options: CompileOptions, number: int, types: Sequence[Type], values: Mapping[int, np.ndarray]
) -> Module:
    try:
        return refined_module(module, options.entry, types, values)
    except VerifyError as error:
        notes = [replace(d, message=f"{d.message} (for call {number} of shapes)") for d in error.diagnostics]
        raise VerifyError(notes) from None


def _by_value(arguments: Sequence[Value], values: Sequence[Mapping[int, np.ndarray]]) -> tuple[int, ...]:
    """Arguments whose values are given. Raises ValueError where only some calls have them."""
    found = tuple(sorted({i for call in values for i in call}))
    for number, call in enumerate(values):
        missing = next((i for i in found if i not in call), None)
        if missing is not None:
            what = f"call {number} of shapes: argument {missing} (%{arguments[missing].name})"
            raise ValueError(f"{what}: expected an array with its values, as in other calls")
    return found


def _sizes(inputs: Sequence[DynamicPort], types: Sequence[Type]) -> tuple[int, ...]:
    """Those that are unknown in `inputs`."""
    found: list[int] = []
    for port, type in zip(inputs, types, strict=True):
        assert isinstance(type, TensorType)
        found += (n for n, known in zip(type.extents, port.shape, strict=True) if known is None)
    return tuple(found)


def _refuse_computed(module: Module, options: CompileOptions) -> None:
    """Refuse a refined program with sizes that are still to be computed, at the first op that waits for one. Raises
    UnsupportedError."""
    function = module.function(options.entry)
    if function is None or not has_unknown(module):
        return
    whole = inline_all(module, function, options.calls.__contains__)
    waiting = set(sizes_to_compute(whole))
    op = _first_waiting(whole.block(), waiting)
    if op is None:
        return  # lowering says what is unknown, and where
    message = f"{op.name}: its result's shape follows from values, which are not known when a library is made"
    hint = "where they are those of an argument, give it as an array in shapes" if _reads_argument(whole, op) else ""
    raise UnsupportedError(diagnose(message, op.span, op=op.name, hint=hint))


def _first_waiting(block: Block, sizes: set[Value]) -> Op | None:
    return next((op for op in block.ops if any(op.operands[i] in sizes for i in shape_operands(op))), None)


def _reads_argument(function: Op, op: Op) -> bool:
    """Whether the shape of an op's result follows from an argument of integers."""
    block = function.block()
    needed = {op.operands[i] for i in shape_operands(op)}
    for before in reversed(block.ops[: block.ops.index(op)]):
        if needed.intersection(before.results):
            needed.update(before.operands)
    return any(isinstance(a.type, TensorType) and a.tensor.storage.kind in "iu" for a in needed & {*block.arguments})


def _port(name: str, type: Type, what: str, function: Op) -> DynamicPort:
    if not isinstance(type, TensorType) or type.shape is None:
        message = f"{what} is of type {type_text(type)}; a function of a library has tensors of known rank"
        raise UnsupportedError(diagnose(message, function.span))
    return DynamicPort(name, type.shape, type.storage, type.bounds)
