"""sort: lines of several operands along one dimension, in the stable order of a comparator (see `schedule/sort.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.types import I64
from shlo_jit.kernels import sort as records_sort
from shlo_jit.kernels.builder import Builder, V, bits, i64, lanes, vector
from shlo_jit.kernels.sort import INDEX_BITS, load_record
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.reducers import run_body
from shlo_jit.lower.elements.registers import Reg, register_type
from shlo_jit.lower.kernels.access import Buffer, lanes_loop
from shlo_jit.lower.kernels.sort.keys import emit_key
from shlo_jit.schedule.sort import Lines, RecordSort, SortSchedule, aligned
from shlo_jit.schedule.tasks import Tasks

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def start_of(b: Builder, lines: Lines, line: V) -> V:
    """Where a line begins."""
    outer = b.mul(b.udiv(line, lines.stride), lines.n * lines.stride)
    return b.add(outer, b.urem(line, lines.stride))


@dataclass(frozen=True)
class RecordWriter:
    """Pieces of kernels that sort by records. `kept`: see SortSchedule."""

    how: RecordSort
    kept: tuple[str, ...] = ()

    def fill(
        self, b: Builder, low: ProgramLowering, inputs: list[Buffer], line: V, records: V, bounds: tuple[V, V]
    ) -> None:
        """Make the records [bounds) of the line that begins at `line`."""
        rec, stride = self.how.records, self.how.lines.stride
        width = low.target.lanes(64) if rec.bits == 64 and stride == 1 else 1

        def body(i: V, n: int, mask: V | None) -> None:
            place = b.add(line, b.mul(i, stride))
            elements = [x.load(place, n, mask) for x in inputs]
            value = self.record(b, elements, i, n)
            at = b.element(records, rec.type, i)
            if mask is None:
                b.store(value, at, align=8)
            else:
                b.masked_store(value, at, mask)

        lanes_loop(b, low.target, bounds[0], bounds[1], width, body)

    def record(self, b: Builder, elements: list, i: V, n: int) -> V:
        """Key and index of n elements from index i on."""
        t = vector(self.how.records.type, n)
        total: V | None = None
        for key in self.how.keys:
            part = b.cast("zext", emit_key(b, key, elements), t)
            if lanes(part.type) != n:
                part = b.splat(part, n)
            total = part if total is None else b.or_(b.shl(total, key.bits), part)
        assert total is not None
        if self.how.moves_values:
            rest = _as_integer(b, elements[0])
        else:
            rest = b.add(b.splat(i, n), b.iota("i64", n)) if n > 1 else i
        return b.or_(b.shl(total, INDEX_BITS), b.cast("zext", rest, t))

    def index(self, b: Builder, records: V, i: V) -> V:
        x = b.cast("trunc", load_record(b, self.how.records, records, i), "i32")
        return b.cast("zext", x, "i64")

    def place(self, b: Builder, buffers: list[Buffer], records: V, start: V, i: V) -> None:
        """Write place i of the results' line from sorted records; `buffers`: the operands, then the results."""
        if not self.how.moves_values:
            move(b, buffers, start, self.how.lines.stride, i, self.index(b, records, i), self.kept)
            return
        (_, result), dtype = buffers, self.how.dtypes[0]
        t = register_type(dtype)
        x = b.cast("trunc", load_record(b, self.how.records, records, i), f"i{bits(t)}")
        result.store(b.add(start, b.mul(i, self.how.lines.stride)), b.bitcast(x, t))

    def sort_line(self, b: Builder, low: ProgramLowering, scratch: V) -> V:
        """Sort the records at the head of `scratch`; where they are afterwards."""
        if self.how.is_ranked:
            function = records_sort.rank_records(low.module, self.how.records, low.target.lanes(64))
        else:
            function = records_sort.radix_records(low.module, self.how.records)
        other, counts = b.offset(scratch, self.how.array_bytes), b.offset(scratch, 2 * self.how.array_bytes)
        return b.call("ptr", function, [scratch, other, i64(self.how.lines.n), counts], declare=False)


