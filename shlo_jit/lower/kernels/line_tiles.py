"""Lowers chains of steps in line tiles, as `schedule/line_tiles.py` has decided.

Lines are numbered among those of all images, wherever they are in memory. The base address of such lines is that of
line 0, even if only some later lines are in memory.
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.plan import LineTilesStep, OpStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.convolution.line_tile import LineTileTable
from shlo_jit.kernels.convolution.shape import FIELDS
from shlo_jit.kernels.gemm.blocks import ceil_div
from shlo_jit.kernels.gemm.gemm import gemm_symbol
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.epilogue import NULL, epilogue_function
from shlo_jit.lower.kernels.row_blocks import Range, RowsWriter, write_stages
from shlo_jit.lower.kernels.units import write_units
from shlo_jit.lower.kernels.window.window import WindowWriter
from shlo_jit.lower.scratch import Fields, worker_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.convolution import ConvolutionSchedule
from shlo_jit.schedule.line_tiles import LineTilesSchedule, Stage
from shlo_jit.schedule.products import ProductSchedule
from shlo_jit.schedule.row_blocks import RowBlocksSchedule
from shlo_jit.schedule.window import Windows


def lower(low: Services, step: LineTilesStep, schedule: LineTilesSchedule) -> None:
    """Writes the task and runs the tasks."""
    stages = [_STAGES[type(stage.how)](low, stage) for stage in schedule.stages]
    own = {v for stage in schedule.stages for v in stage.buffered}
    pointers = {v: low.pointer(v) for stage in stages for v in stage.wanted if v not in own}
    arrays = [array for stage in stages for array in stage.arrays]
    name = low.new_name("line_tiles")
    b = low.task(name, 2 + len(arrays) + len(pointers))
    task = _Task(low, b, schedule)
    task.load(list(pointers), len(arrays))
    task.write(stages)
    d = schedule.division
    if d.images > 1:
        parts, tasks = i64(1), i64(-(-d.batch // d.images))
    else:
        parts = ceil_div(low.b, low.b.mul(low.thread_count, d.each), d.batch)
        many = low.b.icmp("sgt", low.thread_count, tuning.MANY_THREADS)
        parts = low.b.min_(low.b.max_(parts, 1), low.b.select(many, i64(d.most_parts), i64(d.parts)))
        tasks = low.b.mul(parts, d.batch)
    places = [parts, low.scratch(step), *arrays, *pointers.values()]
    low.parallel(low.share("line_tiles", name), places, tasks)


class _Task:
    """Writes `void task(ptr frame, i64 index, i64 worker)`."""

    def __init__(self, low: Services, b: Builder, schedule: LineTilesSchedule):
        self.low, self.b, self.s = low, b, schedule
        _, index, worker = b.params
        d = schedule.division
        if d.images > 1:
            self.images = b.mul(index, d.images), b.min_(b.mul(b.add(index, 1), d.images), d.batch)
            self.first, self.end = i64(0), i64(d.height)
        else:
            parts = b.load("i64", b.params[0])
            self.image, part = b.udiv(index, parts), b.urem(index, parts)
            self.first, self.end = (b.udiv(b.mul(x, d.height), parts) for x in (part, b.add(part, 1)))
        lines = b.sub(self.end, self.first)
        self.tile = ceil_div(b, lines, ceil_div(b, lines, i64(d.tile.value)))
        """Lines per tile, such that all tiles of an image have nearly the same number of lines."""
        scratch = b.load("ptr", b.element(b.params[0], "ptr", 1))
        self.fields = worker_fields(b, schedule.scratch, scratch, worker)
        self.work = self.fields["work"]
        self.at: dict[Value, V] = {}
        """For each value, the address of line 0."""
        self.arrays: list[V] = []
        """Constants of kernels, in the order of the stages that take one."""

    def load(self, values: list[Value], arrays: int) -> None:
        """Loads the addresses in the frame."""
        b = self.b
        found = [b.load("ptr", b.element(b.params[0], "ptr", 2 + i)) for i in range(arrays + len(values))]
        self.arrays = found[:arrays]
        self.at.update(zip(values, found[arrays:], strict=True))

    def line(self, stage: Stage, line: V) -> V:
        """The number of an image's line among those of all images."""
        return self.b.add(self.b.mul(self.image, stage.height), line)

    def write(self, stages: list[_Stage]) -> None:
        if self.s.division.images > 1:
            with self.b.loop(*self.images, 1, "image") as self.image:
                self.write_lines(stages)
        else:
            self.write_lines(stages)
        self.b.ret()

    def write_lines(self, stages: list[_Stage]) -> None:
        """Emits the loop over the line tiles of an image."""
        b, zero = self.b, i64(0)
        for stage in stages:
            stage.begin(self)
        kept = [(b.alloca("i64", 1), b.alloca("i64", 1)) for _ in stages[:-1]]
        for place in (p for both in kept for p in both):
            b.store(zero, place)
        with b.loop(self.first, self.end, self.tile, "tile") as line:
            ranges = self.ranges(line, b.min_(b.add(line, self.tile), self.end), kept)
            for stage, (low, start, end), places in zip(stages, ranges, [*kept, None], strict=True):
                if places is not None:
                    self.place(stage.stage, low, start, places)
                    b.store(low, places[0])
                    b.store(end, places[1])
                with b.if_(b.icmp("sgt", end, start)):
                    stage.make(self, start, end)

    def ranges(self, line: V, stop: V, kept: list[tuple[V, V]]) -> list[tuple[V, V, V]]:
        """For each stage, and lines [line, stop) of the last stage: the first line that the next stage needs, the first
        line that is missing, and the end of both."""
        b, stages = self.b, self.s.stages
        found = [(line, line, stop)]
        for stage, reader, (_, done) in zip(stages[-2::-1], stages[:0:-1], kept[::-1], strict=True):
            (_, start, end), lines = found[-1], reader.lines
            low = b.min_(b.max_(b.sub(b.mul(start, lines.stride), lines.low), 0), stage.height)
            high = b.add(b.mul(b.sub(end, 1), lines.stride), lines.reach - lines.low)
            missing = b.max_(low, b.load("i64", done))
            found.append((low, missing, b.max_(b.min_(high, stage.height), missing)))
        return found[::-1]

    def place(self, stage: Stage, low: V, start: V, places: tuple[V, V]) -> None:
        """Sets the addresses of a stage's lines, from `low` on. Lines that exist already are moved to the beginning."""
        b = self.b
        if stage.product_field is not None and stage.product is not None:
            before = b.mul(self.line(stage, start), stage.line_bytes(stage.product))
            first = self.fields.offsets[stage.product_field.name]
            self.at[stage.product] = b.offset(self.fields.base, b.sub(i64(first), before))
        for value, field in stage.own.items():
            nbytes, memory = stage.line_bytes(value), self.fields[field.name]
            before, done = (b.load("i64", p) for p in places)
            moved = b.sub(low, before)
            count = b.select(b.icmp("sgt", moved, 0), b.sub(done, low), i64(0))
            with b.loop(0, b.max_(count, 0), hint="kept") as i:
                source = b.offset(memory, b.mul(b.add(i, moved), nbytes))
                b.memcpy(b.offset(memory, b.mul(i, nbytes)), source, nbytes)
            self.at[value] = b.offset(memory, b.mul(self.line(stage, low), -nbytes))
        if stage.product_field is None and stage.product is not None:
            self.at[stage.product] = self.at[stage.image]


