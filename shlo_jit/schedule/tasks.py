"""The cut of a kernel's units of work into tasks, which any number of threads may share.

The cut depends on shapes alone, so results have the same bits for any number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note, count
from shlo_jit.sizes import Size, equal, hint_of, surely


class Tasks(NamedTuple):
    """`units` of work in `tasks` tasks of `grain` units each, the last maybe of fewer."""

    units: int
    tasks: int
    why: Reason | None = None
    each: int = 0
    """`grain` where it does not follow: the numbers above are known at the call only."""
    work: int = 0
    """Where that is known at the call only: element operations, of which fewer than PARALLEL_WORK are one task."""

    @property
    def grain(self) -> int:
        return self.each or -(-self.units // self.tasks)

    @property
    def is_one(self) -> bool:
        """Whether there is one task, whatever the call brings."""
        return isinstance(self.tasks, int) and self.tasks == 1

    def note(self, of: str) -> Note:
        if self.is_one:
            return Note("tasks", "1 task", self.why)
        cut = f"{count(self.tasks, 'task')} of {count(self.grain, of)}, {count(self.units, of)} in all"
        return Note("tasks", cut, self.why)


def cut(units: int, work: int) -> Tasks:
    """Cut so many units that take `work` element operations in all: tasks of TASK_WORK at least, where there is
    enough work for handing any over."""
    if isinstance(work, Size):
        return _cut_at_the_call(units, work)
    if work < tuning.PARALLEL_WORK:
        return Tasks(units, 1, _too_little(work))
    if units < 2:
        return Tasks(units, 1, Reason("one-unit", "there is one unit of work"))
    most = work // tuning.TASK_WORK
    limit = max(tuning.MAX_TASKS, work // tuning.LONG_TASK)
    return shared(units, most, enough_work(work, most), limit)


def _too_little(work: int) -> Reason:
    text = f"{count(work, 'element operation')}; threads pay off from {tuning.PARALLEL_WORK:,} on"
    return Reason("too-little-work", text)


def enough_work(work: int, most: int) -> Reason:
    """So many tasks at most have the least work that a task should have."""
    text = f"{work:,} element operations are enough for {most:,} tasks of {tuning.TASK_WORK:,}"
    return Reason("tasks-by-work", text)


def _cut_at_the_call(units: int, work: int) -> Tasks:
    """The same of work that is known at the call only: the grain is fixed, the number of tasks is what comes out."""
    if equal(units, 1) or surely(lambda: work < tuning.PARALLEL_WORK):
        return Tasks(units, 1, Reason("too-little-work", f"{work} element operations, or one unit of work"))
    each = max(1, hint_of(work) // max(1, hint_of(units)))
    text = f"{work} element operations, known at the call; threads pay off from {tuning.PARALLEL_WORK:,} on"
    why = Reason("work-known-at-call", text)
    grain = max(-(-tuning.TASK_WORK // each), -(-hint_of(units) // tuning.MAX_TASKS))
    return Tasks(units, -(-units // grain), why, grain, work)


def shared(units: int, at_most: int, why: Reason, limit: int | None = None) -> Tasks:
    """Units in so many tasks at most, and `limit` (MAX_TASKS): fewer where the last would have no units, since it would
    run the tail of the one before."""
    if isinstance(units, Size):
        grain = -(-hint_of(units) // max(1, min(tuning.MAX_TASKS, hint_of(units), hint_of(at_most))))
        return Tasks(units, -(-units // grain), why, grain)
    at_most = hint_of(at_most)
    limit = limit or tuning.MAX_TASKS
    tasks = max(1, min(limit, units, at_most))
    if tasks == limit < min(units, at_most):
        why = why.then(Reason("most-tasks", f"a step has at most {limit} tasks"))
    grain = max(1, -(-units // tasks))
    return Tasks(units, max(1, -(-units // grain)), why)
