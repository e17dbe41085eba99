"""Remove the operands of custom calls that specify the shapes of their results.

Needs: nothing. Guarantees: no custom call whose results are static has `indices_of_shape_operands`: implementations of
the target do not expect these operands.

    custom_call @f(%x, %s) {indices_of_shape_operands = dense<1>} : (tensor<2xf32>, tensor<1xi32>) -> tensor<3xf32>
    ->
    custom_call @f(%x) : (tensor<2xf32>) -> tensor<3xf32>
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.dynamic_values import is_dynamic
from shlo_jit.ops.call_record import SHAPES_OF_CALL, items_of_target_operands, own_attributes
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite


def without_shape_operands(function: Op, _: Context) -> Op:
    """The function without those operands."""
    return rewrite(function, _visit) if any(map(_has_them, walk(function.block()))) else function


def _has_them(op: Op) -> bool:
    is_call = op.name == "stablehlo.custom_call" and SHAPES_OF_CALL in op.attributes
    return is_call and not any(map(is_dynamic, op.results))


def _visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    if not _has_them(op):
        return None
    return rw.emit(op.name, items_of_target_operands(op, operands), [r.type for r in op.results], own_attributes(op))
