"""Promote the operands of reductions and scatters whose body computes on wider elements.

Needs: inlined functions. Guarantees: operands of a `reduce` and a `scatter` have the element types that its body
computes on. (`reduce_window` and `select_and_scatter` convert what they load.)

    reduce(x : 3xf32, init : f32) by (f64, f64) -> f64     ->     reduce(convert(x) : 3xf64, convert(init) : f64)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import DType, TensorType
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite


def promote(function: Op, _: Context) -> Op:
    """The function with those operands converted."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        wanted = _wanted(op)
        if not _differ(op, wanted):
            return None
        return rw.keep(op, [mk.convert(rw, v, t) for v, t in zip(operands, wanted, strict=True)])

    ops = [op for op in walk(function.block()) if op.name in WANTED]
    return rewrite(function, visit) if any(_differ(op, _wanted(op)) for op in ops) else function


def _differ(op: Op, wanted: list[DType]) -> bool:
    return any(v.tensor.storage != t for v, t in zip(op.operands, wanted, strict=False))


def _wanted(op: Op) -> list[DType]:
    """Returns the element type of each operand, or an empty list for ops that stay unchanged."""
    rule = WANTED.get(op.name)
    static = all(isinstance(v.type, TensorType) and v.type.is_static for v in op.operands)
    return rule(op) if rule is not None and static else []


def _elements(op: Op) -> list[DType]:
    """Returns the element types that the body of an op combines."""
    arguments = op.block().arguments
    return [a.tensor.storage for a in arguments[: len(arguments) // 2]]


def _reduce(op: Op) -> list[DType]:
    return _elements(op) * 2


def _scatter(op: Op) -> list[DType]:
    elements = _elements(op)
    return [*elements, op.operands[len(elements)].tensor.storage, *elements]


WANTED: dict[str, Callable[[Op], list[DType]]] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.scatter": _scatter,
}
