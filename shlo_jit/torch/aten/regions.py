"""Regions of images in a fixed size: torchvision's `roi_align` and its gradient.

A region is divided into bins, and each bin has a grid of points. A result is the mean of the image at the points of a
bin, by linear interpolation between four pixels. Images are read with features last, so that a pixel is a contiguous
row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shlo_jit import builder as b
from shlo_jit.builder import ScatterDimensionNumbers, Value
from shlo_jit.ir.dtypes import DType
from shlo_jit.torch.aten.indexing import rows_at
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import I64, cast, filled, iota, number, sizes, slice_along, wide

UNROLLED = 2
"""Most points of a bin along a dimension that are written one after the other."""


@dataclass(frozen=True)
class _Axis:
    """The bins of all regions along one dimension of the image."""

    extent: int
    """Number of pixels."""
    starts: Value
    """The first coordinate of each bin: [regions, bins]."""
    sizes: Value
    """The size of the bins of each region: [regions, 1]."""
    points: Value
    """The number of points of each bin, a float: [regions, 1]."""

    @property
    def dtype(self) -> DType:
        return self.starts.element_type

    def first_inside(self) -> Value:
        """A point of each bin before which all points are outside of the image, a float: [regions, bins]."""
        at = (number(-1, self.dtype) - self.starts) * self.points / self.sizes - number(1, self.dtype)
        return b.clamp(number(0, self.dtype), b.floor(at), number(2.0**60, self.dtype))

    def pixels(self, point: Value) -> list[tuple[Value, Value]]:
        """The two pixels beside one point of each bin, and their weights, which are zero outside of the image.
        `point`: the index of the point, a float: rank 0, or [regions, bins]."""
        shape = sizes(self.starts)

        def spread(x: Value) -> Value:
            return b.broadcast_in_dim(x, shape, range(x.ndim))

        zero, one, last = (number(x, self.dtype) for x in (0, 1, self.extent - 1))
        index, count = spread(point), spread(self.points)
        at = self.starts + (index + number(0.5, self.dtype)) * spread(self.sizes) / count
        is_inside = (at >= number(-1, self.dtype)) & (at <= number(self.extent, self.dtype)) & (index < count)
        at = b.clamp(zero, at, last)
        low = b.floor(at)
        part = at - low
        places = cast(low, I64), cast(b.min(low + one, last), I64)
        weights = (b.select(is_inside, w, filled(shape, 0, self.dtype)) for w in (one - part, part))
        return list(zip(places, weights, strict=True))


@dataclass(frozen=True)
class _Regions:
    """The regions of a call of `roi_align`."""

    images: Value
    """The index of each region's image: [regions]."""
    axes: tuple[_Axis, _Axis]
    ratio: int
    """Number of points of each bin along a dimension; zero if it depends on the region."""

    def samples(self, y: Value, x: Value) -> Iterator[tuple[Value, Value]]:
        """For one point of each bin, with these indices along the two dimensions: rows of the flat images and their
        weights, each [regions, bins, bins]."""
        height, width = (axis.extent for axis in self.axes)
        shape = (*sizes(self.axes[0].starts), sizes(self.axes[1].starts)[1])
        first = b.broadcast_in_dim(self.images * number(height * width, I64), shape[:2], (0,))
        columns = self.axes[1].pixels(x)
        for row, row_weight in self.axes[0].pixels(y):
            start = b.broadcast_in_dim(first + row * number(width, I64), shape, (0, 1))
            for column, weight in columns:
                weights = b.broadcast_in_dim(row_weight, shape, (0, 1)) * b.broadcast_in_dim(weight, shape, (0, 2))
                yield start + b.broadcast_in_dim(column, shape, (0, 2)), weights

    def fold(self, function: Callable[[Value, Value, Value], Value], found: Value) -> Value:
        """Returns `function(result so far, rows, weights)` over all samples, from `found` on. A loop takes a point of
        each bin after the other, unless there are few."""
        dtype = self.axes[0].dtype
        if 0 < self.ratio <= UNROLLED:
            for i, j in itertools.product(range(self.ratio), repeat=2):
                for rows, weights in self.samples(number(i, dtype), number(j, dtype)):
                    found = function(found, rows, weights)
            return found
        if self.ratio:
            limits, firsts = [number(self.ratio, I64)] * 2, [number(0, dtype)] * 2
        else:
            limits = [self._most_points(axis) for axis in self.axes]
            firsts = [axis.first_inside() for axis in self.axes]

        def body(state: tuple[Value, Value]) -> tuple[Value, Value]:
            i, found = state
            own = (b.div(i, limits[1]), b.rem(i, limits[1]))
            y, x = (f + b.broadcast_in_dim(cast(j, dtype), sizes(f), ()) for j, f in zip(own, firsts, strict=True))
            for rows, weights in self.samples(y, x):
                found = function(found, rows, weights)
            return i + number(1, I64), found

        count = limits[0] * limits[1]
        return b.while_(lambda state: state[0] < count, body, (number(0, I64), found))[1]

    @staticmethod
    def _most_points(axis: _Axis) -> Value:
        """The greatest number of points of a bin that may be inside of the image. If a bin has several, they are at
        least half a pixel apart."""
        most = b.reduce(axis.points, number(0, axis.dtype), b.max, (0, 1))
        assert isinstance(most, Value)
        bound = number(2 * axis.extent + 8, axis.dtype)
        return b.max(cast(b.min(most, bound), I64), number(1, I64))

    def count(self) -> Value:
        """The number of points of a bin of each region: [regions]."""
        y, x = (b.reshape(axis.points, sizes(self.images)) for axis in self.axes)
        return b.max(y * x, number(1, y.element_type))


