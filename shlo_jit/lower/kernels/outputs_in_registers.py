"""Units of a product with a matrix computed in registers, with lanes along outputs (see `operand_in_registers.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key
from shlo_jit.ir.index import variables
from shlo_jit.kernels.llvm_values import V, i64, vector
from shlo_jit.lower.elements.registers import from_memory, memory_type, to_memory
from shlo_jit.lower.kernels.units_in_registers import Found, UnitWriter, Variables
from shlo_jit.lower.nest.position import Position
from shlo_jit.schedule.register_vectors import LINE
from shlo_jit.schedule.sequential_reads import are_outputs_sequential
from shlo_jit.schedule.space import linear

Steps = list[tuple[Variables, int]]
"""Iterations of k, with the place of their factors in a vector."""
Places = list[tuple[int, Variables]]
"""Iterations of the inner variables that number outputs, with their numbers."""


class Outputs:
    """Writes a chunk whose lanes are outputs. The sums of its outputs are in memory: row after row, and for each
    iteration of the inner variables all outputs of the chunk."""

    def __init__(self, w: UnitWriter, variables: Variables, x: V, y: V, start: V, stop: V):
        self.w, self.b, self.s = w, w.b, w.s
        self.variables, self.x, self.y, self.start, self.stop = variables, x, y, start, stop
        self.later: list[tuple[V, int]] = []
        """The rows that are fetched during a block (see `later_rows`)."""
        self.blocks = w.s.blocks

    def write(self) -> None:
        s, w = self.s, self.w
        self.begin()
        self.add()
        for r in range(s.count):
            for i, inner in enumerate(w.combinations(s.inner)):
                self.copy(r, i, sum(s.free[v] * k for v, k in inner.items()))

    def add(self) -> None:
        """Adds the products of all terms within the bounds to the sums."""
        self.arrange(None, self.variables)
        self.loops(self.blocks.serial, self.variables, self.x)

    def begin(self) -> None:
        """Sets the sums to 0."""
        self.b.memset(self.w.sums, 0, self.s.count * self.w.sums_row)

    def copy(self, r: int, i: int, offset: int) -> None:
        """Copies the sums of one vector to the results."""
        b, s, w = self.b, self.s, self.w
        step = s.free[s.lanes] * s.own_outputs.free
        of = b.offset(w.sums, r * w.sums_row + i * w.sums_chunk)
        to = b.offset(self.y, (r * s.own_outputs.row + offset * s.own_outputs.free) * w.size)
        to = b.offset(to, b.mul(self.start, step * w.size))
        with b.loop(0, b.sub(self.stop, self.start)) as o:
            b.store(b.load(w.acc, b.offset(of, b.mul(o, w.size))), b.offset(to, b.mul(o, step * w.size)))

    def loops(self, serial: Sequence[int], variables: Variables, x: V) -> None:
        """Emits the loops along k, outermost first."""
        b, s, w = self.b, self.s, self.w
        if serial:
            v, *rest = serial
            for i in w.iterations(v):
                inside = {**variables, v: i}
                self.arrange(v, inside)
                self.loops(rest, inside, b.offset(x, b.mul(i, s.vectors.along[v] * w.factor_size)))
            return
        _, loop, step, unrolled = self.blocks
        if loop is None:
            self.block(variables, x, unrolled, None, 1)
            return
        extent = s.nest.extents[loop]
        whole = extent - extent % step
        low, high = w.bounds.get(loop, (None, None))
        for first, last, each in ((0, whole, step), (whole, extent, 1)):
            if first < last:
                start = first if low is None else b.max_(low, first)
                stop = last if high is None else b.min_(high, last)
                with b.loop(start, stop, each, "k") as i:
                    at = b.offset(x, b.mul(i, s.vectors.along[loop] * w.factor_size))
                    self.block({**variables, loop: i}, at, unrolled, loop, each)

    def arrange(self, v: int | None, variables: Variables) -> None:
        """Copies, for the outputs of the chunk and in the order of the lanes, the elements of arrays that change with
        the variable v and with no loop inside of it. None: those that change with no loop along k."""
        b, s, w = self.b, self.s, self.w
        for key, to in w.arranged.items():
            deciding = [u for u in self.blocks.serial if s.space.depends(key[1], {u})]
            if v != (deciding[-1] if deciding else None):
                continue
            dtype = key[0].tensor.storage
            for place, fixed in enumerate(w.combinations(s.inner)):
                here = {**variables, **{u: i64(k) for u, k in fixed.items()}}
                whole = b.add(self.start, b.and_(b.sub(self.stop, self.start), i64(-w.width)))
                for first, last, width in ((self.start, whole, w.width), (whole, self.stop, 1)):
                    with b.loop(first, last, width, "arranged") as j:
                        found = w.ev.value(Position({**here, s.lanes: j}, width, None, w.known), key)
                        assert isinstance(found, V)
                        b.store(to_memory(b, dtype, found), self.arranged(key, to, place, j), align=dtype.itemsize)

    def arranged(self, key: Key, to: V, place: int, j: V) -> V:
        """The address of an element that `arrange` has copied."""
        lanes = self.w.sums_chunk // self.w.size
        number = self.b.add(self.b.sub(j, self.start), place * lanes)
        return self.b.element(to, memory_type(key[0].tensor.storage), number)

    def element(self, here: Variables, place: tuple[int, Variables], j: V, width: int, mask: V | None) -> V:
        """The elements of M at an iteration, computed from arrays as `arrange` has copied them."""
        b, w = self.b, self.w
        found: Found = {}
        for key, to in w.arranged.items():
            dtype = key[0].tensor.storage
            x = b.load(vector(memory_type(dtype), width), self.arranged(key, to, place[0], j), align=dtype.itemsize)
            found[key] = from_memory(b, dtype, x)
        return w.element({**here, **place[1], self.s.lanes: j}, width, mask, found)

    def block(self, variables: Variables, x: V, unrolled: Sequence[int], loop: int | None, each: int) -> None:
        """Emits some steps of k for all outputs of the unit."""
        b, s, w = self.b, self.s, self.w
        steps: Steps = []
        for t in range(each):
            for inner in w.combinations(unrolled):
                here = {**variables, **{v: i64(k) for v, k in inner.items()}}
                offset = sum(s.vectors.along[v] * k for v, k in inner.items())
                if loop is not None:
                    here[loop], offset = b.add(variables[loop], t), offset + t * s.vectors.along[loop]
                steps.append((here, offset))
        later = loop if loop is not None else next(reversed(self.blocks.serial), None)
        self.later = [] if later is None else self.later_rows([here for here, _ in steps], later, each)
        places = [(i, {v: i64(k) for v, k in inner.items()}) for i, inner in enumerate(w.combinations(s.inner))]
        if s.places_in_registers == len(places):
            self.columns(steps, x, places)
            return
        for i, fixed in places:
            self.columns([({**here, **fixed}, offset) for here, offset in steps], x, [(i, fixed)])
            self.later = []  # the places share their rows

    def later_rows(self, steps: list[Variables], loop: int, each: int) -> list[tuple[V, int]]:
        """The rows of arrays that a later block reads: the address of the first lane, and the bits from lane to
        lane."""
        b, s = self.b, self.s
        found: dict[tuple[Key, tuple[V, ...]], tuple[V, int]] = {}
        for key in s.nest.loads:
            bits = self.w.run_bits(key)
            if bits is None or loop not in variables(key[1]) or are_outputs_sequential(s, key, loop):
                continue
            distance = each * max(1, -(-8 * tuning.GEMM_VECTOR_PREFETCH // (s.chunk * bits * len(steps))))
            for here in steps:
                place = tuple(here[v] for v, _ in linear(key).terms if v in here)
                if (key, place) not in found:
                    later = {**here, loop: b.add(here[loop], distance), s.lanes: self.start}
                    later.update(dict.fromkeys(s.inner, i64(0)))
                    found[key, place] = self.w.address(key, later), bits
        return list(found.values())

    def prefetch(self, j: V, width: int) -> None:
        """Fetches the elements of a later block for a vector of outputs: its rows lie in other pages, where hardware
        prefetchers do not look. All lines of a block at once would make the arithmetic wait for them."""
        b = self.b
        for address, bits in self.later:
            for line in range(0, width * bits // 8, LINE):
                b.prefetch(b.offset(address, b.add(b.mul(b.sub(j, self.start), bits // 8), line)), locality=2)

    def columns(self, steps: Steps, x: V, places: Places) -> None:
        """Emits the loop over vectors of outputs, and the rest of the chunk."""
        b, width = self.b, self.w.width
        outputs = self.outputs if self.s.places_in_registers else self.outputs_in_memory
        whole = b.add(self.start, b.and_(b.sub(self.stop, self.start), i64(-width)))
        with b.loop(self.start, whole, width, "outputs") as j:
            self.prefetch(j, width)
            outputs(steps, x, places, j, width)
        if self.s.nest.extents[self.s.lanes] % width == 0 and self.s.chunk % width == 0:
            return
        if self.s.target.has_masks:
            with b.loop(whole, self.stop, width, "rest") as j:
                left = b.splat(b.cast("trunc", b.sub(self.stop, j), "i32"), width)
                outputs(steps, x, places, j, width, b.icmp("slt", b.iota("i32", width), left))
        else:
            with b.loop(whole, self.stop, 1, "rest") as j:
                outputs(steps, x, places, j, 1)

    def outputs(self, steps: Steps, x: V, places: Places, j: V, width: int, mask: V | None = None) -> None:
        """Adds the products of some elements of M with all vectors to sums that are in registers meanwhile."""
        b, s, w = self.b, self.s, self.w
        addresses = [self.sum(j, r, place) for r in range(s.count) for place, _ in places]
        totals = [b.load(vector(w.acc, width), address, align=w.size) for address in addresses]
        for here, offset in steps:
            factors = [self.factor(x, r, offset, width) for r in range(s.count)]
            for i, place in enumerate(places):
                element = self.element(here, place, j, width, mask)
                for at, factor in zip(range(i, len(totals), len(places)), factors, strict=True):
                    totals[at] = w.multiply_add(factor, element, totals[at])
        for total, address in zip(totals, addresses, strict=True):
            b.store(total, address, align=w.size)

    def outputs_in_memory(self, steps: Steps, x: V, places: Places, j: V, width: int, mask: V | None = None) -> None:
        """Computes some elements of M, and adds their products with one vector after the other to the sums."""
        b, s, w = self.b, self.s, self.w
        for place in places:
            elements = [self.element(here, place, j, width, mask) for here, _ in steps]
            for r in range(s.count):
                address = self.sum(j, r, place[0])
                total = b.load(vector(w.acc, width), address, align=w.size)
                for (_, offset), element in zip(steps, elements, strict=True):
                    total = w.multiply_add(self.factor(x, r, offset, width), element, total)
                b.store(total, address, align=w.size)

    def sum(self, j: V, r: int, place: int) -> V:
        """The address of a vector of sums."""
        b, w = self.b, self.w
        return b.offset(b.offset(w.sums, b.mul(b.sub(j, self.start), w.size)), r * w.sums_row + place * w.sums_chunk)

    def factor(self, x: V, r: int, offset: int, width: int) -> V:
        """An element of a vector, in all lanes."""
        b, w = self.b, self.w
        return b.splat(b.load(w.acc, b.offset(x, (r * self.s.vectors.row + offset) * w.factor_size)), width)
