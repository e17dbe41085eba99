"""Refuse what is no tensor, what is not static, and what no memory can hold.

`require_static` needs expanded ops (shapes that are computed from constants are known by then) and guarantees: every
value is a tensor with known extents. `require_addressable` looks at the sizes that are known, at any stage.
"""

from __future__ import annotations

import math

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.shapes import type_text

ADDRESS_BITS = 47
"""Of the addresses that a process may use; offsets in bytes of whatever is smaller are far from overflow."""


def require_addressable(function: Op) -> Op:
    """Refuse tensors that are larger than the address space: neither numpy nor a loop over them knows their size.
    Extents of 0 do not make up for others, as in numpy. Raises UnsupportedError."""
    known: dict[int, bool] = {}

    def too_large(t: Type) -> bool:
        if id(t) not in known:
            extents = [n for n in (t.shape if isinstance(t, TensorType) else None) or () if n]
            known[id(t)] = bool(extents) and math.prod(extents) * t.storage.itemsize >= 1 << ADDRESS_BITS  # type: ignore[union-attr]
        return known[id(t)]

    for i, argument in enumerate(function.block().arguments):
        if too_large(argument.type):
            what = f"argument {i} (%{argument.name}) of type {type_text(argument.type)}"
            raise UnsupportedError(diagnose(f"{what} {_TOO_LARGE}", function.span))
    for op in walk(function.block()):
        for result in op.results:
            if too_large(result.type):
                what = f"{op.name}: the result of type {type_text(result.type)}"
                raise UnsupportedError(diagnose(f"{what} {_TOO_LARGE}", op.span))
    return function


_TOO_LARGE = f"has 2^{ADDRESS_BITS} bytes or more, which is more than a process can address"


def require_static(function: Op) -> Op:
    """Refuse values that are still functions, buffers or the like, and extents that are still unknown: this compiler
    needs static shapes. Raises UnsupportedError."""
    for i, argument in enumerate(function.block().arguments):
        if not isinstance(argument.type, TensorType):
            what = f"argument {i} (%{argument.name}) is of type {type_text(argument.type)}, not a tensor"
            raise UnsupportedError(diagnose(what, function.span))
        if is_dynamic(argument):
            message = f"argument {i} (%{argument.name}) has dynamic dimensions; only static shapes can be compiled yet"
            raise UnsupportedError(diagnose(message, function.span))
    for op in walk(function.block()):
        for result in op.results:
            if not isinstance(result.type, TensorType):
                what = f"{op.name}: the result is of type {type_text(result.type)}, not a tensor"
                raise UnsupportedError(diagnose(what, op.span))
        require_known_shapes(op)
    return require_addressable(function)


def require_known_shapes(op: Op) -> None:
    """Refuse an op on tensors with dynamic dimensions. Raises UnsupportedError."""
    for what, values in (("result", op.results), ("operand", op.operands)):
        if any(map(is_dynamic, values)):
            message = f"{op.name}: the {what} has dynamic dimensions; only static shapes can be compiled yet"
            raise UnsupportedError(diagnose(message, op.span))


def is_dynamic(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.is_static
