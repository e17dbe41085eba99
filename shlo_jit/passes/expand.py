"""Expand rare ops into core ops: CHLO's compound ones, batch_norm_*, deprecated forms.

Needs: inlined functions. Guarantees: ops named in `EXPANSIONS` are gone. Each rule shows its equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.ir.core import Op, Value
from shlo_jit.passes.rewriter import Rewriter, rewrite

Expansion = Callable[[Rewriter, Op, list[Value]], Sequence[Value]]


def _square(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """square(x) = x * x"""
    return rw.emit("stablehlo.multiply", [operands[0], operands[0]], [op.result.type])


EXPANSIONS: dict[str, Expansion] = {
    "chlo.square": _square,
}


def expand(function: Op) -> Op:
    """The function with every expandable op replaced, and what they expand to expanded in turn."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        rule = EXPANSIONS.get(op.name)
        return None if rule is None else rule(rw, op, operands)

    return rewrite(function, visit)
