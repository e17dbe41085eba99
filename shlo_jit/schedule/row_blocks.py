"""Schedule of row blocks: products and loops that run one block of rows at a time (see `fuse/row_blocks.py`).

A task has some rows of one batch, or several whole batches. For each block of its rows it runs the stages in order;
values between them are in the worker's buffers. Right operands that all blocks of a task share are packed once, before
its first block. Stages that sum over rows add up block by block, in order. If there are few batches, each part of a
batch's rows has separate sums, which are added up in the order of the rows after all parts are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shlo_jit import tuning
from shlo_jit.fuse.plan import NestStep, OpStep, RowBlocksStep, Step
from shlo_jit.ir.core import Value
from shlo_jit.kernels.gemm.gemm import GemmStrategy, gemm_routine, scratch_bytes
from shlo_jit.kernels.gemm.known_sizes import Layout
from shlo_jit.kernels.gemm.panels import block_bytes, block_routine, panels_bytes, reads_in_place
from shlo_jit.kernels.gemm.precision import itemsize
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.ops.runs import extents_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.keys_in_registers import KeysInRegisters, keys_in_registers
from shlo_jit.schedule.moves import IllegalMove, Move
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.product_layout import READ_IN_PLACE, Placed, Viewed, viewed_operand
from shlo_jit.schedule.products import prepacked_constant
from shlo_jit.schedule.row_buffers import Buffers, assign_fields, make_buffers, schedule_stage
from shlo_jit.schedule.row_division import Division, changes_bits, divide, divide_part, other_divisions, tile_rows
from shlo_jit.schedule.row_products import Product, Right, product_of
from shlo_jit.schedule.row_ranges import Ranged, packed_bytes, ranged_of
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.shared_columns import SharedColumns, shared_columns
from shlo_jit.schedule.tasks import Tasks
from shlo_jit.sizes import hint_of


class RowProduct(NamedTuple):
    """A stage that multiplies the block's rows by a matrix or, if `partial` is not None, sums over the rows."""

    step: OpStep
    product: Product
    right: Right
    panels: Field
    """A worker's buffer for the packed right operand; empty if it is not packed there."""
    prepacked: np.ndarray | None
    """The right operand as panels, if it was packed at compile time."""
    partial: Field | None
    """For a sum over rows, the partial sums of the row parts after the first."""
    keys: KeysInRegisters | None = None
    """For a range of keys, how the right operand is read in registers; None if a routine multiplies it."""

    @property
    def note(self) -> Note:
        p = self.product
        if self.keys is not None:
            return Note("stage", f"product, {p.n} x {p.k}; right operand read in registers, lanes {self.keys.lanes}")
        if self.partial is not None:
            return Note("stage", f"sums, {p.n} columns, {self.right.value}")
        pieces = f", {len(p.parts)} segments" if len(p.parts) > 1 else ""
        return Note("stage", f"product, {p.n} x {p.k}{pieces}; right operand {self.right.value}")


class RowNest(NamedTuple):
    """A stage that is a loop or a row program on the block."""

    step: NestStep
    schedule: NestSchedule


