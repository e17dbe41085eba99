"""Conditions under which a block is reached: sums of products of the conditions of branches.

A mask is a set of terms, at least one of which holds. A term is a set of (condition, whether it holds), all of which
hold. A condition is the name of an i1 in the function, or an edge: the loop was left along it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from shlo_jit.custom.lift.loops import Edge, Level
from shlo_jit.custom.lift.read import Function, Literal
from shlo_jit.custom.llvm_text import Refused

Condition = str | Edge
Term = frozenset[tuple[Condition, bool]]
Mask = frozenset[Term]

NEVER: Mask = frozenset()
ALWAYS: Mask = frozenset((frozenset(),))
MAX_TERMS = 64


def any_of(masks: Iterable[Mask]) -> Mask:
    """Returns the mask that holds if one of the masks does."""
    terms = set(itertools.chain.from_iterable(masks))
    while True:
        merged = _merged(terms)
        if merged is None:
            return frozenset(terms)
        terms = merged


def _merged(terms: set[Term]) -> set[Term] | None:
    """Returns the terms with two merged: a + a b = a, a b + a !b = a, a + !a b = a + b. Returns None if there are no
    such two."""
    if len(terms) > MAX_TERMS:
        raise Refused("too-many-branches", "its branches join in too many combinations")
    for a, b in itertools.permutations(terms, 2):
        if a < b:
            return terms - {b}
        if len(a) <= len(b):
            for condition, holds in a:
                opposite = (condition, not holds)
                if opposite in b and a - {(condition, holds)} <= b - {opposite}:
                    return (terms - {b}) | {b - {opposite}}
    return None


def both(a: Mask, b: Mask) -> Mask:
    """Returns the mask that holds if both do."""
    products = (x | y for x in a for y in b)
    return any_of([frozenset(p for p in products if not any((c, not holds) in p for c, holds in p))])


def conditions(mask: Mask) -> set[Condition]:
    """Returns the conditions that a mask depends on."""
    return {condition for term in mask for condition, _ in term}


class Masks:
    """Masks of a function's blocks and edges."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._known: dict[tuple[int, str, str], Mask] = {}

    def reach(self, level: Level, node: str, since: str) -> Mask:
        """Returns when a node is reached, given that `since`, which dominates it, is."""
        if node == since:
            return ALWAYS
        key = (id(level), node, since)
        if key not in self._known:
            above = level.dominator[node]
            here = any_of(self.edge(level, e, above) for e in level.edges[node])
            self._known[key] = here if above == since else both(self.reach(level, above, since), here)
        return self._known[key]

    def edge(self, level: Level, edge: Edge, since: str) -> Mask:
        """Returns when an edge is taken, given that `since`, which dominates its start, is reached."""
        node = level.node(edge[0]) if level.entry != edge[0] else edge[0]
        return both(self.reach(level, node, since), self._taken(level, edge, node))

    def _taken(self, level: Level, edge: Edge, node: str) -> Mask:
        """Returns when an edge is taken, given that the node where it starts was executed."""
        if node in level.inner and node != level.entry:
            first, *others = level.inner[node].exits
            if edge == first:
                return frozenset((frozenset((other, False) for other in others),))
            return frozenset((frozenset(((edge, True),)),))
        block = self.function.blocks[edge[0]]
        if len(set(block.targets)) == 1:
            return ALWAYS
        holds = block.targets[0] == edge[1]
        if isinstance(block.condition, Literal):
            return ALWAYS if bool(block.condition.value) == holds else NEVER
        return frozenset((frozenset(((block.condition, holds),)),))
