"""Convolutions over a dilated input as several over the input itself: nothing is multiplied with zeros.

    y[o] = sum over k of w[k] x'[o + k - low],   x'[D j] = x[j], zero elsewhere

Outputs o = D q + a of one phase a meet the taps k = t + D m only, where D divides a + t - low: a convolution of x with
every D-th tap. The results of the phases are interleaved. This is what the gradient of a convolution with strides, and
a "transposed" convolution, comes to; of two dimensions dilated by 2, a quarter of the products remains.

Needs: static shapes. Guarantees: no convolution that `is_dilated` remains.

    convolution(x, w), lhs_dilate = [2]   ->   interleaved(convolution(x, w[0::2]), convolution(x, w[1::2]))

Where the kernel may have NaN or infinities, the taps that a phase leaves out are looked at: if one is not finite, its
product with a zero is NaN, and so are all results of that phase and feature. What is added is -0 else, which changes
no number.

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
    """One dimension of a phase: the first tap and their number, and the padding below."""

    tap: int
    taps: int
    low: int


def phase(a: int, dilation: int, window: int, low: int) -> Phase:
    tap = (low - a) % dilation
    return Phase(tap, max(0, -(-(window - tap) // dilation)), (low - a - tap) // dilation)


def dilated_convolutions(function: Op, _: Context) -> Op:
    """The function with convolutions over dilated inputs as several."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.convolution" or not is_dilated(op):
            return None
        return [_undilated(rw, op, operands)]

    return rewrite(function, visit)


def is_dilated(op: Op) -> bool:
    """Whether the convolution is worth being several."""
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    n = len(d.input_spatial_dimensions)
    ones = (1,) * n
    dilation = op.ints("lhs_dilation", ones)
    other = zip(dilation, op.ints("window_strides", ones), op.ints("rhs_dilation", ones), strict=True)
    simple = all(r == 1 or (s == 1 and t == 1) for r, s, t in other)
    return simple and 1 < int(np.prod(dilation)) <= tuning.DILATION_PHASES and 0 not in op.result.tensor.extents


def _undilated(rw: Rewriter, op: Op, operands: Sequence[Value]) -> Value:
    """The convolution, phase by phase."""
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
    odd = _odd_taps(rw, op, w) if may_be_odd(op.operands[1]) else None
    for a in itertools.product(*map(range, dilation)):
        phases = [phase(*of) for of in zip(a, dilation, window, low, strict=True)]
        if any(p.taps == 0 for p in phases):
            parts[a] = mk.constant(rw, tensor(tuple(shape), op.result.tensor.dtype), 0)
        else:
            padding = _padding(op, x, phases, counts)
            attributes = {**op.attributes, "padding": padding, "lhs_dilation": mk.dims((1,) * n)}
            operands = [x, _taps(rw, op, w, phases)]
            parts[a] = rw.emit1(op.name, operands, tensor(tuple(shape), op.result.tensor.dtype), attributes)
        if odd is not None:
            parts[a] = _with_zeros(rw, op, parts[a], odd, phases)
    result = _interleaved(rw, parts, d.output_spatial_dimensions, dilation)
    for i in d.output_spatial_dimensions:
        if mk.shape_of(result)[i] != extents[i]:
            result = mk.slice_dim(rw, result, i, 0, extents[i])
    return result


def _padding(op: Op, x: Value, phases: list[Phase], counts: list[int]) -> Dense:
    """Padding of a phase. Dimensions that are not dilated keep theirs: theirs may have strides and dilated taps."""
    d = op.attributes["dimension_numbers"]
    n = len(phases)
    dilation, old = op.ints("lhs_dilation", (1,) * n), op.ints("padding", (0, 0) * n)
    rows = []
    for i, (p, count, dim) in enumerate(zip(phases, counts, d.input_spatial_dimensions, strict=True)):
        high = count + p.taps - 1 - mk.shape_of(x)[dim] - p.low
        rows.append((p.low, high) if dilation[i] > 1 else old[2 * i : 2 * i + 2])
    return Dense(tensor((n, 2), I64), np.array(rows, np.int64))


