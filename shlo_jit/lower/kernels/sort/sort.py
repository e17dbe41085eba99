"""Lowers sort: lines of several operands along one dimension, in the stable order of a comparator (see
`schedule/sort.py`)."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels import sort as records_sort
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.elements.reducers import run_body
from shlo_jit.lower.kernels.access import Buffer
from shlo_jit.lower.kernels.sort.chunks import sort_chunked
from shlo_jit.lower.kernels.sort.key_sort import KeyWriter, quicksort
from shlo_jit.lower.kernels.sort.records import RecordWriter, move, start_of
from shlo_jit.lower.scratch import Fields, worker_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.sort import SortSchedule
from shlo_jit.schedule.tasks import Tasks

# ---------------------------------------------------------------------------- lines as tasks
LineBody = Callable[[Builder, list[V], Fields, V], None]
"""Emits the code for one line: builder, buffers, the worker's scratch memory, the line's number."""


def each_line(low: Services, hint: str, step: OpStep, pointers: list[V], tasks: Tasks, body: LineBody) -> None:
    """Runs tasks over groups of lines, each with its worker's part of the step's scratch memory."""
    name = low.new_name(hint)
    b = low.task(name, len(pointers) + 1)
    frame, index, worker = b.params
    buffers = [b.load("ptr", b.element(frame, "ptr", k)) for k in range(len(pointers) + 1)]
    mine = worker_fields(b, low.schedule[step].scratch, buffers.pop(), worker)
    first = b.mul(index, tasks.grain)
    with b.loop(first, b.min_(b.add(first, tasks.grain), tasks.units), 1, "line") as line:
        body(b, buffers, mine, line)
    b.ret()
    name = low.share(hint, name)
    low.run_tasks(name, [*pointers, low.scratch(step)], tasks)


def sort_lines(low: Services, step: OpStep, tasks: Tasks, writer: RecordWriter) -> None:
    op, n, how = step.op, len(step.op.operands), writer.how

    def body(b: Builder, pointers: list[V], fields: Fields, line: V) -> None:
        buffers = [Buffer(b, v.tensor.storage, p) for v, p in zip((*op.operands, *op.results), pointers, strict=True)]
        start, all_of_it = start_of(b, how.lines, line), (i64(0), i64(how.lines.n))

        def by_records() -> list[V]:
            writer.fill(b, low, buffers[:n], start, fields["first"], all_of_it)
            done = writer.sort_line(b, low, fields)
            with b.loop(0, how.lines.n, 1, "place") as i:
                writer.place(b, buffers, done, start, i)
            return []

        if not how.key_sort_bits:
            by_records()
            return
        keys = KeyWriter(how, low.target)

        def by_keys() -> list[V]:
            quicksort(b, how.key_sort_bits, fields["first"], fields["second"], how.lines.n)
            keys.place(b, buffers[1], start, fields["first"], all_of_it)
            return []

        b.if_else(keys.fill(b, buffers[0], start, fields["first"], all_of_it), by_keys, by_records)

    pointers = [low.pointer(v) for v in (*op.operands, *op.results)]
    each_line(low, "sort", step, pointers, tasks, body)


# ---------------------------------------------------------------------------- any comparator
def sort_by_merging(low: Services, step: OpStep, schedule: SortSchedule) -> None:
    op, n, lines = step.op, len(step.op.operands), schedule.lines
    body = op.block()

    def sort_line(b: Builder, pointers: list[V], fields: Fields, line: V) -> None:
        buffers = [Buffer(b, v.tensor.storage, p) for v, p in zip((*op.operands, *op.results), pointers, strict=True)]
        start = start_of(b, lines, line)

        def less(i: V, j: V) -> V:
            args = []
            for x in buffers[:n]:
                args += [x.load(b.add(start, b.mul(k, lines.stride))) for k in (i, j)]
            (found,) = run_body(b, body, args)
            assert isinstance(found, V)
            return found

        done = records_sort.merge_indices(b, fields["first"], fields["second"], lines.n, less)
        with b.loop(0, lines.n, 1, "place") as i:
            move(b, buffers, start, lines.stride, i, b.load("i64", b.element(done, "i64", i)), schedule.kept)

    pointers = [low.pointer(v) for v in (*op.operands, *op.results)]
    each_line(low, "sort", step, pointers, schedule.tasks, sort_line)


def lower(low: Services, step: OpStep, schedule: SortSchedule) -> None:
    if schedule.records is None:
        sort_by_merging(low, step, schedule)
    elif schedule.records.chunks:
        sort_chunked(low, step, RecordWriter(schedule.records, schedule.kept))
    else:
        sort_lines(low, step, schedule.tasks, RecordWriter(schedule.records, schedule.kept))
