"""Lanes of a nest whose lanes would run along a short loop: there, or along a longer loop of rows.

    for pair in 24451:             lanes here: the work of a pair is done for several pairs at a time, and the
        for component in 3:        components are loaded and stored with shuffles (`interleaved`) or gathers
            ...

Lanes along three components leave most of a register empty, and what belongs to a pair stays in scalar registers. The
choice compares estimates of the instructions of the whole nest, in units of one addition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Nest
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At, Expr
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Choice
from shlo_jit.schedule.space import Space, element_bits, linear, side_by_side
from shlo_jit.sizes import hint_of


def longer_loop(
    nest: Nest, space: Space, target: Target, narrow: frozenset[Value], along: Sequence[int]
) -> Choice[int] | None:
    """The variable for the lanes instead of the short one that a space has chosen; None if lanes stay there. `narrow`:
    indices that are computed as i32. `along`: the reduced variables that may have lanes."""
    width = target.lanes(element_bits(nest, narrow))
    v = space.vector
    if v is None or not isinstance(space.extents[v], int) or space.extents[v] >= tuning.SHORT_LANES:
        return None
    candidates = [u for u in space.rows if u != v and hint_of(space.extents[u]) >= 2 * width]
    candidates = [u for u in candidates if len(space.rows) == 1 or not _scatters(nest, space, u)]
    if v in space.rows and not any(space.depends(At(s.index), set(space.inner)) for s in nest.stores):
        candidates += [u for u in along if hint_of(space.extents[u]) >= 2 * width]  # its rows are jammed
    if nest.interchange is not None or not candidates:
        return None
    short = _Estimate(nest, space, target, v, space.width).instructions()
    found = {u: _Estimate(nest, space, target, u, width).instructions() for u in candidates}
    order = [*space.rows, *space.inner]
    best = min(candidates, key=lambda u: (found[u], -order.index(u)))
    if tuning.SHORT_LOOP_GAIN * found[best] > short:
        return None
    each = max(1, hint_of(nest.rows) * hint_of(nest.reduced))
    text = f"{found[best] / each:.1f} instructions per element, and {short / each:.1f} along the short v{v}"
    return Choice(best, Reason("short-loop-unrolled", text))


def _scatters(nest: Nest, space: Space, u: int) -> bool:
    """Whether results would be scattered if lanes ran along a variable. Where it is not the only one of rows, the other
    loops of rows would then be around it, each far from the next in memory."""
    return any(_Estimate.store_step(space, linear((s.target, At(s.index))), u) is None for s in nest.stores)


class _Estimate:
    """Instructions of a nest with lanes along a variable."""

    def __init__(self, nest: Nest, space: Space, target: Target, variable: int, width: int):
        self.nest = nest
        self.space = space
        self.variable = variable
        self.width = width
        extent = hint_of(space.extents[variable])
        rest = extent % width
        self.groups = extent // width + (min(1, rest) if target.has_masks else rest)
        """Iterations of the variable: vectors, and what is left over."""

    def instructions(self) -> float:
        nest, total = self.nest, 0.0
        for (_, at), node in nest.nodes.items():
            places = [at, *(o for _, o in node.operands)] if node.op.name == "stablehlo.reduce" else [at]
            total += cost(node.op) * self.iterations(places)
            if node.op.name == "stablehlo.reduce" and self.variable in self.space.inner:
                total += 2 * math.log2(self.width) * self.iterations([at])  # combines the lanes
        for key in nest.loads:
            total += self.load(linear(key)) * self.iterations([key[1]])
        for s in nest.stores:
            place = At(s.index)
            total += self.store(linear((s.target, place))) * self.iterations([place, s.at])
        return total

    def iterations(self, places: list[At]) -> int:
        """How often a value at these places is computed: once for all iterations of loops that it does not depend
        on."""
        variables = {self.space.final(v) for at in places for v in ix.variables(at)}
        return math.prod(self.groups if v == self.variable else hint_of(self.space.extents[v]) for v in variables)

    def load(self, offset: Expr) -> int:
        """Instructions of a load, per vector."""
        if any(self.space.depends(s.at, {self.variable}) for s in offset.syms):
            return tuning.GATHER_COST * self.width
        step = self.space.collapse(offset).coefficient(self.variable)
        if step in (0, 1):
            return 1
        if self.space.is_short_stride(step):
            return tuning.SHUFFLE_COST * abs(step)
        return 2 if step == -1 else 2 * self.width

    def store(self, offset: Expr) -> int:
        """Instructions of a store, per vector."""
        step = self.store_step(self.space, offset, self.variable)
        return 2 * self.width if step is None else max(1, tuning.SHUFFLE_COST * (step if step > 1 else 0))

    @staticmethod
    def store_step(space: Space, offset: Expr, variable: int) -> int | None:
        """The distance of results along a variable: 0, 1, or that of vectors which interleave; None if neither."""
        moved, others = space.collapse(offset), [*space.rows, *space.inner[-1:]]
        step = moved.coefficient(variable)
        if any(space.depends(s.at, {variable}) for s in offset.syms):
            return None
        is_run = step in (0, 1) or side_by_side(moved, space.extents, variable, others) is not None
        return step if is_run else None
