"""When edge tiles leave out the columns of windows that read only padding; see `kernels/convolution/edge_tiles.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.kernels.convolution.edge_tiles import edge_heights, edge_row_cost, lifted
from shlo_jit.kernels.convolution.geometry import Line
from shlo_jit.kernels.gemm.micro import SUMS, row_counts
from shlo_jit.kernels.gemm.precision import GemmPlan


def edge_tile(plan: GemmPlan, line: Line, stripe: int, own: int, steps: int, work: int) -> int:
    """Returns the treatment of the ends of lines, which are cut into stripes of `stripe` pixels: see
    `Description.edge`. `own`: the height of a dedicated tile, or 0. `steps`: steps of k that a column has in a call.
    `work`: multiply-adds of all calls."""
    met = line.met
    low, high = max(begin for begin, _ in met), min(end for _, end in met)
    # The interior stripes, possibly many, read the image in all columns.
    places = {*range(0, low, stripe), *range(high // stripe * stripe, line.width, stripe)}
    found = [_Stripe.of(met, w, min(w + stripe, line.width)) for w in sorted(places)]
    singles = {rows for s in found for rows in s.rows if rows * plan.nv >= SUMS} - {own, *row_counts(plan)}
    if plan.kind != "plain":
        singles = set[int]()
    own_tiles = {own} - {0}
    middle = (-(-line.width // stripe) - len(found)) * edge_row_cost(plan, own_tiles, stripe)
    whole = (sum(edge_row_cost(plan, own_tiles, s.height) for s in found) + middle) * line.columns

    def saved(tile: int) -> float:
        """Returns the share of the work that is saved with an edge tile of this height."""
        tiles = own_tiles | {tile} - {0}
        heights = edge_heights(plan, own, tile, stripe)
        rows_saved = 0.0
        for s in found:
            for rows in s.rows:
                taken = edge_row_cost(plan, tiles, min(lifted(heights, rows), s.height)) if rows else 0
                rows_saved += edge_row_cost(plan, own_tiles, s.height) - taken - tuning.CONV_COLUMN_CALL / steps
        return rows_saved / whole

    tile = max(singles, key=saved, default=0)
    if not tile or (saved(tile) - max(saved(0), 0)) * work < tuning.CONV_EDGE_TILE:
        tile = 0
    return (tile or 1) if saved(tile) > tuning.CONV_EDGE_SHARE else 0


class _Stripe(NamedTuple):
    height: int
    rows: Sequence[int]
    """The number of pixels that need a column, for each column that not all pixels need."""

    @classmethod
    def of(cls, met: Sequence[tuple[int, int]], begin: int, end: int) -> _Stripe:
        """Returns the stripe of pixels [begin, end). `met`: the pixels whose windows read the image, for each
        column."""
        rows = [max(0, min(high, end) - max(low, begin)) for low, high in met]
        height = end - begin
        return cls(height, [n for n in rows if n < height] if height in rows else [])
