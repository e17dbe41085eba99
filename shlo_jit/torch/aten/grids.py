"""Volumes at places that a grid has: `grid_sample` in three dimensions. (PyTorch decomposes two dimensions.)

Volumes are read with features last, so that an element is a contiguous row.
"""

from __future__ import annotations

import itertools

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.indexing import rows_at
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import I64, cast, filled, iota, number, sizes, slice_along, wide

_LINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


def _reflected(x: Value, low: float, span: float) -> Value:
    """Places reflected at `low` and at `low + span`."""
    if not span:
        return filled(sizes(x), 0, x.element_type)
    dtype = x.element_type
    distance = b.abs(x - number(low, dtype))
    rest = b.rem(distance, filled(sizes(x), span, dtype))
    flips = b.floor(distance / number(span, dtype))
    is_odd = b.rem(flips, filled(sizes(x), 2, dtype)) != number(0, dtype)
    return b.select(is_odd, number(span + low, dtype) - rest, rest + number(low, dtype))


def _places(x: Value, extent: int, padding: int, align: bool) -> Value:
    """Places in elements from those between -1 and 1."""
    dtype = x.element_type
    one = number(1, dtype)
    if align:
        place = (x + one) * number((extent - 1) / 2, dtype)
    else:
        place = ((x + one) * number(extent, dtype) - one) * number(0.5, dtype)
    if padding == _REFLECTION:
        place = _reflected(place, 0, extent - 1) if align else _reflected(place, -0.5, extent)
    if padding != _ZEROS:
        is_above = place > number(0, dtype)  # not so for NaN
        place = b.select(is_above, b.min(place, filled(sizes(x), extent - 1, dtype)), filled(sizes(x), 0, dtype))
    return place


def _neighbors(place: Value, extent: int, mode: int) -> list[tuple[Value, Value]]:
    """Indices of elements beside a place, and their weights, which are zero outside."""
    dtype = place.element_type
    if mode == _NEAREST:
        nearest = b.round_nearest_even(place)
        found = [(nearest, filled(sizes(place), 1, dtype))]
    else:
        low = b.floor(place)
        high = low + number(1, dtype)
        found = [(low, high - place), (high, place - low)]
    last = number(extent - 1, dtype)
    result = []
    for at, weight in found:
        is_inside = (at >= number(0, dtype)) & (at <= last)
        safe = b.select(is_inside, at, filled(sizes(at), 0, dtype))
        result.append((cast(safe, I64), b.select(is_inside, weight, filled(sizes(at), 0, dtype))))
    return result


@aten("grid_sampler_3d")
def grid_sampler_3d(call: Call, x: Value, grid: Value, mode: int, padding: int, align: bool) -> Value:
    """The elements of volumes at the places of a grid, by linear interpolation or the nearest ones."""
    if 0 in call.shape or 0 in sizes(x):
        return filled(call.shape, 0, call.dtype)
    batch, features, *extents = sizes(x)
    dtype = wide(x.element_type)
    shape = (batch, *sizes(grid)[1:4])
    rows = b.reshape(b.transpose(cast(x, dtype), (0, 2, 3, 4, 1)), (-1, features))
    axes = []
    for axis, extent in enumerate(extents):  # the last number of a place is that of the first dimension
        given = b.reshape(slice_along(grid, 4, 2 - axis, 3 - axis), shape)
        axes.append(_neighbors(_places(cast(given, dtype), extent, padding, align), extent, mode))
    first = iota(shape, 0) * number(extents[0], I64)
    found = filled((*shape, features), 0, dtype)
    for (z, z_weight), (y, y_weight), (w, w_weight) in itertools.product(*axes):
        index = ((first + z) * number(extents[1], I64) + y) * number(extents[2], I64) + w
        weight = z_weight * y_weight * w_weight
        found = found + rows_at(rows, index, 0) * b.broadcast_in_dim(weight, sizes(found), range(4))
    return cast(b.transpose(found, (0, 4, 1, 2, 3)), call.dtype)
