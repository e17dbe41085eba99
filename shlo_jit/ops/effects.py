"""Side effects of ops: ops with an effect must not be removed, repeated or reordered."""

from __future__ import annotations

from shlo_jit.ir.core import Block, Op
from shlo_jit.ops.record import OPS


def acts(op: Op) -> bool:
    """Whether the op itself, regardless of its regions, has an effect and must stay in order with other such ops."""
    if op.name in ("stablehlo.custom_call", "func.call"):
        return bool(op.attributes.get("has_side_effect", False))
    record = OPS.get(op.name)
    return record is not None and record.has("side_effect")


def acting(block: Block) -> set[Op]:
    """Returns the ops of a block and of nested regions that have an effect, either their own or in their regions."""
    found: set[Op] = set()

    def note(block: Block) -> bool:
        any_acts = False
        for op in block.ops:
            if any([acts(op), *(note(b) for r in op.regions for b in r.blocks)]):
                found.add(op)
                any_acts = True
        return any_acts

    note(block)
    return found
