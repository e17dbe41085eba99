"""The cut of a kernel's units of work into tasks, which any number of threads may share.

The cut depends on shapes alone, so results have the same bits for any number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.schedule.choice import Note, count


class Tasks(NamedTuple):
    """`units` of work in `tasks` tasks of `grain` units each, the last maybe of fewer."""

    units: int
    tasks: int
    why: str = ""

    @property
    def grain(self) -> int:
        return -(-self.units // self.tasks)

    def note(self, of: str) -> Note:
        cut = f"{count(self.tasks, 'task')} of {count(self.grain, of)}" if self.tasks > 1 else "1 task"
        return Note("tasks", f"{cut}, {count(self.units, of)} in all" if self.tasks > 1 else cut, self.why)


def cut(units: int, work: int) -> Tasks:
    """Cut so many units that take `work` element operations in all: tasks of TASK_WORK at least, where there is
    enough work for handing any over."""
    if work < tuning.PARALLEL_WORK:
        return Tasks(units, 1, f"{work:,} element operations; from {tuning.PARALLEL_WORK:,} on threads pay")
    if units < 2:
        return Tasks(units, 1, "there is one unit of work")
    most = work // tuning.TASK_WORK
    return shared(units, most, f"{work:,} element operations are enough for {most:,} tasks of {tuning.TASK_WORK:,}")


def shared(units: int, at_most: int, why: str) -> Tasks:
    """Units in so many tasks at most, and MAX_TASKS: fewer where the last would have no units, since it would run the
    tail of the one before."""
    tasks = max(1, min(tuning.MAX_TASKS, units, at_most))
    if tasks == tuning.MAX_TASKS < min(units, at_most):
        why = f"{why}, and {tuning.MAX_TASKS} are the most there are"
    grain = max(1, -(-units // tasks))
    return Tasks(units, max(1, -(-units // grain)), why)
