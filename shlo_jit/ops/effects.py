"""Which ops have an effect beside their results, and so must not be removed, repeated or reordered."""

from __future__ import annotations

from shlo_jit.ir.core import Block, Op
from shlo_jit.ops.record import OPS


def acts(op: Op) -> bool:
    """The op itself, whatever its regions do, must stay in order with others of its kind."""
    if op.name in ("stablehlo.custom_call", "func.call"):
        return bool(op.attributes.get("has_side_effect", False))
    record = OPS.get(op.name)
    return record is not None and record.has("side_effect")


def acting(block: Block) -> set[Op]:
    """The ops of a block, and of the regions inside, that have an effect: their own, or of an op in their regions."""
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