def _as_integer(b: Builder, x: Reg) -> V:
    assert isinstance(x, V)
    return b.bitcast(x, vector(f"i{bits(x.type)}", lanes(x.type)))


# ---------------------------------------------------------------------------- lines as tasks
LineBody = Callable[[Builder, list[V], V, V], None]
"""Writes what is done with one line: builder, the buffers, the worker's scratch, the line's number."""


def each_line(
    low: ProgramLowering, hint: str, step: OpStep, pointers: list[V], scratch: int, tasks: Tasks, body: LineBody
) -> None:
    """A task over groups of lines, each with its worker's part of the step's scratch memory, so many bytes."""
    name = low.new_name(hint)
    b = low.task(name, len(pointers) + 1)
    frame, index, worker = b.params
    buffers = [b.load("ptr", b.element(frame, "ptr", k)) for k in range(len(pointers) + 1)]
    mine = b.offset(buffers.pop(), b.mul(worker, scratch))
    first = b.mul(index, tasks.grain)
    with b.loop(first, b.min_(b.add(first, tasks.grain), tasks.units), 1, "line") as line:
        body(b, buffers, mine, line)
    b.ret()
    name = low.share(hint, name)
    low.run_tasks(name, [*pointers, low.scratch(step)], tasks)


def sort_lines(low: ProgramLowering, step: OpStep, tasks: Tasks, writer: RecordWriter) -> None:
    op, n, how = step.op, len(step.op.operands), writer.how

    def body(b: Builder, pointers: list[V], scratch: V, line: V) -> None:
        buffers = [Buffer(b, v.tensor.storage, p) for v, p in zip((*op.operands, *op.results), pointers, strict=True)]
        start = start_of(b, how.lines, line)
        writer.fill(b, low, buffers[:n], start, scratch, (i64(0), i64(how.lines.n)))
        done = writer.sort_line(b, low, scratch)
        with b.loop(0, how.lines.n, 1, "place") as i:
            writer.place(b, buffers, done, start, i)

    pointers = [low.pointer(v) for v in (*op.operands, *op.results)]
    each_line(low, "sort", step, pointers, how.scratch_bytes, tasks, body)


def move(b: Builder, buffers: list[Buffer], start: V, stride: int, i: V, index: V, kept: Sequence[str]) -> None:
    """Element `index` of each operand's line to place i of the result's; `kept` as in SortSchedule."""
    n = len(buffers) // 2
    source, target = b.add(start, b.mul(index, stride)), b.add(start, b.mul(i, stride))
    for x, y, what in zip(buffers[:n], buffers[n:], kept, strict=True):
        if what:
            y.store(target, x.load(source) if what == "value" else convert(b, I64, y.dtype, index))


