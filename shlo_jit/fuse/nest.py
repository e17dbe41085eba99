"""A nest: one loop nest over one index space, with everything that is computed in it.

`extents` are the ranges of the loop variables. Variables in `reduce_vars` are reduced (by the body of any reduce); the
others span the rows. A nest without reduce variables is a plain loop. A value that depends only on row variables is
computed once per row. Values are computed at an `At` (ir/index.py), and one value may be computed at several places.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import ORIGIN, At, Expr
from shlo_jit.sizes import equal, surely

Key = tuple[Value, At]


def is_wide(extent: int) -> bool:
    """Whether a loop has, or may have, more than one iteration; its extent may be known only at the call."""
    return not surely(lambda: extent <= 1)


@dataclass
class Node:
    """A fused computation: the op, and the places of its operands."""

    op: Op
    operands: list[Key]


@dataclass
class Store:
    """Write `value` computed at `at` into the buffer of `target` at `index`."""

    value: Value
    at: At
    target: Value
    index: tuple[Expr, ...]


@dataclass(eq=False)
class Interchange:
    """Interchange of a nest that is the body of a `while`: several iterations of the loop run on each tile before the
    next tile."""

    states: list[Value]
    """The body's arguments for the states: `stores[i]` writes the next value of `states[i]`, which is only read at the
    same place. Scalars come last, and depend only on scalars."""
    again: Key
    """Whether there is another iteration, computed from the next scalars. Or, at the place of the states: whether an
    element is still active. A tile ends when none of its elements is."""
    count: int | None
    """Trip count of the whole loop, or None if it is not known."""


@dataclass(eq=False)
class Nest:
    extents: list[int]
    reduce_vars: tuple[int, ...] = ()
    nodes: dict[Key, Node] = field(default_factory=dict)
    """Fused computations, consumers before producers."""
    loads: dict[Key, None] = field(default_factory=dict)
    stores: list[Store] = field(default_factory=list)
    overwrites: Value | None = None
    """The store target must hold this value's elements before the nest runs (dynamic_update_slice)."""
    after: Value | None = None
    """Another nest writes the rest of the target before this one does (pad's fill)."""
    interchange: Interchange | None = None
    pending: dict[Value, list[At]] = field(default_factory=dict)
    """While fusing: operands that are read, with their places, whose producers are not decided yet."""

    @property
    def rows(self) -> int:
        n = 1
        for v, e in enumerate(self.extents):
            if v not in self.reduce_vars:
                n *= e
        return n

    @property
    def reduced(self) -> int:
        n = 1
        for v in self.reduce_vars:
            n *= self.extents[v]
        return n

    def request(self, value: Value, at: At) -> None:
        """Adds an operand to the pending ones, once per place."""
        if (value, at) in self.nodes or (value, at) in self.loads:
            return
        places = self.pending.setdefault(value, [])
        if at not in places:
            places.append(at)

    def add_var(self, extent: int) -> int:
        self.extents.append(extent)
        return len(self.extents) - 1

    def split(self, var: int, factor: int) -> None:
        """Splits a variable: variable -> outer * factor + inner; `var` becomes the outer one."""
        inner = len(self.extents)
        self.extents[var] //= factor
        self.extents.append(factor)
        if var in self.reduce_vars:
            at = self.reduce_vars.index(var) + 1
            self.reduce_vars = (*self.reduce_vars[:at], inner, *self.reduce_vars[at:])
        outer = Expr(0, ((var, factor),)) if is_wide(self.extents[var]) else ix.ZERO
        table = {var: ix.add(outer, ix.variable(inner, factor))}
        memo: dict[At, At] = {}

        def move(at: At) -> At:
            if at not in memo:
                memo[at] = ix.substitute(at, table)
            return memo[at]

        def key(k: Key) -> Key:
            return k[0], move(k[1])

        self.nodes = {key(k): Node(n.op, [key(o) for o in n.operands]) for k, n in self.nodes.items()}
        self.loads = {key(k): None for k in self.loads}
        self.pending = {v: [move(a) for a in ats] for v, ats in self.pending.items()}
        for s in self.stores:
            s.at, s.index = move(s.at), move(At(s.index)).index

    def order(self) -> list[int]:
        """Returns the variables, outermost first: rows in the order of the first store, then the reduced ones in
        order."""
        lead = self.stores[0]
        weight = ix.linearize(lead.index, lead.target.tensor.extents)
        rows = [v for v in range(len(self.extents)) if v not in self.reduce_vars and not equal(self.extents[v], 1)]
        rows.sort(key=lambda v: -abs(weight.coefficient(v)))
        return [*rows, *(v for v in self.reduce_vars if not equal(self.extents[v], 1))]


def space_of(nest: Nest, shape: tuple[int, ...]) -> At:
    """Adds a variable per dimension. Returns the place (i0, i1, ...)."""
    return At(tuple(ix.variable(nest.add_var(n), n) for n in shape))


def covers(nest: Nest, at: At, shape: tuple[int, ...], of_part: bool = False) -> set[int] | None:
    """Returns the variables of a place if they enumerate each of its elements exactly once, else None. `of_part`: each
    element of a slice of the value along some dimensions."""
    if at.conditions:
        return None
    seen: set[int] = set()
    for e, n in zip(at.index, shape, strict=True):
        if equal(n, 1):
            continue
        if e.syms or not (of_part or (e.terms and e.const == 0)):
            return None
        # terms must nest like digits: 12 * 64 = outer * 64 + inner
        size = 1
        for v, c in sorted(e.terms, key=lambda t: t[1]):
            if not equal(c, size) or v in seen:
                return None
            seen.add(v)
            size *= nest.extents[v]
        if not (of_part or equal(size, n)):
            return None
    return seen


__all__ = ["ORIGIN", "Interchange", "Key", "Nest", "Node", "Store", "covers", "is_wide", "space_of"]
