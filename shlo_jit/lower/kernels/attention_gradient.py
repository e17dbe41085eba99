"""Lowers the gradient of attention by blocks of rows, as `schedule/attention_gradient.py` has decided."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.panels import block_symbol, panels_symbol
from shlo_jit.kernels.gemm.precision import itemsize, storage
from shlo_jit.kernels.llvm_values import V, bits, i64, is_float, vector
from shlo_jit.lower.kernels.attention import matrix, write_rows
from shlo_jit.lower.kernels.epilogue import NULL, write_epilogue
from shlo_jit.lower.nest.nest import check_supported
from shlo_jit.lower.nest.nest_step import lower_nest
from shlo_jit.lower.scratch import worker_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.attention import Product
from shlo_jit.schedule.attention_gradient import GradientSchedule
from shlo_jit.schedule.scratch import ALIGN


def lower(low: Services, step: OpStep, schedule: GradientSchedule) -> None:
    """Writes the row program, the epilogue and the task. Then runs the tasks, adds up the partial sums, and runs the
    epilogues of the other products."""
    s, parts = schedule, schedule.parts
    check_supported(parts.rows.nest)
    inside = [[v] for v in s.scores]
    for value, home in zip(s.weights, s.homes, strict=True):
        inside.append([value]) if home is None else inside[home].append(value)
    rows, others = write_rows(low, s.rows, parts.rows.hint, [(f"b{i}", values) for i, values in enumerate(inside)])
    epilogue, frame = write_epilogue(low, s.epilogue)
    operands = [o for part in parts.firsts for o in part.op.operands]
    later = (step, *parts.besides, *parts.sums)
    operands += [part.op.operands[1] for part in later] + [part.op.result for part in later]
    hint = f"gradient_{parts.rows.hint}"
    name = low.new_name(hint)
    pointers = [low.scratch(step), frame, *map(low.pointer, operands), *others]
    b = low.task(name, len(pointers))
    _Task(b, s, rows, epilogue, len(pointers)).write()
    low.run_tasks(low.share(hint, name), pointers, s.tasks)
    if s.row_parts > 1:
        add_up(low, s, low.scratch(step), [low.pointer(part.op.result) for part in parts.sums])
    for late in (s.epilogue, *s.late):
        if late is not None and late.is_late:
            lower_nest(low, late.step, late.schedule)


def add_up(low: Services, s: GradientSchedule, scratch: V, results: list[V]) -> None:
    """Adds the partial sums of the later row parts to those of the first, in order."""
    sizes = [s.batch * s.firsts[0].n * p.n for p in s.sums]
    places = [s.scratch.shared_offsets[field.name] for field in s.partial]
    parts = (s.row_parts, *sizes, *places, *(p.types.acc for p in s.sums))
    name = ".".join(["add_up", str(tuning.ATTENTION_LEAST_TASKS), *map(str, parts)])
    if name not in low.module.functions:
        b = low.task(name, 1 + len(results))
        frame, index, _ = b.params
        memory, *into = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(1 + len(results)))
        for p, size, place, result in zip(s.sums, sizes, places, into, strict=True):
            _add_slice(b, p.types.acc, s.row_parts - 1, (b.offset(memory, place), result), size, index)
        b.ret()
    low.parallel(name, [scratch, *results], tuning.ATTENTION_LEAST_TASKS)


def _add_slice(b: Builder, kind: str, parts: int, at: tuple[V, V], size: int, index: V) -> None:
    """Adds all parts for the elements of the slice `index`: one cache line per iteration, then single elements."""
    partial, result = at
    size, kind = size * itemsize(kind) * 8 // bits(storage(kind)), storage(kind)  # both parts of complex elements
    item = bits(kind) // 8
    lanes = ALIGN // item
    grain = -(-size // (tuning.ATTENTION_LEAST_TASKS * lanes)) * lanes
    start = b.mul(index, grain)
    stop = b.min_(b.add(start, grain), size)
    whole = b.add(start, b.mul(b.udiv(b.max_(b.sub(stop, start), 0), lanes), lanes))
    add = b.fadd if is_float(kind) else b.add
    for first, last, n in ((start, whole, lanes), (whole, stop, 1)):
        with b.loop(first, last, n, "elements") as i:
            here, type_ = b.offset(result, b.mul(i, item)), vector(kind, n)
            total = b.load(type_, here, item)
            for k in range(parts):
                place = b.mul(b.add(i, k * size), item)
                total = add(total, b.load(type_, b.offset(partial, place), item))
            b.store(total, here, item)


class _Task:
    """Writes `void task(ptr frame, i64 index, i64 worker)`."""

    def __init__(self, b: Builder, schedule: GradientSchedule, rows: str, epilogue: V, count: int):
        self.b, self.s, self.rows, self.epilogue = b, schedule, rows, epilogue
        frame, self.index, worker = b.params
        s = schedule
        self.scratch, self.frame, *loaded = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(count))
        n, all_ = len(s.firsts), len(s.products)
        self.lefts, self.rights = loaded[: 2 * n : 2], [*loaded[1 : 2 * n : 2], *loaded[2 * n : n + all_]]
        self.results, self.others = loaded[n + all_ : 2 * all_], loaded[2 * all_ :]
        fields = worker_fields(b, s.scratch, self.scratch, worker)
        self.panels, self.buffers = ([fields[f.name] for f in part] for part in (s.panels, s.buffers))
        self.memory = fields["work"]
        own = iter(self.buffers[n:])
        self.weights = [next(own) if home is None else self.buffers[home] for home in s.homes]

    def write(self) -> None:
        b, s = self.b, self.s
        if s.row_parts > 1:
            part = b.urem(self.index, s.row_parts)
            start = b.mul(part, s.task_rows)
            batch = b.udiv(self.index, s.row_parts)
            self.batch(batch, start, b.min_(b.add(start, s.task_rows), s.m), part)
        else:
            first = b.mul(self.index, s.each)
            with b.loop(first, b.min_(b.add(first, s.each), s.batch), 1, "batch") as batch:
                self.batch(batch, i64(0), i64(s.m), i64(0))
        b.ret()

    def batch(self, batch: V, start: V, stop: V, part: V) -> None:
        """Emits the code for rows [start, stop) of a batch, which are one part of them, block by block."""
        b, s, n = self.b, self.s, len(self.s.firsts)
        lefts = [matrix(b, x, p.a, p.types.a, batch) for x, p in zip(self.lefts, s.firsts, strict=True)]
        rights = [matrix(b, x, p.b, p.types.b, batch) for x, p in zip(self.rights, s.products, strict=True)]
        own = n + len(s.seconds)
        panels = [self.packed(i, right, i64(s.products[i].k)) for i, right in enumerate(rights[:own])]
        sums = [self.sums(j, batch, part) for j in range(len(s.sums))]
        with b.loop(start, stop, s.block, "block") as i:
            m = b.min_(b.sub(stop, i), s.block)
            unit = b.add(b.mul(batch, s.m), i)
            for p, left, right, packed, out, value in zip(
                s.firsts, lefts, rights, panels, self.buffers, s.scores, strict=False
            ):
                rows = b.offset(left, b.mul(i, p.a.row * itemsize(p.types.a)))
                width = value.tensor.extents[1]
                self.product(p, (rows, p.a.row, p.a.column), (right, packed), (out, width), (m, i64(p.k), i64(0)))
            b.call("void", self.rows, [*self.buffers, *self.others, unit, b.add(unit, m)], declare=False)
            for j in range(len(s.seconds)):
                self.second(j, batch, i, m, (rights[n + j], panels[n + j]))
            for j, (p, right) in enumerate(zip(s.sums, rights[own:], strict=True)):
                self.sum(j, sums[j], b.offset(right, b.mul(i, p.b.row * itemsize(p.types.b))), b.sub(i, start), m)

    def second(self, j: int, batch: V, i: V, m: V, right: tuple[V, V]) -> None:
        """Emits the rows of a product that has the block's rows, and the epilogue of the first such product."""
        b, s, p = self.b, self.s, self.s.seconds[j]
        left = s.lefts[j]
        out = b.offset(self.results[j], b.mul(b.add(b.mul(batch, s.m), i), p.n * itemsize(p.types.acc)))
        weights = (self.weights[left], s.weights[left].tensor.extents[1], 1)
        self.product(p, weights, right, (out, p.n), (m, i64(p.k), i64(0)))
        if self.epilogue is not NULL and not j:
            ends = [batch, i, b.add(i, m), i64(0), i64(p.n)]
            b.call_pointer("void", self.epilogue, [self.frame, *ends])

    def sums(self, j: int, batch: V, part: V) -> V:
        """The address of a part's sums for a product that sums over rows: for the first part, the result itself."""
        b, s, p = self.b, self.s, self.s.sums[j]
        size = s.firsts[0].n * p.n * itemsize(p.types.acc)
        result = b.offset(self.results[len(s.seconds) + j], b.mul(batch, size))
        if s.row_parts == 1:
            return result
        first = s.scratch.shared_offsets[s.partial[j].name]
        place = b.add(b.mul(b.add(b.mul(b.sub(part, 1), s.batch), batch), size), first)
        return b.select(b.icmp("eq", part, i64(0)), result, b.offset(self.scratch, place))

    def sum(self, j: int, out: V, right: V, i: V, m: V) -> None:
        """Adds the contribution of a block of rows to a product that sums over rows; the first block initializes it."""
        s, p = self.s, self.s.sums[j]
        left, columns = s.lefts[len(s.seconds) + j], s.firsts[0].n
        panels = self.packed(len(s.firsts) + len(s.seconds) + j, right, m)
        weights = (self.weights[left], 1, s.weights[left].tensor.extents[1])
        self.product(p, weights, (right, panels), (out, p.n), (i64(columns), m, i))

    def packed(self, which: int, right: V, k: V) -> V:
        """Packs k steps of the right operand of a product; null if it is read in place."""
        s, p = self.s, self.s.products[which]
        if not s.packed[which]:
            return NULL
        args = [right, i64(p.b.row), i64(p.b.column), i64(p.n), k, self.panels[which]]
        self.b.call("void", panels_symbol(p.types), args)
        return self.panels[which]

    def product(
        self, p: Product, left: tuple[V, int, int], right: tuple[V, V], out: tuple[V, int], extents: tuple[V, V, V]
    ) -> None:
        """Emits a product. `left` and `out` come with their strides, `right` in place and packed; `extents`: m, k and
        k0."""
        (a, *a_strides), (matrix_, panels), (c, c_stride), (m, k, k0) = left, right, out, extents
        args = [a, *(i64(x) for x in a_strides), matrix_, i64(p.b.row), i64(p.b.column), c, i64(c_stride)]
        self.b.call("void", block_symbol(p.types), [*args, m, i64(p.n), k, k0, panels, self.memory])
