"""Fold comparisons that follow from the ranges of counters, such as checks of negative indices that frontends write.

Needs: static shapes. Guarantees: nothing. What such a comparison selects is folded, too.

    while i < 10 { j = select(i < 0, i + 10, i); ... }   ->   while i < 10 { j = i; ... }
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.simplify import simplify
from shlo_jit.passes.states.known_ranges import Ranges


def known_comparisons(function: Op, context: Context) -> Op:
    """The function without such comparisons inside of loops."""
    loops = [op for op in walk(function.block()) if op.name == "stablehlo.while"]
    if not loops:
        return function
    ranges = Ranges(function.block())
    found: dict[Op, bool] = {}
    for loop in loops:
        for op in walk(loop.block(1)):
            decided = ranges.decided(op)
            if decided is not None and op.result.tensor.is_fixed:
                found[op] = decided

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        return [mk.splat_like(rw, op.result, found[op])] if op in found else None

    return simplify(rewrite(function, visit), context) if found else function
