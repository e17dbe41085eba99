"""Reductions and scatters whose body is of wider elements than what they are given.

Needs: inlined functions. Guarantees: operands of a `reduce`, `scatter` and `select_and_scatter` have the element types
that its body computes on.

    reduce(x : 3xf32, init : f32) by (f64, f64) -> f64     ->     reduce(convert(x) : 3xf64, convert(init) : f64)

What selects in a `select_and_scatter` still gets elements of the operand's own type: it converts them back, which loses
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.types import DType, TensorType, tensor
from shlo_jit.passes.dots import convert_to
from shlo_jit.passes.rewriter import Rewriter, rewrite


def promote(function: Op) -> Op:
    """The function with those operands converted."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        wanted = _wanted(op)
        if not _differ(op, wanted):
            return None
        operands = [convert_to(rw, v, t) for v, t in zip(operands, wanted, strict=True)]
        results = rw.keep(op, operands)
        if op.name == "stablehlo.select_and_scatter" and results[0].op is not None:
            results[0].op.regions[0] = Region([_on_wider(op.block(0), wanted[0])])
        return results

    ops = [op for op in walk(function.block()) if op.name in WANTED]
    return rewrite(function, visit) if any(_differ(op, _wanted(op)) for op in ops) else function


def _on_wider(block: Block, wide: DType) -> Block:
    """A block that does the same with arguments of a wider type."""
    new = Block([Value(tensor((), wide), name=a.name) for a in block.arguments])
    rw = Rewriter(lambda rw, op, operands: None)
    rw.blocks.append(new)
    for old, a in zip(block.arguments, new.arguments, strict=True):
        rw.values[old] = convert_to(rw, a, old.tensor.storage)
    rw.run(block.ops)
    return new


def _differ(op: Op, wanted: list[DType]) -> bool:
    return any(v.tensor.storage != t for v, t in zip(op.operands, wanted, strict=False))


def _wanted(op: Op) -> list[DType]:
    """The element type of each operand; nothing for ops that are left as they are."""
    rule = WANTED.get(op.name)
    static = all(isinstance(v.type, TensorType) and v.type.is_static for v in op.operands)
    return rule(op) if rule is not None and static else []


def _elements(op: Op, region: int = 0) -> list[DType]:
    """What the body of an op combines."""
    arguments = op.block(region).arguments
    return [a.tensor.storage for a in arguments[: len(arguments) // 2]]


def _reduce(op: Op) -> list[DType]:
    return _elements(op) * 2


def _scatter(op: Op) -> list[DType]:
    elements = _elements(op)
    return [*elements, op.operands[len(elements)].tensor.storage, *elements]


def _select_and_scatter(op: Op) -> list[DType]:
    return _elements(op, 1) * 3


WANTED: dict[str, Callable[[Op], list[DType]]] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.scatter": _scatter,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
