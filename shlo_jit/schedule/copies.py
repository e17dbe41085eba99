"""Schedules of copies and swaps of whole buffers: one memcpy, or tasks, with streaming stores if no cache holds the
data."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.schedule.choice import count
from shlo_jit.sizes import Size, hint_of, surely

LINE, UNROLL = 64, 4
"""Bytes of a cache line, and lines per iteration."""


class CopySchedule(NamedTuple):
    """How a buffer is copied, or swapped with another."""

    nbytes: int
    chunk: int
    """Bytes of a task; 0 for one memcpy."""
    tasks: int
    least: int = 0
    """If the size is known only at the call: the bytes from which on tasks run; fewer are one memcpy."""
    streams: bool = False
    """Whether whole lines are written past the caches."""

    def __str__(self) -> str:
        if not self.chunk:
            return "one memcpy"
        past = ", past the caches" if self.streams else ""
        return f"{count(self.tasks, 'task')} of {self.chunk:,} bytes{past}"


def schedule_copy(nbytes: int) -> CopySchedule:
    """Returns the schedule of a copy of a buffer."""
    if surely(lambda: nbytes < tuning.COPY_PARALLEL_BYTES):
        return CopySchedule(nbytes, 0, 1)
    chunk = _chunk(nbytes, LINE * UNROLL)
    streams = hint_of(nbytes) >= tuning.COPY_STREAM_BYTES
    least = tuning.COPY_PARALLEL_BYTES if isinstance(nbytes, Size) else 0
    return CopySchedule(nbytes, chunk, -(-nbytes // chunk), least, streams)


def schedule_swap(nbytes: int) -> CopySchedule:
    """Returns the schedule of a swap of two buffers of this size."""
    chunk = _chunk(nbytes, LINE)
    return CopySchedule(nbytes, chunk, -(-nbytes // chunk))


def _chunk(nbytes: int, unit: int) -> int:
    """Bytes of a task, in whole units: enough for a thread, and for at most MAX_TASKS tasks."""
    most = max(tuning.COPY_PARALLEL_BYTES // 4, -(-hint_of(nbytes) // tuning.MAX_TASKS))
    return -(-most // unit) * unit
