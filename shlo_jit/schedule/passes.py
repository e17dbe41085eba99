"""A nest with reductions as passes over its rows: which value is computed in which.

Pass 0 walks the row for every reduction whose operands need no other reduction, pass 1 for those that need results of
pass 0, and so on; stores of whole rows happen in the pass where their value is known.
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
    """What it selects, if it does that and its body is not one op."""


class Passes:
    """Of one nest, over the loops of a space."""

    def __init__(self, nest: Nest, space: Space, selections: dict[Op, Selection]):
        self.nest = nest
        self.space = space
        self.selections = selections
        self._inner = set(space.inner)
        self._phases: dict[Key, int] = {}
        self._row: dict[Key, bool] = {}

    def in_row(self, key: Key) -> bool:
        """Whether a value belongs to the row: it does not vary over the reduced variables."""
        found = self._row.get(key)
        if found is None:
            found = self._row[key] = not self.space.depends(key[1], self._inner)
        return found

    def phase(self, key: Key) -> int:
        """Passes that must have run before the value can be computed in (or, for a row's value, after) one."""
        if key in self._phases:
            return self._phases[key]
        todo = [key]
        while todo:  # not by recursion: chains of ops are as deep as programs are long
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
        """The store happens at every turn of the reduced variables."""
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
        """Stores that happen at every turn of pass p."""
        return [s for s in self.nest.stores if self.inside(s) and self.phase((s.value, s.at)) == p]

    def roots(self, p: int) -> list[Key]:
        """What pass p computes."""
        roots = [(s.value, s.at) for s in self.inner_stores(p)]
        return roots + [k for r in self.reductions(p) for k in r.operands]

    @cached_property
    def count(self) -> int:
        """Passes over the row, a last one for what is stored after them included."""
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
