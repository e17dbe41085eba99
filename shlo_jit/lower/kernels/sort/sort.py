"""sort: lines of several operands along one dimension, in the stable order of a comparator.

Where the comparator's keys are known (`sort_keys.py`), each element becomes a record of key and index, the records are
sorted (`kernels/sort.py`: by rank when short, by radix else) and the operands are then moved by the records' indices.
Any other comparator is called by a merge sort of indices. Both are stable, whether that was asked for or not. Tasks are
groups of lines; a long line that is alone or has few like it is sorted by several tasks, chunk by chunk.

Scratch, per worker: two arrays of records and the counters; for one long line: the same, with counters per chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import I64, DType
from shlo_jit.kernels import sort as records_sort
from shlo_jit.kernels.builder import Builder, V, bits, i64, lanes, vector
from shlo_jit.kernels.sort import INDEX_BITS, SLACK, Records, load_record, records_for
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.reducers import run_body
from shlo_jit.lower.elements.registers import Reg, register_type
from shlo_jit.lower.kernels import Kernel
from shlo_jit.lower.kernels.access import Buffer, lanes_loop
from shlo_jit.lower.kernels.sort.keys import Key, emit_key, keys_of
from shlo_jit.memory.scratch import Scratch
from shlo_jit.schedule.nest import MAX_TASKS, PARALLEL_WORK, TASK_WORK

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering

LONG_LINE = 1 << 17
"""Elements from which one line is worth several tasks."""
CHUNKS = 8
CACHE_LINE = 64


@dataclass(frozen=True)
class Lines:
    """The lines of a tensor: `count` of them, n elements each, `stride` elements apart."""

    n: int
    stride: int
    count: int

    def start(self, b: Builder, line: V) -> V:
        """Where a line begins."""
        outer = b.mul(b.udiv(line, self.stride), self.n * self.stride)
        return b.add(outer, b.urem(line, self.stride))


def lines_of(op: Op) -> Lines:
    shape = op.operands[0].tensor.extents
    d = op.int("dimension", -1) % max(1, len(shape)) if shape else 0
    if not shape:
        return Lines(1, 1, 1)
    stride = prod(shape[d + 1 :])
    return Lines(shape[d], stride, prod(shape) // shape[d] if shape[d] else 0)


@dataclass(frozen=True)
class RecordSort:
    """Sorting by records: how the key of each element is made, and how the lines are cut."""

    lines: Lines
    dtypes: tuple[DType, ...]
    keys: tuple[Key, ...]
    records: Records
    moves_values: bool = False
    """There is one operand, and its elements' bits stand in the records instead of indices. Sorting by digits is
    stable, so it needs no indices."""
    kept: tuple[str, ...] = ()
    """Per operand: `value`, `index` where it counts along the line, or `` where nobody reads the result."""

    @property
    def is_ranked(self) -> bool:
        return self.lines.n <= records_sort.rank_limit(self.records)

    @property
    def is_chunked(self) -> bool:
        return self.lines.n >= LONG_LINE and self.lines.count < CHUNKS

    @property
    def chunk(self) -> int:
        return -(-self.lines.n // CHUNKS)

    @property
    def array_bytes(self) -> int:
        return _rounded(self.lines.n * self.records.nbytes + SLACK)

    @property
    def counts_bytes(self) -> int:
        counts = 4 * self.records.buckets * CHUNKS if self.is_chunked else self.records.counts_bytes
        return 0 if self.is_ranked else _rounded(counts)

    @property
    def scratch_bytes(self) -> int:
        return 2 * self.array_bytes + self.counts_bytes

    # ------------------------------------------------------------------ pieces of kernels
    def fill(
        self, b: Builder, low: ProgramLowering, inputs: list[Buffer], line: V, records: V, bounds: tuple[V, V]
    ) -> None:
        """Make the records [bounds) of the line that begins at `line`."""
        rec, stride = self.records, self.lines.stride
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
        t = vector(self.records.type, n)
        total: V | None = None
        for key in self.keys:
            part = b.cast("zext", emit_key(b, key, elements), t)
            if lanes(part.type) != n:
                part = b.splat(part, n)
            total = part if total is None else b.or_(b.shl(total, key.bits), part)
        assert total is not None
        if self.moves_values:
            rest = _as_integer(b, elements[0])
        else:
            rest = b.add(b.splat(i, n), b.iota("i64", n)) if n > 1 else i
        return b.or_(b.shl(total, INDEX_BITS), b.cast("zext", rest, t))

    def index(self, b: Builder, records: V, i: V) -> V:
        x = b.cast("trunc", load_record(b, self.records, records, i), "i32")
        return b.cast("zext", x, "i64")

    def place(self, b: Builder, buffers: list[Buffer], records: V, start: V, i: V) -> None:
        """Write place i of the results' line from sorted records; `buffers`: the operands, then the results."""
        if not self.moves_values:
            move(b, buffers, start, self.lines.stride, i, self.index(b, records, i), self.kept)
            return
        (_, result), dtype = buffers, self.dtypes[0]
        t = register_type(dtype)
        x = b.cast("trunc", load_record(b, self.records, records, i), f"i{bits(t)}")
        result.store(b.add(start, b.mul(i, self.lines.stride)), b.bitcast(x, t))

    def sort_line(self, b: Builder, low: ProgramLowering, scratch: V) -> V:
        """Sort the records at the head of `scratch`; where they are afterwards."""
        if self.is_ranked:
            function = records_sort.rank_records(low.module, self.records, low.target.lanes(64))
        else:
            function = records_sort.radix_records(low.module, self.records)
        other, counts = b.offset(scratch, self.array_bytes), b.offset(scratch, 2 * self.array_bytes)
        return b.call("ptr", function, [scratch, other, i64(self.lines.n), counts], declare=False)


