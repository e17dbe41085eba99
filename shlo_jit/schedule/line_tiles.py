"""Chains of steps that run in line tiles (see `fuse/line_tiles.py`).

A task has some lines of an image of the last step's result, and iterates over them one line tile at a time. For a tile
it computes the lines of each step that the next step needs and that are still missing. Results that only the next step
reads are in the task's line buffers: lines that the next tile needs too are moved to the beginning of the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import NamedTuple

from shlo_jit.fuse.image_lines import CONVOLUTION, PRODUCT, Lines, lines_of_stage, pixels_of
from shlo_jit.fuse.plan import LineTilesStep, NestStep, OpStep, RowBlocksStep, Step
from shlo_jit.ir.core import Value
from shlo_jit.kernels.gemm.gemm import scratch_bytes
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.convolution import ConvolutionSchedule, convolution_of
from shlo_jit.schedule.epilogue import Epilogue, schedule_epilogue
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.line_division import LineDivision, divide_lines, other_line_divisions
from shlo_jit.schedule.moves import Move
from shlo_jit.schedule.product_layout import layout_of
from shlo_jit.schedule.products import ProductSchedule, schedule_dot
from shlo_jit.schedule.row_blocks import RowBlocksSchedule, schedule_rows
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.window import Windows, WindowSchedule, schedule_window


class Stage(NamedTuple):
    """One of the steps."""

    step: OpStep | NestStep | RowBlocksStep
    how: ConvolutionSchedule | ProductSchedule | Windows | RowBlocksSchedule
    epilogue: Epilogue | None
    lines: Lines
    """The lines that it reads of its input images."""
    most: int
    """Maximum number of lines that the stage computes for a tile."""
    image: Value
    """Images with the lines that the stage computes: those that the next stage reads, if it reads any."""
    own: Mapping[Value, Field]
    """The values in a worker's line buffers that later stages read."""
    product_field: Field | None
    """A worker's line buffer for the product that the epilogue reads. None if the product shares the lines of the
    image, or of the last stage."""
    rows_field: Field | None
    """A worker's memory for row blocks. Right operands that they pack stay there from one tile to the next."""

    @property
    def given_part(self) -> KernelSchedule | None:
        """The schedule of row blocks, or of a loop that runs as such. Other stages have no moves."""
        if not isinstance(self.how, RowBlocksSchedule):
            return None
        return self.how if isinstance(self.step, RowBlocksStep) else self.how.stage_schedules[0]

    @property
    def height(self) -> int:
        return self.image.tensor.extents[1]

    @property
    def pixels(self) -> int:
        """Pixels in a line."""
        return self.image.tensor.extents[2]

    @property
    def notes(self) -> list[Note]:
        """Notes on how the stage runs on a line tile; the tasks are those of the whole chain."""
        where = f", {count(self.most, 'line')} in a line buffer" if self.own else ""
        if isinstance(self.how, RowBlocksSchedule):
            block = Note("row blocks", count(self.how.block, "row"), self.how.division.block.why)
            kernel = [*([block] if self.how.products else []), *self.how.stage_notes]
        else:
            kernel = self.how.notes if isinstance(self.how, Windows) else self.how.kernel_notes
        inner = [n for n in kernel if n.what != "tasks"] + (self.epilogue.notes if self.epilogue is not None else [])
        head = Note("stage", f"{self.step.title}{where}")
        return [head, *(Note(f"  {n.what}", n.value, n.why) for n in inner)]

    @property
    def product(self) -> Value | None:
        """The value that only the stage's epilogue reads; None if there is none beside the image."""
        result = self.step.op.result if isinstance(self.step, OpStep) else self.image
        return result if result is not self.image else None

    @property
    def buffered(self) -> list[Value]:
        """The values in a worker's memory."""
        return [*self.own, *([self.product] if self.product is not None else [])]

    @property
    def fields(self) -> list[Field]:
        """The fields of that memory."""
        others = [field for field in (self.product_field, self.rows_field) if field is not None]
        return [*others, *self.own.values()]

    def line_bytes(self, value: Value) -> int:
        """Bytes per line of a value with the lines of the stage."""
        return value.tensor.nbytes // (self.image.tensor.extents[0] * self.height)


@dataclass(frozen=True, kw_only=True)
class LineTilesSchedule(KernelSchedule):
    """Schedule of a chain of steps in line tiles."""

    stages: tuple[Stage, ...]
    division: LineDivision

    @property
    def moves(self) -> tuple[Move, ...]:
        return self.division.moves

    @property
    def is_tasks(self) -> bool:
        return True

    @property
    def stage_schedules(self) -> Sequence[KernelSchedule | None]:
        return [stage.given_part for stage in self.stages]

    @property
    def notes(self) -> list[Note]:
        return [*self.division.notes, *(note for stage in self.stages for note in stage.notes)]


