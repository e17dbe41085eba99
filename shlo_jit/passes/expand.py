"""Expand rare ops into core ops: CHLO's compound ones, batch_norm_*, products by other names, deprecated forms.

Needs: inlined functions. Guarantees: ops named in `EXPANSIONS` are gone, as far as their shapes are static (a rule that
cannot say anything leaves the op alone). The rules stand in `expand_*.py` by family; each shows its equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.passes import (
    expand_chlo,
    expand_contract,
    expand_data,
    expand_dynamic,
    expand_norm,
    expand_random,
    expand_rng,
    expand_shapes,
)
from shlo_jit.passes.rewriter import Rewriter, rewrite

Expansion = Callable[[Rewriter, Op, list[Value]], "Sequence[Value] | None"]

EXPANSIONS: dict[str, Expansion] = {
    **expand_chlo.RULES,
    **expand_contract.RULES,
    **expand_data.RULES,
    **expand_dynamic.RULES,
    **expand_norm.RULES,
    **expand_random.RULES,
    **expand_rng.RULES,
    **expand_shapes.RULES,
}
ROUNDS = 4
"""An expansion may give ops that expand in turn; none goes deeper."""


def expand(function: Op) -> Op:
    """The function with every expandable op replaced, and what they expand to expanded in turn."""
    for _ in range(ROUNDS):
        changed = False

        def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
            nonlocal changed
            rule = EXPANSIONS.get(op.name)
            found = None if rule is None else rule(rw, op, operands)
            changed = changed or found is not None
            return found

        if not any(op.name in EXPANSIONS for op in walk(function.block())):
            break
        expanded = rewrite(function, visit)
        if not changed:
            break
        function = expanded
    return function
