"""Make the layouts of custom calls explicit.

Needs: nothing. Guarantees: the operands and results of custom calls are row-major. One with another layout becomes an
explicit transpose of the program's value, which can be fused like any other. `operand_orders` and `result_orders`
record the order of the dimensions, for callables that want the value as the program has it.

    custom_call @lapack_spotrf_ffi(%x) {operand_layouts = [dense<[0, 1]>], ...}   # column-major: minor to major
    ->
    %t = transpose %x, dims = [1, 0];  %y = custom_call @lapack_spotrf_ffi(%t) {operand_orders = [[1, 0]], ...}
    transpose %y, dims = [1, 0]
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.attributes import DenseArray, as_ints
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite


def explicit_layouts(function: Op, _: Context) -> Op:
    """The function with row-major custom calls."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.custom_call" or op.attributes.get("operand_layouts") is None:
            return None
        return _row_major(rw, op, operands)

    return rewrite(function, visit)


def _row_major(rw: Rewriter, op: Op, operands: list[Value]) -> list[Value]:
    orders = [_major_to_minor(layout) for layout in op.attributes["operand_layouts"]]
    moved = [_transpose(rw, v, order) for v, order in zip(operands, orders, strict=True)]
    results = [_major_to_minor(layout) for layout in op.attributes["result_layouts"]]
    types = []
    for result, order in zip(op.results, results, strict=True):
        t = result.type
        if isinstance(t, TensorType) and t.is_static:
            t = tensor(tuple(t.extents[d] for d in order), t.dtype)
        types.append(t)
    attributes = {k: v for k, v in op.attributes.items() if k not in ("operand_layouts", "result_layouts")}
    if any(list(order) != sorted(order) for order in (*orders, *results)):
        attributes["operand_orders"] = tuple(DenseArray("i64", order) for order in orders)
        attributes["result_orders"] = tuple(DenseArray("i64", order) for order in results)
    out = rw.emit(op.name, moved, types, attributes)
    return [_transpose(rw, v, _inverse(order)) for v, order in zip(out, results, strict=True)]


def _major_to_minor(layout: object) -> tuple[int, ...]:
    """Returns the dimensions in memory order, major to minor; a layout names them minor to major."""
    return tuple(reversed(as_ints(layout)))


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))


def _transpose(rw: Rewriter, value: Value, order: tuple[int, ...]) -> Value:
    """Transposes a value; a token stays as it is."""
    return mk.transpose(rw, value, order) if isinstance(value.type, TensorType) else value
