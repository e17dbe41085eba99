"""Several iterations of a loop on a tile: its states stay in registers from the first iteration to the last.

Scalars are the same for all vectors of the tile. They are computed once per iteration on each tile, and each tile
writes the last ones, all the same. Or they come from a table that is filled before the first tile (`scalar_table.py`).
Loop-invariant values are computed before the first iteration.
"""

from __future__ import annotations

from functools import reduce

from shlo_jit.fuse.nest import Key, Nest, Store
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import ORIGIN
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.elements.registers import Reg, flatten, regroup, widen
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.scratch import Fields
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.scalar_table import COUNT, unchanged

State = tuple[Value, Store]


def write_interchanged(
    b: Builder, ev: Evaluator, positions: list[Position], schedule: NestSchedule, table: Fields | None
) -> None:
    """Emits at least one and at most the schedule's number of iterations on the vectors at `positions`. `table`: the
    scalars of these iterations, if they have been computed."""
    interchange = ev.nest.interchange
    assert interchange is not None
    wide, scalars = _states(ev.nest)[0], _Scalars(b, ev) if table is None else _FromTable(b, ev, schedule, table)
    of_elements = bool(interchange.again[1].index)
    fixed = unchanged(ev.nest)
    for p in positions:
        hoist(ev, p, [(s.value, s.at) for _, s in wide], fixed)
    starts = [scalars.starts()]
    starts += [[widen(b, ev.value(p, (v, s.at)), p.width) for v, s in wide] for p in positions]
    with b.repeat([i64(0), *flatten([r for group in starts for r in group])], "iteration") as loop:
        done, *old = loop.values
        first, *rest = regroup(old, starts)
        now, after = scalars.iteration(done, first)
        new = [after]
        changed: list[V] = []
        for p, group in zip(positions, rest, strict=True):
            here = iterate(p, now, wide, group)
            new.append([widen(b, ev.value(here, (s.value, s.at)), p.width) for _, s in wide])
            if of_elements:
                changed.append(any_of(b, widen(b, ev.value(here, interchange.again), p.width), p))
        done = b.add(done, 1)
        again = reduce(b.or_, changed) if of_elements else scalars.again(after)
        loop.again = b.and_(again, b.icmp("slt", done, scalars.limit(schedule.most_iterations)))
        loop.next(done, *flatten([r for group in new for r in group]))
    first, *rest = regroup(loop.values[1:], starts)
    for p, group in zip(positions, rest, strict=True):
        store(ev, p, wide, group)
    scalars.store(first)


def write_scalars(b: Builder, ev: Evaluator, schedule: NestSchedule, table: Fields) -> None:
    """Emits the scalars of at least one and at most the schedule's number of iterations: writes to `table` those that
    elements are computed from, then the number of iterations, and stores the states that remain."""
    assert schedule.scalar_table is not None
    scalars = _Scalars(b, ev)
    starts = scalars.starts()
    with b.repeat([i64(0), *flatten(starts)], "iteration") as loop:
        done, *old = loop.values
        now, after = scalars.iteration(done, regroup(old, [starts])[0])
        for key, address in _places(b, schedule, table):
            ev.store_at(key[0].tensor.storage, address, done, ev.value(now, key))
        done = b.add(done, 1)
        loop.again = b.and_(scalars.again(after), b.icmp("slt", done, schedule.most_iterations))
        loop.next(done, *flatten(after))
    b.store(loop.values[0], table[COUNT])
    scalars.store(regroup(loop.values[1:], [starts])[0])


def _states(nest: Nest) -> tuple[list[State], list[State]]:
    """The states that are tensors, and the scalars."""
    assert nest.interchange is not None
    states = list(zip(nest.interchange.states, nest.stores, strict=True))
    return [s for s in states if s[1].index], [s for s in states if not s[1].index]


