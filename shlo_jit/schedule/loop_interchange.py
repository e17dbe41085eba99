"""A nest that makes several turns of a loop on each tile: how many, and how large a tile is; and what is decided about
one whose elements need their neighbours (see `temporal_tiling.py`)."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.space import Space
from shlo_jit.sizes import hint_of


class TimeBlocks(NamedTuple):
    """So many turns at a time."""

    turns: int
    lines: int
    """Of the arrays: turns of the outermost loop, or chunks of the only one."""
    line: int
    """Units that a line has."""
    first: int
    """The line that the nest's first unit is in."""
    nests: int
    """Of a turn: each has a front of its own."""
    reach: int
    """Lines away that a nest reads of those before."""
    stripes: int
    """Parts of the arrays, of about as many lines each: a task goes over one."""
    front: int
    """Lines that a turn does before the next one follows."""
    periodic: bool
    """The last lines are neighbours of the first."""
    why: Reason

    @property
    def note(self) -> Note:
        fronts = "each" if self.nests == 1 else f"each of {self.nests} loops"
        text = f"{count(self.turns, 'iteration')} at a time, {fronts} {count(self.reach, 'line')} behind the one before"
        return Note("temporal tiling", text, self.why)


def most_turns(nest: Nest, space: Space, heavy: int) -> int:
    """So many that the program can be interrupted in between; `heavy`: additions a turn takes an element."""
    assert nest.turns is not None
    each = max(1, heavy) * max(1, hint_of(nest.rows) // space.width)
    most = max(tuning.LEAST_TURNS, tuning.TURNS_WORK // each)
    known = nest.turns.count
    return most if known is None else max(1, min(most, known))


def vectors_a_tile(nest: Nest, target: Target) -> int:
    """As many as have room in the registers with what the loop reads, so that vectors hide each other's latency."""
    assert nest.turns is not None
    numbers = sum(not s.target.tensor.rank for s in nest.stores)
    parts = sum(2 if value.tensor.storage.is_complex else 1 for value, at in nest.loads if at.index)
    size, vectors = len(nest.nodes) - numbers, tuning.TURNS_VECTORS
    while vectors > 1 and (vectors * (parts + 2) > target.vector_registers or vectors * size > tuning.TURNS_OPS):
        vectors //= 2
    return vectors