def may_be_odd(kernel: Value) -> bool:
    """Whether products of the kernel with zero may be NaN."""
    return kernel.tensor.storage.kind in "fc" and not is_known_finite(kernel)


def _odd_taps(rw: Rewriter, op: Op, w: Value) -> Value:
    """Which taps of which output features have a number that is not finite, as i1: the kernel's shape, with an extent
    of 1 for the input's features. One plain pass over the kernel tells that there are none, as is usual."""
    d = op.attributes["dimension_numbers"]
    shape = list(mk.shape_of(w))
    shape[d.kernel_input_feature_dimension] = 1
    is_odd = _is_odd(rw, w, tuple(range(len(shape))))
    some, none = Block([]), Block([])
    rw.blocks.append(some)
    found = mk.reshape(rw, _is_odd(rw, w, (d.kernel_input_feature_dimension,)), shape)
    rw.emit("stablehlo.return", [found], [])
    rw.blocks[-1] = none
    rw.emit("stablehlo.return", [mk.constant(rw, found.tensor, False)], [])
    rw.blocks.pop()
    return rw.emit("stablehlo.if", [is_odd], [found.type], {}, [Region([some]), Region([none])])[0]


def _is_odd(rw: Rewriter, w: Value, over: tuple[int, ...]) -> Value:
    """Whether a number is not finite along some dimensions: the sum of the products with 0 is NaN then."""
    sums = mk.reduce_sum(rw, mk.apply(rw, "multiply", w, mk.splat_like(rw, w, 0)), over)
    return mk.compare(rw, "NE", sums, sums)


def _with_zeros(rw: Rewriter, op: Op, y: Value, odd: Value, phases: list[Phase]) -> Value:
    """A phase's result, and the products with zeros of the taps that it leaves out."""
    d = op.attributes["dimension_numbers"]
    keep = d.kernel_output_feature_dimension
    over = tuple(i for i in range(odd.tensor.rank) if i != keep)
    own = np.ones(mk.shape_of(odd), bool)
    own[_places(op, mk.shape_of(odd), phases)] = False
    if not own.any():
        return y
    others = mk.apply(rw, "and", odd, mk.constant(rw, odd.tensor, own))
    is_nan = mk.broadcast(rw, mk.reduce_sum(rw, others, over), mk.shape_of(y), (d.output_feature_dimension,))
    nan = complex(np.nan, np.nan) if y.tensor.storage.is_complex else np.nan
    zero = complex(-0.0, -0.0) if y.tensor.storage.is_complex else -0.0
    values = [mk.splat_like(rw, y, x) for x in (nan, zero)]
    return mk.apply(rw, "add", y, rw.emit1("stablehlo.select", [is_nan, *values], y.type))


def _places(op: Op, shape: Sequence[int], phases: list[Phase]) -> tuple[slice, ...]:
    """Where the taps of a phase are in the kernel. The window runs backwards where it is reversed."""
    d = op.attributes["dimension_numbers"]
    dilation = op.ints("lhs_dilation", (1,) * len(phases))
    flags = op.attributes.get("window_reversal")
    reverse = op.ints("window_reversal") if flags is not None else (0,) * len(phases)
    out = [slice(0, n, 1) for n in shape]
    for p, r, back, i in zip(phases, dilation, reverse, d.kernel_spatial_dimensions, strict=True):
        reach = r * (p.taps - 1)
        start = shape[i] - 1 - p.tap - reach if back else p.tap
        out[i] = slice(start, start + reach + 1, r) if p.taps else slice(0, 0, 1)
    return tuple(out)


def _taps(rw: Rewriter, op: Op, w: Value, phases: list[Phase]) -> Value:
    """The taps of a phase."""
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
    """The phases' results in one, a dimension after the other, the last first."""
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