def _places(b: Builder, schedule: NestSchedule, table: Fields) -> list[tuple[Key, V]]:
    """The values of the table, with the addresses of their arrays."""
    assert schedule.scalar_table is not None
    return [(key, table[f"scalar {i}"]) for i, key in enumerate(schedule.scalar_table.values)]


class _Scalars:
    """The scalars of a loop, carried from iteration to iteration."""

    def __init__(self, b: Builder, ev: Evaluator):
        assert ev.nest.interchange is not None
        self.b, self.ev = b, ev
        self.condition = ev.nest.interchange.again
        self.states = _states(ev.nest)[1]
        self.common = Position({}, 1)
        roots = [(s.value, s.at) for _, s in self.states]
        roots += [self.condition] if not self.condition[1].index else []
        hoist(ev, self.common, roots, unchanged(ev.nest))

    def starts(self) -> list[Reg]:
        return [self.ev.value(self.common, (v, ORIGIN)) for v, _ in self.states]

    def iteration(self, done: V, values: list[Reg]) -> tuple[Position, list[Reg]]:
        """The position of an iteration that begins with `values`, and the next values."""
        now = self.common.child()
        for (v, _), x in zip(self.states, values, strict=True):
            now.memo[v, ORIGIN] = x
        return now, [self.ev.value(now, (s.value, s.at)) for _, s in self.states]

    def again(self, values: list[Reg]) -> V:
        """Whether there is an iteration that begins with `values`."""
        following = self.common.child()
        for (v, _), x in zip(self.states, values, strict=True):
            following.memo[v, ORIGIN] = x
        found = self.ev.value(following, self.condition)
        assert isinstance(found, V)
        return found

    def limit(self, most: int) -> V:
        return i64(most)

    def store(self, values: list[Reg]) -> None:
        store(self.ev, self.common, self.states, values)


class _FromTable(_Scalars):
    """The scalars that elements are computed from, in a table."""

    def __init__(self, b: Builder, ev: Evaluator, schedule: NestSchedule, table: Fields):
        self.b, self.ev = b, ev
        self.places = _places(b, schedule, table)
        self.count = b.load("i64", table[COUNT])

    def starts(self) -> list[Reg]:
        return []

    def iteration(self, done: V, values: list[Reg]) -> tuple[Position, list[Reg]]:
        now = Position({}, 1)
        for key, address in self.places:
            now.memo[key] = self.ev.load_at(key[0].tensor.storage, address, done, None)
        return now, []

    def again(self, values: list[Reg]) -> V:
        return V("i1", "true")

    def limit(self, most: int) -> V:
        return self.count

    def store(self, values: list[Reg]) -> None:
        """The states have been stored with the table."""


def iterate(p: Position, now: Position, wide: list[State], old: list[Reg]) -> Position:
    """The position of a vector with its states in an iteration; `now` has the scalars of the iteration."""
    here = Position(p.variables, p.width, p.mask, now)
    here.memo |= p.memo
    for (v, s), x in zip(wide, old, strict=True):
        here.memo[v, s.at] = x
    return here


def any_of(b: Builder, predicate: Reg, p: Position) -> V:
    """Whether a predicate is true for any element of a vector."""
    assert isinstance(predicate, V)
    return b.reduce("or", predicate if p.mask is None else b.and_(predicate, p.mask))


def store(ev: Evaluator, p: Position, states: list[State], values: list[Reg]) -> None:
    """Writes the states of a vector, or the scalars."""
    for (_, s), x in zip(states, values, strict=True):
        here = Position(p.variables, p.width, p.mask)
        here.memo[s.value, s.at] = x
        ev.store(here, s)


def hoist(ev: Evaluator, position: Position, roots: list[Key], fixed: set[Key]) -> None:
    """Computes the loop-invariant values."""
    seen, todo = set[Key](), list(roots)
    while todo:
        key = todo.pop()
        if key in seen:
            continue
        seen.add(key)
        if key in fixed:
            ev.value(position, key)
        elif key in ev.nest.nodes:
            todo += ev.nest.nodes[key].operands
