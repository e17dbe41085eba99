"""The gradient of attention by blocks of rows (see `fuse/attention_gradient.py`).

A task has all rows of some batches or, if there are few batches, a part of the rows of one. For each block of its rows
it computes the products that the row program reads into private memory, and runs the row program there. It multiplies
the results by the right operands of the products that have the same rows. It also adds the block's contributions to
the products that sum over rows: block by block, in order. Each part of a batch has separate sums. They are added up in
the order of the rows after all parts are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from shlo_jit import tuning
from shlo_jit.fuse.plan import Attention, OpStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.gemm.panels import block_bytes, block_routine, panels_bytes, reads_in_place
from shlo_jit.kernels.gemm.precision import gemm_plan, itemsize
from shlo_jit.ops.attention_rows import row_parts
from shlo_jit.ops.runs import extents_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.attention import Product, even, may_overwrite, product_of, schedule_rows
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.epilogue import Epilogue, WithEpilogue, schedule_epilogue
from shlo_jit.schedule.kernel import Allowed
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.product_layout import Placed
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.tasks import Tasks


@dataclass(frozen=True, kw_only=True)
class GradientSchedule(WithEpilogue):
    """Schedule of the gradient of an attention."""

    parts: Attention
    firsts: tuple[Product, ...]
    seconds: tuple[Product, ...]
    """The products with the rows of the firsts: the step's op, and the products besides."""
    sums: tuple[Product, ...]
    """Products that sum over rows: the left operand of each is the transpose of one of `weights`."""
    lefts: tuple[int, ...]
    """Index of the weights that each product multiplies: the seconds, then the sums."""
    batch: int
    m: int
    scores: list[Value]
    """Blocks of the first products: their rows, with a fixed stride."""
    weights: list[Value]
    """The results of the row program on `scores`."""
    homes: tuple[int | None, ...]
    """For each of the weights, the index of the scores that it overwrites."""
    rows: NestSchedule
    """The row program on a block: the units of a call are the rows of the block."""
    block: int
    """Rows of a block."""
    packed: tuple[bool, ...]
    """Whether each product's right operand is packed; otherwise it is read in place. Those of the first products and
    the seconds are packed once for all blocks of a task, those of the sums for each block."""
    each: int
    """Batches of a task."""
    row_parts: int
    """Tasks that share the rows of a batch."""
    task_rows: int
    """Rows of each of these tasks."""
    partial: tuple[Field, ...]
    """For each sum, the partial sums of the row parts after the first."""
    tasks: Tasks
    panels: tuple[Field, ...]
    """For each product, a worker's buffer for the packed operand."""
    buffers: tuple[Field, ...]
    """A worker's buffers for the scores, and for the weights that overwrite no scores."""
    late: tuple[Epilogue, ...]
    """Epilogues of the other products, which run after all of them."""

    def streaming_where(self, allowed: Allowed) -> Self:
        late = tuple(epilogue.streaming_where(allowed) for epilogue in self.late)
        return replace(super().streaming_where(allowed), late=late)

    @property
    def products(self) -> tuple[Product, ...]:
        return (*self.firsts, *self.seconds, *self.sums)

    @property
    def notes(self) -> list[Note]:
        def sizes(m: int, products: tuple[Product, ...]) -> str:
            return ", ".join(f"{m} x {p.n} x {p.k}" for p in products)

        read = ", ".join("packed" if p else "read in place" for p in self.packed)
        homes = ", ".join("in a separate buffer" if home is None else "overwrite scores" for home in self.homes)
        how = Reason("sums-over-blocks", "added up block after block")
        of = count(self.each, "product")
        if self.row_parts > 1:
            text = f"{self.row_parts} parts of the rows are summed separately, then added up in order"
            how, of = Reason("sums-in-parts", text), count(self.task_rows, "row")
        why = Reason("block-bytes", f"a block of scores has about {tuning.GRADIENT_BLOCK_BYTES:,} bytes")
        return [
            Note("products", f"{self.batch} x {sizes(self.m, self.firsts)}, then {sizes(self.m, self.seconds)}"),
            Note("sums", sizes(self.firsts[0].n, self.sums), how),
            Note("row blocks", f"{count(self.block, 'row')}; right operands: {read}", why),
            Note("weights", homes),
            Note("tasks", f"{count(self.tasks.tasks, 'task')} of {of}", self.tasks.why),
            *(Note(f"  {n.what}", n.value, n.why) for n in self.rows.notes if n.what != "tasks"),
            *(note for e in (self.epilogue, *self.late) if e is not None for note in e.notes),
        ]


