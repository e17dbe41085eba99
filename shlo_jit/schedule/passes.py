"""Passes of a nest with reductions over its rows, and the values that each of them computes.

Pass 0 traverses the row for every reduction whose operands need no other reduction, pass 1 for those that need results
of pass 0, and so on. Stores of whole rows happen in the pass in which their value is known.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from shlo_jit.fuse.nest import Key, Nest, Store
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import At
from shlo_jit.schedule.selection import Selection
from shlo_jit.schedule.space import Space


class Reduction(NamedTuple):
    """A reduce at one place of a nest."""

    op: Op
    results: list[Key]
    operands: list[Key]
    initial: list[Key]
    selection: Selection | None
    """The selection that it computes, if it is one and its body is not a single op."""


class Passes:
    """The passes of one nest, over the loops of a space."""

    def __init__(self, nest: Nest, space: Space, selections: dict[Op, Selection]):
        self.nest = nest
        self.space = space
        self.selections = selections
        self._inner = set(space.inner)
        self._phases: dict[Key, int] = {}
        self._row: dict[Key, bool] = {}

    def in_row(self, key: Key) -> bool:
        """Whether a value belongs to the row, that is, does not vary over the reduced variables."""
        found = self._row.get(key)
        if found is None:
            found = self._row[key] = not self.space.depends(key[1], self._inner)
        return found

    def phase(self, key: Key) -> int:
        """Number of passes that must have run before the value can be computed: during the next pass, or after them if
        it belongs to the row."""
        if key in self._phases:
            return self._phases[key]
        todo = [key]
        while todo:  # not recursive: chains of ops are as deep as programs are long
            k = todo[-1]
            node = self.nest.nodes.get(k)
            operands = node.operands if node is not None else []
            missing = [o for o in operands if o not in self._phases]
            if missing:
                todo.extend(missing)
                continue
            todo.pop()
            reduces = node is not None and node.op.name == "stablehlo.reduce"
            self._phases[k] = max((self._phases[o] for o in operands), default=0) + int(reduces)
        return self._phases[key]

    def inside(self, store: Store) -> bool:
        """Whether the store happens in every iteration of the reduced variables."""
        return self.space.depends(At(store.index), self._inner)

    @cached_property
    def reduces(self) -> list[Key]:
        """The results of reductions."""
        return [k for k, n in self.nest.nodes.items() if n.op.name == "stablehlo.reduce"]

    def reductions(self, p: int) -> list[Reduction]:
        """Reductions whose operands are known in pass p."""
        found: dict[tuple, Reduction] = {}
        for key in self.reduces:
            node = self.nest.nodes[key]
            if self.phase(key) == p + 1:
                entry = found.get((node.op, tuple(node.operands)))
                if entry is None:
                    n = len(node.op.results)
                    entry = found[node.op, tuple(node.operands)] = Reduction(
                        node.op, [], node.operands[:n], node.operands[n:], self.selections.get(node.op)
                    )
                entry.results.append(key)
        return list(found.values())

    def inner_stores(self, p: int) -> list[Store]:
        """Stores that happen in every iteration of pass p."""
        return [s for s in self.nest.stores if self.inside(s) and self.phase((s.value, s.at)) == p]

    def roots(self, p: int) -> list[Key]:
        """The values that pass p has to compute."""
        roots = [(s.value, s.at) for s in self.inner_stores(p)]
        return roots + [k for r in self.reductions(p) for k in r.operands]

    @cached_property
    def count(self) -> int:
        """Number of passes over the row, including a last one for stores that come after the reductions."""
        stores = [self.phase((s.value, s.at)) for s in self.nest.stores]
        return 1 + max([*stores, *map(self.phase, self.reduces)], default=0)

    def needed(self, roots: list[Key]) -> dict[Key, None]:
        """Values of the inner loops that the roots are computed from, in a fixed order."""
        seen: dict[Key, None] = {}
        todo = list(roots)
        while todo:
            key = todo.pop()
            if key in seen or self.in_row(key):
                continue
            seen[key] = None
            node = self.nest.nodes.get(key)
            todo.extend(node.operands if node is not None else [])
        return seen
