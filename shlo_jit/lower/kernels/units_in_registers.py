"""The function of the units of a product whose matrix is computed in registers (see `operand_in_registers.py`): which
outputs of which product a unit has, and what both kinds of units need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Protocol

from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import Condition, Expr, variables
from shlo_jit.ir.types import DTYPES
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64, is_float, vector, vector_literal
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.nibble_tables import ENTRIES, look_up_in
from shlo_jit.lower.elements.registers import Reg, memory_type, register_type
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.services import Services
from shlo_jit.schedule.operand_in_registers import SUMMED, InRegistersSchedule
from shlo_jit.schedule.run_time_offsets import Offsets, bits_in_memory
from shlo_jit.schedule.space import Space, linear

Variables = dict[int, V]
Found = dict[Key, Reg]
"""Registers of values that need not be computed."""


class ChunkWriter(Protocol):
    """Writes a chunk of the outputs of one product."""

    def write(self) -> None:
        """Emits the chunk."""
        ...


BF16 = DTYPES["bf16"]
MakeChunkWriter = Callable[["UnitWriter", Variables, V, V, V, V], ChunkWriter]
"""Takes the variables that number a chunk's outputs, the addresses of the vectors and of the results, and the first and
last output."""


class UnitWriter:
    """Writes the function of the units: `void @name(ptr arrays..., ptr vectors, ptr results, [ptr frame], i64 first,
    i64 last)`."""

    def __init__(
        self,
        low: Services,
        s: InRegistersSchedule,
        name: str,
        values: list[Value],
        epilogue: V | None,
        make_chunk_writer: MakeChunkWriter,
    ):
        self.low, self.s, self.name, self.values, self.epilogue = low, s, name, values, epilogue
        self.make_chunk_writer = make_chunk_writer
        self.acc, self.size, self.factor_size = register_type(s.acc), s.acc.itemsize, s.factor.itemsize
        self.width, self.unrolled, self.group = s.space.width, s.unrolled, 1 if s.dots is None else s.dots.group
        self.per_lane = 1 if s.dots is None else s.dots.per_lane

    def write(self, pointers: int) -> None:
        self.begin(pointers)
        first, last = self.b.params[-2:]
        with self.b.loop(first, last, 1, "unit") as unit:
            self.unit(unit)
        self.b.ret()

    def begin(self, pointers: int, numbers: Sequence[str] = ("first", "last")) -> None:
        """Begins the function, and reserves memory for the sums. `numbers`: the names of the last parameters."""
        params = [("ptr", f"p{i}") for i in range(pointers)] + [("i64", name) for name in numbers]
        s = self.s
        self.b = b = self.low.module.function(self.name, params, attributes="nounwind")
        arrays = b.params[: len(self.values)]
        self.vectors, self.results = b.params[len(self.values) : len(self.values) + 2]
        self.parts = self.results
        self.frame = b.params[len(self.values) + 2] if self.epilogue is not None else None
        given = dict(zip(self.values, arrays, strict=True))
        self.ev = Evaluator(b, s.nest, s.space, given | moved_pointers(b, s.nest, s.space, s.offsets, given))
        self.ev.words = s.words
        self.conditions = {c for _, at in (*s.nest.nodes, *s.nest.loads) for c in at.conditions if not c.expr.syms}
        self.known = Position({}, 1)
        load_common_indices(self.ev, self.known)
        if s.are_outputs:
            self.sums = b.alloca("i8", s.count * self.sums_row)
            lanes = self.sums_row // self.size
            self.arranged = {key: b.alloca(memory_type(key[0].tensor.storage), lanes) for key in s.arranged}
        elif s.terms_block is not None:
            self.sums = b.alloca("i8", -(-s.chunk // s.together) * s.together * s.count * self.width * self.size)

    def unit(self, unit: V) -> None:
        """Emits one unit: a chunk of the outputs of one product."""
        b, s = self.b, self.s
        part, unit = b.urem(unit, s.parts), b.udiv(unit, s.parts)
        rest, variables = b.udiv(unit, s.chunks), Variables()
        for v in reversed(s.outer):
            variables[v] = b.urem(rest, s.nest.extents[v])
            rest = b.udiv(rest, s.nest.extents[v])
        start = b.mul(b.urem(unit, s.chunks), s.chunk)
        stop = b.min_(b.add(start, s.chunk), s.nest.extents[s.cut])
        self.bounds = _bounds(b, s, part)
        if s.totals is None:
            batch = self.number(variables, s.batch)
            if s.parts > 1:
                size = s.sums_of_part * self.size
                self.results = b.offset(self.parts, b.mul(b.add(b.mul(batch, s.parts), part), size))
            self.product(batch, variables, start, stop)
            return
        with b.loop(0, s.products, 1, "product") as batch:
            inside, left = dict(variables), batch
            for v in reversed(s.batch):
                inside[v], left = b.urem(left, s.nest.extents[v]), b.udiv(left, s.nest.extents[v])
            self.product(batch, inside, start, stop)

    def product(self, batch: V, variables: Variables, start: V, stop: V) -> None:
        """Emits a chunk of the outputs of one product."""
        b, s = self.b, self.s
        x = b.offset(self.vectors, b.mul(batch, s.vectors.batch * self.factor_size))
        base = self.number(variables, {v: c for v, c in s.free.items() if v in variables})
        to = s.own_outputs
        y = b.offset(self.results, b.mul(b.add(b.mul(batch, to.batch), b.mul(base, to.free)), self.size))
        with b.loop(0, s.passes, 1, "pass") as i:
            row = b.min_(b.mul(i, s.count), s.rows - s.count)
            of, at = b.mul(row, s.vectors.row * self.factor_size), b.mul(row, to.row * self.size)
            self.make_chunk_writer(self, variables, b.offset(x, of), b.offset(y, at), start, stop).write()
        if self.epilogue is not None and s.parts == 1:
            first, last = (b.add(base, b.mul(at, s.free[s.cut])) for at in (start, stop))
            self.notify(batch, first, last)

    def notify(self, batch: V, first: V, last: V) -> None:
        """Calls the epilogue for some outputs of a product."""
        b, s = self.b, self.s
        ends = [i64(0), i64(s.rows), first, last] if s.side else [first, last, i64(0), i64(s.rows)]
        assert self.epilogue is not None and self.frame is not None
        b.call_pointer("void", self.epilogue, [self.frame, batch, *ends])

    def write_sums(self, name: str) -> None:
        """Writes `void @name(ptr parts, ptr results, [ptr frame], i64 first, i64 last)`, which adds up the parts of
        the terms for some runs of SUMMED outputs."""
        s = self.s
        params = [("ptr", "parts"), ("ptr", "results"), *([("ptr", "frame")] if self.epilogue is not None else [])]
        params += [("i64", "first"), ("i64", "last")]
        self.b = b = self.low.module.function(name, params, attributes="nounwind")
        parts, results = b.params[:2]
        self.frame = b.params[2] if self.epilogue is not None else None
        first, last = b.params[-2:]
        runs, outputs = -(-s.output_count // SUMMED), s.output_count
        with b.loop(first, last, 1, "unit") as unit:
            batch, start = b.udiv(unit, runs), b.mul(b.urem(unit, runs), SUMMED)
            stop = b.min_(b.add(start, SUMMED), outputs)
            of = b.offset(parts, b.mul(batch, s.parts * s.sums_of_part * self.size))
            y = b.offset(results, b.mul(batch, s.outputs.batch * self.size))
            with b.loop(0, s.count, 1, "vector") as r:
                row, to = b.mul(r, outputs * self.size), b.mul(r, s.outputs.row * self.size)
                whole = b.add(start, b.and_(b.sub(stop, start), i64(-self.width)))
                steps = (start, whole, self.width), (whole, stop, 1)
                for low, high, width in steps if s.outputs.free == 1 else ((start, stop, 1),):
                    with b.loop(low, high, width, "outputs") as j:
                        at = b.offset(of, b.add(row, b.mul(j, self.size)))
                        kind, total = vector(self.acc, width), None
                        for part in range(s.parts):
                            place = b.offset(at, part * s.sums_of_part * self.size)
                            x = b.load(kind, place, align=self.size)
                            total = x if total is None else b.fadd(total, x) if is_float(self.acc) else b.add(total, x)
                        assert total is not None
                        b.store(total, b.offset(y, b.add(to, b.mul(j, s.outputs.free * self.size))), align=self.size)
            if self.epilogue is not None:
                self.notify(batch, start, stop)
        b.ret()

    def number(self, variables: Variables, coefficients: dict[int, int]) -> V:
        total = i64(0)
        for v, c in coefficients.items():
            total = self.b.add(total, self.b.mul(variables[v], c))
        return total

    @property
    def sums_row(self) -> int:
        """Bytes of the sums of one vector."""
        s = self.s
        inner = 1
        for v in s.inner:
            inner *= s.nest.extents[v]
        return inner * self.sums_chunk

    @property
    def sums_chunk(self) -> int:
        return -(-self.s.chunk // self.width) * self.width * self.size

    def element(
        self,
        variables: Variables,
        width: int,
        mask: V | None = None,
        found: Found | None = None,
        table: V | None = None,
    ) -> V:
        """The elements of M at an iteration, as `own_value` returns them. `found`: values that it is computed from,
        which are in registers already. `table`: what `table` has returned for the iterations along the lanes."""
        position = Position(variables, width, mask, self.known)
        position.memo.update(found or {})
        known = ((c, self.truth(c, variables, width)) for c in self.conditions)
        position.truth = {c: truth for c, truth in known if truth is not None}
        if table is not None:
            assert self.s.tabulated is not None
            index = self.ev.value(position, self.s.tabulated)
            assert isinstance(index, V)
            return look_up_in(self.b, index, table)
        return self.own_value(position, width)

    def table(self, variables: Variables, found: Found) -> V | None:
        """The elements of M for all numbers that it is a function of, repeated to fill a register, if they are looked
        up. `found`: see `element`."""
        key = self.s.tabulated
        if key is None:
            return None
        position = Position(variables, ENTRIES, None, self.known)
        position.memo.update(found)
        width = key[0].tensor.storage.bits  # an index has 4 bits: those above a number of 2 do not matter
        position.memo[key] = vector_literal(f"i{width}", [i % (1 << width) for i in range(ENTRIES)])
        return self.own_value(position, ENTRIES)

    def own_value(self, position: Position, width: int) -> V:
        """The elements of M, in the type of the sums, or vectors in that of the factors that instructions multiply."""
        s = self.s
        is_bf16 = s.dots is not None and s.dots.is_float and width > 1
        if is_bf16 and s.key in s.nest.nodes:
            for operand in s.nest.nodes[s.key].operands:
                self.ev.value(position, operand)  # only the elements themselves are rounded by an instruction
        self.b.flushes_bf16 = is_bf16
        x = self.ev.value(position, s.key)
        self.b.flushes_bf16 = False
        y = convert(self.b, s.key[0].tensor.storage, BF16 if is_bf16 else s.acc, x)
        assert isinstance(y, V)
        return self.b.splat(y, width)

    def truth(self, c: Condition, variables: Variables, width: int) -> bool | None:
        """Whether a condition holds at `width` lanes; None if that is unknown, or differs from lane to lane."""
        first = _literal(c, variables)
        if first is None:
            return None
        last = first + (width - 1) * sum(k for v, k in c.expr.terms if v == self.s.lanes)
        found = {c.low <= at < c.high for at in (first, last)}
        crosses = min(first, last) < c.low and max(first, last) >= c.high
        return found.pop() if len(found) == 1 and not crosses else None

    def run_bits(self, key: Key) -> int | None:
        """The bits from lane to lane of an array that is contiguous along the lanes; None for others."""
        offset, t = linear(key), key[0].tensor
        moves = offset.coefficient(self.s.lanes)
        in_words = key in self.ev.words
        bits = bits_in_memory(key[0]) * (moves if t.is_packed or in_words else 1)
        is_run = bits in (8, 32) if t.is_packed else moves == 1 or in_words
        return bits if is_run and not offset.syms else None

    def address(self, key: Key, variables: Variables) -> V:
        """The address of an element of an array."""
        b, storage = self.b, key[0].tensor.storage
        first = self.ev.base(Position(variables, 1), linear(key))
        is_packed = key[0].tensor.is_packed
        before = b.ashr(b.mul(first, storage.bits), 3) if is_packed else b.mul(first, storage.itemsize)
        return b.offset(self.ev.pointers[key[0]], before)

    def multiply_add(self, x: V, y: V, z: V) -> V:
        b = self.b
        if not is_float(self.acc):
            return b.add(b.mul(x, y), z)
        return b.fma(x, y, z) if self.s.target.has_fma else b.fadd(b.fmul(x, y), z)

    def iterations(self, v: int) -> Iterator[V]:
        """The iterations of a loop: one that is emitted for each of them, or a value for all."""
        if v in self.unrolled:
            yield from map(i64, range(self.s.nest.extents[v]))
            return
        low, high = self.bounds.get(v, (i64(0), i64(self.s.nest.extents[v])))
        with self.b.loop(low, high, 1, "k") as i:
            yield i

    def combinations(self, variables: Sequence[int]) -> Iterator[dict[int, int]]:
        """All iterations of some short loops, the last innermost."""
        return combinations(self.s.nest, variables)


def combinations(nest: Nest, variables: Sequence[int]) -> Iterator[dict[int, int]]:
    """All iterations of some short loops of a nest, the last innermost."""
    for iteration in product(*(range(nest.extents[v]) for v in variables)):
        yield dict(zip(variables, iteration, strict=True))


def load_common_indices(ev: Evaluator, known: Position) -> None:
    """Loads the indices that are the same for all elements of a nest."""
    for key in ev.nest.loads:
        for sym in linear(key).syms:
            if not variables(sym.at):
                ev.value(known, (sym.value, sym.at))


def moved_pointers(
    b: Builder, nest: Nest, space: Space, offsets: Offsets, pointers: dict[Value, V]
) -> dict[Value, V]:
    """The addresses that arrays with an offset are read from."""
    indices, found = Evaluator(b, nest, space, pointers), dict[Value, V]()
    for value, offset in offsets.items():
        elements = indices.base(Position({}, 1), Expr(0, (), offset))
        found[value] = b.offset(pointers[value], b.ashr(b.mul(elements, bits_in_memory(value)), 3))
    return found


def _literal(c: Condition, variables: Variables) -> int | None:
    """The number that a condition compares, if it is known."""
    total = c.expr.const
    for v, k in c.expr.terms:
        literal = variables[v].literal if v in variables else None
        if literal is None:
            return None
        total += k * literal
    return total


def _bounds(b: Builder, s: InRegistersSchedule, part: V) -> dict[int, tuple[V, V]]:
    """The iterations of a part of the terms, of the variable that is cut into parts."""
    if s.parts == 1:
        return {}
    extent = s.nest.extents[s.split]
    step = s.blocks.step if s.split == s.blocks.loop else 1
    each = -(-extent // (s.parts * step)) * step
    low = b.min_(b.mul(part, each), extent)
    return {s.split: (low, b.min_(b.add(low, each), extent))}