def schedule_gradient(step: OpStep, context: Context) -> GradientSchedule:
    target, parts = context.target, step.attention
    assert parts is not None
    batch, m, n, _ = extents_of(parts.first.op)
    firsts = tuple(product_of(s, m, target) for s in parts.firsts)
    sums = tuple(product_of(s, n, target) for s in parts.sums)
    seconds = tuple(product_of(s, m, target) for s in (step, *parts.besides))
    tile = gemm_plan(firsts[0].types, target).mr
    size = 2 * parts.first.op.result.tensor.storage.itemsize  # for two matrices, whichever the row program reads
    work = m * n * sum(p.k for p in (*firsts, *seconds)) + m * n * sum(p.n for p in sums)
    is_alone = batch * work <= tuning.GEMM_SERIAL
    cuts = 1 if is_alone else row_parts(batch, m, firsts[0].k + seconds[0].n)
    task_rows = even(m, cuts, tile) if cuts > 1 else m
    cuts = -(-m // task_rows)
    block = min(task_rows, even(task_rows, -(-task_rows // max(tile, tuning.GRADIENT_BLOCK_BYTES // (n * size))), tile))
    rows, scores, weights = schedule_rows(parts, batch, m, block, target)
    homes = _homes(rows, scores, weights)
    products = (*firsts, *seconds, *sums)
    packed = tuple(not reads_in_place(p.types, target, p.n, p.b.row, p.b.column) for p in products)
    steps = [p.k for p in (*firsts, *seconds)] + [block] * len(sums)
    panels = _fields(
        "panels",
        [panels_bytes(p.types, target, p.n, k) * pack for p, k, pack in zip(products, steps, packed, strict=True)],
    )
    own = [v for v, home in zip(weights, homes, strict=True) if home is None]
    rows_of = [block * v.tensor.extents[1] * v.tensor.storage.itemsize for v in (*scores, *own)]
    buffers, inner = _fields("rows", rows_of), Field("work", max(block_bytes(p.types, target) for p in products))
    each = batch if is_alone else 1 if cuts > 1 else max(1, tuning.GEMM_SERIAL // 4 // work)
    tasks = Tasks(
        batch, -(-batch // each), Reason("task-per-batch", "each task sums over all rows of its batches"), each
    )
    if cuts > 1:
        why = Reason("few-batches", "there are few batches, so each task sums over a part of the rows")
        tasks = Tasks(batch * cuts, batch * cuts, why, 1)
    partial = _fields("partial", [(cuts - 1) * batch * n * p.n * itemsize(p.types.acc) for p in sums])
    late = [
        schedule_epilogue(
            s, target, Placed.dense(batch, m, p.n), Reason("other-product", "it is not the step's last product")
        )
        for s, p in zip(parts.besides, seconds[1:], strict=True)
    ]
    late += [
        schedule_epilogue(
            s,
            target,
            Placed.dense(batch, n, p.n),
            Reason("sums-end-last", "the sums are complete only after the last rows"),
        )
        for s, p in zip(parts.sums, sums, strict=True)
    ]
    return GradientSchedule(
        parts=parts,
        firsts=firsts,
        seconds=seconds,
        sums=sums,
        lefts=tuple(parts.inside.index(s.op.operands[0]) for s in (step, *parts.besides, *parts.sums)),
        batch=batch,
        m=m,
        scores=scores,
        weights=weights,
        homes=homes,
        rows=rows,
        block=block,
        packed=packed,
        each=each,
        row_parts=cuts,
        task_rows=task_rows,
        partial=partial,
        tasks=tasks,
        panels=panels,
        buffers=buffers,
        epilogue=schedule_epilogue(step, target, Placed.dense(batch, m, seconds[0].n)),
        late=tuple(e for e in late if e is not None),
        scratch=Scratch(partial, (*panels, *buffers, inner)),
        routines=tuple(block_routine(t, target) for t in dict.fromkeys(p.types for p in products)),
    )


def _fields(name: str, sizes: Sequence[int]) -> tuple[Field, ...]:
    """Returns fields of the given sizes, with numbered names."""
    return tuple(Field(f"{name} {i}", nbytes) for i, nbytes in enumerate(sizes))


def _homes(rows: NestSchedule, scores: list[Value], weights: list[Value]) -> tuple[int | None, ...]:
    """For each of the weights, the index of scores that are no longer read when the weights are written; None if there
    are none."""
    homes: list[int | None] = []
    for value in weights:
        free = (i for i, s in enumerate(scores) if i not in homes and may_overwrite(rows, s, value))
        homes.append(next(free, None))
    return tuple(homes)