@dataclass(frozen=True, kw_only=True)
class RowBlocksSchedule(KernelSchedule):
    """Schedule of row blocks."""

    step: RowBlocksStep
    stages: tuple[RowProduct | RowNest, ...]
    buffers: Buffers
    fields: dict[Value, str]
    """For each value inside, the worker's field of its block."""
    division: Division
    ranged: Ranged | None = None
    """The stages that compute a range of the keys; None if all compute all keys."""
    viewed: dict[Value, Viewed]
    """Right operands that are read where they lie in other arrays."""
    slices: int
    """Tasks that add up the partial sums of row parts."""
    columns: SharedColumns | None = None
    """The columns of the last stage, if tasks share them where batches do not fill all threads evenly."""

    @property
    def block(self) -> int:
        return self.division.block.value

    @property
    def tasks(self) -> Tasks:
        return self.division.tasks

    @property
    def moves(self) -> tuple[Move, ...]:
        return self.division.moves(self.step.rows)

    @property
    def is_tasks(self) -> bool:
        return self.division.parts == 1 or not self.step.sums

    @property
    def stage_schedules(self) -> Sequence[KernelSchedule | None]:
        return [s.schedule if isinstance(s, RowNest) else None for s in self.stages]

    @property
    def products(self) -> list[RowProduct]:
        return [s for s in self.stages if isinstance(s, RowProduct)]

    @property
    def stage_notes(self) -> list[Note]:
        """How the stages run on a block."""
        found: list[Note] = []
        for stage in self.stages:
            found += [stage.note] if isinstance(stage, RowProduct) else self._nest_notes(stage)
        return found

    @property
    def notes(self) -> list[Note]:
        step, division = self.step, self.division
        of = f"{count(division.each, 'product')}" if division.parts == 1 else f"{division.task_rows} rows"
        notes = [
            Note("rows", f"{step.batch} x {step.rows}" if step.batch != 1 else f"{step.rows}"),
            Note("row blocks", count(self.block, "row"), division.block.why),
            Note("tasks", f"{count(self.tasks.tasks, 'task')} of {of}", self.tasks.why),
        ]
        if step.sums:
            how = Reason("sums-over-blocks", "added up block after block")
            if division.parts > 1:
                text = f"{division.parts} parts of the rows are summed separately, then added up in order"
                how = Reason("sums-in-parts", text)
            notes.append(Note("sums", count(len(step.sums), "product"), how))
        if self.ranged is not None:
            what = ["the product of weights and values", "weights" * bool(self.ranged.nests)]
            what.append("scores" * bool(self.ranged.columns))
            why = Reason("masked-keys", "a mask leaves no others to the rows of a block")
            stages = ", ".join(filter(None, what))
            notes.append(Note("keys", f"a range in steps of {self.ranged.step} for {stages}", why))
        notes += [Note("operand", "read where it lies", READ_IN_PLACE) for _ in self.viewed]
        notes += [self.columns.note] if self.columns is not None else []
        return [*notes, *self.stage_notes]

    def _nest_notes(self, stage: RowNest) -> list[Note]:
        head = Note("stage", f"{stage.step.title}{self._memory(stage.step)}")
        return [head, *(Note(f"  {n.what}", n.value, n.why) for n in stage.schedule.notes if n.what != "tasks")]

    def _memory(self, nest: NestStep) -> str:
        """Whether a loop writes over what it reads."""
        read = {self.fields[v] for v in map(self.step.source, nest.reads) if v in self.fields}
        written = [self.fields[v] for v in nest.writes if v in self.fields]
        if not written:
            return ""
        return ", over its operands" if all(f in read for f in written) else ", in a separate buffer"


def schedule_row_blocks(step: RowBlocksStep, context: Context) -> RowBlocksSchedule:
    return _schedule(step, context)


def schedule_rows(step: NestStep | RowBlocksStep, context: Context, units: int, most: int) -> RowBlocksSchedule:
    """Schedules row blocks, or a loop over the same number of rows, of which a call computes at most `most` rows of one
    batch."""
    if isinstance(step, NestStep):
        step = RowBlocksStep(reads=step.reads, writes=step.writes, stages=(step,), batch=1, rows=units)
    return _schedule(step, context, most)


