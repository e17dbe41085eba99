"""Pixels of a line that a tile takes at a time."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.kernels.gemm.micro import SUMS, row_counts, turns
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.sizes import Size, hint_of


def stripe(plan: GemmPlan, width: int, features: int, work: int) -> tuple[int, float]:
    """Pixels that a tile takes of lines of `width`, and what a line takes in rows of the tallest tile. 16 pixels are
    twice 8, since 14 and 2 take as long as 18; 13 are a tile of their own, where the `work`, multiply-adds of all
    calls, is worth its code."""
    if isinstance(width, Size):
        return plan.mr, turns(plan, hint_of(width))
    short = _short_tiles(plan, features)

    def whole(height: int) -> float:
        return turns(plan, height) * (1.0 if height == plan.mr else short)

    def line(height: int, each: float) -> tuple[float, int]:
        rest = turns(plan, width % height)
        return width // height * each + rest * short, -height

    heights = {plan.mr, SUMS, SUMS - 1} & set(row_counts(plan))
    each = [line(n, whole(n)) for n in heights if n >= SUMS - 1]
    each = each or [(turns(plan, width), -plan.mr)]
    own = -(-width // -(-width // plan.mr))
    if plan.kind == "plain" and own * plan.nv >= SUMS and work >= tuning.CONV_OWN_TILE:
        each.append(line(own, own))
    least, height = min(each)
    return -height, least


def _short_tiles(plan: GemmPlan, features: int) -> float:
    """What a row of lower tiles takes of so many features, in rows of the tallest tile: only that (and one of a height
    of its own) has a form one vector wide, for the last features of a panel."""
    if isinstance(features, Size) or not plan.masks or not 0 < features % plan.nr <= plan.lanes:
        return 1.0
    panels = features // plan.nr
    return (panels + 1) * plan.nr / (panels * plan.nr + plan.lanes)
