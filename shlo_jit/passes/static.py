"""Refuse what is not static.

Needs: expanded ops (shapes that are computed from constants are known by then). Guarantees: every tensor's extents are
known.
"""

from __future__ import annotations

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import TensorType


def require_static(function: Op) -> Op:
    """Refuse extents that are still unknown: this compiler needs static shapes. Raises UnsupportedError."""
    for i, argument in enumerate(function.block().arguments):
        if is_dynamic(argument):
            message = f"argument {i} (%{argument.name}) has dynamic dimensions; only static shapes can be compiled yet"
            raise UnsupportedError(diagnose(message, function.span))
    for op in walk(function.block()):
        if any(is_dynamic(r) for r in op.results):
            message = f"{op.name}: the result has dynamic dimensions; only static shapes can be compiled yet"
            raise UnsupportedError(diagnose(message, op.span))
    return function


def is_dynamic(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.is_static