def _schedule(step: RowBlocksStep, context: Context, most: int | None = None) -> RowBlocksSchedule:
    target = context.target
    products = {
        s: product_of(s, step.rows if s not in step.sums else hint_of(extents_of(s.op)[1]), target)
        for s in step.stages
        if isinstance(s, OpStep)
    }
    if most is None:
        is_skinny = step.rows <= _skinny_rows(step, products, target) and not step.sums
        division = divide(step, products, target, context.given.get(id(step)))
    else:
        is_skinny = False
        division = divide_part(step, products, target, most, context.given.get(id(step)))
    buffers = make_buffers(step, division.block.value)
    nests = _nests(step, buffers, context, most is not None)
    fields, rows = assign_fields(buffers, nests)
    stages: list[RowProduct | RowNest] = []
    for i, s in enumerate(step.stages):
        if isinstance(s, NestStep):
            stages.append(RowNest(s, nests[i]))
        else:
            stages.append(_stage_of(s, products[s], i, step, division, is_skinny, context))
    ranged = None
    if most is None and step.ranges is not None:
        rights = {s.step: s.right for s in stages if isinstance(s, RowProduct)}
        ranged = ranged_of(step, stages, rights, target)
        are_whole = division.block.value >= step.rows and division.parts == 1
        whole = buffers if are_whole else None
        stepped = [s if isinstance(s, RowNest) else _in_steps(s, step, ranged, whole, target) for s in stages]
        if step.ranges.adds_zeros and not any(isinstance(s, RowProduct) and _adds_zeros(s) for s in stepped):
            ranged = None
        else:
            stages = stepped
    made = [s for s in stages if isinstance(s, RowProduct)]
    work = max((_work(s, target, division.block.value) for s in made), default=0)
    partial = tuple(s.partial for s in made if s.partial is not None)
    panels = tuple(s.panels for s in made)
    return RowBlocksSchedule(
        step=step,
        stages=tuple(stages),
        buffers=buffers,
        fields=fields,
        division=division,
        ranged=ranged,
        viewed={v: viewed_operand(nest, operand, target) for v, (nest, operand) in step.moved.items()},
        slices=tuning.ATTENTION_LEAST_TASKS,
        columns=shared_columns(step, stages, buffers, division),
        scratch=Scratch(partial, (*panels, *rows, Field("work", work))),
        routines=tuple(dict.fromkeys(_routine(s, target) for s in made if s.keys is None)),
    )


# ---------------------------------------------------------------------- products
def _nests(step: RowBlocksStep, buffers: Buffers, context: Context, of_part: bool) -> dict[int, NestSchedule]:
    """The schedules of the loops by the number of the stage."""
    found: dict[int, NestSchedule] = {}
    for i, s in enumerate(step.stages):
        if isinstance(s, NestStep):
            moves = context.given.get(id(s))
            try:
                found[i] = schedule_stage(s, buffers, context.target, of_part=of_part, moves=moves)
            except IllegalMove as error:
                raise error.at(s.place) from None
    return found


def _stage_of(
    s: OpStep, p: Product, number: int, step: RowBlocksStep, division: Division, is_skinny: bool, context: Context
) -> RowProduct:
    target, is_sum = context.target, s in step.sums
    in_place = reads_in_place(p.types, target, p.n, p.b.row, p.b.column)
    prepacked = None
    if is_skinny:
        right = Right.SKINNY
    elif is_sum:
        right = Right.IN_PLACE if in_place else Right.PACKED_BY_BLOCK
    else:
        prepacked = prepacked_constant(s.op, context) if not p.b.batch and len(p.parts) == 1 else None
        right = Right.PREPACKED if prepacked is not None else Right.IN_PLACE if in_place else Right.PACKED
    k = division.block.value if is_sum else p.k
    packs = right in (Right.PACKED, Right.PACKED_BY_BLOCK)
    panels = Field(f"panels {number}", panels_bytes(p.types, target, p.n, k) if packs else 0)
    partial = None
    if is_sum:
        size = step.batch * hint_of(extents_of(s.op)[1]) * p.n * itemsize(p.types.acc)
        partial = Field(f"partial {number}", (division.parts - 1) * size)
    return RowProduct(s, p, right, panels, prepacked, partial)


