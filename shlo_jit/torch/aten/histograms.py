"""Histograms: the numbers of elements in bins."""

from __future__ import annotations

import math

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.scatters import scatter_flat
from shlo_jit.torch.aten.values import I64, cast, filled, number, sizes, wide


@aten("histc")
def histc(call: Call, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """The numbers of elements in bins of equal widths; without limits, between the least and the greatest element."""
    count = math.prod(sizes(x))
    kind = wide(x.element_type)
    flat = cast(b.reshape(x, (count,)), kind)
    if min == max == 0 and count:
        low, high = b.reduce_min(flat, (0,)), b.reduce_max(flat, (0,))
        is_point = low == high
        one = number(1, kind)
        low, high = b.select(is_point, low - one, low), b.select(is_point, high + one, high)
    else:
        low, high = number(min - (min == max), kind), number(max + (min == max), kind)
    share = (flat - low) / (high - low) * number(bins, kind)
    last = filled((count,), bins - 1, I64)
    places = b.min(cast(b.floor(share) if kind.kind == "f" else share, I64), last)
    inside = (flat >= low) & (flat <= high)
    return scatter_flat(filled((bins,), 0, call.dtype), places, cast(inside, call.dtype), b.add)
