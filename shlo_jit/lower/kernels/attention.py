"""Lowers attention by blocks of rows, as `schedule/attention.py` has decided."""

from __future__ import annotations

from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.gemm import gemm_symbol
from shlo_jit.kernels.gemm.panels import block_symbol, panels_symbol
from shlo_jit.kernels.gemm.precision import itemsize
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.epilogue import NULL, write_epilogue
from shlo_jit.lower.nest.nest import NestLowering, check_supported
from shlo_jit.lower.nest.nest_step import lower_nest
from shlo_jit.lower.scratch import worker_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.attention import AttentionSchedule, Matrices, Product
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.segments import Part


def lower(low: Services, step: OpStep, schedule: AttentionSchedule) -> None:
    """Writes the row program, the epilogue and the task, and runs the tasks."""
    s, parts = schedule, schedule.parts
    check_supported(parts.rows.nest)
    buffers = [("scores", [s.scores, s.weights])] if s.in_place else [("scores", [s.scores]), ("weights", [s.weights])]
    rows, pointers = write_rows(low, s.rows, parts.rows.hint, buffers)
    epilogue, frame = write_epilogue(low, s.epilogue)
    operands = [low.pointer(x) for x in (parts.first.op.operands[0], step.op.result)]
    operands += [low.pointer(part.value) for p in (s.first, s.second) for part, _ in p.parts]
    hint = f"attention_{parts.rows.hint}"
    name = low.new_name(hint)
    pointers = [low.scratch(step), frame, *operands, *pointers]
    b = low.task(name, len(pointers))
    _Task(b, s, rows, epilogue, len(pointers)).write(low.is_symbolic)
    low.run_tasks(low.share(hint, name), pointers, s.tasks)
    if s.epilogue is not None and s.epilogue.is_late:
        lower_nest(low, s.epilogue.step, s.epilogue.schedule)


def write_rows(low: Services, rows: NestSchedule, hint: str, own: list[tuple[str, list[Value]]]) -> tuple[str, list[V]]:
    """Writes the function of the row program. Its first parameters are `own`, the buffers of the block. Returns its
    name and the addresses of the other buffers that it reads and writes."""
    nest, inside = rows.nest, {v for _, values in own for v in values}
    groups: dict[int, list[Value]] = {}
    for v in dict.fromkeys([*(k[0] for k in nest.loads), *(x.target for x in nest.stores)]):
        if v not in inside:
            groups.setdefault(id(low.memory.storage[v]), []).append(v)
    buffers = [*own, *((f"p{i}", values) for i, values in enumerate(groups.values()))]
    if low.is_symbolic:
        buffers.append(("dims", []))
    name = low.new_name(hint)
    NestLowering(rows).write(low.module, name, buffers)
    return low.share(hint, name), [low.pointer(values[0]) for values in groups.values()]


def matrix(b: Builder, pointer: V, of: Matrices, dtype: str, batch: V) -> V:
    """The address of the operand's matrix for a batch index."""
    number, place = batch, i64(0)
    for extent, stride in reversed(of.batch[1:]):
        place = b.add(place, b.mul(b.urem(number, extent), stride))
        number = b.udiv(number, extent)
    if of.batch:
        place = b.add(place, b.mul(number, of.batch[0][1]))
    return b.offset(pointer, b.mul(place, itemsize(dtype)))


