"""Loads of a nest that run across its lanes (see `tiles.py`): which they are."""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.schedule.space import Space, linear

MAX_SIDE = 16
MIN_EXTENT = 8
MAX_NODES = 60
STRIPE = 4
"""Tiles next to each other that a turn handles: it touches fewer memory pages that way."""


@dataclass
class Crossing:
    """Loads that run along `across` while the lanes run along another variable."""

    across: int
    loads: list[Key]
    side: int


def find_crossing(nest: Nest, space: Space) -> Crossing | None:
    """The loads of a plain loop that are worth tiling."""
    v = space.vector
    if v is None or space.inner or nest.reduce_vars or len(nest.nodes) > MAX_NODES or space.extents[v] < MIN_EXTENT:
        return None
    for a in space.rows:
        if a == v or space.extents[a] < MIN_EXTENT:
            continue
        loads = [k for k in nest.loads if crosses(k, space, a, v)]
        if loads:
            side = min(space.width, MAX_SIDE)
            return Crossing(a, loads, side) if side >= 4 else None
    return None


def crosses(key: Key, space: Space, across: int, lanes: int) -> bool:
    offset = linear(key)
    moved = space.collapse(offset)
    simple = not key[1].conditions and not any(space.depends(s.at, {across, lanes}) for s in offset.syms)
    return simple and moved.coefficient(across) == 1 and abs(moved.coefficient(lanes)) > 1 and not _complex(key)


def _complex(key: Key) -> bool:
    return key[0].tensor.storage.is_complex
