"""Units of a product with a matrix computed in registers, with lanes along terms (see `operand_in_registers.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key
from shlo_jit.ir.index import variables
from shlo_jit.ir.types import DTYPES
from shlo_jit.kernels.gemm.micro import fold
from shlo_jit.kernels.llvm_values import V, const, i64, is_float, vector
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.nibble_tables import ENTRIES
from shlo_jit.lower.elements.registers import Reg, from_memory, memory_type
from shlo_jit.lower.kernels.units_in_registers import LINE, UnitWriter, Variables
from shlo_jit.schedule.run_time_offsets import bits_in_memory
from shlo_jit.schedule.space import linear


class Terms:
    """Writes a chunk whose lanes are terms: the sums of some outputs and all vectors are in registers."""

    def __init__(self, w: UnitWriter, variables: Variables, x: V, y: V, start: V, stop: V):
        self.w, self.b, self.s = w, w.b, w.s
        self.variables, self.x, self.y, self.start, self.stop = variables, x, y, start, stop
        self.wide: dict[Key, V] = {}
        """The rows of `widened`, one for each output that is computed together."""
        s = w.s
        own = s.along[s.lanes]
        self.serial = [v for v in s.along if s.along[v] > own]
        self.short = s.short
        extent = s.nest.extents[s.lanes]
        self.whole = extent - extent % w.width

    def write(self) -> None:
        s = self.s
        if s.terms_block is not None:
            self.write_blocks(*s.terms_block)
            return
        self.wide = {key: self.b.alloca("float", s.together * self.terms_of_row(key)) for key in self.widened}
        zero = const(self.kind, 0)
        rest = [const(self.w.acc, 0)] * (s.together * s.count) if self.whole < s.nest.extents[s.lanes] else []
        with self.each_outputs() as outputs:
            for key in self.short_rows:
                inside = dict.fromkeys(s.along, i64(0))
                for line in range(0, self.row_bytes(key), LINE):
                    self.prefetch(inside, outputs, key, line)
            self.widen(outputs)
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
        totals = [fold(b, total) for total in sums[:n]]
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
            rest = self.over(self.whole, s.nest.extents[s.lanes], 1, outputs, x, rest)
        return [*vectors, *rest]

    def over(self, first: int, last: int, width: int, outputs: list[Variables], x: V, sums: list[V]) -> list[V]:
        """Emits the loop along the lanes."""
        b, s = self.b, self.s
        if width > 1 and (last - first) // width <= s.steps // 2:
            # Output by output: scales and what else an output's terms share are in registers for one output at a time.
            found = list[V]()
            for i, here in enumerate(outputs):
                own = sums[i * s.count : (i + 1) * s.count]
                for at in range(first, last, width):
                    own = self.terms(i64(at), width, [here], x, own, i)
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

    @property
    def short_rows(self) -> list[Key]:
        """Arrays of which an output reads few lines, a small part of one in each iteration of the loops along k, such
        as scales of groups."""
        if not self.serial or self.serial[-1] in self.w.unrolled or self.s.terms_block is not None:
            return []
        inner = self.serial[-1]

        def is_short(key: Key) -> bool:
            step = abs(linear(key).coefficient(inner)) * bits_in_memory(key[0]) // 8
            return (
                not self.moves(key)
                and 0 < step <= LINE // 8
                and self.row_bytes(key) <= tuning.COMPUTED_PREFETCH_LINES * LINE
            )

        return [key for key in self.s.nest.loads if is_short(key)]

    @property
    def widened(self) -> dict[Key, Key]:
        """Short rows of f16 and bf16 that are only converted, to f32, with the results. A row is converted at once: for
        each of its elements that takes as many instructions as for a vector of them."""
        nest, found = self.s.nest, dict[Key, Key]()
        for key in self.short_rows if self.s.dots is None else []:
            storage, offset = key[0].tensor.storage, linear(key)
            readers = [(result, node.op) for result, node in nest.nodes.items() if key in node.operands]
            is_row = offset.coefficient(self.serial[-1]) == 1 and not offset.syms and not key[1].conditions
            is_row = is_row and all(offset.coefficient(v) == 0 for v in self.serial[:-1])
            if storage.name in ("f16", "bf16") and is_row and len(readers) == 1:
                ((result, op),) = readers
                if op.name == "stablehlo.convert" and result[0].tensor.storage.name == "f32":
                    found[key] = result
        return found

    def terms_of_row(self, key: Key) -> int:
        """Elements of a short row of f16 or bf16."""
        return self.row_bytes(key) // 2 + 1

    def widen(self, outputs: list[Variables]) -> None:
        """Converts the rows of `widened` of some outputs."""
        b, s = self.b, self.s
        for key, to in self.wide.items():
            storage, count = key[0].tensor.storage, self.terms_of_row(key)
            width = min(s.target.lanes(32), 1 << (count.bit_length() - 1))
            for i, here in enumerate(outputs):
                row = self.w.address(key, {**here, **dict.fromkeys(s.along, i64(0))})
                kind = vector(memory_type(storage), width)
                # The last vector ends with the row, and repeats some elements.
                for first in [*range(0, count - width, width), count - width]:
                    x = from_memory(b, storage, b.load(kind, b.offset(row, 2 * first), align=2))
                    x = convert(b, storage, DTYPES["f32"], x)
                    assert isinstance(x, V)
                    b.store(x, b.offset(to, 4 * (i * count + first)), align=4)

    def of_rows(self, i: int, here: Variables) -> dict[Key, Reg]:
        """The elements of the converted rows of output i at an iteration."""
        found: dict[Key, Reg] = {}
        for key, to in self.wide.items():
            place = self.b.add(here[self.serial[-1]], i * self.terms_of_row(key))
            found[self.widened[key]] = self.b.load("float", self.b.element(to, "float", place))
        return found

    def row_bytes(self, key: Key) -> int:
        """Bytes from the first to the last element of an array that an output reads."""
        s = self.s
        terms = sum((s.nest.extents[v] - 1) * c for v, c in linear(key).terms if v in s.along)
        return terms * bits_in_memory(key[0]) // 8

    def prefetch_terms(self, at: V, outputs: list[Variables], keys: list[Key]) -> None:
        """Fetches terms of some arrays for later outputs."""
        for key in keys:
            inside = {**dict.fromkeys(self.short, i64(0)), self.s.lanes: at}
            if self.moves(key) and self.adjoin(key):
                self.prefetch_in_order(inside, outputs, key)
            else:
                self.prefetch(inside, outputs, key)

    def adjoin(self, key: Key) -> bool:
        """Whether an output's elements of an array begin where those of the output before end."""
        offset, s = linear(key), self.s
        terms = sum((s.nest.extents[v] - 1) * offset.coefficient(v) for v in s.along)
        return offset.coefficient(s.cut) == terms + 1

    def prefetch_in_order(self, inside: Variables, outputs: list[Variables], key: Key) -> None:
        """Fetches lines of an array for later outputs one after the other, as many as are read meanwhile. Outputs that
        are computed together read as many places at once. The hardware, which follows all that is fetched, takes that
        for no order, and lines then come at half the speed (measured on Zen 4)."""
        w, b, s = self.w, self.w.b, self.s
        offset, bits = linear(key), bits_in_memory(key[0])
        first = {**outputs[0], **inside}
        done = i64(0)
        for v in s.along:
            done = b.add(done, b.mul(first[v], offset.coefficient(v)))
        done = b.ashr(b.mul(done, (s.together - 1) * bits), 3)
        here = b.offset(b.offset(w.address(key, first), done), self.ahead(key) * offset.coefficient(s.cut) * bits // 8)
        for line in range(0, w.width * abs(offset.coefficient(s.lanes)) * s.together * bits // 8, LINE):
            b.prefetch(b.offset(here, line))

    def ahead(self, key: Key) -> int:
        """Number of outputs from those whose terms are read to those whose terms are fetched."""
        rows = max(LINE, self.row_bytes(key) * self.s.together)
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
            w.b.prefetch(w.b.offset(w.address(key, {**here, **inside}), distance))

    def terms(self, at: V, width: int, outputs: list[Variables], x: V, sums: list[V], first: int = 0) -> list[V]:
        """Adds the products of some terms. `first`: the number of the first output among those of `widen`."""
        b, s, w = self.b, self.s, self.w
        found = list(sums)
        of_first = dict.fromkeys([*self.short, s.lanes], i64(0))
        rows = [self.of_rows(first + i, here) for i, here in enumerate(outputs)]
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
