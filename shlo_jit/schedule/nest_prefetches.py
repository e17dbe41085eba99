"""Which loads of a nest fetch memory ahead, and how far."""

from __future__ import annotations

from collections.abc import Collection

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import Expr
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.space import Space, linear
from shlo_jit.sizes import equal, hint_of


def prefetches(nest: Nest, space: Space, target: Target, cached: Collection[Value], unroll: int) -> dict[Key, int]:
    """The loads that come from memory, with the distance in bytes: of several in one row, the foremost. `cached`:
    values that are in a cache; `unroll`: vectors of an iteration."""
    if space.vector is None or hint_of(space.extents[space.vector]) < 4 * space.width:
        return {}
    inner = space.vector if space.vector not in space.rows or not space.inner else space.inner[-1]
    foremost: dict[tuple, tuple[int, Key, int]] = {}
    far = target.bytes_of(tuning.PREFETCH_BYTES)
    for key in nest.loads:
        storage, offset = key[0].tensor.storage, space.collapse(linear(key))
        step, near = offset.coefficient(inner), hint_of(key[0].tensor.nbytes) < far or key[0] in cached
        near = near or key[0].tensor.is_packed
        if near or offset.coefficient(space.vector) != 1 or not step or offset.syms:
            continue
        distance = tuning.PREFETCH_DISTANCE // storage.itemsize
        if inner == space.vector and not _follows(space, offset, distance):
            continue
        vector_bytes = space.width * unroll * storage.itemsize
        steps = max(1, tuning.PREFETCH_DISTANCE // vector_bytes) if inner != space.vector else distance
        group = (key[0], offset.terms)
        if group not in foremost or foremost[group][0] < offset.const:
            foremost[group] = (offset.const, key, steps * step * storage.itemsize)
    return {key: distance for _, key, distance in foremost.values()}


def _follows(space: Space, offset: Expr, distance: int) -> bool:
    """Whether the element at the prefetch distance is accessed soon: runs along the vector variable are long, or the
    next run begins where the previous one ends."""
    assert space.vector is not None
    order = [*space.rows, *space.inner]
    before = order[: order.index(space.vector)]
    run = space.extents[space.vector]
    return hint_of(run) >= 2 * distance or (bool(before) and equal(offset.coefficient(before[-1]), run))
