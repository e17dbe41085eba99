"""Read the part that an update has just written from the update, not from the updated tensor.

Needs: static shapes. Guarantees: nothing. Programs compute a proposal, read it where it has changed, and then keep it
or not. Without the read, the proposal matters only for the select, which `masked_updates` moves into the update.

    y = dynamic_update_slice(x, u, i); dynamic_slice(y, i) : the type of u   ->   u
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.states.updates import SLICE, UPDATE, same_start


def forwarded_reads(function: Op, _: Context) -> Op:
    """The function with such reads replaced by what has been written."""
    reads = [op for op in walk(function.block()) if op.name == SLICE and _reads_written(op)]
    if not reads:
        return function
    found = {*reads}

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op not in found:
            return None
        update = op.operands[0].op
        assert update is not None
        return [rw.get(update.operands[1])]

    return rewrite(function, visit)


def _reads_written(op: Op) -> bool:
    """Whether a dynamic_slice reads exactly what the update of its operand has written."""
    update = op.operands[0].op
    if update is None or update.name != UPDATE or op.result.type != update.operands[1].type:
        return False
    # The same start is clamped to the same start, since the sizes are equal.
    return all(same_start(a, b) for a, b in zip(op.operands[1:], update.operands[2:], strict=True))

