"""Values that come from one operand or another, depending on their place (see `fuse/choices.py`)."""

from __future__ import annotations

from shlo_jit.fuse.choices import CHOICES, UPDATE
from shlo_jit.fuse.nest import Key, Node
from shlo_jit.ir.index import Condition
from shlo_jit.lower.nest.position import Position


def candidates(position: Position, key: Key, node: Node) -> list[Key]:
    """The operands that a value may come from here; for an op that does not choose, all of them."""
    if node.op.name not in CHOICES:
        return node.operands
    found: list[Key] = []
    operands = node.operands[: 2 if node.op.name == UPDATE else None]
    for operand in operands:
        known = [position.truth.get(c) for c in deciding(key, operand)]
        if False not in known:
            found.append(operand)
        if all(known):
            break  # it is this one unless it is an earlier one
    # If it is none of them, the value is not needed here, by a condition that is unknown: any operand will do.
    return found or operands[-1:]


def deciding(key: Key, operand: Key) -> list[Condition]:
    """The conditions under which a value is the operand's, except those under which it is needed."""
    own = set(key[1].conditions)
    return [c for c in operand[1].conditions if c not in own]
