"""Runs the tasks of row blocks. For many threads, or few matrices, how many there are depends on the number of threads,
but no bits do."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.services import Services
from shlo_jit.schedule.row_blocks import RowBlocksSchedule
from shlo_jit.schedule.shared_columns import SharedColumns


def run_tasks(low: Services, s: RowBlocksSchedule, name: str, pointers: Sequence[V]) -> None:
    """Runs the tasks of the routine `name`, whose frame has `pointers`."""
    if s.columns is not None:
        _run_shared(low, s, s.columns, name, pointers)
    elif s.division.finer is None:
        low.run_tasks(name, list(pointers), s.tasks)
    else:
        _run_divided(low, s, name, pointers)


def _run_divided(low: Services, s: RowBlocksSchedule, name: str, pointers: Sequence[V]) -> None:
    """Runs the tasks. The last two words of their frame are the rows of a task and the tasks of a batch, which depend
    on the number of threads."""
    b, d, m, batch, threads = low.b, s.division, s.step.rows, s.step.batch, low.thread_count
    assert d.finer is not None
    least, tile = d.finer

    def finer() -> list[V]:
        wanted = b.udiv(b.add(b.mul(threads, tuning.ROW_TASKS_OF_THREAD), batch - 1), batch)
        parts = b.max_(b.min_(wanted, m // least), d.parts)
        rows = b.mul(b.add(b.udiv(i64(m - 1), b.mul(parts, tile)), 1), tile)
        return [rows, b.udiv(b.add(rows, m - 1), rows)]

    few = [i64(d.task_rows), i64(d.parts)]
    rows, parts = b.if_else(b.icmp("sgt", threads, tuning.MANY_THREADS), finer, lambda: few)
    words = [b.cast("inttoptr", x, "ptr") for x in (rows, parts)]
    low.parallel(name, [*pointers, *words], b.mul(parts, batch))


def _run_shared(low: Services, s: RowBlocksSchedule, shared: SharedColumns, name: str, pointers: Sequence[V]) -> None:
    """Runs the tasks. The last two words of their frame are the batches that have one task each, and the tasks that
    share each of the others, which depend on the number of threads."""
    b, batch, threads = low.b, s.step.batch, low.thread_count
    left = b.urem(i64(batch), threads)
    parts = b.min_(b.udiv(threads, b.max_(left, 1)), shared.most_parts)
    whole = b.sub(i64(batch), left)
    words = [b.cast("inttoptr", x, "ptr") for x in (whole, parts)]
    low.parallel(name, [*pointers, *words], b.add(whole, b.mul(left, parts)))
