"""How the rows of row blocks are divided into tasks and blocks: decided, given as moves, and varied by a tuner.

split(loop=m, by=32)       blocks of 32 rows
parallel(grain=128)        tasks of 128 rows of a batch; without this move, one task does everything
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep, RowBlocksStep
from shlo_jit.fuse.row_blocks import features_of
from shlo_jit.kernels.gemm.precision import gemm_plan
from shlo_jit.kernels.target import Target
from shlo_jit.ops.row_tasks import min_rows_per_task, row_parts
from shlo_jit.ops.runs import extents_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Choice
from shlo_jit.schedule.moves import IllegalMove, Move, Parallel, Split, check_once
from shlo_jit.schedule.row_buffers import widths_of
from shlo_jit.schedule.space import GIVEN, OMITTED
from shlo_jit.schedule.tasks import Tasks
from shlo_jit.sizes import Size, hint_of

if TYPE_CHECKING:
    from shlo_jit.schedule.row_products import Product


class FinerRows(NamedTuple):
    """How a call with more than MANY_THREADS threads divides the rows of a batch into more tasks."""

    least: int
    """Minimum rows of a task."""
    tile: int
    """Rows of a task are a multiple of this."""


class Division(NamedTuple):
    """How the rows are divided into tasks and blocks."""

    block: Choice[int]
    """Rows of a block."""
    task_rows: int
    each: int
    """Batches per task, if a task has all rows of its batches."""
    parts: int
    """Tasks that share the rows of a batch."""
    tasks: Tasks
    finer: FinerRows | None = None
    """Division for many threads; None if it is the same."""

    def moves(self, rows: int) -> tuple[Move, ...]:
        """The division as moves. `rows`: the rows of a batch."""
        block = Split("m", self.block.value, why=self.block.why)
        if self.tasks.is_one:
            return (block,)
        grain = self.task_rows if self.parts > 1 else self.each * rows
        return block, Parallel(grain, why=self.tasks.why)


class _Cut(NamedTuple):
    """The tasks of a division."""

    task_rows: int
    each: int
    parts: int
    tasks: Tasks


def divide(
    step: RowBlocksStep, products: dict[OpStep, Product], target: Target, given: Sequence[Move] | None = None
) -> Division:
    """Returns the division of a step's rows. `given`: the moves that decide instead; raises IllegalMove if the step
    does not allow one of them."""
    tile = tile_rows(step, products, target)
    if given is not None:
        return _given(step, given, tile)
    work = step.rows * sum(p.n * p.k for s, p in products.items() if s not in step.sums)
    work += sum(hint_of(extents_of(s.op)[1]) * step.rows * p.n for s, p in products.items() if s in step.sums)
    cut = _cut_of_sums(step, work, tile, target.reproducible) if step.sums else _cut(step, work, tile)
    block = _block(step, products, cut.task_rows, target)
    if step.ranges is not None and cut.parts > 1:
        cut = _whole_blocks(step, cut, block.value)
    return Division(block, *cut, _finer(step, cut, tile, block.value))


def divide_part(
    step: RowBlocksStep,
    products: dict[OpStep, Product],
    target: Target,
    most: int,
    given: Sequence[Move] | None = None,
) -> Division:
    """Returns the division of a call that computes at most `most` rows of one batch. `given`: the moves that decide
    instead; raises IllegalMove if one of them is not allowed."""
    if given is not None:
        block = _given_block(given, most, f"a block has 1 to {most} rows, those of a line tile")
        if len(given) > 1 or not all(isinstance(move, Split) and move.loop == "m" for move in given):
            text = "row blocks in line tiles have blocks of rows m, and the tasks of the line tiles"
            raise IllegalMove(given[-1], Reason("move-without-use", text))
    elif products:
        block = _block(step, products, most, target)
    else:
        block = Choice(most, Reason("rows-of-call", "a call of loops only has one block"))
    return Division(block, most, 1, 1, Tasks(1, 1, block.why))


def even(rows: int, parts: int, tile: int) -> int:
    """Returns the rows in each of about `parts` parts of equal size, a multiple of `tile`."""
    return -(-rows // (parts * tile)) * tile


def tile_rows(step: RowBlocksStep, products: dict[OpStep, Product], target: Target) -> int:
    """Returns the rows of a register tile of the first product."""
    return gemm_plan(products[step.products[0]].types, target).mr


def _block(step: RowBlocksStep, products: dict[OpStep, Product], task_rows: int, target: Target) -> Choice[int]:
    """Rows of a block: its buffers stay in the first-level cache, or in the second one if the right operands do not
    stay there beside them."""
    widths = widths_of(step)
    made = {v for s in products for v in s.writes}
    sizes = [n * v.tensor.storage.itemsize for v, n in widths.items() if v in made]
    sizes = sizes or [n * v.tensor.storage.itemsize for v, n in widths.items()] or [1]
    right = sum(hint_of(s.op.operands[1].tensor.nbytes) for s in step.products) // max(1, hint_of(step.batch))
    limit, row, tile = target.bytes_of(tuning.ROW_BUFFER_SHARE), sum(sizes), tile_rows(step, products, target)
    if step.sums:  # blocks order the sums: they depend neither on caches nor on which products are recomputed
        limit, row = tuning.GRADIENT_BLOCK_BYTES, 2 * max(sizes)
    elif right <= limit:
        limit, row = target.bytes_of(tuning.ATTENTION_BLOCK_BYTES), max(sizes)
    rows = min(task_rows, even(task_rows, -(-task_rows // max(tile, limit // row)), tile))
    return Choice(rows, Reason("block-bytes", f"the rows between the stages of a block have about {limit:,} bytes"))


def _cut(step: RowBlocksStep, one: int, tile: int) -> _Cut:
    """The tasks of a step without sums. `one`: the multiply-adds of a batch."""
    batch, m = step.batch, step.rows
    serial = min(tuning.GEMM_SERIAL, m * tuning.PARALLEL_WORK)
    if not isinstance(batch, Size) and batch * one <= serial:
        text = f"{batch * one:,} multiply-adds; the caller does up to {serial:,} alone"
        return _Cut(m, batch, 1, Tasks(batch, 1, Reason("too-little-work", text)))
    least = min_rows_per_task(features_of(step.products))
    groups = max(1, min(-(-tuning.ATTENTION_TASKS // max(1, hint_of(batch))), m // least))
    rows = even(m, groups, tile)
    why = Reason("tasks-by-rows", f"about {tuning.ATTENTION_TASKS} tasks, of at least {least} rows each")
    if rows < m:
        parts = -(-m // rows)
        return _Cut(rows, 1, parts, Tasks(batch * parts, batch * parts, why, 1))
    each = max(1, serial // 4 // one)
    work = batch * one if isinstance(batch, Size) else 0
    return _Cut(m, each, 1, Tasks(batch, -(-batch // each), why, each, work))


def _whole_blocks(step: RowBlocksStep, cut: _Cut, block: int) -> _Cut:
    """The tasks with whole blocks of rows, which then are the same for any number of tasks."""
    rows = -(-cut.task_rows // block) * block
    parts = -(-step.rows // rows)
    return _Cut(rows, 1, parts, cut.tasks._replace(units=step.batch * parts, tasks=step.batch * parts))


def _finer(step: RowBlocksStep, cut: _Cut, tile: int, block: int) -> FinerRows | None:
    """The division for many threads: a task has rows of one batch. Sums over rows depend on the tasks. A range of keys
    depends on the block of rows that it belongs to, so blocks stay the same."""
    if step.sums or cut.tasks.is_one or cut.each > 1 or isinstance(step.batch, Size) or isinstance(step.rows, Size):
        return None
    if step.ranges is not None:
        tile = block
        if cut.task_rows % block:
            return None
    least = -(-tuning.LEAST_ROWS_OF_MANY // tile) * tile
    return FinerRows(least, tile) if least < min(cut.task_rows, step.rows) else None


def _cut_of_sums(step: RowBlocksStep, work: int, tile: int, is_ordered: bool) -> _Cut:
    """The tasks of a step with sums over the rows: a task has all rows of its batches, or one of a few parts of them,
    since each part has separate sums. `work`: the multiply-adds of a batch. `is_ordered`: sums take all rows in
    order."""
    batch, m = step.batch, step.rows
    first, second = extents_of(step.products[0].op), extents_of(_second(step).op)
    is_alone = batch * work <= tuning.GEMM_SERIAL
    parts = 1 if is_alone or is_ordered else row_parts(batch, m, first[3] + second[2])
    rows = even(m, parts, tile) if parts > 1 else m
    parts = -(-m // rows)
    if parts > 1:
        why = Reason("few-batches", "there are few batches, so each task sums over a part of the rows")
        return _Cut(rows, 1, parts, Tasks(batch * parts, batch * parts, why, 1))
    each = batch if is_alone else max(1, tuning.GEMM_SERIAL // 4 // work)
    why = Reason("task-per-batch", "each task sums over all rows of its batches")
    return _Cut(rows, each, 1, Tasks(batch, -(-batch // each), why, each))


def _second(step: RowBlocksStep) -> OpStep:
    """The last product that multiplies rows which other stages have computed."""
    written = {v for s in step.stages for v in s.writes}
    return [s for s in step.products if step.source(s.op.operands[0]) in written][-1]


# ---------------------------------------------------------------------- given moves
def _given(step: RowBlocksStep, given: Sequence[Move], tile: int) -> Division:
    """The division that moves describe. Many threads divide it further."""
    batch, m = step.batch, step.rows
    check_once(given)
    cut = _Cut(m, hint_of(batch), 1, Tasks(batch, 1, OMITTED))
    for move in given:
        if isinstance(move, Parallel):
            cut = _given_cut(step, move)
        elif not isinstance(move, Split) or move.loop != "m":
            raise IllegalMove(move, Reason("move-without-use", "row blocks have blocks of rows m, and tasks"))
    block = _given_block(given, cut.task_rows, f"a block has 1 to {cut.task_rows} rows, those of a task")
    if isinstance(batch, Size) and cut.tasks.is_one:
        cut = cut._replace(each=1, tasks=Tasks(batch, batch, OMITTED, 1))
    return Division(block, *cut, _finer(step, cut, tile, block.value))


def _given_block(given: Sequence[Move], most: int, expected: str) -> Choice[int]:
    """The rows of a block that moves describe: at most `most`, and so many without a move."""
    block = Choice(most, OMITTED)
    for move in given:
        if isinstance(move, Split):
            if not 1 <= move.by <= most:
                raise IllegalMove(move, Reason("split-out-of-range", expected))
            block = Choice(move.by, GIVEN)
    return block


def _given_cut(step: RowBlocksStep, move: Parallel) -> _Cut:
    """The tasks of `grain` rows: some rows of a batch, or whole batches."""
    batch, m, grain = step.batch, step.rows, move.grain
    if 1 <= grain < m:
        parts = -(-m // grain)
        return _Cut(grain, 1, parts, Tasks(batch * parts, batch * parts, GIVEN, 1))
    each = grain // m
    if grain < 1 or grain % m or (not isinstance(batch, Size) and each > batch):
        text = f"a task has fewer rows than the {m} of a batch, or whole batches"
        raise IllegalMove(move, Reason("group-out-of-range", text))
    return _Cut(m, each, 1, Tasks(batch, -(-batch // each), GIVEN, each))


# ---------------------------------------------------------------------- alternatives
def other_divisions(step: RowBlocksStep, now: Division, tile: int) -> Iterator[tuple[Move, ...]]:
    """Yields other divisions as moves, the most promising first: blocks and tasks of half and of twice the rows."""
    block, *rest = now.moves(step.rows)
    assert isinstance(block, Split)
    for by in (2 * block.by, -(-block.by // 2 // tile) * tile, 4 * block.by):
        if by != block.by:
            yield (Split("m", min(by, now.task_rows)), *rest)
    for parallel in (move for move in rest if isinstance(move, Parallel)):
        grains = [2 * parallel.grain, -(-parallel.grain // 2 // tile) * tile]
        if now.parts == 1:
            grains = [2 * parallel.grain, max(step.rows, parallel.grain // 2 // step.rows * step.rows)]
        for grain in grains:
            if grain != parallel.grain:
                grain = grain if grain < step.rows else -(-grain // step.rows) * step.rows
                rows = min(grain, step.rows)
                yield (Split("m", min(block.by, rows)), Parallel(grain))


def changes_bits(step: RowBlocksStep, now: Division, then: Division) -> bool:
    """Whether results with another division may have other bits: sums over the rows grow block by block."""
    before, after = ((d.block.value, d.parts, d.task_rows) for d in (now, then))
    return bool(step.sums) and before != after
