"""Chains of steps that run in line tiles (see `fuse/line_tiles.py`).

A task has some lines of an image of the last step's result, and iterates over them one line tile at a time. For a tile
it computes the lines of each step that the next step needs and that are still missing. Results that only the next step
reads are in the task's line buffers: lines that the next tile needs too are moved to the beginning of the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from shlo_jit import tuning
from shlo_jit.fuse.line_tiles import CONVOLUTION, PRODUCT, Lines, image_of, lines_of
from shlo_jit.fuse.plan import LineTilesStep, OpStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.gemm.gemm import scratch_bytes
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.convolution import ConvolutionSchedule, convolution_of
from shlo_jit.schedule.epilogue import Epilogue, schedule_epilogue
from shlo_jit.schedule.kernel import Allowed, KernelSchedule
from shlo_jit.schedule.product_layout import layout_of
from shlo_jit.schedule.products import ProductSchedule, schedule_dot
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.window import Windows, WindowSchedule, schedule_window


class Stage(NamedTuple):
    """One of the steps."""

    step: OpStep
    how: ConvolutionSchedule | ProductSchedule | Windows
    epilogue: Epilogue | None
    lines: Lines
    """The lines that it reads of its input images."""
    most: int
    """Maximum number of lines that the stage computes for a tile."""
    image: Value
    """The value that the next stage reads; for the last stage, its result."""
    image_field: Field | None
    """A worker's line buffer for the image; None if the image is in the program's memory."""
    product_field: Field | None
    """A worker's line buffer for the product that the epilogue reads. None if the product shares the lines of the
    image, or of the last stage."""

    def streaming_where(self, allowed: Allowed) -> Stage:
        """The stage without streaming stores to targets that are not allowed. Line buffers stay in the caches."""
        if self.epilogue is None:
            return self
        in_memory = self.image_field is None
        epilogue = self.epilogue.streaming_where(lambda nest, target: in_memory and allowed(nest, target))
        return self._replace(epilogue=epilogue)

    @property
    def height(self) -> int:
        return self.step.op.result.tensor.extents[1]

    @property
    def notes(self) -> list[Note]:
        """Notes on how the stage runs on a line tile; the tasks are those of the whole chain."""
        where = f", {count(self.most, 'line')} in a line buffer" if self.image_field is not None else ""
        kernel = self.how.notes if isinstance(self.how, Windows) else self.how.kernel_notes
        inner = [n for n in kernel if n.what != "tasks"] + (self.epilogue.notes if self.epilogue is not None else [])
        head = Note("stage", f"{self.step.op.name.partition('.')[2]}{where}")
        return [head, *(Note(f"  {n.what}", n.value, n.why) for n in inner)]

    @property
    def products(self) -> list[Value]:
        """The values that only the stage's epilogue reads."""
        return [v for v in (self.step.op.result,) if v is not self.image]

    @property
    def own(self) -> list[Value]:
        """The values in a worker's memory."""
        fields = (self.product_field, self.step.op.result), (self.image_field, self.image)
        return [value for field, value in fields if field is not None]

    @property
    def fields(self) -> list[Field]:
        """The fields of that memory."""
        return [field for field in (self.product_field, self.image_field) if field is not None]


@dataclass(frozen=True, kw_only=True)
class LineTilesSchedule(KernelSchedule):
    """Schedule of a chain of steps in line tiles."""

    stages: tuple[Stage, ...]
    tile: int
    """Maximum number of lines of the last step's result in a tile."""
    buffers: int
    """Approximate bytes of all line buffers."""
    each: int
    """Tasks per thread of the call. The bits of the results do not depend on the number of tasks."""
    most: int
    """Maximum number of tasks per image."""

    def streaming_where(self, allowed: Allowed) -> Self:
        return replace(self, stages=tuple(stage.streaming_where(allowed) for stage in self.stages))

    @property
    def notes(self) -> list[Note]:
        last = self.stages[-1]
        why = Reason("tiles-share-lines", "line tiles re-use lines of the tile before")
        if self.each != 1:
            why = Reason("tiles-share-no-lines", "line tiles share no lines")
        size = Reason("line-buffer-bytes", f"line buffers of up to {self.buffers:,} bytes")
        return [
            Note("line tiles", f"{count(self.tile, 'line')} of {last.height}", size),
            Note("tasks", f"{self.each} per thread, up to {self.most} per image", why),
            *(note for stage in self.stages for note in stage.notes),
        ]