# ---------------------------------------------------------------------------- one long line in chunks
def sort_chunked(low: ProgramLowering, step: OpStep, writer: RecordWriter) -> None:
    """For each line: make records, count and move them by each digit, move the operands; all chunks at once."""
    how = writer.how
    op, b, lines, records = step.op, low.b, how.lines, how.records
    n = len(op.operands)
    types = [v.tensor.storage for v in (*op.operands, *op.results)]
    first_array = low.scratch(step)
    second_array = b.offset(first_array, how.array_bytes)
    counts = b.offset(second_array, how.array_bytes)
    count = records_sort.radix_chunk_count(low.module, records, lines.n, how.chunk)
    offsets = records_sort.radix_chunk_offsets(low.module, records, tuning.SORT_CHUNKS)
    shuffle = records_sort.radix_chunk_move(low.module, records, lines.n, how.chunk)

    def task(hint: str, body: Callable[[Builder, list[V], V, tuple[V, V]], None]) -> str:
        """A task of a frame with the line's start, the records, and all buffers."""
        name = low.new_name(hint)
        t = low.task(name, 2 * n + 2)
        frame, index, _ = t.params
        start, array, *rest = [t.load("ptr", t.element(frame, "ptr", k)) for k in range(2 * n + 2)]
        body(t, [array, *rest], t.cast("ptrtoint", start, "i64"), records_sort.chunk_of(t, index, how.chunk, lines.n))
        t.ret()
        return name

    def fill(t: Builder, pointers: list[V], start: V, bounds: tuple[V, V]) -> None:
        inputs = [Buffer(t, d, p) for d, p in zip(types[:n], pointers[1:], strict=False)]
        writer.fill(t, low, inputs, start, pointers[0], bounds)

    def place(t: Builder, pointers: list[V], start: V, bounds: tuple[V, V]) -> None:
        buffers = [Buffer(t, d, p) for d, p in zip(types, pointers[1:], strict=True)]
        with t.loop(*bounds, 1, "place") as i:
            writer.place(t, buffers, pointers[0], start, i)

    fill_task, place_task = task("sort_records", fill), task("sort_place", place)
    pointers = [low.pointer(v) for v in (*op.operands, *op.results)]
    with b.loop(0, lines.count, 1, "line") as line:
        start = b.cast("inttoptr", start_of(b, lines, line), "ptr")
        low.parallel(fill_task, [start, first_array, *pointers], tuning.SORT_CHUNKS)
        with b.loop_carry(0, records.passes, [first_array, second_array], 1, "pass") as carry:
            here, there = carry.values
            shift = b.cast("inttoptr", records_sort.digit_shift(b, records, carry.index), "ptr")
            low.parallel(count, [counts, shift, here], tuning.SORT_CHUNKS)
            most = b.call("i64", offsets, [counts], declare=False)

            def shuffled(here: V = here, there: V = there, shift: V = shift) -> list[V]:
                low.parallel(shuffle, [counts, shift, here, there], tuning.SORT_CHUNKS)
                return [there, here]

            same = b.icmp("eq", most, i64(lines.n))
            carry.next(*b.if_else(same, lambda here=here, there=there: [here, there], shuffled))
        low.parallel(place_task, [start, carry.values[0], *pointers], tuning.SORT_CHUNKS)


# ---------------------------------------------------------------------------- any comparator
def sort_by_merging(low: ProgramLowering, step: OpStep, schedule: SortSchedule) -> None:
    op, n, lines = step.op, len(step.op.operands), schedule.lines
    body, half = op.block(), aligned(8 * lines.n)

    def sort_line(b: Builder, pointers: list[V], scratch: V, line: V) -> None:
        buffers = [Buffer(b, v.tensor.storage, p) for v, p in zip((*op.operands, *op.results), pointers, strict=True)]
        start = start_of(b, lines, line)

        def less(i: V, j: V) -> V:
            args = []
            for x in buffers[:n]:
                args += [x.load(b.add(start, b.mul(k, lines.stride))) for k in (i, j)]
            (found,) = run_body(b, body, args)
            assert isinstance(found, V)
            return found

        done = records_sort.merge_indices(b, scratch, b.offset(scratch, half), lines.n, less)
        with b.loop(0, lines.n, 1, "place") as i:
            move(b, buffers, start, lines.stride, i, b.load("i64", b.element(done, "i64", i)), schedule.kept)

    pointers = [low.pointer(v) for v in (*op.operands, *op.results)]
    each_line(low, "sort", step, pointers, 2 * half, schedule.tasks, sort_line)


def lower(low: ProgramLowering, step: OpStep, schedule: SortSchedule) -> None:
    if schedule.records is None:
        sort_by_merging(low, step, schedule)
    elif schedule.records.is_chunked:
        sort_chunked(low, step, RecordWriter(schedule.records, schedule.kept))
    else:
        sort_lines(low, step, schedule.tasks, RecordWriter(schedule.records, schedule.kept))
