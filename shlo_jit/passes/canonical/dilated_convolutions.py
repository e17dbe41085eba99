"""Convolutions over a dilated input as several over the input itself: nothing is multiplied with zeros.

    y[o] = sum over k of w[k] x'[o + k - low],   x'[D j] = x[j], zero elsewhere

Outputs o = D q + a of one phase a meet the taps k = t + D m only, where D divides a + t - low: a convolution of x with
every D-th tap. The results of the phases are interleaved. This is what the gradient of a convolution with strides, and
a "transposed" convolution, comes to; of two dimensions dilated by 2, a quarter of the products remains.

Needs: static shapes. Guarantees: no convolution that `is_dilated` remains.

    convolution(x, w), lhs_dilate = [2]   ->   interleaved(convolution(x, w[0::2]), convolution(x, w[1::2]))
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shlo_jit.ir.attributes import ConvDims, Dense
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import I64, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite

MAX_PHASES = 16


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
    return simple and 1 < int(np.prod(dilation)) <= MAX_PHASES and 0 not in op.result.tensor.extents


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
    for a in itertools.product(*map(range, dilation)):
        phases = [phase(*of) for of in zip(a, dilation, window, low, strict=True)]
        if any(p.taps == 0 for p in phases):
            parts[a] = mk.constant(rw, tensor(tuple(shape), op.result.tensor.dtype), 0)
            continue
        attributes = {**op.attributes, "padding": _padding(op, x, phases, counts), "lhs_dilation": mk.dims((1,) * n)}
        operands = [x, _taps(rw, op, w, phases)]
        parts[a] = rw.emit1(op.name, operands, tensor(tuple(shape), op.result.tensor.dtype), attributes)
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


def _taps(rw: Rewriter, op: Op, w: Value, phases: list[Phase]) -> Value:
    """The taps of a phase. The window runs backwards where it is reversed."""
    d = op.attributes["dimension_numbers"]
    dilation = op.ints("lhs_dilation", (1,) * len(phases))
    flags = op.attributes.get("window_reversal")
    reverse = op.ints("window_reversal") if flags is not None else (0,) * len(phases)
    shape = mk.shape_of(w)
    start, limit, step = [0] * len(shape), list(shape), [1] * len(shape)
    for p, r, back, i in zip(phases, dilation, reverse, d.kernel_spatial_dimensions, strict=True):
        reach = r * (p.taps - 1)
        start[i] = shape[i] - 1 - p.tap - reach if back else p.tap
        limit[i], step[i] = start[i] + reach + 1, r
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