def schedule_line_tiles(step: LineTilesStep, context: Context) -> LineTilesSchedule:
    readers = [lines_of_stage(part) for part in step.stages[1:]]
    shares = any(isinstance(lines, Lines) and lines.reach > lines.stride for lines in readers)
    given = context.given.get(id(step))
    division = divide_lines(step.images[-1], partial(_buffer_bytes, step), shares, context.target, given)
    stages = [_stage(step, number, most, context) for number, most in enumerate(_most(step, division.tile.value))]
    fields = [field for stage in stages for field in stage.fields]
    work = Field("work", max(_work(stage, context) for stage in stages))
    routines = [r for s in stages if not isinstance(s.how, Windows) for r in s.how.routines]
    return LineTilesSchedule(
        stages=tuple(stages),
        division=division,
        scratch=Scratch(worker=(*fields, work)),
        routines=tuple(dict.fromkeys(routines)),
    )


def _stage(step: LineTilesStep, number: int, most: int, context: Context) -> Stage:
    part, image = step.stages[number], step.images[number]
    lines = lines_of_stage(part)
    assert isinstance(lines, Lines)
    how = _how(part, image, most, context)
    epilogue = how.epilogue if isinstance(how, ConvolutionSchedule | ProductSchedule) else None
    if isinstance(how, ProductSchedule) and how.written is not None:
        assert isinstance(part, OpStep)
        epilogue = schedule_epilogue(part, context.target, layout_of(part.op).result)
    assert epilogue is None or not epilogue.is_late
    if epilogue is not None:  # lines of an image begin anywhere in memory
        epilogue = epilogue._replace(schedule=replace(epilogue.schedule, streams=()))
    rows = Field(f"rows {number}", how.scratch.per_thread) if isinstance(how, RowBlocksSchedule) else None
    found = Stage(part, how, epilogue, lines, most, image, {}, None, rows)
    product = part.op.result if isinstance(part, OpStep) and part.op.result is not image else None
    own = [v for v in part.writes if v in step.inside and v is not product]
    own_fields = {v: Field(f"image {number}.{i}", most * found.line_bytes(v)) for i, v in enumerate(own)}
    is_apart = product is not None and found.line_bytes(image) != found.line_bytes(product)
    product_field = Field(f"product {number}", most * found.line_bytes(product)) if is_apart and product else None
    return found._replace(own=own_fields, product_field=product_field)


def _how(
    part: OpStep | NestStep | RowBlocksStep, image: Value, most: int, context: Context
) -> ConvolutionSchedule | ProductSchedule | Windows | RowBlocksSchedule:
    if not isinstance(part, OpStep):
        return schedule_rows(part, context, pixels_of(image), most * image.tensor.extents[2])
    if part.op.name == CONVOLUTION:
        return convolution_of(part, context, most)
    if part.op.name == PRODUCT:
        found = schedule_dot(part, context)
        assert isinstance(found, ProductSchedule) and found.prepacked is not None
        return found
    found = schedule_window(part, context)
    assert isinstance(found, WindowSchedule) and found.windows is not None and found.scan is None
    return replace(found.windows, split=2, blocks=1)


def _buffer_bytes(step: LineTilesStep, tile: int) -> int:
    """Bytes of the intermediate lines for tiles of so many lines of the last result."""
    values: dict[Value, int] = {}
    for number, (part, image) in enumerate(zip(step.stages[:-1], step.images[:-1], strict=True)):
        product = None if part.host is None else part.host.op.result
        values |= dict.fromkeys([image, *(v for v in part.writes if v in step.inside and v is not product)], number)
    most = _most(step, tile)
    return sum(most[i] * v.tensor.nbytes // prod(step.images[i].tensor.extents[:2]) for v, i in values.items())


def _most(step: LineTilesStep, tile: int) -> list[int]:
    """Lines that each step computes for `tile` lines of the last one, if it computes all of them."""
    found = [tile]
    for image, reader in zip(step.images[-2::-1], step.stages[::-1], strict=False):
        lines = lines_of_stage(reader)
        assert isinstance(lines, Lines)
        found.append(min(image.tensor.extents[1], (found[-1] - 1) * lines.stride + lines.reach))
    return found[::-1]


def _work(stage: Stage, context: Context) -> int:
    """Bytes of the routine's working memory."""
    how = stage.how
    if isinstance(how, ConvolutionSchedule):
        return how.scratch.bytes.nbytes(1)
    if isinstance(how, ProductSchedule):
        m = stage.most * stage.pixels
        return scratch_bytes(how.types, context.target, 1, m, how.result.n, how.k, 1, True)
    return 0


# ---------------------------------------------------------------------- other schedules, for a tuner
def line_tile_alternatives(step: Step, scheduled: KernelSchedule, target: Target) -> Iterator[tuple[Move, ...]]:
    """Yields other schedules of line tiles as moves, the most promising first."""
    assert isinstance(scheduled, LineTilesSchedule)
    seen = {scheduled.moves}
    for moves in other_line_divisions(scheduled.division):
        if moves not in seen:
            seen.add(moves)
            yield moves


def line_tiles_change_bits(step: Step, scheduled: KernelSchedule, moves: Sequence[Move], target: Target) -> bool:
    """Whether the moves may give results with other bits. Each line is computed as those of whole images."""
    return False
