"""Units of a product with a matrix computed in registers, with lanes along terms (see `operand_in_registers.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key
from shlo_jit.ir.index import variables
from shlo_jit.kernels.lane_sums import fold, fold_each
from shlo_jit.kernels.llvm_values import V, const, i64, is_float, vector
from shlo_jit.lower.elements.nibble_tables import ENTRIES
from shlo_jit.lower.kernels.converted_rows import ConvertedRows
from shlo_jit.lower.kernels.units_in_registers import UnitWriter, Variables
from shlo_jit.schedule.register_vectors import LINE
from shlo_jit.schedule.run_time_offsets import bits_in_memory
from shlo_jit.schedule.sequential_reads import adjoin, are_terms_sequential
from shlo_jit.schedule.short_rows import loops_around_lanes, row_bytes, short_rows
from shlo_jit.schedule.space import linear


class Terms:
    """Writes a chunk whose lanes are terms: the sums of some outputs and all vectors are in registers."""

    def __init__(self, w: UnitWriter, variables: Variables, x: V, y: V, start: V, stop: V):
        self.w, self.b, self.s = w, w.b, w.s
        self.variables, self.x, self.y, self.start, self.stop = variables, x, y, start, stop
        s = w.s
        self.serial, self.short = loops_around_lanes(s), s.short
        self.short_rows = short_rows(s)
        self.converted = ConvertedRows(w)
        extent = s.nest.extents[s.lanes]
        self.whole = extent - extent % w.width

    def write(self) -> None:
        s = self.s
        if s.terms_block is not None:
            self.write_blocks(*s.terms_block)
            return
        zero = const(self.kind, 0)
        rest = [const(self.w.acc, 0)] * (s.together * s.count) if self.whole < s.nest.extents[s.lanes] else []
        with self.each_outputs() as outputs:
            for key in self.short_rows:
                inside = dict.fromkeys(s.along, i64(0))
                for line in range(0, row_bytes(s, key), LINE):
                    self.prefetch(inside, outputs, key, line)
            self.converted.convert(outputs)
            self.finish(outputs, self.loops(self.serial, outputs, self.x, [*[zero] * (s.together * s.count), *rest]))

    @property
    def kind(self) -> str:
        """The type of the sums of an output and a vector."""
        return vector(self.w.acc, self.w.width // self.w.per_lane)

    @contextmanager
    def each_outputs(self) -> Iterator[list[Variables]]:
        """Emits a loop over the outputs, some of which are computed together."""
        b, s = self.b, self.s
        are_whole = s.chunk % s.together == 0 and s.nest.extents[s.cut] % s.together == 0
        last = b.sub(self.stop, 1)
        with b.loop(self.start, self.stop, s.together, "outputs") as o:
            self.first_output = o
            each = [b.add(o, i) for i in range(s.together)]
            yield [{**self.variables, s.cut: at if are_whole else b.min_(at, last)} for at in each]

    def write_blocks(self, v: int, block: int) -> None:
        """Emits blocks of the outermost loop along k, each for all outputs; sums are in memory in between."""
        b, s = self.b, self.s
        count, extent = s.together * s.count, s.nest.extents[v]
        with self.each_outputs():
            self.keep([const(self.kind, 0)] * count)
        end = self.whole if v == s.lanes else extent
        with b.loop(0, end, block, "block") as first, self.each_outputs() as outputs:
            last = b.min_(b.add(first, block), end)
            self.keep(self.loops(self.serial, outputs, self.x, self.kept(), (first, last)))
        with self.each_outputs() as outputs:
            rest = []
            if v == s.lanes and end < extent:
                rest = self.over(end, extent, 1, outputs, self.x, [const(self.w.acc, 0)] * count)
            self.finish(outputs, [*self.kept(), *rest])

    def kept(self) -> list[V]:
        """The sums of the outputs that are computed together, from memory."""
        return [self.b.load(self.kind, at, align=self.w.size) for at in self.places()]

    def keep(self, sums: list[V]) -> None:
        for total, at in zip(sums, self.places(), strict=True):
            self.b.store(total, at, align=self.w.size)

    def places(self) -> list[V]:
        b, s, size = self.b, self.s, self.w.width * self.w.size
        first = b.offset(self.w.sums, b.mul(b.sub(self.first_output, self.start), s.count * size))
        return [b.offset(first, i * size) for i in range(s.together * s.count)]

    def finish(self, outputs: list[Variables], sums: list[V]) -> None:
        """Adds up the lanes of sums, and stores the results."""
        b, s, w = self.b, self.s, self.w
        n = s.together * s.count
        totals = fold_each(b, sums[:n])
        if len(sums) > n:
            add = b.fadd if is_float(w.acc) else b.add
            totals = [add(total, more) for total, more in zip(totals, sums[n:], strict=True)]
        step = s.free[s.cut] * s.outputs.free * w.size
        for i, output in enumerate(outputs):
            for r in range(s.count):
                to = b.offset(self.y, b.mul(output[s.cut], step))
                b.store(self.finished(totals[i * s.count + r], r), b.offset(to, r * s.outputs.row * w.size))

    def finished(self, total: V, r: int) -> V:
        """The result, from the sum of an output and a vector."""
        return total

    def loops(
        self,
        serial: Sequence[int],
        outputs: list[Variables],
        x: V,
        sums: list[V],
        part: tuple[V, V] | None = None,
    ) -> list[V]:
        """Emits the loops along k, outermost first. Returns the sums. `part`: the iterations of the outermost one,
        without those that do not fill a vector."""
        b, s, w = self.b, self.s, self.w
        if serial:
            v, *more = serial
            if v in w.unrolled:
                for i in range(s.nest.extents[v]):
                    at = b.offset(x, i * s.vectors.along[v] * w.factor_size)
                    sums = self.loops(more, [{**here, v: i64(i)} for here in outputs], at, sums)
                return sums
            with b.loop_carry(*(part or (0, s.nest.extents[v])), sums, 1, "k") as carry:
                at = b.offset(x, b.mul(carry.index, s.vectors.along[v] * w.factor_size))
                inside = [{**here, v: carry.index} for here in outputs]
                carry.next(*self.loops(more, inside, at, carry.values))
            return carry.values
        unrolls = part is None and self.whole // w.width <= s.steps // 2
        own = s.nest.loads if part is not None else [key for key in s.nest.loads if key not in self.short_rows]
        self.prefetch_terms(i64(0), outputs, [key for key in own if unrolls or not self.moves(key)])
        if part is not None:
            return self.over_vectors(*part, outputs, x, sums)
        vectors, rest = sums[: s.together * s.count], sums[s.together * s.count :]
        vectors = self.over(0, self.whole, w.width, outputs, x, vectors)
        if rest:
            first, rest = self.narrower(outputs, x, rest)
            rest = self.over(first, s.nest.extents[s.lanes], 1, outputs, x, rest)
        return [*vectors, *rest]

    def narrower(self, outputs: list[Variables], x: V, sums: list[V]) -> tuple[int, list[V]]:
        """Adds the sums of narrower vectors of the terms that do not fill one. Returns the first term that is left, and
        the sums. Only sums of integers have no order."""
        w, s = self.w, self.s
        at, width = self.whole, w.width // 2
        narrowest = None if s.dots is None else s.dots.narrowest
        while narrowest is not None and width >= narrowest:
            if s.nest.extents[s.lanes] - at >= width:
                zero = const(vector(w.acc, width // w.per_lane), 0)
                found = self.terms(i64(at), width, outputs, x, [zero] * len(sums))
                sums = [self.b.add(total, fold(self.b, more)) for total, more in zip(sums, found, strict=True)]
                at += width
            width //= 2
        return at, sums

    def over(self, first: int, last: int, width: int, outputs: list[Variables], x: V, sums: list[V]) -> list[V]:
        """Emits the loop along the lanes."""
        b, s = self.b, self.s
        if width > 1 and (last - first) // width <= s.steps // 2:
            # Output by output: scales and what else an output's terms share are in registers for one output at a time.
            found = list[V]()
            for i, here in enumerate(outputs):
                own = sums[i * s.count : (i + 1) * s.count]
                for at in range(first, last, width):
                    own = self.terms(i64(at), width, [here], x, own)
                found += own
            return found
        if width > 1:
            return self.over_vectors(i64(first), i64(last), outputs, x, sums)
        with b.loop_carry(first, last, sums, width, "terms") as carry:
            carry.next(*self.terms(carry.index, width, outputs, x, carry.values))
        return carry.values

    def over_vectors(self, first: V, last: V, outputs: list[Variables], x: V, sums: list[V]) -> list[V]:
        """Emits a loop over vectors of terms."""
        b, s, width = self.b, self.s, self.w.width
        with b.loop_carry(first, last, sums, width, "terms") as carry:
            self.prefetch_terms(carry.index, outputs, [key for key in s.nest.loads if self.moves(key)])
            carry.next(*self.terms(carry.index, width, outputs, x, carry.values))
        return carry.values

    def moves(self, key: Key) -> bool:
        """Whether an array is read at another place in each iteration along the lanes."""
        return self.s.space.depends(key[1], {self.s.lanes})

    def prefetch_terms(self, at: V, outputs: list[Variables], keys: list[Key]) -> None:
        """Fetches terms of some arrays for later outputs, to the second-level cache: the first level can wait for few
        lines at a time, fewer than memory needs. Blocks of terms of two outputs do not adjoin."""
        are_whole = self.s.terms_block is None
        for key in keys:
            inside = {**dict.fromkeys(self.short, i64(0)), self.s.lanes: at}
            if self.moves(key) and are_terms_sequential(self.s, key):
                continue
            if are_whole and self.moves(key) and adjoin(self.s, key):
                self.prefetch_in_order(inside, outputs, key)
            else:
                self.prefetch(inside, outputs, key)

    def prefetch_in_order(self, inside: Variables, outputs: list[Variables], key: Key) -> None:
        """Fetches lines of an array for later outputs in the order of their addresses, as many as are read meanwhile.
        Outputs that are computed together are read at several places in turn, which hardware prefetchers do not
        recognize as sequential: fetched in that order, lines take twice as long (measured on Zen 4)."""
        w, b, s = self.w, self.w.b, self.s
        offset, bits = linear(key), bits_in_memory(key[0])
        first = {**outputs[0], **inside}
        done = i64(0)
        for v in s.along:
            done = b.add(done, b.mul(first[v], offset.coefficient(v)))
        done = b.ashr(b.mul(done, (s.together - 1) * bits), 3)
        here = b.offset(b.offset(w.address(key, first), done), self.ahead(key) * offset.coefficient(s.cut) * bits // 8)
        for line in range(0, w.width * abs(offset.coefficient(s.lanes)) * s.together * bits // 8, LINE):
            b.prefetch(b.offset(here, line), locality=2)

    def ahead(self, key: Key) -> int:
        """Number of outputs from those whose terms are read to those whose terms are fetched."""
        nbytes = row_bytes(self.s, key)
        if self.s.terms_block is not None:
            v, block = self.s.terms_block
            nbytes = nbytes * block // self.s.nest.extents[v]
        rows = max(LINE, nbytes * self.s.together)
        return -(-tuning.COMPUTED_PREFETCH // rows) * self.s.together

    def prefetch(self, inside: Variables, outputs: list[Variables], key: Key, further: int = 0) -> None:
        """Fetches a line of an array for later outputs, `further` bytes after the place of some terms: rows are too
        short for the hardware to see where the next one is."""
        w, s = self.w, self.s
        offset = linear(key)
        if any(variables(term.at) for term in offset.syms) or not offset.coefficient(s.cut):
            return
        distance = self.ahead(key) * offset.coefficient(s.cut) * bits_in_memory(key[0]) // 8 + further
        for here in outputs:
            w.b.prefetch(w.b.offset(w.address(key, {**here, **inside}), distance), locality=2)

    def terms(self, at: V, width: int, outputs: list[Variables], x: V, sums: list[V]) -> list[V]:
        """Adds the products of some terms."""
        b, s, w = self.b, self.s, self.w
        found = list(sums)
        of_first = dict.fromkeys([*self.short, s.lanes], i64(0))
        rows = [self.converted.found(here) for here in outputs]
        tables = [
            w.table({**here, **of_first}, row) if width % ENTRIES == 0 else None
            for here, row in zip(outputs, rows, strict=True)
        ]
        for inner in w.combinations(self.short):
            fixed = {v: i64(k) for v, k in inner.items()}
            offset = sum(s.vectors.along[v] * k for v, k in inner.items())
            elements = [
                w.element({**here, **fixed, s.lanes: at}, width, found=row, table=table)
                for here, row, table in zip(outputs, rows, tables, strict=True)
            ]
            place = b.offset(x, b.mul(at, s.vectors.along[s.lanes] * w.factor_size))
            for r in range(s.count):
                of = b.offset(place, (offset + r * s.vectors.row) * w.factor_size)
                factor = b.load(vector(w.acc, width), of, align=w.size)
                for i, element in enumerate(elements):
                    found[i * s.count + r] = w.multiply_add(factor, element, found[i * s.count + r])
        return found
