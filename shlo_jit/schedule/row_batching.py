"""Row batching: rows of a reduction whose lanes are combined together (see `lower/nest/row_batching.py`)."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest
from shlo_jit.ir.index import At
from shlo_jit.schedule.passes import Passes
from shlo_jit.schedule.space import Space, linear
from shlo_jit.sizes import Size, hint_of


def batched_row_variable(nest: Nest, space: Space, passes: Passes) -> int | None:
    """The innermost row variable, if lanes run along short rows; otherwise None.

    Combining the lanes of one accumulator takes more than the row itself; combining those of as many rows as there are
    lanes takes a quarter of that. The results must be adjacent. No store may be inside the row or need a second pass
    over it.
    """
    if space.inner != (space.vector,) or not space.rows or passes.count != 2:
        return None
    v, longest = space.rows[-1], tuning.ROW_BATCH_VECTORS * space.width
    rows, ops = space.extents[v], len(nest.nodes) + len(nest.loads)
    if isinstance(rows, Size) or rows < space.width or hint_of(nest.reduced) > longest or ops > tuning.ROW_BATCH_OPS:
        return None
    places = [space.collapse(linear((s.target, At(s.index)))) for s in nest.stores]
    is_run = bool(places) and all(place.coefficient(v) == 1 for place in places)
    return v if is_run and not any(passes.inside(s) for s in nest.stores) else None
