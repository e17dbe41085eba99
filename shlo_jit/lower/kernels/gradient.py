"""The gradient of attention by blocks of rows, as `schedule/gradient.py` has decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.builder import Builder, V, i64
from shlo_jit.kernels.gemm.panels import block_symbol, panels_symbol
from shlo_jit.kernels.gemm.types import itemsize
from shlo_jit.lower.kernels.attention import matrix, write_rows
from shlo_jit.lower.kernels.epilogue import NULL, write_epilogue
from shlo_jit.lower.nest.nest import check_supported
from shlo_jit.schedule.attention import Product
from shlo_jit.schedule.gradient import GradientSchedule

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def lower(low: ProgramLowering, step: OpStep, schedule: GradientSchedule) -> None:
    """Write the row program, the epilogue and the task, run the tasks, and the loops over the sums."""
    s, parts = schedule, schedule.parts
    check_supported(parts.rows.nest)
    inside = [[v] for v in s.scores]
    for value, home in zip(s.weights, s.homes, strict=True):
        inside.append([value]) if home is None else inside[home].append(value)
    rows, others = write_rows(low, s.rows, parts.rows.hint, [(f"b{i}", values) for i, values in enumerate(inside)])
    epilogue, frame = write_epilogue(low, s.epilogue)
    operands = [o for part in parts.firsts for o in part.op.operands]
    operands += [step.op.operands[1], *(part.op.operands[1] for part in parts.sums)]
    operands += [part.op.result for part in (step, *parts.sums)]
    hint = f"gradient_{parts.rows.hint}"
    name = low.new_name(hint)
    pointers = [low.scratch(step), frame, *map(low.pointer, operands), *others]
    b = low.task(name, len(pointers))
    _Task(b, s, rows, epilogue, len(pointers)).write()
    low.run_tasks(low.share(hint, name), pointers, s.tasks)
    for late in (s.epilogue, *s.late):
        if late is not None and late.is_late:
            low.nest(late.step, late.schedule)


class _Task:
    """Writes `void task(ptr frame, i64 index, i64 worker)`."""

    def __init__(self, b: Builder, schedule: GradientSchedule, rows: str, epilogue: V, count: int):
        self.b, self.s, self.rows, self.epilogue = b, schedule, rows, epilogue
        frame, self.index, worker = b.params
        s = schedule
        scratch, self.frame, *loaded = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(count))
        n, sums = len(s.firsts), len(s.sums)
        self.lefts, self.rights = loaded[: 2 * n : 2], [*loaded[1 : 2 * n : 2], *loaded[2 * n : 2 * n + 1 + sums]]
        self.results, self.others = loaded[2 * n + 1 + sums : 2 * (n + 1 + sums)], loaded[2 * (n + 1 + sums) :]
        memory = b.offset(scratch, b.mul(worker, s.scratch.per_thread))
        places = [b.offset(memory, place) for place in s.places]
        self.panels, self.buffers, self.memory = places[: len(s.products)], places[len(s.products) : -1], places[-1]
        own = iter(self.buffers[n:])
        self.weights = [next(own) if home is None else self.buffers[home] for home in s.homes]

    def write(self) -> None:
        b, s = self.b, self.s
        first = b.mul(self.index, s.each)
        with b.loop(first, b.min_(b.add(first, s.each), s.batch), 1, "batch") as batch:
            self.batch(batch)
        b.ret()

    def batch(self, batch: V) -> None:
        """All rows of a batch, block by block."""
        b, s, n = self.b, self.s, len(self.s.firsts)
        lefts = [matrix(b, x, p.a, p.types.a, batch) for x, p in zip(self.lefts, s.firsts, strict=True)]
        rights = [matrix(b, x, p.b, p.types.b, batch) for x, p in zip(self.rights, s.products, strict=True)]
        panels = [self.packed(i, right, i64(s.products[i].k)) for i, right in enumerate(rights[: n + 1])]
        with b.loop(0, s.m, s.block, "block") as i:
            m = b.min_(b.sub(s.m, i), s.block)
            unit = b.add(b.mul(batch, s.m), i)
            for p, left, right, packed, out, value in zip(
                s.firsts, lefts, rights, panels, self.buffers, s.scores, strict=False
            ):
                rows = b.offset(left, b.mul(i, p.a.row * itemsize(p.types.a)))
                width = value.tensor.extents[1]
                self.product(p, (rows, p.a.row, p.a.column), (right, packed), (out, width), (m, i64(p.k), i64(0)))
            b.call("void", self.rows, [*self.buffers, *self.others, unit, b.add(unit, m)], declare=False)
            self.second(batch, i, m, (rights[n], panels[n]))
            for j, p in enumerate(s.sums):
                self.sum(j, batch, b.offset(rights[n + 1 + j], b.mul(i, p.b.row * itemsize(p.types.b))), i, m)

    def second(self, batch: V, i: V, m: V, right: tuple[V, V]) -> None:
        """The rows of the product that has some, and what finishes them."""
        b, s, p = self.b, self.s, self.s.second
        left = s.lefts[0]
        out = b.offset(self.results[0], b.mul(b.add(b.mul(batch, s.m), i), p.n * itemsize(p.types.acc)))
        weights = (self.weights[left], s.weights[left].tensor.extents[1], 1)
        self.product(p, weights, right, (out, p.n), (m, i64(p.k), i64(0)))
        if self.epilogue is not NULL:
            ends = [batch, i, b.add(i, m), i64(0), i64(p.n)]
            b.call_pointer("void", self.epilogue, [self.frame, *ends])

    def sum(self, j: int, batch: V, right: V, i: V, m: V) -> None:
        """Add what a block of rows gives to a product that sums over them; the first block is where it begins."""
        b, s, p = self.b, self.s, self.s.sums[j]
        left, columns = s.lefts[1 + j], s.firsts[0].n
        panels = self.packed(len(s.firsts) + 1 + j, right, m)
        out = b.offset(self.results[1 + j], b.mul(batch, columns * p.n * itemsize(p.types.acc)))
        weights = (self.weights[left], 1, s.weights[left].tensor.extents[1])
        self.product(p, weights, (right, panels), (out, p.n), (i64(columns), m, i))

    def packed(self, which: int, right: V, k: V) -> V:
        """The right operand of a product, k steps of it, packed; null where it is not."""
        s, p = self.s, self.s.products[which]
        if not s.packed[which]:
            return NULL
        args = [right, i64(p.b.row), i64(p.b.column), i64(p.n), k, self.panels[which]]
        self.b.call("void", panels_symbol(p.types), args)
        return self.panels[which]

    def product(
        self, p: Product, left: tuple[V, int, int], right: tuple[V, V], out: tuple[V, int], extents: tuple[V, V, V]
    ) -> None:
        """`left` and `out` with their strides; `right` as it lies and as it was packed; `extents`: m, k and k0."""
        (a, *a_strides), (matrix_, panels), (c, c_stride), (m, k, k0) = left, right, out, extents
        args = [a, *(i64(x) for x in a_strides), matrix_, i64(p.b.row), i64(p.b.column), c, i64(c_stride)]
        self.b.call("void", block_symbol(p.types), [*args, m, i64(p.n), k, k0, panels, self.memory])
