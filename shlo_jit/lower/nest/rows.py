"""Code inside a row of a nest: passes over the reduced variables, then the row's stores.

Pass 0 traverses the row for every reduction whose operands need no other reduction, pass 1 for those that need results
of pass 0, and so on. Stores of whole rows happen in the pass in which their value is known. Softmax is three passes
over
a row that stays in the cache.

Lanes run along a reduced variable (then several vectors accumulate and are combined in a fixed tree) or along rows
(then every lane is a separate row, with its elements taken in order).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.fuse.nest import Key, Store
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.elements.reducers import across
from shlo_jit.lower.elements.registers import (
    Reg,
    flatten,
    lanes_left,
    map_parts,
    put_lane,
    regroup,
    select_lanes,
    widen,
)
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.interleaved import Waiting
from shlo_jit.lower.nest.loop_interchange import write_interchanged
from shlo_jit.lower.nest.partials import Partials
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.nest.reductions import RowReduction, finish, initial_of, nothing_of, row_reductions
from shlo_jit.lower.scratch import Fields
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.sizes import equal

Variables = dict[int, V]
Sum = tuple[Position, RowReduction]
"""A reduction, and the position of its row."""


class RowWriter:
    """Writes the code of rows. `partials` is set in the two functions of a split nest. While `partials.chunk` is set,
    the row is that chunk's part of it, and its accumulators are saved. Otherwise they are loaded and the row is
    finished."""

    def __init__(self, b: Builder, schedule: NestSchedule, evaluator: Evaluator, partials: Partials | None = None):
        self.b = b
        self.schedule = schedule
        self.nest = schedule.nest
        self.passes = schedule.passes
        self.space = schedule.space
        self.ev = evaluator
        self.partials = partials
        self.bounds: dict[int, tuple[V, V]] = {}
        """Ranges of variables that do not run over their whole extent."""
        self.stash: dict[Key, V] = {}
        self.scalars: Fields | None = None
        """The table of an interchanged loop's scalars, if it has one."""
        self.common: Position | None = None
        """The position of what rows that are jammed have in common: the parent of theirs."""
        if (c := schedule.interleaved) is not None:
            evaluator.waiting = Waiting(c, schedule.space.extents[c])

    @property
    def chunked(self) -> bool:
        return self.partials is not None and self.partials.chunk is not None

    def range_of(self, var: int) -> tuple[V, V]:
        return self.bounds.get(var, (i64(0), i64(self.space.extents[var])))

    def row(self, positions: list[Position]) -> None:
        """Emits all code for the rows of `positions`, and the rows interleaved with them."""
        c = self.schedule.interleaved
        if (jammed := self.schedule.jammed) is not None:
            for position in positions:
                self.common = position
                self.one_row([position.child({jammed: i64(k)}) for k in range(self.space.extents[jammed])])
        elif c is None or c not in self.space.rows:
            self.one_row(positions)
        else:
            for position in positions:
                between = [position.child({c: i64(iteration)}) for iteration in range(self.space.extents[c])]
                for rows in [between] if self.schedule.batches_rows else [[row] for row in between]:
                    self.one_row(rows)
        if self.ev.waiting is not None:
            self.ev.waiting.check_done()

    def one_row(self, positions: list[Position]) -> None:
        """Emits the passes in order, then the remaining stores."""
        self.ev.prefetches = self.schedule.prefetches
        if self.schedule.most_iterations:
            write_interchanged(self.b, self.ev, positions, self.schedule, self.scalars)
            return
        if self.chunked:
            self.walk(positions, row_reductions(self.passes, 0), self.passes.inner_stores(0))
            return
        if self.partials is not None:
            self.partials.load(self.ev, positions, row_reductions(self.passes, 0))
        else:
            self.make_stash(positions)
            for p in range(self.passes.count + 1):
                reductions, stores = row_reductions(self.passes, p), self.passes.inner_stores(p)
                if reductions or stores:
                    self.walk(positions, reductions, stores)
        self.store(positions, [s for s in self.nest.stores if not self.passes.inside(s)])

    def store(self, positions: list[Position], stores: list[Store]) -> None:
        """Emits stores. If a result may share memory with an operand, all stored values are computed before the first
        store."""
        if len(stores) > 1 and self.overwrites_own():
            for f in positions:
                for s in stores:
                    self.ev.value(f, (s.value, s.at))
        for s in stores:
            for f in positions:
                self.ev.store(f, s)

    def overwrites_own(self) -> bool:
        """Whether a result shares memory with an operand."""
        read = {self.ev.pointers[value].text for value, _ in self.nest.loads}
        return any(self.ev.pointers[s.target].text in read for s in self.nest.stores)

    # ------------------------------------------------------------------ results kept from pass to pass
    def make_stash(self, positions: list[Position]) -> None:
        """Gives each value that the schedule keeps from pass to pass a row of memory."""
        self.ev.keep, self.ev.kept, self.ev.positions = {}, set(), len(positions)
        for slot, position in enumerate(positions):
            position.slot = slot
        for key, size in self.schedule.stash.items():
            if key not in self.stash:
                self.stash[key] = self.b.alloca("i8", size)
            self.ev.keep[key] = self.stash[key]

    # ------------------------------------------------------------------ one pass
    def walk(self, positions: list[Position], reductions: list[RowReduction], stores: list[Store]) -> None:
        """Emits one pass over the reduced variables."""
        roots = [(s.value, s.at) for s in stores] + [k for r in reductions for k in r.operands]
        if self.common is not None:
            self.hoist(self.common, roots)
        for f in positions:
            self.hoist(f, roots)
        if self.space.vector in self.space.inner:
            self.walk_vectors(positions, reductions, stores)
        else:
            self.walk_serial(positions, reductions, stores)
        needed = self.passes.needed(roots)
        self.ev.kept.update(k for k in needed if k in self.ev.keep)
        self.ev.prefetches = {k: n for k, n in self.ev.prefetches.items() if k not in needed}

    def hoist(self, position: Position, roots: list[Key]) -> None:
        """Computes the values that belong to the row before the pass's loops begin; for rows that are jammed, first
        those that they have in common."""
        seen, todo = set(), list(roots)
        while todo:
            key = todo.pop()
            if key in seen:
                continue
            seen.add(key)
            node = self.nest.nodes.get(key)
            if self.passes.in_row(key):
                is_constant = node is not None and node.op.name == "stablehlo.constant"
                if not is_constant and not (position is self.common and self.is_own(key)):
                    self.ev.value(position, key)
            elif node is not None:
                todo.extend(node.operands)

    def is_own(self, key: Key) -> bool:
        """Whether rows that are jammed do not have a value in common."""
        jammed = self.schedule.jammed
        return jammed is not None and self.space.depends(key[1], {jammed})

    def carry_loops(
        self, order: Sequence[int], variables: Variables, values: list[V], body: Callable[[Variables, list[V]], list[V]]
    ) -> list[V]:
        """Emits nested loops over variables that carry values."""
        if not order:
            return body(variables, values)
        if order[0] == self.schedule.interleaved or order[0] in self.schedule.unrolled:
            for iteration in range(self.space.extents[order[0]]):
                values = self.carry_loops(order[1:], {**variables, order[0]: i64(iteration)}, values, body)
            return values
        low, high = self.range_of(order[0])
        with self.b.loop_carry(low, high, values, 1, "reduce") as carry:
            after = self.carry_loops(order[1:], {**variables, order[0]: carry.index}, carry.values, body)
            carry.next(*after)
        return carry.values

    def elements(self, position: Position, r: RowReduction, width: int) -> list[Reg]:
        values = [self.ev.value(position, k) for k in r.operands]
        return r.reducer.enter(self.b, [widen(self.b, v, width) for v in values])

    # ------------------------------------------------------------------ lanes along rows: one element per iteration
    # each
    def walk_serial(self, positions: list[Position], reductions: list[RowReduction], stores: list[Store]) -> None:
        """Takes the elements of the row one after another, starting at the initial value; lanes (if any) are rows."""
        starts = [self.first(f, r) for f in positions for r in reductions]

        def body(variables: Variables, values: list[V]) -> list[V]:
            groups = iter(regroup(values, starts))
            out: list[Reg] = []
            for f in positions:
                child = f.child(variables)
                for r in reductions:
                    out += r.reducer.combine(self.b, next(groups), self.elements(child, r, f.width))
                self.store([child], stores)
            return flatten(out)

        flat = flatten([r for s in starts for r in s])
        values = self.carry_loops(self.space.inner, {}, flat, body)
        if self.chunked:
            assert self.partials is not None
            self.partials.save(self.ev, positions, values)
            return
        final = iter(regroup(values, starts))
        for f in positions:
            for r in reductions:
                finish(self.b, f, r, next(final))

    def first(self, position: Position, r: RowReduction) -> list[Reg]:
        """The initial accumulators of a row: the initial value or, in a chunk of a row, the neutral one."""
        if self.chunked:
            return nothing_of(self.b, self.ev, position, r, position.width)
        return initial_of(self.b, self.ev, position, r, position.width)

    # ------------------------------------------------------------------ lanes along the reduced variable
    def walk_vectors(self, positions: list[Position], reductions: list[RowReduction], stores: list[Store]) -> None:
        """Takes vectors of a row, or of all rows that are jammed: several accumulators of lanes start at the neutral
        element and are combined in a fixed tree."""
        if self.common is None:
            sums = [(positions[0], r) for r in reductions]
        else:
            common = [r for r in reductions if not self.is_own(r.results[0])]
            sums = [(self.common, r) for r in common]
            sums += [(f, r) for f in positions for r in reductions if r not in common]
        self.combine(sums, self.accumulated(sums, stores, positions[0]))

    def accumulated(self, sums: list[Sum], stores: list[Store], position: Position) -> list[list[Reg]]:
        """For each reduction of a row, the one vector that results from its accumulators. `position`: that of the
        stores."""
        v = self.space.vector
        assert v is not None
        neutral = [nothing_of(self.b, self.ev, f, r, self.space.width) for f, r in sums]
        start = flatten([part for group in neutral for part in group])
        unroll = self.schedule.unroll.value

        def accumulate(child: Position, values: list[V]) -> list[V]:
            out: list[Reg] = []
            places = self.children(sums, child)
            for place, (_, r), group, empty in zip(places, sums, regroup(values, neutral), neutral, strict=True):
                element = self.elements(place, r, child.width)
                if child.mask is not None:
                    element = [select_lanes(self.b, child.mask, e, x) for e, x in zip(element, empty, strict=True)]
                out += r.reducer.combine(self.b, group, element)
            self.store([child], stores)
            return flatten(out)

        def inner(variables: Variables, values: list[V]) -> list[V]:
            return self.vectors(position, variables, values, neutral, accumulate, sums, stores)

        outer = [x for x in self.space.inner if x != v]
        final = self.carry_loops(outer, {}, start * unroll, inner)
        width = len(start)
        parts = [regroup(final[u * width : (u + 1) * width], neutral) for u in range(unroll)]
        found: list[list[Reg]] = []
        for i, (_, r) in enumerate(sums):
            values = [p[i] for p in parts]
            while len(values) > 1:
                half = len(values) // 2
                values = [r.reducer.merge(self.b, values[j], values[j + half]) for j in range(half)]
            found.append(values[0])
        return found

    def children(self, sums: list[Sum], child: Position) -> list[Position]:
        """The place of each sum's next elements: `child`, or for rows that are jammed, that of its row. What these have
        in common is computed first."""
        if self.common is None:
            return [child] * len(sums)
        variables = {v: child.variables[v] for v in self.space.inner if v in child.variables}
        shared = Position({**self.common.variables, **variables}, child.width, child.mask, self.common)
        roots = [k for _, r in sums for k in r.operands]
        for key in self.passes.needed(roots):
            node = self.nest.nodes.get(key)
            if not self.is_own(key) and (node is None or node.op.name != "stablehlo.constant"):
                self.ev.value(shared, key)
        places: dict[int, Position] = {id(self.common): shared}
        for row, _ in sums:
            if id(row) not in places:
                place = Position({**row.variables, **variables}, child.width, child.mask, row)
                place.memo.update(shared.memo)
                places[id(row)] = place
        return [places[id(row)] for row, _ in sums]

    def vectors(
        self,
        position: Position,
        variables: Variables,
        values: list[V],
        neutral: list[list[Reg]],
        accumulate: Callable[[Position, list[V]], list[V]],
        sums: list[Sum],
        stores: list[Store],
    ) -> list[V]:
        """Emits the loop along the lanes: unrolled vectors, single ones, the tail. `neutral`: the start values of one
        vector."""
        b, w, k, v = self.b, self.space.width, self.schedule.unroll.value, self.space.vector
        assert v is not None
        n, width = self.space.extents[v], len(flatten([part for group in neutral for part in group]))
        step, whole = w * k, n - n % w
        bulk = n - n % step
        low, high = self.range_of(v)
        if not equal(bulk, 0):
            with b.loop_carry(low, b.min_(high, bulk), values, step, "vectors") as carry:
                out: list[V] = []
                for u in range(k):
                    place = {**variables, v: b.add(carry.index, u * w)}
                    out += accumulate(position.child(place), carry.values[u * width : (u + 1) * width])
                carry.next(*out)
            values = carry.values
        head, rest = values[:width], values[width:]
        if not equal(whole, bulk):
            with b.loop_carry(b.max_(low, bulk), b.min_(high, whole), head, w, "vector") as carry:
                carry.next(*accumulate(position.child({**variables, v: carry.index}), carry.values))
            head = carry.values
        if not equal(n, whole) and self.schedule.target.has_masks:
            # one iteration, or none in a chunk that ends before
            with b.loop_carry(b.max_(low, whole), high, head, w, "tail") as carry:
                place = {**position.variables, **variables, v: carry.index}
                carry.next(*accumulate(Position(place, w, lanes_left(b, w, n % w), position), carry.values))
            head = carry.values
        elif not equal(n, whole):
            head = self.tail(position, variables, head, neutral, sums, stores, whole)
        return [*head, *rest]

    def tail(
        self,
        position: Position,
        variables: Variables,
        head: list[V],
        neutral: list[list[Reg]],
        sums: list[Sum],
        stores: list[Store],
        whole: int,
    ) -> list[V]:
        """Emits the tail if masks are expensive: the elements that fill no vector go into lane 0 one by one."""
        b, v = self.b, self.space.vector
        assert v is not None
        low, high = self.range_of(v)
        with b.loop_carry(b.max_(low, whole), high, head, 1, "tail") as carry:
            child = Position({**position.variables, **variables, v: carry.index}, 1, None, position)
            out: list[Reg] = []
            places = self.children(sums, child)
            for place, (_, r), group in zip(places, sums, regroup(carry.values, neutral), strict=True):
                lane0 = [map_parts(x, lambda p: b.extract(p, 0)) for x in group]
                new = r.reducer.combine(b, lane0, self.elements(place, r, 1))
                out += [put_lane(b, old, x) for old, x in zip(group, new, strict=True)]
            self.store([child], stores)
            carry.next(*flatten(out))
        return carry.values

    def combine(self, sums: list[Sum], found: list[list[Reg]]) -> None:
        """Combines lanes with lanes, then with the initial value."""
        b, parts = self.b, []
        for (position, r), values in zip(sums, found, strict=True):
            total = across(b, r.reducer, values)
            if self.chunked:
                parts += total
                continue
            start = initial_of(b, self.ev, position, r)
            finish(b, position, r, r.reducer.combine(b, start, total))
        if self.chunked:
            assert self.partials is not None
            self.partials.save(self.ev, [sums[0][0]], flatten(parts))
