"""Schedules of sort and top_k: by records of key and index, or by a merge sort that calls the comparator.

If the comparator's keys are known (`sort_keys.py`), each element becomes a record of key and index. The records are
sorted: by partition if the target packs lanes, otherwise by rank if short and by radix if long. The operands are then
moved by the records' indices. For a single operand, the keys alone are sorted by partition and converted back to
elements, unless a line has an element that its key does not determine. For any other comparator, a merge sort of
indices calls it. All sorts are stable, whether that was requested or not. Tasks are groups of lines. If there are only
a few long lines, several tasks sort each of them, chunk by chunk.

Scratch memory per worker: two arrays of records and the counters. For long lines in chunks, all tasks share one set.
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
from shlo_jit.kernels.quicksort import has_quicksort, quicksort_routine
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.sort import INDEX_BITS, SLACK, Records, rank_limit, records_for
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.top_k import array_bytes
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Choice, Note, count
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.scratch import Field, Scratch
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
    """Sorting by records: how the key of each element is computed, and how the lines are cut."""

    lines: Lines
    dtypes: tuple[DType, ...]
    keys: tuple[Key, ...]
    records: Records
    is_partitioned: bool = False
    """Whether records are sorted by partition on vectors."""
    key_sort_bits: int = 0
    """Bits of the integer keys that are sorted by partition in place of records, if a key determines all of an element,
    at least for most elements. 0 if records are always needed."""
    chunks: int = 0
    """Tasks that share a line, one line at a time; 0 if a task has whole lines."""

    @property
    def is_ranked(self) -> bool:
        return not self.is_partitioned and surely(lambda: self.lines.n <= rank_limit(self.records))

    @property
    def moves_values(self) -> bool:
        """Whether the records hold the elements' bits in place of indices, because there is one operand. Sorting by
        digits is stable, so it needs no indices."""
        narrow = len(self.dtypes) == 1 and not self.dtypes[0].is_complex and self.dtypes[0].bits <= INDEX_BITS
        return narrow and not self.is_ranked and not self.is_partitioned

    @property
    def chunk(self) -> int:
        """Elements per chunk."""
        return -(-self.lines.n // self.chunks)

    @property
    def scratch(self) -> Scratch:
        """Two arrays of records, or of keys in their place, and the counters."""
        widest = max(self.records.nbytes, self.key_sort_bits // 8)
        arrays = [Field(name, self.lines.n * widest + SLACK) for name in ("first", "second")]
        fields = (*arrays, Field("counts", self._counts_bytes()))
        return Scratch(shared=fields) if self.chunks else Scratch(worker=fields)

    def _counts_bytes(self) -> int:
        """Bytes of the counters of digits, or of the bounds of partitions: the larger, if a line may need either."""
        if not self.chunks:
            return 0 if self.is_ranked or self.is_partitioned else self.records.counts_bytes
        digits = 0 if self.is_partitioned else self.records.chunk_counts_bytes(self.chunks)
        bounds = bounds_bytes(self.chunks) if self.is_partitioned or self.key_sort_bits else 0
        return max(digits, bounds)

    @property
    def notes(self) -> list[Note]:
        how = "by rank" if self.is_ranked else f"by {count(self.records.passes, 'digit')}"
        how = "by partition" if self.is_partitioned else how
        keys = f"{count(len(self.keys), 'key')}, {sum(k.bits for k in self.keys)} bits"
        text = f"{self.lines.n:,} elements per line; up to {rank_limit(self.records):,} are sorted by rank"
        why = Reason("line-length", text)
        moved = "the values themselves" if self.moves_values else "indices, by which the operands are moved"
        found = [Note("sort", f"records of {keys}, {how}", why), Note("records", f"hold {moved}")]
        if self.key_sort_bits:
            bits = f"keys of {self.key_sort_bits} bits"
            how = f"{bits} by partition, for lines whose elements with equal keys have equal bits"
            why = Reason("keys-tell-all", "the key determines the element, except for the sign of zero and for NaNs")
            found.append(Note("keys only", how, why))
        return found


def bounds_bytes(chunks: int) -> int:
    """Bytes of the bounds of the parts that a partition cuts: 64-bit numbers, including the end of the last part."""
    return 8 * (chunks + 1)


@dataclass(frozen=True, kw_only=True)
class SortSchedule(KernelSchedule):
    """Schedule of a sort. Without `records` it is a merge sort."""

    lines: Lines
    records: RecordSort | None
    kept: tuple[str, ...]
    """For each operand: `value`, `index` if it counts along the line, or an empty string if the result is not read."""
    tasks: Tasks
    """The tasks. Units are lines; unused if lines are cut into chunks."""

    @property
    def notes(self) -> list[Note]:
        lines = Note("lines", f"{count(self.lines.count, 'line')} of {count(self.lines.n, 'element')}")
        if self.records is None:
            why = Reason("comparator-not-keys", "the comparator is not a lexicographic order of keys that fit a record")
            return [
                lines,
                Note("sort", "merge sort of indices, which calls the comparator", why),
                self.tasks.note("line"),
            ]
        if self.records.chunks:
            why = Reason("few-long-lines", f"few lines, of at least {tuning.SORT_LONG_LINE:,} elements each")
            return [lines, *self.records.notes, Note("tasks", f"{self.records.chunks} chunks of each line", why)]
        return [lines, *self.records.notes, self.tasks.note("line")]


@dataclass(frozen=True, kw_only=True)
class CalledSortSchedule(KernelSchedule):
    """Schedule of a sort that calls a function of the program as its comparator."""

    lines: Lines
    function: str
    kept: tuple[str, ...]
    """As in SortSchedule."""

    @property
    def notes(self) -> list[Note]:
        text = "its comparator has control flow, tensors or values from outside"
        why = Reason("comparator-function", text)
        return [
            Note("lines", f"{count(self.lines.count, 'line')} of {count(self.lines.n, 'element')}"),
            Note("sort", "merge sort of indices that calls a function for each comparison", why),
        ]


@dataclass(frozen=True, kw_only=True)
class TopKSchedule(KernelSchedule):
    """Schedule of a top_k."""

    k: int
    records: RecordSort
    inserts: Choice[bool]
    """Whether a sorted array keeps the best elements while the line is read once; otherwise the line is sorted."""
    tasks: Tasks

    @property
    def notes(self) -> list[Note]:
        lines = self.records.lines
        how = "insert into a sorted array of the best" if self.inserts.value else "sort each line"
        return [
            Note("lines", f"{count(lines.count, 'line')} of {count(lines.n, 'element')}"),
            Note("top_k", how, self.inserts.why),
            self.tasks.note("line"),
        ]


def schedule_sort(step: OpStep, context: Context) -> KernelSchedule:
    """Schedules a sort. Raises UnsupportedError for a comparator with ops that are not elementwise."""
    op = step.op
    if op.result.tensor.size == 0:
        return NOTHING
    _check_body(op, op.block())
    lines, records = lines_of(op), _record_sort(op, context.target)
    if records is None:
        each = lines.n * max(1, hint_of(lines.n).bit_length()) * (4 + len(op.block().ops))
        scratch = Scratch(worker=_index_arrays(lines))
    else:
        each, scratch = lines.n * (8 + 4 * records.records.passes), records.scratch
    tasks = cut(lines.count, each * lines.count)
    kept, routines = _kept(op, context.read), () if records is None else routines_of(records, context.target)
    return SortSchedule(lines=lines, records=records, kept=kept, tasks=tasks, scratch=scratch, routines=routines)


def schedule_sort_by_function(step: OpStep, context: Context) -> KernelSchedule:
    """Schedules the call that `passes/regions/outline.py` makes from a sort."""
    op, lines = step.op, lines_of(step.op)
    if op.result.tensor.size == 0:
        return NOTHING
    kept, function = _kept(op, context.read), op.attributes["callee"].name
    return CalledSortSchedule(lines=lines, function=function, kept=kept, scratch=Scratch(_index_arrays(lines)))


def _index_arrays(lines: Lines) -> tuple[Field, Field]:
    """The two arrays of 64-bit indices that a merge sort works in."""
    return Field("first", 8 * lines.n), Field("second", 8 * lines.n)


def schedule_top_k(step: OpStep, context: Context) -> KernelSchedule:
    """Schedules a top_k. Raises UnsupportedError for elements that fit no record."""
    op = step.op
    operand = op.operands[0]
    if operand.tensor.size == 0 or op.result.tensor.size == 0:
        return NOTHING
    n, dtype, k = operand.tensor.extents[-1], operand.tensor.storage, op.int("k")
    key = Key(operand, descending=True, total=True)
    fitting = records_for(key.bits, n)
    if fitting is None or dtype.is_complex:
        raise UnsupportedError(diagnose(f"top_k of {operand.tensor}", op.span, label="unsupported-element-type"))
    quick = has_quicksort(context.target, fitting.bits)
    how = RecordSort(Lines(n, 1, prod(operand.tensor.extents[:-1])), (dtype,), (key,), fitting, quick)
    inserts = _inserts(how, k)
    best = Field("best", array_bytes(k, context.target.lanes(64)))
    tasks = cut(how.lines.count, 2 * n * how.lines.count)
    scratch = Scratch(worker=(best,)) if inserts.value else how.scratch
    routines = () if inserts.value else routines_of(how, context.target)
    return TopKSchedule(k=k, records=how, inserts=inserts, tasks=tasks, scratch=scratch, routines=routines)


def _inserts(how: RecordSort, k: int) -> Choice[bool]:
    if how.records.bits != 64:
        return Choice(False, Reason("wide-records", "records are wider than 64 bits"))
    if k > tuning.TOP_K_INSERTED:
        return Choice(False, Reason("large-k", f"k is above {tuning.TOP_K_INSERTED}"))
    if k > 16 and 8 * k > hint_of(how.lines.n):
        return Choice(False, Reason("large-k", "k is a large part of the line"))
    return Choice(True, Reason("small-k", "k is small"))


def routines_of(how: RecordSort, target: Target) -> tuple[Routine, ...]:
    """The routines that sort integers by partition, one per width."""
    widths = {how.key_sort_bits, how.records.bits if how.is_partitioned else 0} - {0}
    return tuple(quicksort_routine(bits, target) for bits in sorted(widths))


def _key_sort_bits(dtypes: list[DType], keys: list[Key], target: Target) -> int:
    """`RecordSort.key_sort_bits` of a sort: nonzero only for one operand, and one key of its type."""
    if len(dtypes) != 1 or len(keys) != 1 or keys[0].dtype != dtypes[0] or dtypes[0].bits < 8:
        return 0
    if dtypes[0].is_complex or (dtypes[0].is_float and dtypes[0].bits < 16):
        return 0
    bits = 64 if dtypes[0].bits > 32 else 32
    return bits if has_quicksort(target, bits) else 0


def _record_sort(op: Op, target: Target) -> RecordSort | None:
    """The sort by records, if the comparator's keys are known and fit; otherwise None."""
    keys, lines = keys_of(op.block()), lines_of(op)
    records = records_for(sum(k.bits for k in keys), lines.n) if keys else None
    if keys is None or records is None:
        return None
    dtypes = [o.tensor.storage for o in op.operands]
    quick, key_bits = has_quicksort(target, records.bits), _key_sort_bits(dtypes, keys, target)
    return RecordSort(lines, tuple(dtypes), tuple(keys), records, quick, key_bits, _chunks(lines))