class _Stage:
    """Writes code that computes some lines of a stage."""

    def __init__(self, stage: Stage):
        self.stage = stage
        self.arrays: list[V] = []
        """Constants of kernels, as addresses in the program's function."""

    @property
    def wanted(self) -> list[Value]:
        """Values that the stage reads and writes."""
        raise NotImplementedError

    def begin(self, task: _Task) -> None:
        """Emits code before the first line tile."""

    def make(self, task: _Task, start: V, end: V) -> None:
        """Emits code that computes lines [start, end) of the image."""
        raise NotImplementedError


class _Rows(_Stage):
    """Writes loops and row blocks, whose rows are the pixels of the lines."""

    def __init__(self, low: Services, stage: Stage):
        super().__init__(stage)
        assert isinstance(stage.how, RowBlocksSchedule)
        self.how = stage.how
        self.nests, self.values, self.arrays = write_stages(low, stage.how)

    @property
    def wanted(self) -> list[Value]:
        return self.values

    def begin(self, task: _Task) -> None:
        b, count = task.b, len(self.arrays)
        arrays, task.arrays = task.arrays[:count], task.arrays[count:]
        assert self.stage.rows_field is not None
        fields = Fields(b, task.fields[self.stage.rows_field.name], self.how.scratch.worker_offsets)
        self.writer = RowsWriter(b, self.how, self.nests, task.at, arrays, fields)
        self.batch = b.udiv(task.image, self.images)
        self.writer.begin(self.batch)

    @property
    def images(self) -> int:
        """Images per batch of the rows."""
        return self.how.step.rows // (self.stage.height * self.stage.pixels)

    def make(self, task: _Task, start: V, end: V) -> None:
        b, stage = task.b, self.stage
        before = b.mul(self.batch, self.images * stage.height)
        rows = [b.mul(b.sub(task.line(stage, x), before), stage.pixels) for x in (start, end)]
        self.writer.rows(Range(self.batch, rows[0], rows[1], i64(0)), {})


