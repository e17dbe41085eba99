"""Gather the elements that windows read, for convolutions whose input is nearly all padding or holes.

    y[o] = sum over k of w[k] x'[S o + D k - low]      x' is x with its holes and its padding

If x' is much longer than x and than all positions of all windows, it should not be materialized, and it may not fit
into memory. The positions are known, so their elements are gathered, window after window:

    g[K o + k] = x'[S o + D k - low]       y[o] = sum over k of w[k] g[K o + k]

Elements of the padding or of a hole are 0 in g, and are multiplied like all others.

Needs: static shapes. Guarantees: no convolution has a dimension that `is_distant`.

    convolution(x : 4, w : 3), pad = [[2^61, 2^61]], rhs_dilate = [2^61]
      ->   convolution(select(inside, gather(x, positions), 0) : 12, w), stride = [3]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.attributes import ConvDims, Dense, StructAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import I1, I64, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import Size


class Line(NamedTuple):
    """The windows along one dimension."""

    extent: int
    output: int
    window: int
    stride: int
    low: int
    high: int
    holes: int
    """Distance between the input's elements."""
    apart: int
    """Distance between the window's positions."""

    @property
    def is_distant(self) -> bool:
        """Whether the padded input is much longer than the part that is read."""
        if any(isinstance(n, Size) for n in (self.extent, self.output)):
            return False
        padded = self.low + max(0, self.extent - 1) * self.holes + 1 + self.high
        read = max(self.extent, self.output * self.window)
        return padded > max(tuning.CONV_DISTANT, tuning.WINDOW_SPARSE * read)

    def places(self) -> np.ndarray:
        """Returns the input's index for each position of each window; -1 if there is none."""
        found = np.full(self.output * self.window, -1, np.int64)
        for i in range(len(found)):
            o, k = divmod(i, self.window)
            at, rest = divmod(o * self.stride + k * self.apart - self.low, self.holes)
            if rest == 0 and 0 <= at < self.extent:
                found[i] = at
        return found


def distant_windows(function: Op, _: Context) -> Op:
    """The function with such convolutions replaced by convolutions of the gathered elements."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.convolution":
            return None
        lines = lines_of(op)
        if not any(line.is_distant for line in lines):
            return None
        return [_gathered(rw, op, operands, lines)]

    return rewrite(function, visit)


def lines_of(op: Op) -> list[Line]:
    """Returns the spatial dimensions of a convolution."""
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    n = len(d.input_spatial_dimensions)
    x, w, y = (mk.shape_of(v) for v in (*op.operands[:2], op.result))
    padding = op.ints("padding", (0, 0) * n)
    extents = ([shape[i] for i in dims] for shape, dims in _places(op, x, w, y))
    steps = (op.ints(name, (1,) * n) for name in ("window_strides", "lhs_dilation", "rhs_dilation"))
    stride, holes, apart = steps
    extent, window, output = extents
    columns = zip(extent, output, window, stride, padding[0::2], padding[1::2], holes, apart, strict=True)
    return [Line(*column) for column in columns]


def _places(op: Op, x: Sequence[int], w: Sequence[int], y: Sequence[int]) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Returns the shapes of input, kernel and output, with their spatial dimensions."""
    d = op.attributes["dimension_numbers"]
    spatial = d.input_spatial_dimensions, d.kernel_spatial_dimensions, d.output_spatial_dimensions
    return list(zip((x, w, y), spatial, strict=True))


def _gathered(rw: Rewriter, op: Op, operands: Sequence[Value], lines: list[Line]) -> Value:
    x, w = operands
    d = op.attributes["dimension_numbers"]
    new = list(lines)
    for i, (line, dim) in enumerate(zip(lines, d.input_spatial_dimensions, strict=True)):
        if line.is_distant:
            x = _read(rw, x, dim, line.places())
            new[i] = Line(line.output * line.window, line.output, line.window, line.window, 0, 0, 1, 1)
    padding = np.array([(line.low, line.high) for line in new], np.int64)
    attributes = {
        **op.attributes,
        "window_strides": mk.dims([line.stride for line in new]),
        "padding": Dense(tensor(padding.shape, I64), padding),
        "lhs_dilation": mk.dims([line.holes for line in new]),
        "rhs_dilation": mk.dims([line.apart for line in new]),
    }
    return rw.emit1(op.name, [x, w], op.result.type, attributes)


def _read(rw: Rewriter, x: Value, dim: int, places: np.ndarray) -> Value:
    """Gathers elements of the input along a dimension; 0 where a place is -1."""
    shape = list(mk.shape_of(x))
    extent, shape[dim] = shape[dim], len(places)
    zero = mk.constant(rw, tensor(tuple(shape), x.tensor.dtype), 0)
    if extent == 0 or not len(places):
        return zero
    numbers = StructAttr(
        "stablehlo.gather",
        (
            ("offset_dims", tuple(i for i in range(len(shape)) if i != dim)),
            ("collapsed_slice_dims", (dim,)),
            ("start_index_map", (dim,)),
            ("index_vector_dim", 1),
        ),
    )
    sizes = [1 if i == dim else n for i, n in enumerate(shape)]
    attributes = {"dimension_numbers": numbers, "slice_sizes": mk.dims(sizes), "indices_are_sorted": False}
    at = mk.constant(rw, tensor(places.shape, I64), np.maximum(places, 0))
    found = rw.emit1("stablehlo.gather", [x, at], zero.type, attributes)
    inside = mk.constant(rw, tensor(places.shape, I1), places >= 0)
    return rw.emit1("stablehlo.select", [mk.broadcast(rw, inside, shape, (dim,)), found, zero], zero.type)
