"""Refuse values that are not tensors, and shapes that are not static: this compiler needs static shapes.

Needs: expanded ops (shapes that are computed from constants are known by then). Guarantees: every value is a tensor
with known extents; no function, buffer or similar value is left, nor an op whose expansion needs the values of
operands.

    tensor<?x4xf32>   ->   UnsupportedError
"""

from __future__ import annotations

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import TensorType
from shlo_jit.ops import OPS
from shlo_jit.ops.type_algebra import type_text
from shlo_jit.passes.context import Context
from shlo_jit.passes.expand.expand import EXPANDED


def require_static(function: Op, _: Context) -> Op:
    """Returns the function unchanged. Raises UnsupportedError."""
    for i, argument in enumerate(function.block().arguments):
        if not isinstance(argument.type, TensorType):
            what = f"argument {i} (%{argument.name}) is of type {type_text(argument.type)}, not a tensor"
            raise UnsupportedError(diagnose(what, function.span, label="not-a-tensor"))
        if is_dynamic(argument):
            message = f"argument {i} (%{argument.name}) has dynamic dimensions; only static shapes can be compiled yet"
            raise UnsupportedError(diagnose(message, function.span, label="dynamic-dimensions"))
    # Ops of other dialects. Ops with operands come first: a constant next to them is not the cause.
    for op in sorted((op for op in walk(function.block()) if op.name not in OPS), key=lambda op: not op.operands):
        from shlo_jit.text.foreign_dialects import dialect_hint

        what, hint = f"{op.name}: ops of this dialect are not compiled", dialect_hint(op.name)
        raise UnsupportedError(
            diagnose(what, op.span, op=op.name, hint=hint, label="unknown-dialect", code="unsupported.dialect")
        )
    for op in walk(function.block()):
        for result in op.results:
            if not isinstance(result.type, TensorType):
                what = f"{op.name}: the result is of type {type_text(result.type)}, not a tensor"
                raise UnsupportedError(diagnose(what, op.span, label="not-a-tensor"))
        require_known_shapes(op)
        require_expanded(op)
    return function


def require_expanded(op: Op) -> None:
    """Refuses an op that should have been expanded by now: its expansion needs operands that are known only at run
    time, such as paddings. Raises UnsupportedError."""
    if EXPANDED.concerns(op.name):
        what = f"{op.name}: the operands with sizes and positions must be constants, but are known only at run time"
        raise UnsupportedError(diagnose(what, op.span, op=op.name, label="operand-not-constant"))


def require_known_shapes(op: Op) -> None:
    """Refuses an op on tensors with dynamic dimensions. Raises UnsupportedError."""
    for what, values in (("result", op.results), ("operand", op.operands)):
        if any(map(is_dynamic, values)):
            message = f"{op.name}: the {what} has dynamic dimensions; only static shapes can be compiled yet"
            raise UnsupportedError(diagnose(message, op.span, label="dynamic-dimensions"))


def is_dynamic(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.is_static
