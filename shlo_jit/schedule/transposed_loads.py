"""Transposed loads: the loads of a nest that are contiguous across its lanes (see `lower/nest/transposed_tiles.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.ir.index import At
from shlo_jit.reasons import Reason
from shlo_jit.schedule.moves import IllegalMove, Move, Transpose, of_kind
from shlo_jit.schedule.space import Space, linear
from shlo_jit.sizes import hint_of


class TransposedLoads(NamedTuple):
    """Loads that are contiguous along `across` while the lanes run along another variable."""

    across: int
    loads: tuple[Key, ...]
    side: int
    """Side of the square tiles that are transposed in registers, in elements."""
    tiles: int
    """Adjacent tiles per iteration."""

    @property
    def width(self) -> int:
        """Width of a stripe, in elements."""
        return self.tiles * self.side


def find_transposed_loads(nest: Nest, space: Space) -> TransposedLoads | None:
    """The loads of a plain loop that are worth tiling; None if there are none."""
    v = space.vector
    if v is None or space.inner or nest.reduce_vars or len(nest.nodes) > tuning.TILE_OPS:
        return None
    if hint_of(space.extents[v]) <= tuning.SHORTER_LANES:
        return None
    for a in space.rows:
        if a == v or hint_of(space.extents[a]) < tuning.SHORT_LANES:
            continue
        loads = loads_along(nest, space, a)
        if loads:
            side = min(space.width, tuning.TILE_SIDE)
            return TransposedLoads(a, loads, side, _tiles(nest, space, a)) if side >= tuning.SHORTER_LANES else None
    return None


def given_transposed_loads(nest: Nest, space: Space, given: Sequence[Move]) -> TransposedLoads | None:
    """The transposed loads of a given schedule. Raises IllegalMove."""
    for move in of_kind(given, Transpose):
        v = space.vector
        is_plain = not nest.reduce_vars and nest.interchange is None and not space.inner
        if v is None or not is_plain or move.across == v or move.across not in space.rows:
            text = "it needs a plain loop without reductions, lanes, and another loop of rows"
            raise IllegalMove(move, Reason("no-transposed-tiles", text))
        loads = loads_along(nest, space, move.across)
        if not loads:
            raise IllegalMove(move, Reason("no-transposed-loads", f"no load is contiguous along v{move.across} only"))
        if move.side != space.width or move.tiles < 1:
            text = f"tiles are as wide as there are lanes, {space.width}, and at least one"
            raise IllegalMove(move, Reason("other-tiles", text))
        return TransposedLoads(move.across, loads, move.side, move.tiles)
    return None


def loads_along(nest: Nest, space: Space, across: int) -> tuple[Key, ...]:
    """The loads that are contiguous along a row variable, and not along the lanes."""
    assert space.vector is not None
    return tuple(key for key in nest.loads if _is_transposed(key, space, across, space.vector))


def _tiles(nest: Nest, space: Space, across: int) -> int:
    """Tiles per iteration: one if the lines that it writes would fall into few sets of the cache, and as many pages."""
    for s in nest.stores:
        offset = space.collapse(linear((s.target, At(s.index))))
        nbytes = hint_of(offset.coefficient(across)) * s.target.tensor.storage.itemsize
        if nbytes and nbytes % tuning.TILE_COLLIDING == 0:
            return 1
    return tuning.TILE_STRIPE


def _is_transposed(key: Key, space: Space, across: int, lanes: int) -> bool:
    offset = linear(key)
    moved = space.collapse(offset)
    simple = not key[1].conditions and not any(space.depends(s.at, {across, lanes}) for s in offset.syms)
    of_bytes = not key[0].tensor.storage.is_complex and not key[0].tensor.is_packed
    return simple and moved.coefficient(across) == 1 and abs(moved.coefficient(lanes)) > 1 and of_bytes