def _as_integer(b: Builder, x: Reg) -> V:
    assert isinstance(x, V)
    return b.bitcast(x, vector(f"i{bits(x.type)}", lanes(x.type)))


def _rounded(nbytes: int) -> int:
    return -(-nbytes // CACHE_LINE) * CACHE_LINE


def record_sort(op: Op) -> RecordSort | None:
    """The sort by records, where the comparator's keys are known and fit."""
    keys = keys_of(op.block())
    lines = lines_of(op)
    records = records_for(sum(k.bits for k in keys), lines.n) if keys else None
    if keys is None or records is None:
        return None
    dtypes = tuple(o.tensor.storage for o in op.operands)
    how = RecordSort(lines, dtypes, tuple(keys), records)
    moves_values = len(dtypes) == 1 and not dtypes[0].is_complex and dtypes[0].bits <= INDEX_BITS
    return replace(how, moves_values=moves_values and not how.is_ranked)


# ---------------------------------------------------------------------------- lines as tasks
LineBody = Callable[[Builder, list[V], V, V], None]
"""Writes what is done with one line: builder, the buffers, the worker's scratch, the line's number."""


def each_line(low: ProgramLowering, hint: str, step: OpStep, pointers: list[V], scratch: int, lines: int, work: int,
              body: LineBody) -> None:  # fmt: skip
    """A task over groups of lines, each with its worker's part of the step's scratch memory."""
    name = low.new_name(hint)
    b = low.module.function(name, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes="nounwind")
    frame, index, worker = b.params
    buffers = [b.load("ptr", b.element(frame, "ptr", k)) for k in range(len(pointers) + 1)]
    mine = b.offset(buffers.pop(), b.mul(worker, scratch))
    tasks = 1 if work * lines < PARALLEL_WORK else max(1, min(MAX_TASKS, lines, work * lines // TASK_WORK))
    grain = -(-lines // tasks)
    first = b.mul(index, grain)
    with b.loop(first, b.min_(b.add(first, grain), lines), 1, "line") as line:
        body(b, buffers, mine, line)
    b.ret()
    name = low.share(hint, name)
    memory = low.scratch(step) if scratch else V("ptr", "null")
    low.parallel(name, [*pointers, memory], -(-lines // grain))


def sort_lines(low: ProgramLowering, step: OpStep, how: RecordSort) -> None:
    op, n = step.op, len(step.op.operands)

    def body(b: Builder, pointers: list[V], scratch: V, line: V) -> None:
        buffers = [Buffer(b, v.tensor.storage, p) for v, p in zip((*op.operands, *op.results), pointers, strict=True)]
        start = how.lines.start(b, line)
        how.fill(b, low, buffers[:n], start, scratch, (i64(0), i64(how.lines.n)))
        done = how.sort_line(b, low, scratch)
        with b.loop(0, how.lines.n, 1, "place") as i:
            how.place(b, buffers, done, start, i)

    pointers = [low.pointer(v) for v in (*op.operands, *op.results)]
    work = how.lines.n * (8 + 4 * how.records.passes)
    each_line(low, "sort", step, pointers, how.scratch_bytes, how.lines.count, work, body)


def move(b: Builder, buffers: list[Buffer], start: V, stride: int, i: V, index: V, kept: Sequence[str]) -> None:
    """Element `index` of each operand's line to place i of the result's; `kept` as in RecordSort."""
    n = len(buffers) // 2
    source, target = b.add(start, b.mul(index, stride)), b.add(start, b.mul(i, stride))
    for x, y, what in zip(buffers[:n], buffers[n:], kept, strict=True):
        if what:
            y.store(target, x.load(source) if what == "value" else convert(b, I64, y.dtype, index))


def kept_of(low: ProgramLowering, op: Op) -> tuple[str, ...]:
    """What each result needs (see RecordSort): values, the places they come from, or nothing."""
    dimension = op.int("dimension", -1) % max(1, op.result.tensor.rank)
    return tuple(
        "" if result not in low.read else "index" if _counts(operand, dimension) else "value"
        for operand, result in zip(op.operands, op.results, strict=True)
    )


def _counts(value: Value, dimension: int) -> bool:
    """The value counts 0, 1, 2, ... along a dimension."""
    op = value.op
    return op is not None and op.name == "stablehlo.iota" and op.int("iota_dimension") == dimension


# ---------------------------------------------------------------------------- one long line in chunks
def sort_chunked(low: ProgramLowering, step: OpStep, how: RecordSort) -> None:
    """For each line: make records, count and move them by each digit, move the operands; all chunks at once."""
    op, b, lines, records = step.op, low.b, how.lines, how.records
    n = len(op.operands)
    types = [v.tensor.storage for v in (*op.operands, *op.results)]
    first_array = low.scratch(step)
    second_array = b.offset(first_array, how.array_bytes)
    counts = b.offset(second_array, how.array_bytes)
    count = records_sort.radix_chunk_count(low.module, records, lines.n, how.chunk)
    offsets = records_sort.radix_chunk_offsets(low.module, records, CHUNKS)
    shuffle = records_sort.radix_chunk_move(low.module, records, lines.n, how.chunk)

    def task(hint: str, body: Callable[[Builder, list[V], V, tuple[V, V]], None]) -> str:
        """A task of a frame with the line's start, the records, and all buffers."""
        name = low.new_name(hint)
        t = low.module.function(name, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes="nounwind")
        frame, index, _ = t.params
        start, array, *rest = [t.load("ptr", t.element(frame, "ptr", k)) for k in range(2 * n + 2)]
        body(t, [array, *rest], t.cast("ptrtoint", start, "i64"), records_sort.chunk_of(t, index, how.chunk, lines.n))
        t.ret()
        return name

    def fill(t: Builder, pointers: list[V], start: V, bounds: tuple[V, V]) -> None:
        inputs = [Buffer(t, d, p) for d, p in zip(types[:n], pointers[1:], strict=False)]
        how.fill(t, low, inputs, start, pointers[0], bounds)

    def place(t: Builder, pointers: list[V], start: V, bounds: tuple[V, V]) -> None:
        buffers = [Buffer(t, d, p) for d, p in zip(types, pointers[1:], strict=True)]
        with t.loop(*bounds, 1, "place") as i:
            how.place(t, buffers, pointers[0], start, i)

    fill_task, place_task = task("sort_records", fill), task("sort_place", place)
    pointers = [low.pointer(v) for v in (*op.operands, *op.results)]
    with b.loop(0, lines.count, 1, "line") as line:
        start = b.cast("inttoptr", lines.start(b, line), "ptr")
        low.parallel(fill_task, [start, first_array, *pointers], CHUNKS)
        with b.loop_carry(0, records.passes, [first_array, second_array], 1, "pass") as carry:
            here, there = carry.values
            shift = b.cast("inttoptr", records_sort.digit_shift(b, records, carry.index), "ptr")
            low.parallel(count, [counts, shift, here], CHUNKS)
            most = b.call("i64", offsets, [counts], declare=False)

            def shuffled(here: V = here, there: V = there, shift: V = shift) -> list[V]:
                low.parallel(shuffle, [counts, shift, here, there], CHUNKS)
                return [there, here]

            same = b.icmp("eq", most, i64(lines.n))
            carry.next(*b.if_else(same, lambda here=here, there=there: [here, there], shuffled))
        low.parallel(place_task, [start, carry.values[0], *pointers], CHUNKS)


# ---------------------------------------------------------------------------- any comparator
def sort_by_merging(low: ProgramLowering, step: OpStep) -> None:
    op, n, lines = step.op, len(step.op.operands), lines_of(step.op)
    body, kept = op.block(), kept_of(low, op)

    def sort_line(b: Builder, pointers: list[V], scratch: V, line: V) -> None:
        buffers = [Buffer(b, v.tensor.storage, p) for v, p in zip((*op.operands, *op.results), pointers, strict=True)]
        start = lines.start(b, line)

        def less(i: V, j: V) -> V:
            args = []
            for x in buffers[:n]:
                args += [x.load(b.add(start, b.mul(k, lines.stride))) for k in (i, j)]
            (found,) = run_body(b, body, args)
            assert isinstance(found, V)
            return found

        done = records_sort.merge_indices(b, scratch, b.offset(scratch, _rounded(8 * lines.n)), lines.n, less)
        with b.loop(0, lines.n, 1, "place") as i:
            move(b, buffers, start, lines.stride, i, b.load("i64", b.element(done, "i64", i)), kept)

    pointers = [low.pointer(v) for v in (*op.operands, *op.results)]
    work = lines.n * max(1, lines.n.bit_length()) * (4 + len(body.ops))
    each_line(low, "sort", step, pointers, 2 * _rounded(8 * lines.n), lines.count, work, sort_line)


def check_body(op: Op, body: Block) -> None:
    """A comparator computes from its arguments and constants alone."""
    inside = {id(o) for o in body.ops}
    for inner in body.ops:
        for o in inner.operands:
            known = o.owner is body or (o.op is not None and (id(o.op) in inside or o.op.name == "stablehlo.constant"))
            if not known or inner.regions:
                raise UnsupportedError(diagnose("sort: a comparator of other than elementwise ops", op.span))


def scratch(low: ProgramLowering, step: OpStep) -> Scratch:
    how = record_sort(step.op)
    if how is None:
        return Scratch(0, 2 * _rounded(8 * lines_of(step.op).n))
    return Scratch(how.scratch_bytes) if how.is_chunked else Scratch(0, how.scratch_bytes)


def lower(low: ProgramLowering, step: OpStep) -> None:
    op = step.op
    if op.result.tensor.size == 0:
        return
    check_body(op, op.block())
    how = record_sort(op)
    if how is None:
        sort_by_merging(low, step)
        return
    how = replace(how, kept=kept_of(low, op))
    if how.is_chunked:
        sort_chunked(low, step, how)
    else:
        sort_lines(low, step, how)


KERNEL = Kernel(lower, scratch)
