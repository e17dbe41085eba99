"""Which values differ from element to element, and which loops turn as often for all elements.

A value that follows from constants and numbers alone is a number; where loops and branches do, they are so too, and a
program's loop over such a number runs tile by tile. All elements that turn in a loop are in the same turn, so what it
counts is a number in it, even where they leave it in different turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shlo_jit.custom.lift.loops import Level, walk
from shlo_jit.custom.lift.masks import Condition, Masks, conditions
from shlo_jit.custom.lift.read import Function, Instruction


@dataclass
class Varying:
    """`names` of values, and loops, with their edges out, as conditions."""

    names: set[Condition] = field(default_factory=set)
    loops: set[str] = field(default_factory=set)
    """Headers."""


def varying(function: Function, top: Level, masks: Masks, tensors: set[str]) -> Varying:
    """What varies where the arguments `tensors` do."""
    unknown = _spread(function, top, masks, set(function.arguments), None)
    return _spread(function, top, masks, tensors, unknown)


def _spread(function: Function, top: Level, masks: Masks, seeds: set[str], unknown: Varying | None) -> Varying:
    """What follows from some arguments. `unknown`: what follows from any: only a loop that is known to end may turn
    for elements that do not reach it."""
    found = Varying({*seeds})
    while True:
        before = len(found.names), len(found.loops)
        for level in walk(top):
            if level is not top and _differs(level, masks, found, unknown):
                found.loops.add(level.entry)
                found.names.update(level.exits)
            for node in level.order:
                block = function.blocks[node]
                if node not in level.inner or node == level.entry:
                    found.names.update(i.name for i in block.body if _reads(i, found))
                    found.names.update(p.name for p in block.phis if _reads(p, found))
                if node != level.entry and node not in level.inner and _meets(level, node, masks, found):
                    found.names.update(p.name for p in block.phis if len(set(map(str, p.operands))) > 1)
                    edges = level.edges[node]
                    if any(level.node(e[0]) in found.loops for e in edges):
                        found.names.update(p.name for p in block.phis)
        if (len(found.names), len(found.loops)) == before:
            return found


def _reads(instruction: Instruction, found: Varying) -> bool:
    return any(isinstance(o, str) and o in found.names for o in instruction.operands)


def _meets(level: Level, node: str, masks: Masks, found: Varying) -> bool:
    """Whether elements come to a block by different ways, or from a loop that they leave in different turns."""
    above = level.dominator[node]
    ways = {c for e in level.edges[node] for c in conditions(masks.edge(level, e, above))}
    return bool(ways & found.names) or any(level.node(e[0]) in found.loops for e in level.edges[node])


def _differs(loop: Level, masks: Masks, found: Varying, unknown: Varying | None) -> bool:
    """Whether a loop ends for one element and not for another."""
    ways = {c for e in (*loop.exits, (loop.latch, loop.entry)) for c in conditions(masks.edge(loop, e, loop.entry))}
    if ways & found.names:
        return True
    if unknown is None or loop.entry not in unknown.loops:
        return False
    level = loop.parent
    assert level is not None
    if level.parent is not None and level.entry in found.loops:
        return True
    return bool(conditions(masks.reach(level, loop.entry, level.entry)) & found.names)