def schedule_line_tiles(step: LineTilesStep, context: Context) -> LineTilesSchedule:
    steps = step.stages
    height = steps[-1].op.result.tensor.extents[1]
    readers = [lines_of(part.op) for part in steps[1:]]
    share = any(isinstance(lines, Lines) and lines.reach > lines.stride for lines in readers)
    buffers = context.target.bytes_of(tuning.LINE_BUFFER_BYTES)
    tile = _tile(steps, height, buffers)
    stages: list[Stage] = []
    for part, most in zip(steps, _most(steps, tile), strict=True):
        stages.append(_stage(part, most, step, len(stages), context))
    fields = [field for stage in stages for field in stage.fields]
    work = Field("work", max(_work(stage, context) for stage in stages))
    routines = [r for s in stages if not isinstance(s.how, Windows) for r in s.how.routines]
    return LineTilesSchedule(
        stages=tuple(stages),
        tile=tile,
        buffers=buffers,
        each=1 if share else tuning.LINE_TILE_TASKS,
        most=max(1, height // tuning.LINE_TILE_LINES),
        scratch=Scratch(worker=(*fields, work)),
        routines=tuple(dict.fromkeys(routines)),
    )


def _stage(part: OpStep, most: int, step: LineTilesStep, number: int, context: Context) -> Stage:
    is_last = part is step.stages[-1]
    image = part.op.result if is_last else image_of(part)
    lines = lines_of(part.op)
    assert image is not None and isinstance(lines, Lines)
    how = _how(part, most, context)
    epilogue = None if isinstance(how, Windows) else how.epilogue
    if isinstance(how, ProductSchedule) and how.written is not None:
        epilogue = schedule_epilogue(part, context.target, layout_of(part.op).result)
    assert epilogue is None or not epilogue.is_late
    if epilogue is not None:  # lines of an image begin anywhere in memory
        epilogue = epilogue._replace(schedule=replace(epilogue.schedule, streams=()))
    is_apart = image is not part.op.result and line_bytes(image) != line_bytes(part.op.result)
    is_inside = not is_last and image in step.inside
    product_field = Field(f"product {number}", most * line_bytes(part.op.result)) if is_apart else None
    image_field = Field(f"image {number}", most * line_bytes(image)) if is_inside else None
    return Stage(part, how, epilogue, lines, most, image, image_field, product_field)


def _how(part: OpStep, most: int, context: Context) -> ConvolutionSchedule | ProductSchedule | Windows:
    if part.op.name == CONVOLUTION:
        return convolution_of(part, context, most)
    if part.op.name == PRODUCT:
        found = schedule_dot(part, context)
        assert isinstance(found, ProductSchedule) and found.prepacked is not None
        return found
    found = schedule_window(part, context)
    assert isinstance(found, WindowSchedule) and found.windows is not None and found.scan is None
    return replace(found.windows, split=2, blocks=1)


def _tile(steps: tuple[OpStep, ...], height: int, buffers: int) -> int:
    """Lines of the last result per tile: as many as possible while the intermediate lines fit into `buffers` bytes."""
    images = [image for part in steps[:-1] if (image := image_of(part)) is not None]

    def nbytes(tile: int) -> int:
        return sum(most * line_bytes(v) for most, v in zip(_most(steps, tile), images, strict=False))

    return next((n for n in range(height, 1, -1) if nbytes(n) <= buffers), 1)


def _most(steps: tuple[OpStep, ...], tile: int) -> list[int]:
    """Lines that each step computes for `tile` lines of the last one, if it computes all of them."""
    found = [tile]
    for maker, reader in zip(steps[-2::-1], steps[::-1], strict=False):
        lines = lines_of(reader.op)
        assert isinstance(lines, Lines)
        found.append(min(maker.op.result.tensor.extents[1], (found[-1] - 1) * lines.stride + lines.reach))
    return found[::-1]


def _work(stage: Stage, context: Context) -> int:
    """Bytes of the routine's working memory."""
    how = stage.how
    if isinstance(how, ConvolutionSchedule):
        return how.scratch.bytes.nbytes(1)
    if isinstance(how, ProductSchedule):
        m = stage.most * stage.step.op.result.tensor.extents[2]
        return scratch_bytes(how.types, context.target, 1, m, how.result.n, how.k, 1, True)
    return 0


def line_bytes(images: Value) -> int:
    """Bytes per line of images [image, line, pixel, feature]."""
    batch, height, *_ = images.tensor.extents
    return images.tensor.nbytes // (batch * height)
