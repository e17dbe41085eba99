"""The number of pixels of a line that a tile takes at a time."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.kernels.gemm.micro import SUMS, row_cost, row_counts
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.sizes import Size, hint_of


def stripe(plan: GemmPlan, width: int, features: int, work: int) -> tuple[int, float]:
    """Returns how many pixels of a line of `width` a tile takes, and the cost of a line, in rows of the tallest tile.
    A line of 16 pixels takes two tiles of 8, since 14 and 2 take as long as 18. A 13-pixel line gets a dedicated tile
    if the `work`, the multiply-adds of all calls, repays the extra code."""
    if isinstance(width, Size):
        return plan.mr, row_cost(plan, hint_of(width))
    short = _short_tiles(plan, features)

    def whole(height: int) -> float:
        return row_cost(plan, height) * (1.0 if height == plan.mr else short)

    def line(height: int, each: float) -> tuple[float, int]:
        rest = row_cost(plan, width % height)
        return width // height * each + rest * short, -height

    heights = {plan.mr, SUMS, SUMS - 1} & set(row_counts(plan))
    each = [line(n, whole(n)) for n in heights if n >= SUMS - 1]
    each = each or [(row_cost(plan, width), -plan.mr)]
    own = -(-width // -(-width // plan.mr))
    if plan.kind == "plain" and own * plan.nv >= SUMS and work >= tuning.CONV_DEDICATED_TILE:
        each.append(line(own, own))
    least, height = min(each)
    return -height, least


def _short_tiles(plan: GemmPlan, features: int) -> float:
    """Returns the cost of a row of lower tiles for so many features, in rows of the tallest tile. Only the tallest tile
    (and a dedicated one) has a form one vector wide, for the last features of a panel."""
    if isinstance(features, Size) or not plan.masks or not 0 < features % plan.nr <= plan.lanes:
        return 1.0
    panels = features // plan.nr
    return (panels + 1) * plan.nr / (panels * plan.nr + plan.lanes)