def _regions(
    rois: Value, scale: float, outs: Sequence[int], extents: Sequence[int], ratio: int, aligned: bool
) -> _Regions:
    """Regions of `roi_align`. rois: index of the image, and the corners x, y, x, y of each region."""
    dtype = wide(rois.element_type)
    rois = cast(rois, dtype)
    count = sizes(rois)[0]
    offset = number(0.5 if aligned else 0, dtype)
    images, *corners = (slice_along(rois, 1, i, i + 1) for i in range(5))
    left, top, right, bottom = (corner * number(scale, dtype) - offset for corner in corners)

    def axis(low: Value, high: Value, bins: int, extent: int) -> _Axis:
        length = high - low if aligned else b.max(high - low, number(1, dtype))
        size = length / number(bins, dtype)
        points = filled((count, 1), ratio, dtype) if ratio > 0 else b.ceil(size)
        shape = (count, bins)
        first, step = (b.broadcast_in_dim(x, shape, (0, 1)) for x in (low, size))
        starts = first + iota(shape, 1, dtype) * step
        return _Axis(extent, starts, size, points)

    axes = axis(top, bottom, outs[0], extents[0]), axis(left, right, outs[1], extents[1])
    return _Regions(cast(b.reshape(images, (count,)), I64), axes, max(ratio, 0))


@aten("torchvision::roi_align")
def roi_align(
    call: Call, x: Value, rois: Value, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Value:
    """Regions of images in a fixed size: means of the image at points, by linear interpolation."""
    if 0 in call.shape:
        return filled(call.shape, 0, call.dtype)
    _, features, *extents = sizes(x)
    regions = _regions(rois, scale, (height, width), extents, ratio, aligned)
    dtype = wide(x.element_type)
    pixels = b.reshape(b.transpose(cast(x, dtype), (0, 2, 3, 1)), (-1, features))
    shape = (sizes(rois)[0], height, width, features)

    def added(sum_: Value, rows: Value, weights: Value) -> Value:
        return sum_ + rows_at(pixels, rows, 0) * b.broadcast_in_dim(weights, shape, (0, 1, 2))

    found = regions.fold(added, filled(shape, 0, dtype))
    mean = found / b.broadcast_in_dim(regions.count(), shape, (0,))
    return cast(b.transpose(mean, (0, 3, 1, 2)), call.dtype)


@aten("torchvision::_roi_align_backward")
def roi_align_backward(
    call: Call, gradient: Value, rois: Value, scale: float, height: int, width: int,
    images: int, features: int, rows: int, columns: int, ratio: int, aligned: bool,
) -> Value:  # fmt: skip
    """The gradient of regions of images in a fixed size, with respect to the images."""
    if 0 in sizes(gradient) or 0 in call.shape:
        return filled(call.shape, 0, call.dtype)
    regions = _regions(rois, scale, (height, width), (rows, columns), ratio, aligned)
    dtype = wide(gradient.element_type)
    ordered = b.transpose(cast(gradient, dtype), (0, 2, 3, 1))
    mean = ordered / b.broadcast_in_dim(regions.count(), sizes(ordered), (0,))

    def added(sum_: Value, places: Value, weights: Value) -> Value:
        weighted = mean * b.broadcast_in_dim(weights, sizes(mean), (0, 1, 2))
        numbers = ScatterDimensionNumbers((3,), (0,), (0,), 3)
        found = b.scatter(sum_, b.reshape(places, (*sizes(places), 1)), weighted, b.add, numbers)
        assert isinstance(found, Value)
        return found

    found = regions.fold(added, filled((images * rows * columns, features), 0, dtype))
    return cast(b.transpose(b.reshape(found, (images, rows, columns, features)), (0, 3, 1, 2)), call.dtype)
