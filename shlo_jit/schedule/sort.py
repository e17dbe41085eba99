"""How sort and top_k run: by records of key and index, or by a merge sort that calls the comparator.

Where the comparator's keys are known (`sort_keys.py`), each element becomes a record of key and index, the records are
sorted (by rank when short, by radix else) and the operands are then moved by the records' indices. Any other comparator
is called by a merge sort of indices. Both are stable, whether that was asked for or not. Tasks are groups of lines; a
long line that is alone or has few like it is sorted by several tasks, chunk by chunk.

Scratch, per worker: two arrays of records and the counters; for one long line: the same, with counters per chunk.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from math import prod

from shlo_jit import tuning
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import DType
from shlo_jit.kernels.sort import INDEX_BITS, SLACK, Records, rank_limit, records_for
from shlo_jit.kernels.top_k import array_bytes
from shlo_jit.schedule.choice import Choice, Note, count
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.schedule import Context
from shlo_jit.schedule.scratch import ALIGN, Scratch
from shlo_jit.schedule.sort_keys import Key, keys_of
from shlo_jit.schedule.tasks import Tasks, cut
from shlo_jit.sizes import hint_of, surely


@dataclass(frozen=True)
class Lines:
    """The lines of a tensor: `count` of them, n elements each, `stride` elements apart."""

    n: int
    stride: int
    count: int


def lines_of(op: Op) -> Lines:
    """The lines that a sort sorts."""
    shape = op.operands[0].tensor.extents
    d = op.int("dimension", -1) % max(1, len(shape)) if shape else 0
    if not shape:
        return Lines(1, 1, 1)
    stride = prod(shape[d + 1 :])
    return Lines(shape[d], stride, prod(shape[:d]) * stride if shape[d] else 0)


@dataclass(frozen=True)
class RecordSort:
    """Sorting by records: how the key of each element is made, and how the lines are cut."""

    lines: Lines
    dtypes: tuple[DType, ...]
    keys: tuple[Key, ...]
    records: Records

    @property
    def is_ranked(self) -> bool:
        return surely(lambda: self.lines.n <= rank_limit(self.records))

    @property
    def is_chunked(self) -> bool:
        """One line at a time, by several tasks."""
        is_long = surely(lambda: self.lines.n >= tuning.SORT_LONG_LINE)
        return is_long and hint_of(self.lines.count) < tuning.SORT_CHUNKS

    @property
    def moves_values(self) -> bool:
        """There is one operand, and its elements' bits stand in the records instead of indices. Sorting by digits is
        stable, so it needs no indices."""
        narrow = len(self.dtypes) == 1 and not self.dtypes[0].is_complex and self.dtypes[0].bits <= INDEX_BITS
        return narrow and not self.is_ranked

    @property
    def chunk(self) -> int:
        return -(-self.lines.n // tuning.SORT_CHUNKS)

    @property
    def array_bytes(self) -> int:
        return aligned(self.lines.n * self.records.nbytes + SLACK)

    @property
    def counts_bytes(self) -> int:
        counts = 4 * self.records.buckets * tuning.SORT_CHUNKS if self.is_chunked else self.records.counts_bytes
        return 0 if self.is_ranked else aligned(counts)

    @property
    def scratch_bytes(self) -> int:
        return 2 * self.array_bytes + self.counts_bytes

    @property
    def notes(self) -> list[Note]:
        how = "by rank" if self.is_ranked else f"by {count(self.records.passes, 'digit')}"
        keys = f"{count(len(self.keys), 'key')}, {sum(k.bits for k in self.keys)} bits"
        why = f"{self.lines.n:,} elements a line; up to {rank_limit(self.records):,} by rank"
        moved = "the values themselves" if self.moves_values else "indices, by which the operands are moved"
        return [Note("sort", f"records of {keys}, {how}", why), Note("records", f"hold {moved}")]


def aligned(nbytes: int) -> int:
    """A multiple of what everything in the arena is aligned to."""
    return -(-nbytes // ALIGN) * ALIGN


@dataclass(frozen=True, kw_only=True)
class SortSchedule(KernelSchedule):
    """A sort. Without `records` it merges."""

    lines: Lines
    records: RecordSort | None
    kept: tuple[str, ...]
    """Per operand: `value`, `index` where it counts along the line, or `` where nobody reads the result."""
    tasks: Tasks
    """Units are lines; of a line in chunks, there are no such tasks."""

    @property
    def notes(self) -> list[Note]:
        lines = Note("lines", f"{count(self.lines.count, 'line')} of {count(self.lines.n, 'element')}")
        if self.records is None:
            why = "the comparator is no lexicographic order of keys that fit a record"
            return [
                lines,
                Note("sort", "merge sort of indices that calls the comparator", why),
                self.tasks.note("line"),
            ]
        if self.records.is_chunked:
            why = f"{tuning.SORT_LONG_LINE:,} elements or more, and few lines"
            return [lines, *self.records.notes, Note("tasks", f"{tuning.SORT_CHUNKS} chunks of each line", why)]
        return [lines, *self.records.notes, self.tasks.note("line")]


@dataclass(frozen=True, kw_only=True)
class TopKSchedule(KernelSchedule):
    """A top_k."""

    k: int
    records: RecordSort
    inserts: Choice[bool]
    """Keep a sorted array of the best and read the line once; else sort the line."""
    worker_bytes: int
    tasks: Tasks

    @property
    def notes(self) -> list[Note]:
        lines = self.records.lines
        how = "a sorted array of the best" if self.inserts.value else "sort each line"
        return [
            Note("lines", f"{count(lines.count, 'line')} of {count(lines.n, 'element')}"),
            Note("top_k", how, self.inserts.why),
            self.tasks.note("line"),
        ]


def schedule_sort(step: OpStep, context: Context) -> KernelSchedule:
    """Raises UnsupportedError for a comparator of other than elementwise ops."""
    op = step.op
    if op.result.tensor.size == 0:
        return NOTHING
    _check_body(op, op.block())
    lines, records = lines_of(op), _record_sort(op)
    if records is None:
        each = lines.n * max(1, hint_of(lines.n).bit_length()) * (4 + len(op.block().ops))
        scratch = Scratch(0, 2 * aligned(8 * lines.n))
    else:
        each, nbytes = lines.n * (8 + 4 * records.records.passes), records.scratch_bytes
        scratch = Scratch(nbytes) if records.is_chunked else Scratch(0, nbytes)
    tasks = cut(lines.count, each * lines.count)
    return SortSchedule(lines=lines, records=records, kept=_kept(op, context.read), tasks=tasks, scratch=scratch)


def schedule_top_k(step: OpStep, context: Context) -> KernelSchedule:
    """Raises UnsupportedError for elements that make no record."""
    op = step.op
    operand = op.operands[0]
    if operand.tensor.size == 0 or op.result.tensor.size == 0:
        return NOTHING
    n, dtype, k = operand.tensor.extents[-1], operand.tensor.storage, op.int("k")
    key = Key(operand, descending=True, total=True)
    fitting = records_for(key.bits, n)
    if fitting is None or dtype.is_complex:
        raise UnsupportedError(diagnose(f"top_k of {operand.tensor}", op.span))
    how = RecordSort(Lines(n, 1, prod(operand.tensor.extents[:-1])), (dtype,), (key,), fitting)
    inserts = _inserts(how, k)
    nbytes = aligned(array_bytes(k, context.target.lanes(64))) if inserts.value else how.scratch_bytes
    tasks = cut(how.lines.count, 2 * n * how.lines.count)
    return TopKSchedule(k=k, records=how, inserts=inserts, worker_bytes=nbytes, tasks=tasks, scratch=Scratch(0, nbytes))


def _inserts(how: RecordSort, k: int) -> Choice[bool]:
    if how.records.bits != 64:
        return Choice(False, "records are wider than 64 bits")
    if k > tuning.TOP_K_INSERTED:
        return Choice(False, f"k is above {tuning.TOP_K_INSERTED}")
    if k > 16 and 8 * k > hint_of(how.lines.n):
        return Choice(False, "k is a large part of the line")
    return Choice(True, "k is small")


def _record_sort(op: Op) -> RecordSort | None:
    """The sort by records, where the comparator's keys are known and fit."""
    keys, lines = keys_of(op.block()), lines_of(op)
    records = records_for(sum(k.bits for k in keys), lines.n) if keys else None
    if keys is None or records is None:
        return None
    return RecordSort(lines, tuple(o.tensor.storage for o in op.operands), tuple(keys), records)


def _kept(op: Op, read: Container[Value]) -> tuple[str, ...]:
    """What each result needs: values, the places they come from, or nothing."""
    dimension = op.int("dimension", -1) % max(1, op.result.tensor.rank)
    return tuple(
        "" if result not in read else "index" if _counts(operand, dimension) else "value"
        for operand, result in zip(op.operands, op.results, strict=True)
    )


def _counts(value: Value, dimension: int) -> bool:
    """The value counts 0, 1, 2, ... along a dimension."""
    op = value.op
    return op is not None and op.name == "stablehlo.iota" and op.int("iota_dimension") == dimension


def _check_body(op: Op, body: Block) -> None:
    """A comparator computes from its arguments and constants alone."""
    inside = {id(o) for o in body.ops}
    for inner in body.ops:
        for o in inner.operands:
            known = o.owner is body or (o.op is not None and (id(o.op) in inside or o.op.name == "stablehlo.constant"))
            if not known or inner.regions:
                raise UnsupportedError(diagnose("sort: a comparator of other than elementwise ops", op.span))
