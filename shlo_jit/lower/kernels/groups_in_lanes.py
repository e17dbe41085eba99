"""Writes the sums over groups of products of bytes for one output at a time: lanes are terms, then groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir import index as ix
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.lane_sums import fold
from shlo_jit.kernels.llvm_values import V, const, i64, is_float, lanes, vector
from shlo_jit.lower.elements.registers import memory_type, to_memory
from shlo_jit.lower.kernels.group_terms import GroupTerms, place_of
from shlo_jit.lower.kernels.shifted_bytes import less_smallest
from shlo_jit.lower.kernels.units_in_registers import Variables
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position
from shlo_jit.schedule.groups_in_registers import LANE
from shlo_jit.schedule.register_vectors import LINE

LEAST = 16
"""Bytes of the shortest registers that instructions multiply."""
IN_LANE = 4
"""Numbers of 32 bits within which the fastest shuffles move them."""


class LanesOfGroups:
    """Writes the sums of an output and some vectors."""

    def __init__(self, terms: GroupTerms):
        self.t, self.b, self.s = terms, terms.b, terms.s
        self.total_ev = self.evaluator(self.s.together)
        self.before = i64(0)
        """Groups before those that are numbered along lanes."""

    def evaluator(self, n: int) -> Evaluator:
        """What computes f for n groups."""
        return self.t.totals(self.s.total_space._replace(width=n))

    def write(self, o: V, first: V) -> None:
        """Emits the sums of an output and some vectors."""
        b, s, t = self.b, self.s, self.t
        self.here = place_of(b, o, list(s.free), s.nest.extents)
        numbers = [b.add(first, r) for r in range(s.count)]
        self.sums_here = [b.offset(t.sums, b.mul(r, 4 * s.groups)) for r in numbers]
        self.factors = [b.offset(t.vectors, b.mul(r, s.row)) for r in numbers]
        self.places = t.places(o, numbers)
        if s.passes == 1:
            self.fetch_later()
        self.store_all(self.totals_of_groups())

    def fetch_later(self) -> None:
        """Fetches as many bytes of later outputs as this one has into the second-level cache."""
        for key in self.s.nest.loads:
            address, _ = self.t.first_byte(self.here, key)
            for line in range(0, self.s.run, LINE):
                self.b.prefetch(self.b.offset(address, tuning.GROUPS_PREFETCH + line), locality=2)

    def totals_of_groups(self) -> list[V]:
        """The sums over all groups."""
        b, s = self.b, self.s
        if not s.outer:
            return self.totals_in_lanes()
        zero = const(self.t.kind, 0)
        here, places, sums = self.here, self.places, self.sums_here
        with b.loop_carry(0, s.outer_groups, [zero] * s.count, 1, "outer") as carry:
            extents = self.t.nest.extents
            self.here = here | place_of(b, carry.index, s.outer, s.nest.extents)
            self.places = [place | place_of(b, carry.index, s.outer_variables, extents) for place in places]
            self.before = b.mul(carry.index, s.inner_groups)
            self.sums_here = [b.offset(at, b.mul(self.before, 4)) for at in sums]
            found = self.totals_in_lanes()
            carry.next(*map(self.add, carry.values, found))
        self.here, self.places, self.sums_here = here, places, sums
        return carry.values

    def add(self, x: V, y: V) -> V:
        return self.b.fadd(x, y) if is_float(self.t.kind) else self.b.add(x, y)

    def totals_in_lanes(self) -> list[V]:
        """The sums over the groups that are numbered along lanes."""
        b, s = self.b, self.s
        n, whole = s.together, s.inner_groups // s.together * s.together
        kind = self.t.kind
        with b.loop_carry(0, whole, [const(vector(kind, n), 0)] * s.count, n, "groups") as carry:
            carry.next(*self.block(carry.index, n, carry.values))
        found = [fold(b, total) for total in carry.values]
        while whole < s.inner_groups:
            n = 1 << (s.inner_groups - whole).bit_length() - 1
            more = self.block(i64(whole), n, [const(vector(kind, n), 0)] * s.count)
            found = [self.add(total, fold(b, x)) for total, x in zip(found, more, strict=True)]
            whole += n
        return found

    def store_all(self, totals: Sequence[V]) -> None:
        b, target = self.b, self.t.store.target
        offset, dtype = ix.linearize(self.t.store.index, target.tensor.extents), target.tensor.storage
        for place, total in zip(self.places, totals, strict=True):
            groups = dict.fromkeys((*self.s.outer_variables, self.s.variables[2]), i64(0))
            index = self.total_ev.base(Position(place | groups, 1), offset)
            at = b.element(self.total_ev.pointers[target], memory_type(dtype), index)
            b.store(to_memory(b, dtype, total), at, align=dtype.itemsize)

    def block(self, g: V, n: int, totals: Sequence[V]) -> list[V]:
        """Adds what f computes from the sums of n groups to the totals of each vector, in lanes."""
        b, s = self.b, self.s
        products, ev = self.products(g, n), self.evaluator(n)
        found: list[V] = []
        for r, place in enumerate(self.places):
            dot = products[r]
            if s.dots.low:
                at = b.offset(self.sums_here[r], b.mul(g, 4))
                dot = b.add(dot, b.load(vector("i32", n), at, align=4))
            position = Position(place | {s.variables[2]: g}, n)
            position.memo.update({self.t.dot: dot, self.t.total: totals[r]})
            total = ev.value(position, (self.t.store.value, self.t.store.at))
            assert isinstance(total, V)
            found.append(total)
        return found

    def products(self, g: V, n: int) -> list[V]:
        """The products of n groups and each vector, in lanes."""
        each = self.s.groups_in_byte
        first = self.b.udiv(g, each)
        parts = [self.products_in_byte(first, n // each, h) for h in range(each)]
        while len(parts) > 1:
            parts = [x.joined(self.b, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0].in_order(self.b)

    def products_in_byte(self, g: V, n: int, h: int) -> _Parts:
        """The products of n groups that follow one another, in lanes: those with number h in their bytes. Registers
        with the sums of adjacent groups are added up in pairs as soon as there are two, so that few are alive."""
        b, s = self.b, self.s
        nbytes = n * s.group_bytes
        width = min(s.register, nbytes)
        per_group = max(1, s.group_bytes // width)
        waiting: list[_Parts] = []
        sums: list[V] = []
        for i in range(nbytes // width):
            if i % per_group == 0:
                sums = [const(vector("i32", max(width, LEAST) // LANE), 0)] * s.count
            sums = self.add_products(g, i * width, width, sums, h)
            if (i + 1) % per_group:
                continue
            if width < LEAST:
                sums = [b.shuffle(x, None, range(width // LANE)) for x in sums]
            numbers = ((i * width + LANE * lane) // s.group_bytes for lane in range(width // LANE))
            found = _Parts(sums, [number * s.groups_in_byte + h for number in numbers])
            while waiting and waiting[-1].per_group == found.per_group > 1:
                found = waiting.pop().paired(b, found)
            waiting.append(found)
        (found,) = waiting
        while found.per_group > 1:
            found = found.paired(b, None)
        return found

    def add_products(self, g: V, first: int, width: int, sums: Sequence[V], h: int) -> list[V]:
        """Adds the products of a register of M and each vector to lanes of 32 bits. `first`: bytes from the start of
        the terms of group g on; `h`: the number of the group in its bytes."""
        b, s, found = self.b, self.s, list(sums)
        group = b.add(g, first // s.group_bytes)
        at = i64(first % s.group_bytes)
        before = b.udiv(self.before, s.groups_in_byte)
        place = b.add(b.mul(b.add(before, group), s.group_bytes), at)
        count = len(self.t.elements) // s.groups_in_byte
        numbers = range(h * count, (h + 1) * count)
        elements = [
            self.element(
                {**self.here, s.group: group, s.lanes: at, **{v: i64(k) for v, k in self.t.elements[e].items()}}, width
            )
            for e in numbers
        ]
        for r in range(s.count):
            factors = [
                b.load(vector("i8", width), b.offset(self.factors[r], b.add(place, e * s.run)), align=1)
                for e in numbers
            ]
            found[r] = self.t.multiply([_filled(b, x) for x in elements], [_filled(b, x) for x in factors], found[r])
        return found

    def element(self, variables: Variables, width: int) -> V:
        """A register of M, less its smallest element."""
        s = self.s
        return less_smallest(self.b, self.t.ev, Position(variables, width, None, self.t.known), s.key, s.dots.low)


def _filled(b: Builder, x: V) -> V:
    """The lanes, followed by zeros up to the shortest register."""
    n = lanes(x.type)
    return x if n >= LEAST else b.shuffle(x, const(x.type, 0), [*range(n), *[n] * (LEAST - n)])


class _Parts(NamedTuple):
    """Lanes with parts of the sums of groups, for each vector."""

    sums: list[V]
    groups: list[int]
    """The group of each lane."""

    @property
    def per_group(self) -> int:
        """Parts of a group."""
        return self.groups.count(self.groups[0])

    def paired(self, b: Builder, other: _Parts | None) -> _Parts:
        """Adds up lanes in pairs: adjacent ones or, once these belong to different groups, the nearest ones of the same
        group. Shuffles within 128 bits take less time than others."""
        n, step = len(self.groups), self.groups.index(self.groups[0], 1)
        size = n if other is None else 2 * n
        first = [i for i in range(size) if i % (2 * step) < step]
        if step == 1 and other is not None and n > IN_LANE:
            first = [q + o + i for q in range(0, n, IN_LANE) for o in (0, n) for i in range(0, IN_LANE, 2)]
        second = [i + step for i in first]
        sums = list[V]()
        for r, x in enumerate(self.sums):
            y = None if other is None else other.sums[r]
            sums.append(b.add(b.shuffle(x, y, first), b.shuffle(x, y, second)))
        groups = [*self.groups, *(other.groups if other is not None else [])]
        return _Parts(sums, [groups[i] for i in first])

    def joined(self, b: Builder, other: _Parts) -> _Parts:
        """The lanes of both."""
        both = range(2 * len(self.groups))
        sums = [b.shuffle(x, y, both) for x, y in zip(self.sums, other.sums, strict=True)]
        return _Parts(sums, self.groups + other.groups)

    def in_order(self, b: Builder) -> list[V]:
        if len(self.groups) == 1:
            return [b.extract(x, 0) for x in self.sums]
        order = sorted(range(len(self.groups)), key=self.groups.__getitem__)
        return self.sums if order == list(range(len(order))) else [b.shuffle(x, None, order) for x in self.sums]
