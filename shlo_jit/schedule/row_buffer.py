"""The row buffer: values that several passes over a row need, kept by the first of them."""

from __future__ import annotations

from collections.abc import Set

from shlo_jit import tuning
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.schedule.passes import Passes
from shlo_jit.schedule.space import Space


def row_buffer(
    nest: Nest, space: Space, passes: Passes, rows_at_a_time: int, wanted: Set[Key] | None
) -> dict[Key, int]:
    """The values that are kept, with the bytes of a row of each: those that are expensive, or the `wanted` ones, as far
    as there is room. `rows_at_a_time`: vectors of rows that advance together."""
    if not space.inner or not isinstance(nest.reduced, int):
        return {}
    # With lanes along the row, the masked tail writes a whole vector: it reaches beyond the last run of the row.
    reduced, width = nest.reduced, space.width
    elements = reduced + width if space.vector in space.inner else reduced * width * rows_at_a_time
    users: dict[Key, int] = {}
    for p in range(passes.count + 1):
        for key in passes.needed(passes.roots(p)):
            users[key] = users.get(key, 0) + 1
    found: dict[Key, int] = {}
    for key, times in users.items():
        node = nest.nodes.get(key)
        dtype = key[0].tensor.storage
        if node is None or times < 2 or dtype.is_complex:
            continue
        if key not in wanted if wanted is not None else cost(node.op) < tuning.ROW_BUFFER_COST:
            continue
        size = elements * dtype.itemsize
        if sum(found.values()) + size <= tuning.ROW_BUFFER_BYTES:
            found[key] = size
    return found
