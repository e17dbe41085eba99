"""Histograms: the numbers of elements in bins."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.scatters import scatter_flat
from shlo_jit.torch.aten.sorting import insertion_places
from shlo_jit.torch.aten.values import I64, cast, filled, iota, number, sizes, slice_along, wide


def _limits(flat: Value, given: tuple[float, float] | None, margin: float) -> tuple[Value, Value]:
    """The limits of the bins, by default the least and the greatest element. Equal ones are moved by a margin."""
    kind = flat.element_type
    if given is None:
        low, high, step = b.reduce_min(flat, (0,)), b.reduce_max(flat, (0,)), number(margin, kind)
        is_point = low == high
        return b.select(is_point, low - step, low), b.select(is_point, high + step, high)
    low, high = given
    moved = margin if low == high else 0
    return number(low - moved, kind), number(high + moved, kind)


@aten("histc")
def histc(call: Call, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """The numbers of elements in bins of equal widths; without limits, between the least and the greatest element."""
    count = math.prod(sizes(x))
    kind = wide(x.element_type)
    flat = cast(b.reshape(x, (count,)), kind)
    given = None if min == max == 0 and count else (min, max)
    low, high = _limits(flat, given, 1)
    share = (flat - low) / (high - low) * number(bins, kind)
    last = filled((count,), bins - 1, I64)
    places = b.min(cast(b.floor(share) if kind.kind == "f" else share, I64), last)
    inside = (flat >= low) & (flat <= high)
    return scatter_flat(filled((bins,), 0, call.dtype), places, cast(inside, call.dtype), b.add)


@aten("histogram.bin_ct", "histogram.bins_tensor")
def histogram(
    call: Call, x: Value, bins: int | Value = 100, *, range: Sequence[float] | None = None,
    weight: Value | None = None, density: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    """The sums of weights of elements in bins, and the limits of the bins. The last bin has its upper limit."""
    count, kind = math.prod(sizes(x)), x.element_type
    flat = b.reshape(x, (count,))
    if isinstance(bins, Value):
        edges = bins
    else:
        given = (range[0], range[1]) if range else None if count else (0.0, 1.0)
        edges = _edges(*_limits(flat, given, 0.5), bins)
    last = sizes(edges)[0] - 2
    places = insertion_places(edges, flat, right=True) - number(1, I64)
    is_end = flat == b.broadcast_in_dim(slice_along(edges, 0, last + 1, last + 2), (count,), (0,))
    places = b.select(is_end, filled((count,), last, I64), places)
    inside = (places >= number(0, I64)) & (places <= number(last, I64))
    weights = filled((count,), 1, kind) if weight is None else b.reshape(weight, (count,))
    added = b.select(inside, weights, filled((count,), 0, kind))
    places = b.clamp(number(0, I64), places, number(last, I64))
    found = scatter_flat(filled((last + 1,), 0, kind), places, added, b.add)
    if density:
        widths = slice_along(edges, 0, 1, last + 2) - slice_along(edges, 0, 0, last + 1)
        found = found / (widths * b.reduce_sum(found, (0,)))
    return found, edges


def _edges(low: Value, high: Value, bins: int) -> Value:
    """The limits of bins of equal widths, computed from the nearer end."""
    kind = low.element_type
    step = (high - low) / number(bins, kind)
    index = iota((bins + 1,), 0, kind)
    back = number(bins, kind) - index
    return b.select(index < number((bins + 1) // 2, kind), low + index * step, high - back * step)
