"""Loads of a nest that run across its lanes (see `lower/nest/transposed_tiles.py`): which they are."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.ir.index import At
from shlo_jit.schedule.space import Space, linear
from shlo_jit.sizes import hint_of


class Crossing(NamedTuple):
    """Loads that run along `across` while the lanes run along another variable."""

    across: int
    loads: tuple[Key, ...]
    side: int
    """Of the square tiles that are transposed in registers, in elements."""
    tiles: int
    """Next to each other that a turn handles."""

    @property
    def width(self) -> int:
        """Of a stripe, in elements."""
        return self.tiles * self.side


def find_crossing(nest: Nest, space: Space) -> Crossing | None:
    """The loads of a plain loop that are worth tiling."""
    v = space.vector
    if v is None or space.inner or nest.reduce_vars or len(nest.nodes) > tuning.TILE_OPS:
        return None
    if hint_of(space.extents[v]) < tuning.TILE_EXTENT:
        return None
    for a in space.rows:
        if a == v or hint_of(space.extents[a]) < tuning.TILE_EXTENT:
            continue
        loads = tuple(k for k in nest.loads if _crosses(k, space, a, v))
        if loads:
            side = min(space.width, tuning.TILE_SIDE)
            return Crossing(a, loads, side, _tiles(nest, space, a)) if side >= tuning.TILE_LEAST_SIDE else None
    return None


def _tiles(nest: Nest, space: Space, across: int) -> int:
    """Tiles of a turn: one where the lines that it writes would fall into few sets of the cache, and as many pages."""
    for s in nest.stores:
        offset = space.collapse(linear((s.target, At(s.index))))
        nbytes = hint_of(offset.coefficient(across)) * s.target.tensor.storage.itemsize
        if nbytes and nbytes % tuning.TILE_COLLIDING == 0:
            return 1
    return tuning.TILE_STRIPE


def _crosses(key: Key, space: Space, across: int, lanes: int) -> bool:
    offset = linear(key)
    moved = space.collapse(offset)
    simple = not key[1].conditions and not any(space.depends(s.at, {across, lanes}) for s in offset.syms)
    real = not key[0].tensor.storage.is_complex
    return simple and moved.coefficient(across) == 1 and abs(moved.coefficient(lanes)) > 1 and real
