"""Loop interchange: the number of iterations of a loop that a nest runs on each tile, and the tile size. Also the
parameters of temporal tiling, for nests whose elements need their neighbours (see `temporal_tiling.py`)."""

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
    """Parameters of temporal tiling for one nest: `iterations` iterations run per pass over the arrays."""

    iterations: int
    lines: int
    """Lines of the arrays: iterations of the outermost loop, or chunks of the only one."""
    line: int
    """Units per line."""
    first: int
    """The line of the nest's first unit."""
    nests: int
    """Nests per iteration: each has a separate wavefront."""
    reach: int
    """Halo: number of lines by which a nest's reads reach beyond the lines it writes."""
    stripes: int
    """Stripes of the arrays, with about equal numbers of lines: a task sweeps one stripe."""
    front: int
    """Lines that an iteration advances before the next iteration follows."""
    periodic: bool
    """Whether the last lines are neighbours of the first (periodic boundary)."""
    why: Reason

    @property
    def note(self) -> Note:
        fronts = "each" if self.nests == 1 else f"each of {self.nests} loops"
        after = f"{fronts} {count(self.reach, 'line')} after the one before"
        text = f"{count(self.iterations, 'iteration')} at a time, {after}"
        return Note("temporal tiling", text, self.why)


def most_iterations(nest: Nest, space: Space, heavy: int) -> int:
    """Maximum number of iterations on a tile, so that the program can be interrupted in between. `heavy`: cost of an
    iteration per element, in additions."""
    assert nest.interchange is not None
    each = max(1, heavy) * max(1, hint_of(nest.rows) // space.width)
    most = max(tuning.INTERCHANGE_LEAST_ITERATIONS, tuning.INTERCHANGE_WORK // each)
    known = nest.interchange.count
    return most if known is None else max(1, min(most, known))


def vectors_a_tile(nest: Nest, target: Target) -> int:
    """Vectors per tile: as many as fit in the registers with the values that the loop reads, so that vectors hide each
    other's latency."""
    assert nest.interchange is not None
    numbers = sum(not s.target.tensor.rank for s in nest.stores)
    parts = sum(2 if value.tensor.storage.is_complex else 1 for value, at in nest.loads if at.index)
    size, vectors = len(nest.nodes) - numbers, tuning.INTERCHANGE_VECTORS
    while vectors > 1 and (vectors * (parts + 2) > target.vector_registers or vectors * size > tuning.INTERCHANGE_OPS):
        vectors //= 2
    return vectors
