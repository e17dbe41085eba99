"""Cuts a kernel's units of work into tasks, which any number of threads may share.

The cut depends on shapes alone, so results have the same bits for any number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note, count
from shlo_jit.sizes import Size, equal, hint_of, surely


class Tasks(NamedTuple):
    """`units` of work in `tasks` tasks of `grain` units each, the last possibly with fewer."""

    units: int
    tasks: int
    why: Reason | None = None
    each: int = 0
    """The `grain`, if it does not follow from the numbers above because they are known only at the call."""
    work: int = 0
    """Number of element operations, if it is known only at the call."""
    least_work: int = 0
    """Element operations from which on the call runs tasks, if their number is known only then; fewer run on one
    thread."""

    @property
    def grain(self) -> int:
        return self.each or -(-self.units // self.tasks)

    @property
    def is_one(self) -> bool:
        """Whether there is exactly one task, whatever the sizes at the call."""
        return isinstance(self.tasks, int) and self.tasks == 1

    def note(self, of: str) -> Note:
        if self.is_one:
            return Note("tasks", "1 task", self.why)
        cut = f"{count(self.tasks, 'task')} of {count(self.grain, of)}, {count(self.units, of)} in all"
        if isinstance(self.tasks, int) and isinstance(self.units, int) and self.units != self.tasks * self.grain:
            cut += f", {self.units - (self.tasks - 1) * self.grain} in the last task"
        return Note("tasks", cut, self.why)


def cut(units: int, work: int) -> Tasks:
    """Cuts `units` units that take `work` element operations in total into tasks of at least TASK_WORK. Returns one
    task if there is too little work to share."""
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
    """The reason for at most `most` tasks: each has the minimum work of a task."""
    text = f"{work:,} element operations are enough for {most:,} tasks of {tuning.TASK_WORK:,}"
    return Reason("tasks-by-work", text)


def _cut_at_the_call(units: int, work: int) -> Tasks:
    """Cuts units whose work is known only at the call: the grain is fixed, and the number of tasks follows from it."""
    if equal(units, 1) or surely(lambda: work < tuning.PARALLEL_WORK):
        return Tasks(units, 1, Reason("too-little-work", f"{work} element operations, or one unit of work"))
    each = max(1, hint_of(work) // max(1, hint_of(units)))
    text = f"{work} element operations, known at the call; threads pay off from {tuning.PARALLEL_WORK:,} on"
    why = Reason("work-known-at-call", text)
    grain = max(-(-tuning.TASK_WORK // each), -(-hint_of(units) // tuning.MAX_TASKS))
    return Tasks(units, -(-units // grain), why, grain, work, tuning.PARALLEL_WORK)


def shared(units: int, at_most: int, why: Reason, limit: int | None = None) -> Tasks:
    """Cuts units into at most `at_most` tasks, and at most `limit` (MAX_TASKS). Uses fewer tasks if the last would have
    no units, because it would run the tail of the one before."""
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
