"""Writes the sums over groups of products of bytes for a block of adjacent outputs, in lanes.

The bytes of the outputs are transposed for some groups, and their elements kept as they are multiplied:

    terms[g, i, e]      a register with elements e of bytes 4 i to 4 i + 3 of group g, of all outputs

Arrays of f that are contiguous along the groups are transposed too. Passes over them compute some vectors each.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.fuse.nest import Key
from shlo_jit.kernels.llvm_values import V, const, i64, lanes, vector
from shlo_jit.lower.elements.registers import from_memory, memory_type
from shlo_jit.lower.kernels.group_terms import GroupTerms, place_of
from shlo_jit.lower.kernels.shifted_bytes import less_smallest
from shlo_jit.lower.kernels.units_in_registers import Variables
from shlo_jit.lower.kernels.values_of_vectors import ValuesOfVectors
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.nest.transposed_tiles import transposed
from shlo_jit.schedule.groups_in_registers import LANE, Block
from shlo_jit.schedule.register_vectors import LINE
from shlo_jit.schedule.run_time_offsets import bits_in_memory
from shlo_jit.schedule.space import linear

UNROLLED = 8
"""Registers of the matrix in an iteration over the terms of a group."""
PASSES = 8
"""Passes over transposed terms, while their sums are kept."""


class _Pass(NamedTuple):
    """Some vectors of a block of outputs."""

    rows: list[V]
    factors: list[V]
    """Address of each vector."""
    sums: list[V]
    """Address of the sums of its groups."""
    places: list[Variables]
    """Iterations of f."""


class LanesOfOutputs:
    """Writes blocks of outputs."""

    def __init__(self, terms: GroupTerms, block: Block):
        b, s = terms.b, terms.s
        self.t, self.b, self.s, self.block = terms, b, s, block
        self.lanes, self.register = block.outputs, block.outputs * LANE
        self.per_group = s.group_bytes * len(terms.elements) * self.lanes
        self.terms = b.alloca("i8", block.chunk * self.per_group)
        self.raw = {key: b.alloca("i8", self.register * self.lanes) for key in s.nest.loads}
        types = {key: memory_type(key[0].tensor.storage) for key in block.arranged}
        self.arranged = {key: b.alloca(t, block.chunk * self.lanes) for key, t in types.items()}
        self.ev = terms.totals(block.space)
        self.passes = -(-s.rows // block.rows)
        self.of_vectors = ValuesOfVectors(terms)
        self.of_vectors.write()
        self.is_whole = block.chunk == s.groups
        if not self.is_whole:
            self.totals = b.alloca(terms.kind, min(self.passes, PASSES) * block.rows * self.lanes)

    def write(self, o: V) -> None:
        """Emits the block whose first output is `o`."""
        b, s = self.b, self.s
        self.o, self.here = o, place_of(b, o, list(s.free), s.nest.extents)
        self.output = self.t.places(o, [i64(0)])[0]
        if self.is_whole:
            self.transpose(i64(0))
            with b.loop(0, self.passes, 1, "pass") as i:
                self.fetch_next(b.icmp("eq", i, 0), i64(0))
                self.finish(i, self.sums(i, i64(0), i64(0), i64(s.groups), [self.zero] * self.block.rows))
            return
        with b.loop(0, self.passes, PASSES, "passes") as first:
            self.by_chunks(first, b.min_(b.add(first, PASSES), self.passes))

    def fetch_first(self, o: V) -> None:
        """Fetches the bytes that are transposed first."""
        b, s = self.b, self.s
        self.here = place_of(b, o, list(s.free), s.nest.extents)
        for key in self.raw:
            address, step = self.t.first_byte(self.here, key)
            with b.loop(0, self.lanes, 1, "output") as i:
                run = b.offset(address, b.mul(i, step))
                for line in range(0, self.block.chunk * s.group_bytes, LINE):
                    b.prefetch(b.offset(run, line), locality=2)

    def by_chunks(self, first: V, last: V) -> None:
        """Emits some passes, for one chunk of groups after the other."""
        b, s, chunk = self.b, self.s, self.block.chunk
        with b.loop(first, last, 1, "pass") as i:
            self.keep(b.sub(i, first), [self.zero] * self.block.rows)
        with b.loop(0, s.groups, chunk, "chunk") as start:
            begin, end = b.min_(start, s.groups - chunk), b.min_(b.add(start, chunk), s.groups)
            self.transpose(begin)
            with b.loop(first, last, 1, "pass") as i:
                kept = b.sub(i, first)
                self.fetch_next(b.icmp("eq", kept, 0), start)
                self.keep(kept, self.sums(i, begin, start, end, self.kept(kept)))
        with b.loop(first, last, 1, "pass") as i:
            self.finish(i, self.kept(b.sub(i, first)))

    @property
    def zero(self) -> V:
        return const(vector(self.t.kind, self.lanes), 0)

    # ------------------------------------------------------------------ transposed terms
    def transpose(self, begin: V) -> None:
        """Transposes a chunk of groups. The last registers may have bytes of those before, too."""
        b, s, chunk = self.b, self.s, self.block.chunk
        nbytes = chunk * s.group_bytes
        width = min(self.register, 1 << nbytes.bit_length() - 1)
        with b.loop(0, nbytes, width, "bytes") as at:
            place = at if nbytes % width == 0 else b.min_(at, nbytes - width)
            self.transpose_bytes(b.add(b.mul(begin, s.group_bytes), place), place, width)
        n = min(self.lanes, 1 << chunk.bit_length() - 1)
        if self.arranged:
            with b.loop(0, chunk, n, "groups") as at:
                place = at if chunk % n == 0 else b.min_(at, chunk - n)
                for key in self.arranged:
                    self.arrange(key, b.add(begin, place), place, n)

    def transpose_bytes(self, source: V, to: V, width: int) -> None:
        """Transposes `width` bytes of each output. `source`: their place among those of all groups; `to`: among those
        of the chunk."""
        b, t = self.b, self.t
        for key, raw in self.raw.items():
            address, step = self.t.first_byte(self.here, key)
            address = b.offset(address, source)
            kind = vector("i32", width // LANE)
            lines = [b.load(kind, b.offset(address, i * step), align=1) for i in range(self.lanes)]
            for i, line in enumerate(self.columns(lines)):
                b.store(line, b.offset(raw, i * self.register), align=self.register)
        for i in range(width // LANE):
            at = b.add(b.mul(to, len(t.elements) * self.lanes), i * len(t.elements) * self.register)
            for e, inner in enumerate(t.elements):
                x = self.element(i, inner)
                b.store(x, b.offset(self.terms, b.add(at, e * self.register)), align=self.register)

    def first_element(self, key: Key) -> tuple[V, int]:
        """The address of an array of f for the block's first output and the first group, and the bytes to that of the
        next output."""
        b, dtype, variable = self.b, key[0].tensor.storage, self.block.space.vector
        assert variable is not None
        first = self.ev.base(Position(self.output | {self.s.variables[2]: i64(0)}, 1), linear(key))
        address = b.element(self.ev.pointers[key[0]], memory_type(dtype), first)
        return address, linear(key).coefficient(variable) * dtype.itemsize

    def columns(self, lines: list[V]) -> list[V]:
        """Registers with the first numbers of all lines, the second ones, and so on."""
        n, count = self.lanes, lanes(lines[0].type)
        if count < n:
            lines = [self.b.shuffle(x, None, [i % count for i in range(n)]) for x in lines]
        return transposed(self.b, lines)[:count]

    def element(self, i: int, inner: dict[int, int]) -> V:
        """A register of elements of M, less the smallest, from the transposed bytes."""
        b, s = self.b, self.s
        pointers = {}
        for key, raw in self.raw.items():
            before = linear(key).const * bits_in_memory(key[0]) // 8
            pointers[key[0]] = b.offset(raw, i * self.register - before)
        ev = Evaluator(b, s.nest, s.space._replace(width=self.register), pointers)
        place = dict.fromkeys((*s.free, s.group, s.lanes), i64(0)) | {v: i64(k) for v, k in inner.items()}
        return less_smallest(b, ev, Position(place, self.register, None, self.t.known), s.key, s.dots.low)

    def arrange(self, key: Key, group: V, to: V, n: int) -> None:
        """Transposes an array of f for n groups."""
        b, t = self.b, memory_type(key[0].tensor.storage)
        address, step = self.first_element(key)
        address = b.element(address, t, group)
        lines = [b.load(vector(t, n), b.offset(address, i * step)) for i in range(self.lanes)]
        for i, line in enumerate(self.columns(lines)):
            b.store(line, b.element(self.arranged[key], t, b.mul(b.add(to, i), self.lanes)))

    # ------------------------------------------------------------------ prefetches
    def fetch_next(self, is_wanted: V, start: V) -> None:
        """Decides what the groups of a pass fetch: their part of what is transposed next, if that is wanted."""
        b, s = self.b, self.s
        following = b.add(start, self.block.chunk)
        inside = b.icmp("slt", following, s.groups)

        def moved(place: tuple[V, int], nbytes: int) -> tuple[V, int]:
            """The place of what is transposed next. `nbytes`: those of a group."""
            address, step = place
            before = b.select(inside, b.mul(following, nbytes), i64(step * self.lanes))
            return b.offset(address, before), step

        self.fetched = [moved(self.t.first_byte(self.here, key), s.group_bytes) for key in self.raw]
        self.fetched_too = [moved(self.first_element(key), key[0].tensor.storage.itemsize) for key in self.arranged]
        self.is_fetched = is_wanted

    def fetch(self, local: V) -> None:
        """Fetches the part of a group into the second-level cache, as the first one is full: as many lines as its own
        bytes fill, of some outputs if these are short."""
        b, nbytes = self.b, self.s.group_bytes
        with b.if_(self.is_fetched):
            for address, step in self.fetched:
                if nbytes >= LINE:
                    line = b.offset(address, b.mul(local, nbytes))
                    places = [i * step + k for i in range(self.lanes) for k in range(0, nbytes, LINE)]
                else:
                    groups = LINE // nbytes
                    part, count = b.urem(local, groups), max(1, self.lanes // groups)
                    line = b.offset(address, b.add(b.mul(b.sub(local, part), nbytes), b.mul(part, count * step)))
                    places = [i * step for i in range(count)]
                for place in places:
                    b.prefetch(b.offset(line, place), locality=2)
            count = -(-self.lanes // self.block.chunk)
            for address, step in self.fetched_too:
                for i in range(count):
                    b.prefetch(b.offset(address, b.mul(b.add(b.mul(local, count), i), step)), locality=2)

    # ------------------------------------------------------------------ sums
    def sums(self, i: V, begin: V, start: V, end: V, totals: list[V]) -> list[V]:
        """Adds the groups from `start` to `end` to the totals of a pass. `begin`: the first transposed group."""
        b, s = self.b, self.s
        here = self.vectors(i)
        with b.loop_carry(start, end, totals, 1, "group") as carry:
            g = carry.index
            local = b.sub(g, begin)
            self.fetch(local)
            products = self.products(here, g, b.offset(self.terms, b.mul(local, self.per_group)))
            arranged = {}
            for key, buffer in self.arranged.items():
                dtype = key[0].tensor.storage
                kind = vector(memory_type(dtype), self.lanes)
                line = b.load(kind, b.element(buffer, kind, b.mul(local, self.lanes)))
                arranged[key] = from_memory(b, dtype, line)
            found: list[V] = []
            for r, dot, total, place in zip(here.rows, products, carry.values, here.places, strict=True):
                position = Position(place | {s.variables[2]: g}, self.lanes)
                position.memo.update({self.t.dot: dot, self.t.total: total, **arranged, **self.of_vectors.at(r, g)})
                x = self.ev.value(position, (self.t.store.value, self.t.store.at))
                assert isinstance(x, V)
                found.append(x)
            carry.next(*found)
        return carry.values

    def vectors(self, i: V) -> _Pass:
        """The vectors of a pass. The last ones may have been in that before."""
        b, s, count = self.b, self.s, self.block.rows
        first = b.min_(b.mul(i, count), s.rows - count)
        rows = [b.add(first, r) for r in range(count)]
        factors = [b.offset(self.t.vectors, b.mul(r, s.row)) for r in rows]
        sums = [b.offset(self.t.sums, b.mul(r, 4 * s.groups)) for r in rows]
        return _Pass(rows, factors, sums, self.t.places(self.o, rows))

    def products(self, here: _Pass, g: V, terms: V) -> list[V]:
        """The products of a group and each vector. `terms`: address of the group's transposed terms."""
        b, s, t = self.b, self.s, self.t
        kind, count = vector("i8", self.register), len(t.elements)
        sums = [const(vector("i32", self.lanes), 0)] * self.block.rows
        if s.dots.low:
            sums = [b.splat(b.load("i32", b.offset(x, b.mul(g, 4)), align=4), self.lanes) for x in here.sums]
        steps = s.group_bytes // LANE
        unrolled = next(n for n in range(max(1, UNROLLED // count), 0, -1) if steps % n == 0)
        with b.loop_carry(0, s.group_bytes, sums, unrolled * LANE, "terms") as carry:
            found = carry.values
            for step in range(unrolled):
                at = b.add(carry.index, step * LANE)
                of = b.offset(terms, b.mul(at, count * self.lanes))
                elements = [b.load(kind, b.offset(of, e * self.register), align=self.register) for e in range(count)]
                place = b.add(b.mul(g, s.group_bytes), at)
                for r, x in enumerate(here.factors):
                    words = [b.load("i32", b.offset(x, b.add(place, e * s.run)), align=1) for e in range(count)]
                    factors = [b.bitcast(b.splat(word, self.lanes), kind) for word in words]
                    found = [*found[:r], t.multiply(elements, factors, found[r]), *found[r + 1 :]]
            carry.next(*found)
        return carry.values

    # ------------------------------------------------------------------ totals
    def kept(self, i: V) -> list[V]:
        """The totals of a pass so far."""
        return [self.b.load(vector(self.t.kind, self.lanes), place) for place in self.places_of(i)]

    def keep(self, i: V, totals: list[V]) -> None:
        for place, total in zip(self.places_of(i), totals, strict=True):
            self.b.store(total, place)

    def places_of(self, i: V) -> list[V]:
        b, count = self.b, self.block.rows
        first = b.element(self.totals, self.t.kind, b.mul(i, count * self.lanes))
        return [b.element(first, self.t.kind, r * self.lanes) for r in range(count)]

    def finish(self, i: V, totals: list[V]) -> None:
        """Stores the totals of a pass in the result."""
        store = self.t.store
        for place, total in zip(self.vectors(i).places, totals, strict=True):
            position = Position(place | {self.s.variables[2]: i64(0)}, self.lanes)
            position.memo[store.value, store.at] = total
            self.ev.store(position, store)
