"""Pooling by windows, and its gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.scatters import scattered_to_places
from shlo_jit.torch.aten.values import I64, cast, iota, is_nan, lowest, number, sizes, slice_along, wide


class Window(NamedTuple):
    """The windows of a pooling over the last dimensions."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    """What is added before and after each dimension; more at the end if the last window is incomplete."""
    positions: tuple[int, ...]


def window_of(
    extents: Sequence[int], kernel: Sequence[int], stride: Sequence[int] | None, padding: Sequence[int],
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> Window:  # fmt: skip
    """Completes the arguments of a pooling, as ATen does."""
    n = len(extents)
    k, p, d = (tuple(v) * n if len(v) == 1 else tuple(v) for v in (kernel, padding, dilation))
    s = k if not stride else tuple(stride) * n if len(stride) == 1 else tuple(stride)
    pairs, positions = [], []
    for i in range(n):
        reach = d[i] * (k[i] - 1) + 1
        free = extents[i] + 2 * p[i] - reach
        count = (-(-free // s[i]) if ceil_mode else free // s[i]) + 1
        if ceil_mode and (count - 1) * s[i] >= extents[i] + p[i]:
            count -= 1
        positions.append(count)
        pairs.append((p[i], (count - 1) * s[i] + reach - extents[i] - p[i]))
    return Window(k, s, p, d, tuple(pairs), tuple(positions))


def _padded(x: Value, w: Window, fill: Value) -> Value:
    lead = x.ndim - len(w.kernel)
    amounts = [(0, 0, 0)] * lead + [(low, high, 0) for low, high in w.pairs]
    return b.pad(x, fill, amounts)


def window_parts(padded: Value, w: Window) -> list[Value]:
    """For each element of the window, its elements at all positions, in row-major order of the window."""
    lead = padded.ndim - len(w.kernel)
    found = []
    for place in itertools.product(*(range(k) for k in w.kernel)):
        part = padded
        for i, at in enumerate(place):
            start = at * w.dilation[i]
            part = slice_along(part, lead + i, start, start + (w.positions[i] - 1) * w.stride[i] + 1, w.stride[i])
        found.append(part)
    return found


# ---------------------------------------------------------------------------- maxima
def _max_pool(call: Call, x: Value, rank: int, *given: object) -> tuple[Value, Value | None]:
    """The maxima, and their indices if the graph reads these."""
    kernel, stride, padding, dilation, ceil_mode = (*given, *((), (0,), (1,), False)[len(given) - 1 :])
    extents = sizes(x)[x.ndim - rank :]
    w = window_of(extents, kernel, stride, padding, dilation, bool(ceil_mode))  # type: ignore[arg-type]  as in ATen
    return _maxima_with_places(x, w) if call.is_used(1) else (_maxima(x, w), None)


def _maxima(x: Value, w: Window) -> Value:
    lead = x.ndim - len(w.kernel)
    ones, pairs = [1] * lead, [(0, 0)] * lead
    start = number(lowest(x.element_type), x.element_type)
    window, strides, dilations = [*ones, *w.kernel], [*ones, *w.stride], [*ones, *w.dilation]
    return b.reduce_window(x, start, b.max, window, strides, [*pairs, *w.pairs], None, dilations)


def _maxima_with_places(x: Value, w: Window) -> tuple[Value, Value]:
    extents = sizes(x)[x.ndim - len(w.kernel) :]
    values = _padded(x, w, number(lowest(x.element_type), x.element_type))
    lead = (1,) * (x.ndim - len(extents))
    places = b.reshape(iota((math.prod(extents),), 0, I64), (*lead, *extents))
    places = _padded(places, w, number(-1, I64))
    best: Value | None = None
    where: Value | None = None
    for value, place in zip(window_parts(values, w), window_parts(places, w), strict=True):
        place = b.broadcast_in_dim(place, sizes(value), range(value.ndim))
        if best is None or where is None:
            best, where = value, place
            continue
        wins = (value > best) | (where < 0)
        if value.element_type.kind == "f":
            wins = wins | is_nan(value)
        wins = wins & (place >= 0)
        best, where = b.select(wins, value, best), b.select(wins, place, where)
    assert best is not None
    assert where is not None
    return best, where


@aten("max_pool2d_with_indices")
def max_pool2d(call: Call, x: Value, *given: object) -> tuple[Value, Value | None]:
    """The maxima of windows over two dimensions, and their indices."""
    return _max_pool(call, x, 2, *given)


@aten("max_pool3d_with_indices")
def max_pool3d(call: Call, x: Value, *given: object) -> tuple[Value, Value | None]:
    """The maxima of windows over three dimensions, and their indices."""
    return _max_pool(call, x, 3, *given)


@aten("max_pool2d_with_indices_backward")
def max_pool2d_backward(call: Call, gradient: Value, x: Value, *rest: object) -> Value:
    """The gradient of the maxima of windows over two dimensions."""
    indices = rest[-1]
    assert isinstance(indices, Value)
    return scattered_to_places(gradient, x, indices, 2)


@aten("max_pool3d_with_indices_backward")
def max_pool3d_backward(call: Call, gradient: Value, x: Value, *rest: object) -> Value:
    """The gradient of the maxima of windows over three dimensions."""
    indices = rest[-1]
    assert isinstance(indices, Value)
    return scattered_to_places(gradient, x, indices, 3)


# ---------------------------------------------------------------------------- means
def _counts(w: Window, extents: Sequence[int], include_padding: bool, divisor: int | None) -> np.ndarray:
    """The number by which the sum of each window is divided."""
    if divisor is not None:
        return np.full(w.positions, divisor, np.float64)
    per_dimension = []
    for i, n in enumerate(extents):
        starts = np.arange(w.positions[i]) * w.stride[i] - w.padding[i]
        ends = np.minimum(starts + w.kernel[i], n + w.padding[i])
        inside = np.minimum(ends, n) - np.maximum(starts, 0)
        per_dimension.append(ends - starts if include_padding else inside)
    found = np.ones((), np.float64)
    for counts in per_dimension:
        found = found[..., None] * counts
    return found


def _avg_window(x: Value, rank: int, kernel: Sequence[int], stride: Sequence[int] | None, padding: Sequence[int],
                ceil_mode: bool) -> Window:  # fmt: skip
    return window_of(sizes(x)[x.ndim - rank :], kernel, stride, padding, (1,), ceil_mode)


def avg_pool(
    x: Value, rank: int, kernel: Sequence[int], stride: Sequence[int] | None = None, padding: Sequence[int] = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Value:  # fmt: skip
    """The means of windows over the last dimensions."""
    w = _avg_window(x, rank, kernel, stride, padding, ceil_mode)
    lead = x.ndim - rank
    y = cast(x, wide(x.element_type))
    ones, pairs = [1] * lead, [(0, 0)] * lead
    sums = b.reduce_window(
        y, number(0, y.element_type), b.add, [*ones, *w.kernel], [*ones, *w.stride], [*pairs, *w.pairs]
    )
    assert isinstance(sums, Value)
    counts = _counts(w, sizes(x)[lead:], count_include_pad, divisor_override)
    divisor = b.constant(counts.astype(y.element_type.numpy))
    return cast(b.div(sums, b.broadcast_in_dim(divisor, sizes(sums), range(lead, x.ndim))), x.element_type)


@aten("avg_pool1d")
def avg_pool1d(call: Call, x: Value, *given: object) -> Value:
    """The means of windows over one dimension."""
    return avg_pool(x, 1, *given)  # type: ignore[arg-type]  as in ATen


@aten("avg_pool2d")
def avg_pool2d(call: Call, x: Value, *given: object) -> Value:
    """The means of windows over two dimensions."""
    return avg_pool(x, 2, *given)  # type: ignore[arg-type]  as in ATen


@aten("avg_pool3d")
def avg_pool3d(call: Call, x: Value, *given: object) -> Value:
    """The means of windows over three dimensions."""
    return avg_pool(x, 3, *given)  # type: ignore[arg-type]  as in ATen


def _avg_backward(
    gradient: Value, x: Value, rank: int, kernel: Sequence[int], stride: Sequence[int] | None,
    padding: Sequence[int], ceil_mode: bool, count_include_pad: bool, divisor: int | None,
) -> Value:  # fmt: skip
    """Spreads the gradients over the windows: the sums of windows over the gradients with zeros between them."""
    w = _avg_window(x, rank, kernel, stride, padding, ceil_mode)
    lead = x.ndim - rank
    extents = sizes(x)[lead:]
    g = cast(gradient, wide(x.element_type))
    counts = b.constant(_counts(w, extents, count_include_pad, divisor).astype(g.element_type.numpy))
    g = g / b.broadcast_in_dim(counts, sizes(g), range(lead, x.ndim))
    pairs = []
    for n, k, s, (low, _), count in zip(extents, w.kernel, w.stride, w.pairs, w.positions, strict=True):
        before = k - 1 - low
        pairs.append((before, n + k - 1 - before - ((count - 1) * s + 1), s - 1))
    padded = b.pad(g, number(0, g.element_type), [(0, 0, 0)] * lead + pairs)
    found = b.reduce_window(padded, number(0, g.element_type), b.add, [1] * lead + list(w.kernel))
    assert isinstance(found, Value)
    return cast(found, x.element_type)


@aten("avg_pool2d_backward")
def avg_pool2d_backward(call: Call, gradient: Value, x: Value, *given: object) -> Value:
    """The gradient of the means of windows over two dimensions."""
    return _avg_backward(gradient, x, 2, *given)  # type: ignore[arg-type]  as in ATen


@aten("avg_pool3d_backward")
def avg_pool3d_backward(call: Call, gradient: Value, x: Value, *given: object) -> Value:
    """The gradient of the means of windows over three dimensions."""
    return _avg_backward(gradient, x, 3, *given)  # type: ignore[arg-type]  as in ATen
