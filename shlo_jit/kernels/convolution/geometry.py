"""Facts about a convolution's shape: extents in three dimensions, what windows read, and the contiguous runs of k."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from shlo_jit.kernels.convolution.shape import ConvShape, Three, conv_plan, three
from shlo_jit.kernels.gemm.precision import GemmTypes, itemsize, storage
from shlo_jit.kernels.target import Target
from shlo_jit.sizes import Size, equal, surely


class Line(NamedTuple):
    """The output and its windows along one dimension; the names are those of the width."""

    width: int
    extent: int
    """Extent of the input."""
    columns: int
    stride: int
    pad: int
    dilation: int

    @property
    def met(self) -> list[tuple[int, int]]:
        """The pixels [begin, end) whose windows read the image, for each column of the window."""
        return [(self._pixel(0, column), self._pixel(self.extent, column)) for column in range(self.columns)]

    def _pixel(self, bound: int, column: int) -> int:
        return min(-(-max(0, bound + self.pad - column * self.dilation) // self.stride), self.width)


class Runs(NamedTuple):
    """The terms k of a sum, in runs that are contiguous in the image as it is read."""

    run: int
    """Elements of a run: (width, feature) of the window if that is contiguous, else feature."""
    number: int
    """Runs per line of the window, or lines of the window per plane."""
    are_lines: bool
    """Whether a run is a line of the window."""

    def per_call(self, each: int) -> list[int]:
        """Elements of k per call for `each` runs at a time, for one of the `outer` iterations around the runs."""
        return [min(each, self.number - first) * self.run for first in range(0, self.number, each)]


class Geometry:
    """A shape with its missing dimensions filled up, and what follows from it for these types and this target."""

    def __init__(self, shape: ConvShape, types: GemmTypes, target: Target):
        self.shape, self.types, self.target, self.plan = shape, types, target, conv_plan(types, target)
        ones = (1,) * len(shape.window)
        self.window, self.output, self.input = (three(x, 1) for x in (shape.window, shape.output, shape.input))
        self.stride, self.pad = three(shape.strides or ones, 1), three(shape.pad_low, 0)
        self.ldil, self.rdil = three(shape.lhs_dilation, 1), three(shape.rhs_dilation, 1)
        self.window_size = self.window[0] * self.window[1] * self.window[2]
        self.pixels = self.output[0] * self.output[1] * self.output[2]
        self.k = shape.ci * self.window_size
        """Terms of a sum."""
        self.in_strides = three(tuple(x * itemsize(types.a) for x in shape.in_strides), 0)
        self.kernel_strides = three(tuple(x * itemsize(types.b) for x in shape.kernel_strides), 0)
        """Distances in input and kernel, in bytes."""

    @cached_property
    def with_images_as_channels(self) -> Geometry:
        """The same with images and input features in each other's place."""
        s = self.shape
        swapped = replace(s, batch=s.ci, ci=s.batch, in_batch=s.in_feature, in_feature=s.in_batch)
        return Geometry(swapped, self.types, self.target)

    @property
    def is_dilated(self) -> bool:
        """Whether the input is dilated."""
        return self.ldil != (1, 1, 1)

    @property
    def inside(self) -> tuple[int, int]:
        """The range of a line's pixels whose whole window lies inside the input's width."""
        stride, pad, extent, width = self.stride[2], self.pad[2], self.input[2], self.output[2]
        reach = (self.window[2] - 1) * self.rdil[2]
        first = max(0, -(-pad // stride))
        end = max(first, min(width, (extent - 1 - reach + pad) // stride + 1))
        return min(first, end, width), end if end > first else min(first, width)

    def read_by(self, output: Three) -> Three:
        """Returns the extents of the padded input that windows at so many output pixels read."""
        sizes = zip(output, self.stride, self.window, self.rdil, strict=True)
        depth, height, width = ((o - 1) * t + (k - 1) * r + 1 for o, t, k, r in sizes)
        return depth, height, width

    @cached_property
    def is_plain(self) -> bool:
        """Whether the stored elements of the input, in their order, are what tiles read."""
        return self._is_stored and (self.shape.in_feature == 1 or equal(self.shape.ci, 1))

    @property
    def _is_stored(self) -> bool:
        """Whether the elements of the input are what tiles read, in any order."""
        dilated = any(d > 1 and x > 1 for d, x in zip(self.ldil, self.input, strict=True))
        return storage(self.types.a) == self.plan.unit and not dilated

    @cached_property
    def needs_padding(self) -> bool:
        """Whether windows may read beyond the input."""
        depth, lines, width = self.output
        whole = self.read_by((depth, self.shape.lines or lines, width))
        fits = all(n <= x for n, x in zip(whole, self.input, strict=True))
        return not fits or self.pad != (0, 0, 0)

    @property
    def meets_padding(self) -> bool:
        """Whether windows may read padding: unlike `needs_padding` not only because parts of the input are left out."""
        inside = zip(self.read_by(self.output), self.pad, self.input, strict=True)
        return not all(low <= 0 and surely(lambda: end - low <= n) for end, low, n in inside)  # noqa: B023

    @property
    def reads_in_place(self) -> bool:
        """Whether tiles can read the input in place, without any copy."""
        return self.is_plain and not self.needs_padding

    @property
    def reads_lines_in_place(self) -> bool:
        """Whether tiles whose lanes run along pixels can read the input in place."""
        are_adjacent = equal(self.in_strides[2], self.plan.unit_bytes) and self.stride[2] == 1
        return self._is_stored and are_adjacent and not self.needs_padding

    @property
    def is_flat(self) -> bool:
        """Whether an image that is read in place is a single line: each pixel depends only on the one at its place."""
        s, (depth, height, width) = self.in_strides, self.input
        rows = equal(s[1], width * s[2]) or equal(height, 1), equal(s[0], height * s[1]) or equal(depth, 1)
        same = equal(self.input, self.output)
        return self.window_size == 1 and self.stride == (1, 1, 1) and same and all(rows)

    @property
    def has_adjacent_pixels(self) -> bool:
        """Whether the features of a line's pixels are one run in the input."""
        return equal(self.in_strides[2], self.shape.ci * self.plan.unit_bytes)

    def runs(self, image: str, lanes: str = "features") -> Runs:
        """Returns the runs of k, for an image that is read like this (a word of `Description.image`), and by lanes
        that run along features or pixels."""
        _, kh, kw = self.window
        if lanes == "pixels":
            return Runs(1, self.shape.ci, False) if self.window_size == 1 else Runs(self.shape.ci, kw, False)
        is_run = image == "shared" or self.has_adjacent_pixels
        if kw == 1 or (self.rdil[2] == 1 and is_run):
            return Runs(self.shape.ci * kw, kh, True)
        return Runs(self.shape.ci, kw, False)

    def line(self, axis: int) -> Line | None:
        """Returns the line along dimension `axis` of three. None if some extents are known only at the call, or if the
        input is dilated."""
        width = self.shape.lines if axis == 1 and self.shape.lines else self.output[axis]
        if self.ldil[axis] != 1 or isinstance(self.input[axis], Size) or isinstance(width, Size):
            return None
        return Line(width, *(x[axis] for x in (self.input, self.window, self.stride, self.pad, self.rdil)))

    def has_idle_positions(self, axis: int) -> bool:
        """Whether some pixels have window positions along a dimension that read only padding, and all pixels have
        others."""
        line, end = self.line(axis), 0
        if line is None or line.columns == 1:
            return False
        for first, stop in sorted(line.met):
            end = max(end, stop) if first <= end else end
        return end == line.width and any(pixels != (0, line.width) for pixels in line.met)