class _Task:
    """Writes `void task(ptr frame, i64 index, i64 worker)`."""

    def __init__(self, b: Builder, schedule: AttentionSchedule, rows: str, epilogue: V, count: int):
        self.b, self.s, self.rows, self.epilogue = b, schedule, rows, epilogue
        frame, self.index, worker = b.params
        loaded = [b.load("ptr", b.element(frame, "ptr", i)) for i in range(count)]
        scratch, self.frame, self.q, self.c, *loaded = loaded
        ends = len(schedule.first.parts), len(schedule.first.parts) + len(schedule.second.parts)
        self.k, self.v, self.others = loaded[: ends[0]], loaded[ends[0] : ends[1]], loaded[ends[1] :]
        fields = worker_fields(b, schedule.scratch, scratch, worker)
        self.places = [fields["first panels"], fields["second panels"]]
        self.scores, weights, self.memory = fields["scores"], fields["weights"], fields["work"]
        self.weights = self.scores if schedule.in_place else weights

    def write(self, is_symbolic: bool) -> None:
        b, s = self.b, self.s
        if is_symbolic:
            self.others.append(b.dims)  # type: ignore[arg-type]
        if s.task_rows >= s.m:
            first = b.mul(self.index, s.each)
            with b.loop(first, b.min_(b.add(first, s.each), s.batch), 1, "batch") as at:
                self.rows_of(at, i64(0), i64(s.m))
        else:
            tasks = -(-s.m // s.task_rows)
            start = b.mul(b.urem(self.index, tasks), s.task_rows)
            self.rows_of(b.udiv(self.index, tasks), start, b.min_(b.add(start, s.task_rows), s.m))
        b.ret()

    def rows_of(self, batch: V, start: V, stop: V) -> None:
        """Emits the code for rows [start, stop) of a batch, block by block."""
        b, s, first, second = self.b, self.s, self.s.first, self.s.second
        q = matrix(b, self.q, first.a, first.types.a, batch)
        k, v = self.right(self.k, first, batch), self.right(self.v, second, batch)
        k_panels, v_panels = self.panels(first, k[0], 0), self.panels(second, v[0], 1)
        scores, weights = (buffer.tensor.extents[1] for buffer in (s.scores, s.weights))
        with b.loop(start, stop, s.block, "block") as i:
            m = b.min_(b.sub(stop, i), s.block)
            unit = b.add(b.mul(batch, s.m), i)
            rows = b.offset(q, b.mul(i, first.a.row * itemsize(first.types.a)))
            self.product(first, rows, (first.a.row, first.a.column), (k, k_panels), (self.scores, scores), m)
            blocks = [self.scores] if s.in_place else [self.scores, self.weights]
            b.call("void", self.rows, [*blocks, *self.others, unit, b.add(unit, m)], declare=False)
            out = b.offset(self.c, b.mul(unit, second.n * itemsize(second.types.acc)))
            self.product(second, self.weights, (weights, 1), (v, v_panels), (out, second.n), m)
            if self.epilogue is not NULL:
                ends = [batch, i, b.add(i, m), i64(0), i64(second.n)]
                b.call_pointer("void", self.epilogue, [self.frame, *ends])

    def right(self, pointers: list[V], p: Product, batch: V) -> list[V]:
        """The addresses of the right operand's matrix for a batch index, or of its segments."""
        return [matrix(self.b, x, of, p.types.b, batch) for x, (_, of) in zip(pointers, p.parts, strict=True)]

    def panels(self, p: Product, right: V, which: int) -> V:
        """Packs the right operand of a product for all blocks; null if it is read in place."""
        if self.s.few or not self.s.packed[which]:
            return NULL
        args = [right, i64(p.b.row), i64(p.b.column), i64(p.n), i64(p.k), self.places[which]]
        self.b.call("void", panels_symbol(p.types), args)
        return self.places[which]

    def product(
        self, p: Product, a: V, strides: tuple[int, int], right: tuple[list[V], V], out: tuple[V, int], m: V
    ) -> None:
        """Emits a product of m rows. `right` is the right operand in place and packed, `out` the result and its row
        stride."""
        b = self.b
        (c, c_stride), (as_it_lies, panels) = out, right
        if self.s.few:
            for (part, _), matrix in zip(p.parts, as_it_lies, strict=True):
                self.part(p, part, (a, *strides), matrix, c, c_stride, m)
            return
        args = [a, *(i64(x) for x in strides), *as_it_lies, i64(p.b.row), i64(p.b.column), c, i64(c_stride)]
        b.call("void", block_symbol(p.types), [*args, m, i64(p.n), i64(p.k), i64(0), panels, self.memory])

    def part(self, p: Product, part: Part, left: tuple[V, int, int], matrix: V, c: V, c_stride: int, m: V) -> None:
        """Emits the product of m rows with one segment of the right operand, as a plain product."""
        b, zero, one = self.b, i64(0), i64(1)
        a, *strides = left
        a = b.offset(a, part.k0 * strides[1] * itemsize(p.types.a))
        c = b.offset(c, part.n0 * itemsize(p.types.acc))
        args = [a, *(i64(x) for x in strides), zero, matrix, i64(part.row), i64(part.column), zero, zero]
        sizes = [one, m, *(i64(x) for x in (part.n, part.k, part.k0))]
        args += [c, i64(c_stride), zero, *sizes, self.memory, NULL, NULL, NULL, zero, one]
        b.call("void", gemm_symbol(p.types, p.way), args)
