"""Rewrite convolutions of a dilated input as several convolutions of the input itself, without products with zeros.

    y[o] = sum over k of w[k] x'[o + k - low],   x'[D j] = x[j], zero elsewhere

Outputs o = D q + a of one phase a use only the window positions k = t + D m, where D divides a + t - low. Each phase is
a convolution of x with every D-th window position. The results of the phases are interleaved. The gradient of a strided
convolution, and a "transposed" convolution, have this form. With two dimensions dilated by 2, a quarter of the products
remains.

Needs: static shapes. Guarantees: no convolution that `is_dilated` remains.

    convolution(x, w), lhs_dilate = [2]   ->   interleaved(convolution(x, w[0::2]), convolution(x, w[1::2]))

If the kernel may have NaN or infinities, the window positions that a phase leaves out are checked. If a weight there is
not finite, its product with zero is NaN, and so are all results of that phase and feature. Otherwise -0 is added, which
changes no number.

    y = convolution(x, w[0::2])   ->   y + select(any(0 * w[1::2] is NaN), NaN, -0)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.attributes import ConvDims, Dense
from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.finite import is_known_finite
from shlo_jit.ir.types import I64, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class Phase:
    """One dimension of a phase: its first window position, their number, and the padding below."""

    first: int
    count: int
    low: int


def phase(a: int, dilation: int, window: int, low: int) -> Phase:
    first = (low - a) % dilation
    return Phase(first, max(0, -(-(window - first) // dilation)), (low - a - first) // dilation)


def dilated_convolutions(function: Op, _: Context) -> Op:
    """The function with convolutions of dilated inputs split into phases."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.convolution" or not is_dilated(op):
            return None
        return [_undilated(rw, op, operands)]

    return rewrite(function, visit)


def is_dilated(op: Op) -> bool:
    """Whether a convolution is worth splitting into phases."""
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    n = len(d.input_spatial_dimensions)
    ones = (1,) * n
    dilation = op.ints("lhs_dilation", ones)
    other = zip(dilation, op.ints("window_strides", ones), op.ints("rhs_dilation", ones), strict=True)
    simple = all(r == 1 or (s == 1 and t == 1) for r, s, t in other)
    return simple and 1 < int(np.prod(dilation)) <= tuning.DILATION_PHASES and 0 not in op.result.tensor.extents


