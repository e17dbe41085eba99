"""Finds the values that differ between elements, and the loops whose trip counts do.

A value that depends only on constants and scalars is a scalar. Loops and branches that depend only on scalars are
scalar too, and a program's loop over such a scalar runs tile by tile. All elements that are active in a loop are in the
same iteration. So the loop's counter is a scalar, even if elements leave the loop in different iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shlo_jit.custom.lift.loops import Level, walk
from shlo_jit.custom.lift.masks import Condition, Masks, conditions
from shlo_jit.custom.lift.read import Function, Instruction


@dataclass
class Varying:
    """Conditions that vary (`names` of values, and edges out of loops), and loops."""

    names: set[Condition] = field(default_factory=set)
    loops: set[str] = field(default_factory=set)
    """Headers of loops whose trip counts differ between elements."""


def varying(function: Function, top: Level, masks: Masks, tensors: set[str]) -> Varying:
    """Returns what varies if the arguments `tensors` do."""
    unknown = _spread(function, top, masks, set(function.arguments), None)
    return _spread(function, top, masks, tensors, unknown)


def _spread(function: Function, top: Level, masks: Masks, seeds: set[str], unknown: Varying | None) -> Varying:
    """Returns what depends on the arguments `seeds`. `unknown` is what depends on any argument: only a loop that is
    known to terminate may run for elements that do not reach it."""
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
                if node != level.entry and node not in level.inner and _joins_varying(level, node, masks, found):
                    found.names.update(p.name for p in block.phis if len(set(map(str, p.operands))) > 1)
                    edges = level.edges[node]
                    if any(level.node(e[0]) in found.loops for e in edges):
                        found.names.update(p.name for p in block.phis)
        if (len(found.names), len(found.loops)) == before:
            return found


def _reads(instruction: Instruction, found: Varying) -> bool:
    return any(isinstance(o, str) and o in found.names for o in instruction.operands)


def _joins_varying(level: Level, node: str, masks: Masks, found: Varying) -> bool:
    """Whether elements reach a block by different edges, or from a loop that they leave in different iterations."""
    above = level.dominator[node]
    deciding = {c for e in level.edges[node] for c in conditions(masks.edge(level, e, above))}
    return bool(deciding & found.names) or any(level.node(e[0]) in found.loops for e in level.edges[node])


def _differs(loop: Level, masks: Masks, found: Varying, unknown: Varying | None) -> bool:
    """Whether a loop ends for one element and not for another."""
    deciding = {c for e in (*loop.exits, (loop.latch, loop.entry)) for c in conditions(masks.edge(loop, e, loop.entry))}
    if deciding & found.names:
        return True
    if unknown is None or loop.entry not in unknown.loops:
        return False
    level = loop.parent
    assert level is not None
    if level.parent is not None and level.entry in found.loops:
        return True
    return bool(conditions(masks.reach(level, loop.entry, level.entry)) & found.names)