class _Kernel(_Stage):
    """Writes code that calls the routine of an op, with its epilogue."""

    def __init__(self, low: Services, stage: Stage):
        super().__init__(stage)
        assert isinstance(stage.step, OpStep)
        self.op = stage.step.op
        self.values: list[Value] = []
        """The values whose addresses the epilogue's frame holds."""
        self.epilogue = NULL
        if stage.epilogue is not None:
            name, self.values = epilogue_function(low, stage.epilogue)
            self.epilogue = V("ptr", f"@{_moved(low, name, len(self.values) + low.is_symbolic)}")

    @property
    def wanted(self) -> list[Value]:
        return list(dict.fromkeys([*self.op.operands, *self.values, self.op.result, self.stage.image]))

    def begin(self, task: _Task) -> None:
        b = task.b
        self.frame = b.alloca("ptr", len(self.values) + task.low.is_symbolic + 1) if self.values else NULL
        if self.values and task.low.is_symbolic:
            assert b.dims is not None
            b.store(b.dims, b.element(self.frame, "ptr", len(self.values)))

    def reported(self, task: _Task, line: V) -> list[V]:
        """The epilogue and its frame, for lines of all images from `line` on."""
        b = task.b
        for i, v in enumerate(self.values):
            b.store(task.at[v], b.element(self.frame, "ptr", i))
        if self.values:
            pixel = b.mul(line, self.stage.pixels)
            b.store(pixel, b.element(self.frame, "ptr", len(self.values) + task.low.is_symbolic))
        return [self.epilogue, self.frame]

    def lines_at(self, task: _Task, value: Value, line: V) -> V:
        return task.b.offset(task.at[value], task.b.mul(line, self.stage.line_bytes(value)))


