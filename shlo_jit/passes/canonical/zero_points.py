"""Products of `value - zero`, in integers.

    sum_k (x_k - zx) * (y_k - zy)  =  sum x*y  -  zx * sum y  -  zy * (sum x  -  k * zx)

The equation holds modulo a power of two, so the result is exact even if sums overflow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import I8, DType, tensor
from shlo_jit.ops.type_algebra import constant_value
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.byte_convolutions import byte_convolution, is_byte, padded, pays, window_of
from shlo_jit.passes.rewriter import Rewriter


@dataclass(frozen=True)
class Side:
    """An operand of an integer product: it represents `value - zero`."""

    value: Value
    zero: int | Value = 0
    along: tuple[int, ...] = ()
    """Dimensions of `value` that correspond to the dimensions of `zero`, in order, if `zero` is a value."""

    @property
    def is_zero(self) -> bool:
        return self.zero == 0


# ---------------------------------------------------------------------------- products
def integer_product(
    rw: Rewriter, lhs: Side, rhs: Side, roles: Sequence[tuple[int, ...]], dtype: DType
) -> tuple[Value, dict[int, int]]:
    """Emits the product of value - zero for both sides, in `dtype`. Returns it and the result's dimensions of the rhs's
    kept dimensions. `roles` are as in `mk.dot`; zeros must not vary along the contracting dimensions."""
    lhs_batch, rhs_batch, lhs_sum, rhs_sum = roles
    total = mk.dot(rw, (lhs.value, rhs.value), roles, dtype)
    lhs_free, rhs_free = (
        [d for d in range(side.value.tensor.rank) if d not in (*batch, *summed)]
        for side, batch, summed in ((lhs, lhs_batch, lhs_sum), (rhs, rhs_batch, rhs_sum))
    )
    rows = {d: i for i, d in enumerate((*lhs_batch, *lhs_free))}
    columns = {d: i for i, d in enumerate(rhs_batch)}
    columns |= {d: len(rows) + i for i, d in enumerate(rhs_free)}
    if not lhs.is_zero:
        sums = _sums(rw, rhs.value, rhs_sum, dtype, rhs_batch)
        total = _corrected(rw, total, lhs, rows, sums, _along(columns))
    if not rhs.is_zero:
        sums = _sums(rw, lhs.value, lhs_sum, dtype, lhs_batch)
        if not lhs.is_zero:
            depth = math.prod(mk.shape_of(lhs.value)[d] for d in lhs_sum)
            kept = sorted(rows)
            zeros = _zeros(rw, lhs, sums, {d: i for i, d in enumerate(kept)})
            sums = mk.apply(rw, "subtract", sums, mk.apply(rw, "multiply", zeros, mk.splat_like(rw, sums, depth)))
        total = _corrected(rw, total, rhs, columns, sums, _along(rows))
    return total, columns


def _zeros(rw: Rewriter, side: Side, like: Value, places: dict[int, int]) -> Value:
    """Returns the zero of a side in the type and shape of `like`, with its dimensions mapped by `places`."""
    if isinstance(side.zero, int):
        return mk.splat_like(rw, like, side.zero)
    zero = mk.convert(rw, side.zero, like.tensor.storage)
    return mk.broadcast(rw, zero, mk.shape_of(like), [places[d] for d in side.along])


def _corrected(
    rw: Rewriter, total: Value, side: Side, places: dict[int, int], sums: Value, where: Sequence[int]
) -> Value:
    """total - zero * sums, where the sums of the other side have the result's dimensions `where`, and the dimensions of
    this side map to `places`"""
    if isinstance(side.zero, int):
        return _less(rw, total, side.zero, sums, where)
    wide = mk.broadcast(rw, sums, mk.shape_of(total), where)
    return mk.apply(rw, "subtract", total, mk.apply(rw, "multiply", _zeros(rw, side, total, places), wide))


def _less(rw: Rewriter, total: Value, factor: int, sums: Value, where: Sequence[int]) -> Value:
    """total - factor * sums, where the sums have the result's dimensions `where`"""
    product = mk.apply(rw, "multiply", sums, mk.splat_like(rw, sums, factor))
    return mk.apply(rw, "subtract", total, mk.broadcast(rw, product, mk.shape_of(total), where))


