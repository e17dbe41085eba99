"""A sort of long lines, one at a time, by several tasks: each has a chunk of the line, or a part of the sorted
order."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels import sort as records_sort
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.access import Buffer
from shlo_jit.lower.kernels.sort.key_sort import KeyWriter, quicksort_chunks
from shlo_jit.lower.kernels.sort.records import RecordWriter, start_of
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.sort import RecordSort

Bounds = tuple[V, V]


def sort_chunked(low: Services, step: OpStep, writer: RecordWriter) -> None:
    """For each line, computes keys or records, sorts them, and moves the operands."""
    b, lines = low.b, writer.how.lines
    chunks = _Chunks(low, step, writer)
    with b.loop(0, lines.count, 1, "line") as line:
        start = b.cast("inttoptr", start_of(b, lines, line), "ptr")
        if writer.how.key_sort_bits:
            b.if_else(chunks.make_keys(start), lambda: chunks.by_keys(start), lambda: chunks.by_records(start))
        else:
            chunks.by_records(start)


class _Chunks:
    """The tasks of a sort, and the memory that they share: two arrays and the counters."""

    def __init__(self, low: Services, step: OpStep, writer: RecordWriter):
        self.low, self.writer, self.how = low, writer, writer.how
        self.keys = KeyWriter(self.how, low.target)
        operands = step.op.operands
        self.operands = len(operands)
        self.types = [v.tensor.storage for v in (*operands, *step.op.results)]
        fields = shared_fields(low.b, self.how.scratch, low.scratch(step))
        self.first, self.second, self.counts = fields["first"], fields["second"], fields["counts"]
        self.pointers = [low.pointer(v) for v in (*operands, *step.op.results)]
        self.fill_task, self.place_task = self.task("sort_records", self.fill), self.task("sort_place", self.place)
        if self.how.key_sort_bits:
            self.key_task = self.task("sort_keys", self.fill_keys)
            self.place_key_task = self.task("sort_place_keys", self.place_keys)

    # ------------------------------------------------------------------ tasks
    def task(self, hint: str, body: Callable[[Builder, list[V], V, V, V, Bounds], None]) -> str:
        """A task for each chunk. `body` gets a builder, all buffers, the beginning of the line, the array, the
        counters, and the chunk's bounds."""
        name, lines = self.low.new_name(hint), self.how.lines
        count = len(self.pointers) + 3
        t = self.low.task(name, count)
        frame, index, _ = t.params
        start, array, counts, *buffers = [t.load("ptr", t.element(frame, "ptr", k)) for k in range(count)]
        bounds = records_sort.chunk_of(t, index, self.how.chunk, lines.n)
        body(t, buffers, t.cast("ptrtoint", start, "i64"), array, counts, bounds)
        t.ret()
        return name

    def run(self, task: str, start: V, array: V) -> None:
        self.low.parallel(task, [start, array, self.counts, *self.pointers], self.how.chunks)

    def fill(self, t: Builder, buffers: list[V], start: V, array: V, counts: V, bounds: Bounds) -> None:
        n = self.operands
        inputs = [Buffer(t, d, p) for d, p in zip(self.types[:n], buffers[:n], strict=True)]
        self.writer.fill(t, self.low, inputs, start, array, bounds)

    def place(self, t: Builder, buffers: list[V], start: V, array: V, counts: V, bounds: Bounds) -> None:
        every = [Buffer(t, d, p) for d, p in zip(self.types, buffers, strict=True)]
        with t.loop(*bounds, 1, "place") as i:
            self.writer.place(t, every, array, start, i)

    def fill_keys(self, t: Builder, buffers: list[V], start: V, array: V, counts: V, bounds: Bounds) -> None:
        """Fills the keys of a chunk. All tasks that find an element which its key does not determine write the same
        value."""
        plain = self.keys.fill(t, Buffer(t, self.types[0], buffers[0]), start, array, bounds)
        with t.if_(t.not_(plain), "other"):
            t.store(i64(1), counts)

    def place_keys(self, t: Builder, buffers: list[V], start: V, array: V, counts: V, bounds: Bounds) -> None:
        self.keys.place(t, Buffer(t, self.types[1], buffers[1]), start, array, bounds)

    # ------------------------------------------------------------------ a line
    def make_keys(self, start: V) -> V:
        """Fills the first array with keys. Returns whether each of them determines its element."""
        b = self.low.b
        b.store(i64(0), self.counts)
        self.run(self.key_task, start, self.first)
        return b.icmp("eq", b.load("i64", self.counts), 0)

    def by_keys(self, start: V) -> list[V]:
        self.run(self.place_key_task, start, self.partitioned(self.how.key_sort_bits))
        return []

    def by_records(self, start: V) -> list[V]:
        self.run(self.fill_task, start, self.first)
        done = self.partitioned(self.how.records.bits) if self.how.is_partitioned else self.by_digits(self.how)
        self.run(self.place_task, start, done)
        return []

    def partitioned(self, width: int) -> V:
        """Sorts the first array by partition. Returns the array that has the result."""
        return quicksort_chunks(self.low, width, (self.first, self.second, self.counts), self.how)

    def by_digits(self, how: RecordSort) -> V:
        """Counts and moves the records by each digit. Returns the array that has the result."""
        low, b, records, n, chunks = self.low, self.low.b, how.records, how.lines.n, how.chunks
        count = records_sort.radix_chunk_count(low.module, records, n, how.chunk)
        offsets = records_sort.radix_chunk_offsets(low.module, records, chunks)
        shuffle = records_sort.radix_chunk_move(low.module, records, n, how.chunk)
        with b.loop_carry(0, records.passes, [self.first, self.second], 1, "pass") as carry:
            here, there = carry.values
            shift = b.cast("inttoptr", records_sort.digit_shift(b, records, carry.index), "ptr")
            low.parallel(count, [self.counts, shift, here], chunks)
            most = b.call("i64", offsets, [self.counts], declare=False)

            def shuffled() -> list[V]:
                low.parallel(shuffle, [self.counts, shift, here, there], chunks)
                return [there, here]

            carry.next(*b.if_else(b.icmp("eq", most, i64(n)), lambda: [here, there], shuffled))
        return carry.values[0]
