"""Refuse what is no tensor, and what is not static.

Needs: expanded ops (shapes that are computed from constants are known by then). Guarantees: every value is a tensor
with known extents.
"""

from __future__ import annotations

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import TensorType
from shlo_jit.ops.shapes import type_text


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
        if any(is_dynamic(r) for r in op.results):
            message = f"{op.name}: the result has dynamic dimensions; only static shapes can be compiled yet"
            raise UnsupportedError(diagnose(message, op.span))
    return function


def is_dynamic(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.is_static