def _undilated(rw: Rewriter, op: Op, operands: Sequence[Value]) -> Value:
    """Emits the convolution phase by phase."""
    x, w = operands
    d = op.attributes["dimension_numbers"]
    n = len(d.input_spatial_dimensions)
    dilation = op.ints("lhs_dilation", (1,) * n)
    low = op.ints("padding", (0, 0) * n)[0::2]
    window = [mk.shape_of(w)[i] for i in d.kernel_spatial_dimensions]
    extents = op.result.tensor.extents
    counts = [-(-extents[i] // r) for i, r in zip(d.output_spatial_dimensions, dilation, strict=True)]
    shape = list(extents)
    for i, count in zip(d.output_spatial_dimensions, counts, strict=True):
        shape[i] = count
    parts: dict[tuple[int, ...], Value] = {}
    nonfinite = _nonfinite_positions(rw, op, w) if may_be_nonfinite(op.operands[1]) else None
    for a in itertools.product(*map(range, dilation)):
        phases = [phase(*of) for of in zip(a, dilation, window, low, strict=True)]
        if any(p.count == 0 for p in phases):
            parts[a] = mk.constant(rw, tensor(tuple(shape), op.result.tensor.dtype), 0)
        else:
            padding = _padding(op, x, phases, counts)
            attributes = {**op.attributes, "padding": padding, "lhs_dilation": mk.dims((1,) * n)}
            operands = [x, _positions(rw, op, w, phases)]
            parts[a] = rw.emit1(op.name, operands, tensor(tuple(shape), op.result.tensor.dtype), attributes)
        if nonfinite is not None:
            parts[a] = _with_zeros(rw, op, parts[a], nonfinite, phases)
    result = _interleaved(rw, parts, d.output_spatial_dimensions, dilation)
    for i in d.output_spatial_dimensions:
        if mk.shape_of(result)[i] != extents[i]:
            result = mk.slice_dim(rw, result, i, 0, extents[i])
    return result


def _padding(op: Op, x: Value, phases: list[Phase], counts: list[int]) -> Dense:
    """Returns the padding of a phase. Dimensions that are not dilated keep theirs, as they may have strides and a
    dilated window."""
    d = op.attributes["dimension_numbers"]
    n = len(phases)
    dilation, old = op.ints("lhs_dilation", (1,) * n), op.ints("padding", (0, 0) * n)
    rows = []
    for i, (p, count, dim) in enumerate(zip(phases, counts, d.input_spatial_dimensions, strict=True)):
        high = count + p.count - 1 - mk.shape_of(x)[dim] - p.low
        rows.append((p.low, high) if dilation[i] > 1 else old[2 * i : 2 * i + 2])
    return Dense(tensor((n, 2), I64), np.array(rows, np.int64))


def may_be_nonfinite(kernel: Value) -> bool:
    """Whether products of the kernel with zero may be NaN."""
    return kernel.tensor.storage.kind in "fc" and not is_known_finite(kernel)


def _nonfinite_positions(rw: Rewriter, op: Op, w: Value) -> Value:
    """Returns which window positions have a non-finite weight for which output features, as i1. It has the kernel's
    shape with an extent of 1 for the input features. One cheap pass over the kernel usually finds none."""
    d = op.attributes["dimension_numbers"]
    shape = list(mk.shape_of(w))
    shape[d.kernel_input_feature_dimension] = 1
    is_nonfinite = _is_nonfinite(rw, w, tuple(range(len(shape))))
    some, none = Block([]), Block([])
    rw.blocks.append(some)
    found = mk.reshape(rw, _is_nonfinite(rw, w, (d.kernel_input_feature_dimension,)), shape)
    rw.emit("stablehlo.return", [found], [])
    rw.blocks[-1] = none
    rw.emit("stablehlo.return", [mk.constant(rw, found.tensor, False)], [])
    rw.blocks.pop()
    return rw.emit("stablehlo.if", [is_nonfinite], [found.type], {}, [Region([some]), Region([none])])[0]


def _is_nonfinite(rw: Rewriter, w: Value, over: tuple[int, ...]) -> Value:
    """Whether a number is not finite along some dimensions: then the sum of the products with 0 is NaN."""
    sums = mk.reduce_sum(rw, mk.apply(rw, "multiply", w, mk.splat_like(rw, w, 0)), over)
    return mk.compare(rw, "NE", sums, sums)


def _with_zeros(rw: Rewriter, op: Op, y: Value, nonfinite: Value, phases: list[Phase]) -> Value:
    """Returns a phase's result plus the products with zero of the window positions that it leaves out."""
    d = op.attributes["dimension_numbers"]
    keep = d.kernel_output_feature_dimension
    over = tuple(i for i in range(nonfinite.tensor.rank) if i != keep)
    own = np.ones(mk.shape_of(nonfinite), bool)
    own[_places(op, mk.shape_of(nonfinite), phases)] = False
    if not own.any():
        return y
    others = mk.apply(rw, "and", nonfinite, mk.constant(rw, nonfinite.tensor, own))
    is_nan = mk.broadcast(rw, mk.reduce_sum(rw, others, over), mk.shape_of(y), (d.output_feature_dimension,))
    nan = complex(np.nan, np.nan) if y.tensor.storage.is_complex else np.nan
    zero = complex(-0.0, -0.0) if y.tensor.storage.is_complex else -0.0
    values = [mk.splat_like(rw, y, x) for x in (nan, zero)]
    return mk.apply(rw, "add", y, rw.emit1("stablehlo.select", [is_nan, *values], y.type))


def _places(op: Op, shape: Sequence[int], phases: list[Phase]) -> tuple[slice, ...]:
    """Returns the slices of the kernel with the window positions of a phase. A reversed window runs backwards."""
    d = op.attributes["dimension_numbers"]
    dilation = op.ints("lhs_dilation", (1,) * len(phases))
    flags = op.attributes.get("window_reversal")
    reverse = op.ints("window_reversal") if flags is not None else (0,) * len(phases)
    out = [slice(0, n, 1) for n in shape]
    for p, r, back, i in zip(phases, dilation, reverse, d.kernel_spatial_dimensions, strict=True):
        reach = r * (p.count - 1)
        start = shape[i] - 1 - p.first - reach if back else p.first
        out[i] = slice(start, start + reach + 1, r) if p.count else slice(0, 0, 1)
    return tuple(out)


def _positions(rw: Rewriter, op: Op, w: Value, phases: list[Phase]) -> Value:
    """Slices the window positions of a phase out of the kernel."""
    places = _places(op, mk.shape_of(w), phases)
    start, limit, step = ([getattr(s, x) for s in places] for x in ("start", "stop", "step"))
    t = tensor(tuple(-(-(b - a) // s) for a, b, s in zip(start, limit, step, strict=True)), w.tensor.dtype)
    if t == w.tensor:
        return w
    attributes = {"start_indices": mk.dims(start), "limit_indices": mk.dims(limit), "strides": mk.dims(step)}
    return rw.emit1("stablehlo.slice", [w], t, attributes)


def _interleaved(
    rw: Rewriter, parts: dict[tuple[int, ...], Value], spatial: tuple[int, ...], dilation: tuple[int, ...]
) -> Value:
    """Interleaves the results of the phases, one dimension after the other, the last first."""
    for k in reversed(range(len(spatial))):
        dim, count = spatial[k], dilation[k]
        if count == 1:
            parts = {a[:k]: v for a, v in parts.items()}
            continue
        merged: dict[tuple[int, ...], Value] = {}
        for a in dict.fromkeys(key[:k] for key in parts):
            values = [parts[(*a, i)] for i in range(count)]
            shape = mk.shape_of(values[0])
            wide = [mk.reshape(rw, v, (*shape[: dim + 1], 1, *shape[dim + 1 :])) for v in values]
            joined = mk.concatenate(rw, wide, dim + 1)
            merged[a] = mk.reshape(rw, joined, (*shape[:dim], shape[dim] * count, *shape[dim + 1 :]))
        parts = merged
    return parts[()]
