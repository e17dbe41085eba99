"""What is decided about several turns of a loop on stripes of its arrays (see `time_blocks.py`)."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.schedule.choice import Note, count


class TimeBlocks(NamedTuple):
    """So many turns at a time."""

    turns: int
    lines: int
    """Of the arrays: turns of the outermost loop, or chunks of the only one."""
    line: int
    """Units that a line has."""
    reach: int
    """Lines away that a turn reads of the one before."""
    stripes: int
    """Parts of the arrays, of about as many lines each: a task goes over one."""
    front: int
    """Lines that a turn does before the next one follows."""
    periodic: bool
    """The last lines are neighbours of the first."""
    why: str

    @property
    def note(self) -> Note:
        text = f"{count(self.turns, 'turn')} at a time, each {count(self.reach, 'line')} behind the last"
        return Note("in time", text, self.why)
