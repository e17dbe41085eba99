"""A nest that makes several turns of a loop on each tile: how many, and how large a tile is."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.space import Space
from shlo_jit.sizes import hint_of


def most_turns(nest: Nest, space: Space, heavy: int) -> int:
    """So many that the program can be interrupted in between; `heavy`: additions a turn takes an element."""
    assert nest.turns is not None
    each = max(1, heavy) * max(1, hint_of(nest.rows) // space.width)
    most = max(tuning.LEAST_TURNS, tuning.TURNS_WORK // each)
    count = nest.turns.count
    return most if count is None else max(1, min(most, count))


def vectors_a_tile(nest: Nest, target: Target) -> int:
    """As many as have room in the registers with what the loop reads, so that vectors hide each other's latency."""
    assert nest.turns is not None
    numbers = sum(not s.target.tensor.rank for s in nest.stores)
    parts = sum(2 if value.tensor.storage.is_complex else 1 for value, at in nest.loads if at.index)
    size, vectors = len(nest.nodes) - numbers, tuning.TURNS_VECTORS
    while vectors > 1 and (vectors * (parts + 2) > target.vector_registers or vectors * size > tuning.TURNS_OPS):
        vectors //= 2
    return vectors
