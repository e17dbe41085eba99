"""Lowers products of a few vectors with a matrix that is computed in registers, as
`schedule/operand_in_registers.py` has decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key
from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import variables
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.micro import fold
from shlo_jit.kernels.llvm_values import V, const, i64, is_float, vector
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.registers import from_memory, memory_type, register_type
from shlo_jit.lower.kernels.epilogue import NULL, write_epilogue, write_totals
from shlo_jit.lower.kernels.vector_sums import sum_vectors
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.nest import check_supported
from shlo_jit.lower.nest.nest_step import lower_nest
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.operand_in_registers import SUMMED, InRegistersSchedule
from shlo_jit.schedule.space import linear

Variables = dict[int, V]
LINE = 64
"""Bytes of a cache line."""


def lower_in_registers(
    low: Services, step: ComputedOperandStep, s: InRegistersSchedule, units: Units | None = None
) -> None:
    """Copies the vectors if they are read in another order or type, and runs the tasks. `units`: what writes them."""
    check_supported(s.nest)
    b, op = low.b, step.product.op
    fields = shared_fields(b, s.scratch, low.scratch(step))
    source = low.pointer(op.operands[1 - step.operand.side])
    if s.vectors.is_copied:
        to = fields["vectors"]
        b.call("void", _copying(low, step, s), [source, to], declare=False)
        source = to
    out = fields["product"] if s.totals is not None else low.pointer(op.result)
    if s.written is not None:
        out = b.offset(low.pointer(s.written.target), s.written.offset * s.acc.itemsize)
    values = list(dict.fromkeys(v for v, _ in s.nest.loads))
    pointers = [*map(low.pointer, values), source, out]
    epilogue, frame = NULL, NULL
    if s.totals is not None:
        epilogue, frame = write_totals(low, s.totals, out)
    elif s.epilogue is not None:
        epilogue, frame = write_epilogue(low, s.epilogue)
    has_epilogue = epilogue is not NULL
    pointers += [frame] if has_epilogue else []
    hint = f"{step.producer.hint}_product"
    name = low.new_name(hint)
    writer = Writer(low, s, name, values, epilogue if has_epilogue else None, units or Units(Outputs, Terms))
    if s.parts == 1:
        writer.write(len(pointers))
        low.run_units(low.share(hint, name), pointers, s.tasks)
    else:
        pointers[len(values) + 1] = parts = fields["parts"]
        writer.write(len(pointers))
        low.run_units(low.share(hint, name), pointers, s.tasks)
        name = low.new_name("sum_of_parts")
        writer.write_sums(name)
        sums = [parts, out, *([frame] if has_epilogue else [])]
        low.run_units(low.share("sum_of_parts", name), sums, s.sum_tasks)
    if s.epilogue is not None and s.epilogue.is_late:
        lower_nest(low, s.epilogue.step, s.epilogue.schedule)


def _copying(low: Services, step: ComputedOperandStep, s: InRegistersSchedule) -> str:
    """Writes `void @name(ptr from, ptr to)`, which copies the vectors in the order of the loops. Returns its name."""
    name = low.new_name("vectors")
    b = low.module.function(name, [("ptr", "from"), ("ptr", "to")], noalias=True, attributes="nounwind")
    source, to = b.params
    side, strides = step.operand.side, s.strides
    row, along, batch = (
        (strides.a_rs, strides.a_cs, strides.a_bs) if side else (strides.b_cs, strides.b_rs, strides.b_bs)
    )
    order = sorted(s.along, key=lambda v: -s.vectors.along[v])
    loops = [(s.products, batch, s.vectors.batch), (s.count, row, s.vectors.row)]
    loops += [(s.nest.extents[v], s.along[v] * along, s.vectors.along[v]) for v in order]

    def nested(loops: Sequence[tuple[int, int, int]], at: V, place: V) -> None:
        if not loops:
            x = from_memory(b, s.source, b.load(memory_type(s.source), b.element(source, memory_type(s.source), at)))
            y = convert(b, s.source, s.factor, x)
            assert isinstance(y, V)
            b.store(y, b.element(to, memory_type(s.factor), place))
            return
        (extent, read, written), *rest = loops
        with b.loop(0, extent) as i:
            nested(rest, b.add(at, b.mul(i, read)), b.add(place, b.mul(i, written)))

    nested([x for x in loops if x[0] != 1], i64(0), i64(0))
    if s.dots is not None and s.dots.row_padding and not s.are_outputs:
        sum_vectors(b, to, s.products * s.count, s.vectors.row, s.dots.row_padding)
    b.ret()
    return low.share("vectors", name)


class Writer:
    """Writes the function of the units: `void @name(ptr arrays..., ptr vectors, ptr results, [ptr frame], i64 first,
    i64 last)`."""

    def __init__(
        self, low: Services, s: InRegistersSchedule, name: str, values: list[Value], epilogue: V | None, units: Units
    ):
        self.low, self.s, self.name, self.values, self.epilogue, self.units = low, s, name, values, epilogue, units
        self.acc, self.size, self.factor_size = register_type(s.acc), s.acc.itemsize, s.factor.itemsize
        self.width, self.unrolled, self.group = s.space.width, s.unrolled, 1 if s.dots is None else s.dots.group
        self.per_lane = 1 if s.dots is None else s.dots.per_lane

    def write(self, pointers: int) -> None:
        params = [("ptr", f"p{i}") for i in range(pointers)] + [("i64", "first"), ("i64", "last")]
        s = self.s
        self.b = b = self.low.module.function(self.name, params, attributes="nounwind")
        arrays = b.params[: len(self.values)]
        self.vectors, self.results = b.params[len(self.values) : len(self.values) + 2]
        self.parts = self.results
        self.frame = b.params[len(self.values) + 2] if self.epilogue is not None else None
        self.ev = Evaluator(b, s.nest, s.space, dict(zip(self.values, arrays, strict=True)))
        self.known = Position({}, 1)
        for key in s.nest.loads:
            for sym in linear(key).syms:
                if not variables(sym.at):  # an index that is the same for all elements
                    self.ev.value(self.known, (sym.value, sym.at))
        if s.are_outputs:
            self.sums = b.alloca("i8", s.count * self.sums_row)
        first, last = b.params[-2:]
        with b.loop(first, last, 1, "unit") as unit:
            self.unit(unit)
        b.ret()

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
        emit = self.units.outputs if s.are_outputs else self.units.terms
        emit(self, variables, x, y, start, stop).write()
        if self.epilogue is not None and s.parts == 1:
            first, last = (b.add(base, b.mul(at, s.free[s.cut])) for at in (start, stop))
            self.notify(batch, first, last)

    def notify(self, batch: V, first: V, last: V) -> None:
        """Calls the epilogue for some outputs of a product."""
        b, s = self.b, self.s
        ends = [i64(0), i64(s.count), first, last] if s.side else [first, last, i64(0), i64(s.count)]
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

    def element(self, variables: Variables, width: int, mask: V | None = None) -> V:
        """The elements of M at an iteration, in the type of the sums."""
        x = self.ev.value(Position(variables, width, mask, self.known), self.s.key)
        y = convert(self.b, self.s.key[0].tensor.storage, self.s.acc, x)
        assert isinstance(y, V)
        return self.b.splat(y, width)

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
        for iteration in product(*(range(self.s.nest.extents[v]) for v in variables)):
            yield dict(zip(variables, iteration, strict=True))


class Outputs:
    """Writes a unit whose lanes are outputs. The sums of the unit's outputs are in memory: row after row, and for each
    iteration of the inner variables the outputs of a chunk."""

    def __init__(self, w: Writer, variables: Variables, x: V, y: V, start: V, stop: V):
        self.w, self.b, self.s = w, w.b, w.s
        self.variables, self.x, self.y, self.start, self.stop = variables, x, y, start, stop

    def write(self) -> None:
        b, s, w = self.b, self.s, self.w
        b.memset(w.sums, 0, s.count * w.sums_row)
        self.blocks = s.blocks
        self.loops(self.blocks.serial, self.variables, self.x)
        for r in range(s.count):
            for i, inner in enumerate(w.combinations(s.inner)):
                self.copy(r, i, sum(s.free[v] * k for v, k in inner.items()))

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
                self.loops(rest, {**variables, v: i}, b.offset(x, b.mul(i, s.vectors.along[v] * w.factor_size)))
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

    def block(self, variables: Variables, x: V, unrolled: Sequence[int], loop: int | None, each: int) -> None:
        """Emits some steps of k for all outputs of the unit."""
        b, s, w = self.b, self.s, self.w
        steps: list[tuple[Variables, int]] = []
        for t in range(each):
            for inner in w.combinations(unrolled):
                here = {**variables, **{v: i64(k) for v, k in inner.items()}}
                offset = sum(s.vectors.along[v] * k for v, k in inner.items())
                if loop is not None:
                    here[loop], offset = b.add(variables[loop], t), offset + t * s.vectors.along[loop]
                steps.append((here, offset))
        later = loop if loop is not None else next(reversed(self.blocks.serial), None)
        if later is not None:
            self.prefetch([here for here, _ in steps], later, each)
        for i, inner in enumerate(w.combinations(s.inner)):
            fixed = {v: i64(k) for v, k in inner.items()}
            self.columns([({**here, **fixed}, offset) for here, offset in steps], x, i)

    def prefetch(self, steps: list[Variables], loop: int, each: int) -> None:
        """Fetches the elements of a later block, line by line: its rows lie in other pages, where the hardware does not
        look."""
        b, s = self.b, self.s
        seen: set[tuple[Key, tuple[V, ...]]] = set()
        for key in s.nest.loads:
            offset = linear(key)
            t = key[0].tensor
            bits = t.storage.bits * offset.coefficient(s.lanes) if t.is_packed else 8 * t.storage.itemsize
            is_run = bits == 8 if t.is_packed else offset.coefficient(s.lanes) == 1
            if not is_run or offset.syms or loop not in variables(key[1]):
                continue
            distance = each * max(1, -(-8 * tuning.GEMM_VECTOR_PREFETCH // (s.chunk * bits * len(steps))))
            for here in steps:
                place = tuple(here[v] for v, _ in offset.terms if v in here)
                if (key, place) in seen:
                    continue
                seen.add((key, place))
                later = {**here, loop: b.add(here[loop], distance), s.lanes: self.start}
                for v in s.inner:
                    later[v] = i64(0)
                first = self.w.ev.base(Position(later, 1), offset)
                before = b.udiv(b.mul(first, t.storage.bits), 8) if t.is_packed else b.mul(first, bits // 8)
                address = b.offset(self.w.ev.pointers[key[0]], before)
                with b.loop(0, b.mul(b.sub(self.stop, self.start), bits // 8), LINE, "line") as at:
                    b.prefetch(b.offset(address, at))

    def columns(self, steps: list[tuple[Variables, int]], x: V, place: int) -> None:
        """Emits the loop over vectors of outputs, and the rest of the chunk."""
        b, width = self.b, self.w.width
        whole = b.add(self.start, b.and_(b.sub(self.stop, self.start), i64(-width)))
        with b.loop(self.start, whole, width, "outputs") as j:
            self.outputs(steps, x, place, j, width)
        if self.s.nest.extents[self.s.lanes] % width == 0 and self.s.chunk % width == 0:
            return
        if self.s.target.has_masks:
            with b.loop(whole, self.stop, width, "rest") as j:
                left = b.splat(b.cast("trunc", b.sub(self.stop, j), "i32"), width)
                self.outputs(steps, x, place, j, width, b.icmp("slt", b.iota("i32", width), left))
        else:
            with b.loop(whole, self.stop, 1, "rest") as j:
                self.outputs(steps, x, place, j, 1)

    def outputs(
        self, steps: list[tuple[Variables, int]], x: V, place: int, j: V, width: int, mask: V | None = None
    ) -> None:
        """Computes some elements of M, and adds their products with all vectors to the sums."""
        b, s, w = self.b, self.s, self.w
        elements = [w.element({**here, s.lanes: j}, width, mask) for here, _ in steps]
        at = b.offset(w.sums, b.mul(b.sub(j, self.start), w.size))
        for r in range(s.count):
            address = b.offset(at, r * w.sums_row + place * w.sums_chunk)
            total = b.load(vector(w.acc, width), address, align=w.size)
            for (_, offset), element in zip(steps, elements, strict=True):
                factor = b.load(w.acc, b.offset(x, (r * s.vectors.row + offset) * w.factor_size))
                total = w.multiply_add(b.splat(factor, width), element, total)
            b.store(total, address, align=w.size)


class Terms:
    """Writes a unit whose lanes are terms: the sums of some outputs and all vectors are in registers."""

    def __init__(self, w: Writer, variables: Variables, x: V, y: V, start: V, stop: V):
        self.w, self.b, self.s = w, w.b, w.s
        self.variables, self.x, self.y, self.start, self.stop = variables, x, y, start, stop
        s = w.s
        own = s.along[s.lanes]
        self.serial = [v for v in s.along if s.along[v] > own]
        self.short = [v for v in s.along if s.along[v] < own]
        extent = s.nest.extents[s.lanes]
        self.whole = extent - extent % w.width

    def write(self) -> None:
        b, s, w = self.b, self.s, self.w
        last, n = b.sub(self.stop, 1), s.together
        with b.loop(self.start, self.stop, n, "outputs") as o:
            outputs = [{**self.variables, s.cut: b.min_(b.add(o, i), last)} for i in range(n)]
            zero = const(vector(w.acc, w.width // w.per_lane), 0)
            rest = [const(w.acc, 0)] * (n * s.count) if self.whole < s.nest.extents[s.lanes] else []
            sums = self.loops(self.serial, outputs, self.x, [*[zero] * (n * s.count), *rest])
            totals = [fold(b, total) for total in sums[: n * s.count]]
            if rest:
                add = b.fadd if is_float(w.acc) else b.add
                totals = [add(total, more) for total, more in zip(totals, sums[n * s.count :], strict=True)]
            step = s.free[s.cut] * s.outputs.free * w.size
            for i, output in enumerate(outputs):
                for r in range(s.count):
                    to = b.offset(self.y, b.mul(output[s.cut], step))
                    b.store(self.finished(totals[i * s.count + r], r), b.offset(to, r * s.outputs.row * w.size))

    def finished(self, total: V, r: int) -> V:
        """The result, from the sum of an output and a vector."""
        return total

    def loops(self, serial: Sequence[int], outputs: list[Variables], x: V, sums: list[V]) -> list[V]:
        """Emits the loops along k, outermost first. Returns the sums."""
        b, s, w = self.b, self.s, self.w
        if serial:
            v, *more = serial
            if v in w.unrolled:
                for i in range(s.nest.extents[v]):
                    at = b.offset(x, i * s.vectors.along[v] * w.factor_size)
                    sums = self.loops(more, [{**here, v: i64(i)} for here in outputs], at, sums)
                return sums
            with b.loop_carry(0, s.nest.extents[v], sums, 1, "k") as carry:
                at = b.offset(x, b.mul(carry.index, s.vectors.along[v] * w.factor_size))
                inside = [{**here, v: carry.index} for here in outputs]
                carry.next(*self.loops(more, inside, at, carry.values))
            return carry.values
        vectors, rest = sums[: s.together * s.count], sums[s.together * s.count :]
        vectors = self.over(0, self.whole, w.width, outputs, x, vectors)
        if rest:
            rest = self.over(self.whole, s.nest.extents[s.lanes], 1, outputs, x, rest)
        return [*vectors, *rest]

    def over(self, first: int, last: int, width: int, outputs: list[Variables], x: V, sums: list[V]) -> list[V]:
        """Emits the loop along the lanes."""
        b, s = self.b, self.s
        if width > 1 and (last - first) // width <= s.steps // 2:
            for at in range(first, last, width):
                sums = self.terms(i64(at), width, outputs, x, sums)
            return sums
        with b.loop_carry(first, last, sums, width, "terms") as carry:
            carry.next(*self.terms(carry.index, width, outputs, x, carry.values))
        return carry.values

    def terms(self, at: V, width: int, outputs: list[Variables], x: V, sums: list[V]) -> list[V]:
        """Adds the products of some terms."""
        b, s, w = self.b, self.s, self.w
        found = list(sums)
        for inner in w.combinations(self.short):
            fixed = {v: i64(k) for v, k in inner.items()}
            offset = sum(s.vectors.along[v] * k for v, k in inner.items())
            elements = [w.element({**here, **fixed, s.lanes: at}, width) for here in outputs]
            place = b.offset(x, b.mul(at, s.vectors.along[s.lanes] * w.factor_size))
            for r in range(s.count):
                of = b.offset(place, (offset + r * s.vectors.row) * w.factor_size)
                factor = b.load(vector(w.acc, width), of, align=w.size)
                for i, element in enumerate(elements):
                    found[i * s.count + r] = w.multiply_add(factor, element, found[i * s.count + r])
        return found


class Units(NamedTuple):
    """What writes a unit."""

    outputs: type[Outputs]
    terms: type[Terms]


def _bounds(b: Builder, s: InRegistersSchedule, part: V) -> dict[int, tuple[V, V]]:
    """The iterations of a part of the terms, of the variable that is cut into parts."""
    if s.parts == 1:
        return {}
    extent = s.nest.extents[s.split]
    step = s.blocks.step if s.split == s.blocks.loop else 1
    each = -(-extent // (s.parts * step)) * step
    low = b.min_(b.mul(part, each), extent)
    return {s.split: (low, b.min_(b.add(low, each), extent))}