def _along(places: dict[int, int]) -> list[int]:
    """Returns the result's dimensions of an operand's kept dimensions, in the operand's order."""
    return [places[d] for d in sorted(places)]


def _sums(rw: Rewriter, value: Value, over: Sequence[int], dtype: DType, batch: Sequence[int] = ()) -> Value:
    """Returns sums over dimensions; those of a constant are computed at compile time. The sums are a product with ones,
    which is a separate kernel. A reduction would be fused with its consumer, which could then not be fused with the
    product."""
    known = constant_value(value)
    if known is not None:
        array = known.astype(np.int64).sum(tuple(over))
        return mk.constant(rw, tensor(array.shape, dtype), array)
    if batch or not over:
        return mk.reduce_sum(rw, mk.convert(rw, value, dtype), over)
    ones = mk.constant(rw, tensor(tuple(mk.shape_of(value)[d] for d in over), I8), 1)
    return mk.dot(rw, (ones, value), [(), (), tuple(range(len(over))), tuple(over)], dtype)


# ---------------------------------------------------------------------------- convolutions
def integer_convolution(
    rw: Rewriter, lhs: Side, rhs: Side, attributes: Mapping[str, Any], shape: tuple[int, ...], dtype: DType
) -> Value:
    """Emits the convolution of value - zero for both sides, with this shape, in `dtype`. The zeros must be numbers."""
    x, zx, zy = lhs.value, lhs.zero, rhs.zero
    assert isinstance(zx, int) and isinstance(zy, int)
    numbers = attributes["dimension_numbers"]
    assert isinstance(numbers, ConvDims)
    window = window_of(attributes, len(numbers.input_spatial_dimensions))
    if zx:
        x = padded(rw, x, numbers, window, zx)
        attributes = {k: v for k, v in attributes.items() if k not in ("padding", "lhs_dilation")}
    feature, kernel_feature = numbers.output_feature_dimension, numbers.kernel_output_feature_dimension
    is_product = is_byte(x) and is_byte(rhs.value) and pays(mk.shape_of(rhs.value), dtype, shape, attributes)
    convolve = byte_convolution if is_product else _plain_convolution
    total = convolve(rw, x, rhs.value, dtype, shape, attributes)
    summed = [d for d in range(rhs.value.tensor.rank) if d != kernel_feature]
    if zx:
        total = _less(rw, total, zx, _sums(rw, rhs.value, summed, dtype), (feature,))
    if not zy:
        return total
    groups = window.groups * window.batch_groups
    ones = mk.constant(rw, tensor(_replaced(mk.shape_of(rhs.value), kernel_feature, groups), I8), 1)
    sums = convolve(rw, x, ones, dtype, _replaced(shape, feature, groups), attributes)
    each = (*shape[:feature], groups, shape[feature] // groups, *shape[feature + 1 :])
    sums = mk.broadcast(rw, sums, each, [d if d <= feature else d + 1 for d in range(len(shape))])
    total = _less(rw, total, zy, mk.reshape(rw, sums, shape), range(len(shape)))
    if zx:
        depth = math.prod(mk.shape_of(rhs.value)[d] for d in summed)
        total = mk.apply(rw, "add", total, mk.splat_like(rw, total, depth * zx * zy))
    return total


def _plain_convolution(
    rw: Rewriter, lhs: Value, rhs: Value, dtype: DType, shape: tuple[int, ...], attributes: Mapping[str, Any]
) -> Value:
    operands = [mk.convert(rw, v, dtype) for v in (lhs, rhs)]
    return rw.emit1("stablehlo.convolution", operands, tensor(shape, dtype), dict(attributes))


def _replaced(shape: tuple[int, ...], dim: int, extent: int) -> tuple[int, ...]:
    return (*shape[:dim], extent, *shape[dim + 1 :])
