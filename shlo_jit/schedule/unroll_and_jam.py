"""Unroll and jam: the rows of all iterations of a short loop run along the reduced variable together.

    for particle in 400:                   for particle in 400:
        for component in 3:                    for other in 400:      lanes here
            for other in 400:      ->              the work of a pair, once
                the work of a pair                 component 0; component 1; component 2

What does not depend on the short loop is computed once for all of its iterations, and they share loads.
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Nest
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.passes import Passes
from shlo_jit.schedule.space import Space, linear
from shlo_jit.sizes import hint_of


def can_jam(nest: Nest, space: Space, passes: Passes, v: int) -> bool:
    """Whether the rows along a variable may run together: lanes run along the row, which has no results inside."""
    if space.vector is None or space.vector not in space.inner or v not in space.rows or nest.interchange is not None:
        return False
    extent = space.extents[v]
    is_short = isinstance(extent, int) and 1 < extent <= tuning.JAMMED_ROWS
    return is_short and not any(passes.inside(s) for s in nest.stores)


def jammed_variable(nest: Nest, space: Space, passes: Passes, target: Target) -> int | None:
    """The row variable to unroll and jam: the one that saves most; None if none saves enough."""
    best, most = None, 0.0
    for v in space.rows:
        if not can_jam(nest, space, passes, v):
            continue
        extent = space.extents[v]
        others = hint_of(nest.rows) // extent
        if others < tuning.SPLIT_UNITS or extent * _sums(passes) > target.vector_registers // 2:
            continue
        shared, own = _work(nest, space, passes, v)
        saved = shared * (extent - 1) / max(1.0, extent * (shared + own))
        if saved > max(most, tuning.JAM_SHARE):
            best, most = v, saved
    return best


def accumulators_each(space: Space, passes: Passes, jammed: int | None, target: Target) -> int:
    """Vectors of each sum that fit into registers with those of all rows that are jammed: a power of two."""
    sums = 1 if jammed is None else space.extents[jammed] * _sums(passes)
    return 1 << max(1, target.vector_registers // 2 // sums).bit_length() - 1


def _sums(passes: Passes) -> int:
    """The most sums that a pass over the row computes."""
    return max((sum(len(r.operands) for r in passes.reductions(p)) for p in range(passes.count)), default=0)


def _work(nest: Nest, space: Space, passes: Passes, v: int) -> tuple[float, float]:
    """The work for an element of a row that all iterations of a variable have in common, and that of each. Elements at
    a small distance along the lanes are in vectors that neighbouring iterations load as well."""
    shared = own = 0.0
    for key, node in nest.nodes.items():
        places = [key, *node.operands] if node.op.name == "stablehlo.reduce" else [key]
        if all(passes.in_row(k) for k in places):
            continue
        if any(space.depends(at, {v}) for _, at in places):
            own += cost(node.op)
        else:
            shared += cost(node.op)
    assert space.vector is not None
    for key in nest.loads:
        if passes.in_row(key):
            continue
        offset = space.collapse(linear(key))
        step = offset.coefficient(space.vector)
        price = tuning.SHUFFLE_COST * abs(step) if space.is_short_stride(step) else 1
        if not space.depends(key[1], {v}):
            shared += price
        elif space.is_short_stride(step) and offset.coefficient(v) == 1:
            shared, own = shared + abs(step) / 2, own + price - abs(step) / 2
        else:
            own += price
    return shared, own
