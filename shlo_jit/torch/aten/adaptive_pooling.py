"""Pooling of n elements to m positions: position i has the elements from floor(i * n / m) to ceil((i + 1) * n / m)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shlo_jit import builder as b
from shlo_jit.builder import DotDimensionNumbers, Value
from shlo_jit.torch.aten.indexing import rows_at
from shlo_jit.torch.aten.reductions import best_and_place
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.scatters import scattered_to_places
from shlo_jit.torch.aten.values import I64, cast, iota, keep, number, sizes, wide


def bounds(n: int, m: int) -> list[tuple[int, int]]:
    """First and last (exclusive) element of each of m positions over n elements."""
    return [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]


def _weights(n: int, m: int) -> np.ndarray:
    """The matrix that computes the means of m positions of n elements."""
    found = np.zeros((n, m))
    for i, (low, high) in enumerate(bounds(n, m)):
        found[low:high, i] = 1 / (high - low)
    return found


def _means(x: Value, outs: Sequence[int], backward: Sequence[int] | None = None) -> Value:
    """Multiplies the last dimensions by the matrices of means, or by the transposed ones for the gradient."""
    y = cast(x, wide(x.element_type))
    first = x.ndim - len(outs)
    for i, m in enumerate(outs):
        d = first + i
        n = sizes(y)[d]
        if backward is None and m == 1:
            y = keep(b.reduce_sum(y, (d,)), (d,), y.ndim) / number(n, y.element_type)
            continue
        weights = _weights(n, m) if backward is None else _weights(backward[i], n).T
        matrix = b.constant(weights.astype(y.element_type.numpy))
        found = b.dot_general(y, matrix, DotDimensionNumbers((d,), (0,)))
        order = [*range(d), y.ndim - 1, *range(d, y.ndim - 1)]
        y = b.transpose(found, order)
    return cast(y, x.element_type)


@aten("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(call: Call, x: Value, outs: Sequence[int]) -> Value:
    """The means of a given number of positions."""
    return _means(x, outs)


@aten("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(call: Call, gradient: Value, x: Value) -> Value:
    """The gradient of the means of a given number of positions, over two dimensions."""
    return _means(gradient, sizes(x)[-2:], sizes(x)[-2:])


@aten("_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(call: Call, gradient: Value, x: Value) -> Value:
    """The gradient of the means of a given number of positions, over three dimensions."""
    return _means(gradient, sizes(x)[-3:], sizes(x)[-3:])


# ---------------------------------------------------------------------------- maxima
def _windows(x: Value, outs: Sequence[int]) -> Value:
    """The elements of each position, along a new last dimension; shorter windows have their last one several times."""
    lead = x.ndim - len(outs)
    for i, m in enumerate(outs):
        d = lead + 2 * i
        ranges = bounds(sizes(x)[d], m)
        longest = max((high - low for low, high in ranges), default=0)
        places = np.array([[min(low + j, high - 1) for j in range(longest)] for low, high in ranges], np.int64)
        x = rows_at(x, b.constant(places.reshape(m, longest)), d)
    firsts = [lead + 2 * i for i in range(len(outs))]
    ordered = b.transpose(x, [*range(lead), *firsts, *(d + 1 for d in firsts)])
    shape = sizes(ordered)[: lead + len(outs)]
    return b.reshape(ordered, (*shape, math.prod(sizes(ordered)[lead + len(outs) :])))


@aten("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(call: Call, x: Value, outs: Sequence[int]) -> tuple[Value, Value]:
    """The maxima of a given number of positions, and their indices."""
    rank = len(outs)
    extents = sizes(x)[x.ndim - rank :]
    windows = _windows(x, outs)
    own = _windows(b.reshape(iota((math.prod(extents),), 0, I64), extents), outs)
    places = b.broadcast_in_dim(own, sizes(windows), range(windows.ndim - own.ndim, windows.ndim))
    values, found = best_and_place(windows, windows.ndim - 1, True, places)
    return values, found


@aten("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def adaptive_max_pool_backward(call: Call, gradient: Value, x: Value, indices: Value) -> Value:
    """The gradient of the maxima of a given number of positions."""
    return scattered_to_places(gradient, x, indices, 2 if "pool2d" in call.target else 3)
