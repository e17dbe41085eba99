"""The gradient of attention by blocks of rows (see `fuse/gradient.py`).

A task has all rows of some batches. For a block of its rows it computes the products that the row program reads into
memory of its own, runs the row program there, multiplies what that makes by the right operand of the product whose rows
they are, and adds what they give to the products that sum over rows: block by block, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit import tuning
from shlo_jit.fuse.plan import Attention, OpStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.gemm.panels import block_bytes, block_routine, panels_bytes, reads_in_place
from shlo_jit.kernels.gemm.types import gemm_plan
from shlo_jit.ops.runs import extents_of
from shlo_jit.schedule.attention import Product, even, may_overwrite, placed, product_of, schedule_rows
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.epilogue import Epilogue, schedule_epilogue
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.product_layout import Placed
from shlo_jit.schedule.schedule import Context
from shlo_jit.schedule.scratch import Scratch
from shlo_jit.schedule.tasks import Tasks


@dataclass(frozen=True, kw_only=True)
class GradientSchedule(KernelSchedule):
    """The gradient of attention with everything decided."""

    parts: Attention
    firsts: tuple[Product, ...]
    second: Product
    sums: tuple[Product, ...]
    """The left operand of each is the transpose of one of `weights`."""
    lefts: tuple[int, ...]
    """Which of the weights each product multiplies: the second, then the sums."""
    batch: int
    m: int
    scores: list[Value]
    """Blocks of the first products: their rows, some elements apart."""
    weights: list[Value]
    """What the row program makes of them."""
    homes: tuple[int | None, ...]
    """For each of the weights the scores whose memory they take."""
    rows: NestSchedule
    """The row program on a block: a call's units are the block's rows."""
    block: int
    """Rows of a block."""
    packed: tuple[bool, ...]
    """Whether the right operand is packed, of the first products and the second once for all blocks of a batch, of sums
    for each block; else it is read as it lies."""
    each: int
    """Batches of a task."""
    tasks: Tasks
    places: tuple[int, ...]
    """Bytes into a worker's memory of the packed operands, the scores, the weights without a home, and what products
    work in."""
    epilogue: Epilogue | None
    late: tuple[Epilogue, ...]
    """Loops over the sums, after all."""

    @property
    def products(self) -> tuple[Product, ...]:
        return (*self.firsts, self.second, *self.sums)

    @property
    def notes(self) -> list[Note]:
        def sizes(m: int, products: tuple[Product, ...]) -> str:
            return ", ".join(f"{m} x {p.n} x {p.k}" for p in products)

        read = ", ".join("packed" if p else "read in place" for p in self.packed)
        homes = ", ".join("beside the scores" if home is None else "in the memory of scores" for home in self.homes)
        why = f"scores of {tuning.GRADIENT_BLOCK_BYTES:,} bytes, about"
        return [
            Note("products", f"{self.batch} x {sizes(self.m, self.firsts)}, then {sizes(self.m, (self.second,))}"),
            Note("sums", sizes(self.firsts[0].n, self.sums), "over rows, block after block"),
            Note("blocks", f"{count(self.block, 'row')}; right operands: {read}", why),
            Note("weights", homes),
            Note("tasks", f"{count(self.tasks.tasks, 'task')} of {count(self.each, 'product')}", self.tasks.why),
            *(Note(f"  {n.what}", n.value, n.why) for n in self.rows.notes if n.what != "tasks"),
            *(note for e in (self.epilogue, *self.late) if e is not None for note in e.notes),
        ]


def schedule_gradient(step: OpStep, context: Context) -> GradientSchedule:
    target, parts = context.target, step.attention
    assert parts is not None
    batch, m, n, _ = extents_of(parts.first.op)
    firsts = tuple(product_of(s, m, target) for s in parts.firsts)
    sums = tuple(product_of(s, n, target) for s in parts.sums)
    second = product_of(step, m, target)
    tile = gemm_plan(firsts[0].types, target).mr
    size = 2 * parts.first.op.result.tensor.storage.itemsize  # of two matrices, whichever the row program reads
    block = min(m, even(m, -(-m // max(tile, tuning.GRADIENT_BLOCK_BYTES // (n * size))), tile))
    rows, scores, weights = schedule_rows(parts, batch, m, block, target)
    homes = _homes(rows, scores, weights)
    products = (*firsts, second, *sums)
    packed = tuple(not reads_in_place(p.types, target, p.n, p.b.row, p.b.column) for p in products)
    steps = [p.k for p in (*firsts, second)] + [block] * len(sums)
    panels = [
        panels_bytes(p.types, target, p.n, k) if pack else 0 for p, k, pack in zip(products, steps, packed, strict=True)
    ]
    own = [v for v, home in zip(weights, homes, strict=True) if home is None]
    buffers = [block * v.tensor.extents[1] * v.tensor.storage.itemsize for v in (*scores, *own)]
    *places, total = placed([*panels, *buffers, max(block_bytes(p.types, target) for p in products)])
    work = m * n * sum(p.k for p in (*firsts, second)) + m * n * sum(p.n for p in sums)
    each = max(1, tuning.GEMM_SERIAL // 4 // work)
    is_alone = batch * work <= tuning.GEMM_SERIAL
    tasks = Tasks(batch, 1 if is_alone else -(-batch // each), "each sums over all rows", batch if is_alone else each)
    late = [
        schedule_epilogue(s, target, Placed.dense(batch, n, p.n), "sums end with the last rows")
        for s, p in zip(parts.sums, sums, strict=True)
    ]
    return GradientSchedule(
        parts=parts,
        firsts=firsts,
        second=second,
        sums=sums,
        lefts=tuple(parts.inside.index(s.op.operands[0]) for s in (step, *parts.sums)),
        batch=batch,
        m=m,
        scores=scores,
        weights=weights,
        homes=homes,
        rows=rows,
        block=block,
        packed=packed,
        each=batch if is_alone else each,
        tasks=tasks,
        places=tuple(places),
        epilogue=schedule_epilogue(step, target, Placed.dense(batch, m, second.n)),
        late=tuple(e for e in late if e is not None),
        scratch=Scratch(0, total),
        routines=tuple(block_routine(t, target) for t in dict.fromkeys(p.types for p in products)),
    )


def _homes(rows: NestSchedule, scores: list[Value], weights: list[Value]) -> tuple[int | None, ...]:
    """For each of the weights scores that nothing reads any more when they are written, if there are some."""
    homes: list[int | None] = []
    for value in weights:
        free = (i for i, s in enumerate(scores) if i not in homes and may_overwrite(rows, s, value))
        homes.append(next(free, None))
    return tuple(homes)
