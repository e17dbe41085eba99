"""Loop peeling for a plain loop: conditions that hold, or fail, for most of its elements.

The source of an element depends on its place (see `fuse/choices.py`). Away from borders the source is the same for all
elements, so vectors in the interior need neither masks nor the values that are not chosen.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest
from shlo_jit.ir.index import Condition
from shlo_jit.schedule.space import Space
from shlo_jit.sizes import Size


class Interior(NamedTuple):
    """Facts that hold in a box of the iteration space."""

    truth: dict[Condition, bool]
    of_row: dict[Condition, bool]
    """Those of the facts that hold along a whole row."""
    box: dict[int, tuple[int, int]]
    """Maps a variable to its range in the box; absent if the box has its whole range."""


def interior_conditions(nest: Nest, space: Space) -> Interior | None:
    """Conditions that most elements of a plain vectorized loop have in common; None if there are none."""
    if nest.reduce_vars or nest.interchange is not None or space.vector is None:
        return None
    if isinstance(space.extents[space.vector], Size):
        return None
    places = [at for node in nest.nodes.values() for _, at in node.operands]
    truth: dict[Condition, bool] = {}
    box: dict[int, tuple[int, int]] = {}
    for c in dict.fromkeys(c for at in places for c in at.conditions):
        e = space.collapse(c.expr)
        if e.syms or len(e.terms) > 1 or isinstance(e.const, Size):
            continue
        if not e.terms:
            truth[c] = c.low <= e.const < c.high
            continue
        ((v, k),) = e.terms
        n = space.extents[v]
        if k != 1 or v not in space.rows or isinstance(n, Size):
            continue
        known = _longest(c.low - e.const, c.high - e.const, n)
        low, high = box.get(v, (0, n))
        low, high = max(low, known[0]), min(high, known[1])
        least = max(n // tuning.INTERIOR_PART, 2 * space.width if v == space.vector else 1)
        if high - low >= least:
            truth[c] = known[2]
            box[v] = low, high
    box = {v: (low, high) for v, (low, high) in box.items() if (low, high) != (0, space.extents[v])}
    along = {c for c in truth if space.vector in (v for v, _ in space.collapse(c.expr).terms)}
    return Interior(truth, {c: known for c, known in truth.items() if c not in along}, box) if truth else None


def _longest(low: int, high: int, n: int) -> tuple[int, int, bool]:
    """The longest run in [0, n) in which `low <= i < high` has one truth value, with that value."""
    low, high = max(0, min(low, n)), max(0, min(high, n))
    runs = [(low, high, True), (0, low, False), (high, n, False)] if low < high else [(0, n, False)]
    return max(runs, key=lambda run: run[1] - run[0])