class _Convolution(_Kernel):
    def __init__(self, low: Services, stage: Stage):
        super().__init__(low, stage)
        assert isinstance(stage.how, ConvolutionSchedule)
        self.how = stage.how
        self.constant = low.table(list(self.how.table))
        prepacked = self.how.prepacked
        self.arrays = [] if prepacked is None else [low.constant_array(prepacked)]

    @property
    def wanted(self) -> list[Value]:
        weights = self.op.operands[1]
        return [v for v in super().wanted if not self.arrays or v is not weights]

    def begin(self, task: _Task) -> None:
        super().begin(task)
        self.table = LineTileTable(task.b, self.constant, dict(zip(FIELDS, self.how.table, strict=True)))
        self.weights = task.arrays.pop(0) if self.arrays else task.at[self.op.operands[1]]

    def make(self, task: _Task, start: V, end: V) -> None:
        b, x = task.b, self.op.operands[0]
        line = task.line(self.stage, start)
        shift = self.table.set(start, b.sub(end, start))
        image = b.offset(task.at[x], b.mul(task.image, x.tensor.nbytes // x.tensor.extents[0]))
        args = [self.table.pointer, b.offset(image, shift), self.weights, self.lines_at(task, self.op.result, line)]
        b.call("void", self.how.symbol, [*args, task.work, *self.reported(task, line), NULL, i64(0), NULL, i64(1)])


class _Product(_Kernel):
    def __init__(self, low: Services, stage: Stage):
        super().__init__(low, stage)
        assert isinstance(stage.how, ProductSchedule) and stage.how.prepacked is not None
        self.how = stage.how
        self.arrays = [low.constant_array(stage.how.prepacked)]

    @property
    def wanted(self) -> list[Value]:
        return [v for v in super().wanted if v is not self.op.operands[1]]

    def begin(self, task: _Task) -> None:
        super().begin(task)
        self.panels = task.arrays.pop(0)

    def make(self, task: _Task, start: V, end: V) -> None:
        b, s = task.b, self.how
        width, n = self.op.result.tensor.extents[2:]
        line, rows = task.line(self.stage, start), b.mul(b.sub(end, start), width)
        a, c = (self.lines_at(task, v, line) for v in (self.op.operands[0], self.op.result))
        one, zero = i64(1), i64(0)
        left = [a, *(i64(x) for x in s.strides[:2]), zero]
        right = [self.panels, *(i64(x) for x in s.strides[3:]), one]
        sizes = [c, i64(n), zero, one, rows, i64(n), i64(s.k), zero]
        b.call(
            "void",
            gemm_symbol(s.types, s.way),
            [*left, *right, *sizes, task.work, *self.reported(task, line), NULL, zero, NULL, one],
        )


class _Windows(_Kernel):
    def __init__(self, low: Services, stage: Stage):
        super().__init__(low, stage)
        assert isinstance(stage.how, Windows)
        writer = WindowWriter(self.op, low.target, stage.how)
        self.values_of_kernel = [*self.op.operands, self.op.result]
        nothing = [NULL] * len(self.values_of_kernel)
        self.name, _ = write_units(low, "reduce_window", nothing, writer.write)

    def make(self, task: _Task, start: V, end: V) -> None:
        pointers = [task.at[v] for v in self.values_of_kernel]
        if task.low.is_symbolic:
            assert task.b.dims is not None
            pointers.append(task.b.dims)
        lines = [task.line(self.stage, x) for x in (start, end)]
        task.b.call("void", self.name, [*pointers, *lines], declare=False)


_STAGES = {ConvolutionSchedule: _Convolution, ProductSchedule: _Product, Windows: _Windows, RowBlocksSchedule: _Rows}


def _moved(low: Services, epilogue: str, slot: int) -> str:
    """An epilogue whose rows are numbered within the line tile; a slot of its frame holds the first row of the tile."""
    name = f"{epilogue}.moved"
    if name not in low.module.functions:
        params = [("ptr", "frame"), *(("i64", x) for x in ("batch", "i0", "i1", "j0", "j1"))]
        b = low.module.function(name, params, attributes="nounwind")
        frame, batch, i0, i1, j0, j1 = b.params
        first = b.load("i64", b.element(frame, "ptr", slot))
        b.call("void", epilogue, [frame, batch, b.add(i0, first), b.add(i1, first), j0, j1], declare=False)
        b.ret()
    return name