def _chunks(lines: Lines) -> int:
    """Number of tasks that share a line, if lines are long and few; otherwise 0."""
    is_long = surely(lambda: lines.n >= tuning.SORT_LONG_LINE)
    return tuning.SORT_CHUNKS if is_long and hint_of(lines.count) < tuning.SORT_CHUNKS else 0


def _kept(op: Op, read: Container[Value]) -> tuple[str, ...]:
    """For each result, what has to be stored: values, the positions they come from, or nothing."""
    dimension = op.int("dimension", -1) % max(1, op.result.tensor.rank)
    return tuple(
        "" if result not in read else "index" if _counts(operand, dimension) else "value"
        for operand, result in zip(op.operands, op.results, strict=False)
    )


def _counts(value: Value, dimension: int) -> bool:
    """Whether the value counts 0, 1, 2, ... along a dimension."""
    op = value.op
    return op is not None and op.name == "stablehlo.iota" and op.int("iota_dimension") == dimension


def _check_body(op: Op, body: Block) -> None:
    """Raises UnsupportedError unless the comparator computes from its arguments and constants alone."""
    inside = {id(o) for o in body.ops}
    for inner in body.ops:
        for o in inner.operands:
            known = o.owner is body or (o.op is not None and (id(o.op) in inside or o.op.name == "stablehlo.constant"))
            if not known or inner.regions:
                raise UnsupportedError(
                    diagnose("sort: the comparator must consist of elementwise ops", op.span, label="region-op")
                )