def _in_steps(
    s: RowProduct, step: RowBlocksStep, ranged: Ranged | None, whole: Buffers | None, target: Target
) -> RowProduct:
    """The stage with panels for each step of keys, and an algorithm that does not depend on their number. `whole`: the
    buffers, if a block has all rows of a batch."""
    if ranged is None or not ranged.has(s.step):
        return s
    if s.right is Right.SKINNY and whole is not None:
        keys = _keys(s, step, ranged, whole, target)
        if keys is not None:
            return s._replace(keys=keys)
    if s.right is Right.PACKED:
        size = -(-ranged.keys // ranged.step) * packed_bytes(step, s.step, s.product, target)
        return s._replace(panels=s.panels._replace(nbytes=size))
    return s._replace(product=s.product._replace(way=GemmStrategy.ANY))


def _keys(
    s: RowProduct, step: RowBlocksStep, ranged: Ranged, buffers: Buffers, target: Target
) -> KeysInRegisters | None:
    """How a product of all rows of a batch reads a range of keys in registers."""
    op, p = s.step.op, s.product
    (left, _), out = op.operands, op.result
    rows = (p.a.row, p.a.column) if buffers.of(left) is None else (buffers.stride(left), 1)
    placed = Placed(1, step.rows, p.n, p.n if buffers.of(out) is None else buffers.stride(out), 0)
    strides = Layout(*rows, 0, p.b.row, p.b.column, 0)
    is_terms = id(s.step) == ranged.terms
    adds_zeros = is_terms and step.ranges is not None and step.ranges.adds_zeros
    return keys_in_registers(op, p.k, placed, strides, target, is_terms=is_terms, adds_zeros=adds_zeros)


def _adds_zeros(s: RowProduct) -> bool:
    """Whether a product adds the products of 0 and the terms that it leaves out."""
    return s.keys is not None and s.keys.adds_zeros


def _skinny_rows(step: RowBlocksStep, products: dict[OpStep, Product], target: Target) -> int:
    """Maximum rows of a batch that are multiplied together: those of a register tile, or that read a range of keys in
    registers."""
    rows = tile_rows(step, products, target)
    return rows if step.ranges is None else max(rows, tuning.COMPUTED_OPERAND_ROWS)


def _work(s: RowProduct, target: Target, rows: int) -> int:
    """Bytes of a routine's working memory."""
    p = s.product
    if s.keys is not None:
        return 0
    if s.right is Right.SKINNY:
        return scratch_bytes(p.types, target, 1, rows, p.n, p.k, 1)
    if s.right is Right.PREPACKED:
        return scratch_bytes(p.types, target, 1, rows, p.n, p.k, 1, True)
    return block_bytes(p.types, target)


def _routine(s: RowProduct, target: Target) -> Routine:
    t = s.product.types
    if s.right is Right.SKINNY:
        return gemm_routine(t.a, t.b, t.acc, target, s.product.way)
    if s.right is Right.PREPACKED:
        return gemm_routine(t.a, t.b, t.acc, target, GemmStrategy.TILES)
    return block_routine(t, target)


# ---------------------------------------------------------------------- other schedules, for a tuner
def row_block_alternatives(step: Step, scheduled: KernelSchedule, target: Target) -> Iterator[tuple[Move, ...]]:
    """Yields other schedules of row blocks as moves, the most promising first."""
    assert isinstance(step, RowBlocksStep) and isinstance(scheduled, RowBlocksSchedule)
    products = {p.step: p.product for p in scheduled.products}
    seen = {scheduled.moves}
    for moves in other_divisions(step, scheduled.division, tile_rows(step, products, target)):
        if moves not in seen:
            seen.add(moves)
            yield moves


def row_block_changes_bits(step: Step, scheduled: KernelSchedule, moves: Sequence[Move], target: Target) -> bool:
    """Whether the moves may give results with other bits than the schedule."""
    assert isinstance(step, RowBlocksStep) and isinstance(scheduled, RowBlocksSchedule)
    products = {p.step: p.product for p in scheduled.products}
    return changes_bits(step, scheduled.division, divide(step, products, target, moves))
