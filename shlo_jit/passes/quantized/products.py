"""Products of quantized tensors in integers: dot_general, dot, convolution.

    sum_k (x_k - zx) * (y_k - zy)  =  sum x*y  -  zx * sum y  -  zy * sum x  +  k * zx * zy

An operand whose `x - zx` fits i8 or ui8 is brought there and has no zero point left; else the sums correct it. The
integer sum is exact, so that its product with both scales, rounded once to the expressed type, is what the
specification's float product approximates; it is then quantized like any float. Storage of more than 8 bits is
multiplied in f64 where that is exact.

A float lhs makes a hybrid product: the rhs is dequantized, and the product is one of floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import ConvDims, Dense
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import F64, I8, I32, I64, UI8, DType, QuantizedType, storage_range, tensor
from shlo_jit.ops.contract import dims_of
from shlo_jit.ops.quantized import quantization
from shlo_jit.ops.shapes import constant_ints, constant_value
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.byte_convolutions import Window, byte_convolution, pays, window_of
from shlo_jit.passes.quantized.math import dequantize, quantize, scales_of, spread
from shlo_jit.passes.rewriter import Rewriter


@dataclass(frozen=True)
class Side:
    """An operand of an integer product: it stands for `value - zero`."""

    value: Value
    zero: int = 0


# ---------------------------------------------------------------------------- operands
def _offsets(q: QuantizedType) -> tuple[int, int]:
    """Smallest and largest x - zero_point, whatever is stored."""
    low, high = storage_range(q.storage)
    return low - max(q.zero_points), high - min(q.zero_points)


def _sum_type(depth: int, x: QuantizedType, y: QuantizedType) -> DType | None:
    """A type that holds every sum of `depth` products; None when there is none."""
    bound = depth * math.prod(max(map(abs, _offsets(q))) for q in (x, y))
    if bound < 1 << 31:
        return I32
    if max(x.storage.bits, y.storage.bits) <= 8:
        return I64
    return F64 if bound < 1 << 53 else None


def _bytes(rw: Rewriter, x: Value, q: QuantizedType) -> Side | None:
    """The operand as bytes, with at most one zero point left; None where that cannot be."""
    if q.storage.bits > 8:
        return None
    low, high = _offsets(q)
    for dtype in (I8, UI8):
        least, most = storage_range(dtype)
        if least <= low and high <= most:
            x = mk.convert(rw, x, dtype)  # modulo 256, and so is the subtraction
            zeros = np.asarray(q.zero_points).astype(dtype.numpy)
            return Side(mk.apply(rw, "subtract", x, spread(rw, x, dtype, zeros, q.axis)) if zeros.any() else x)
    if len(set(q.zero_points)) > 1:
        return None
    return Side(mk.convert(rw, x, UI8 if q.storage.kind == "u" else I8), q.zero_points[0])


def _wide(rw: Rewriter, x: Value, q: QuantizedType, dtype: DType) -> Side:
    """The operand with its zero point subtracted, in the type sums are kept in."""
    wide = I64 if q.storage.bits > 16 else I32
    x = mk.convert(rw, x, wide)
    if any(q.zero_points):
        x = mk.apply(rw, "subtract", x, spread(rw, x, wide, q.zero_points, q.axis))
    return Side(mk.convert(rw, x, dtype))


def _sides(rw: Rewriter, values: Sequence[Value], types: Sequence[QuantizedType], dtype: DType) -> tuple[Side, Side]:
    if dtype == I32:
        x, y = (_bytes(rw, v, q) for v, q in zip(values, types, strict=True))
        if x is not None and y is not None:
            return x, y
    x, y = (_wide(rw, v, q, dtype) for v, q in zip(values, types, strict=True))
    return x, y


# ---------------------------------------------------------------------------- results
def _finish(rw: Rewriter, op: Op, total: Value, axis: int | None) -> list[Value]:
    """Quantize the integer sums; `axis` is where the rhs's scales lie in the result."""
    x, y, z = (quantization(v) for v in (*op.operands[:2], op.result))
    assert x is not None and y is not None and z is not None
    wide = mk.convert(rw, total, F64)
    scaled = mk.apply(rw, "multiply", wide, spread(rw, wide, F64, scales_of(x)[0] * scales_of(y), axis))
    return [quantize(rw, mk.convert(rw, scaled, y.expressed), z)]


def _corrected(rw: Rewriter, total: Value, factor: int, sums: Value, where: Sequence[int]) -> Value:
    """total - factor * sums, the sums lying along the result's dimensions `where`"""
    product = mk.apply(rw, "multiply", sums, mk.splat_like(rw, sums, factor))
    return mk.apply(rw, "subtract", total, mk.broadcast(rw, product, mk.shape_of(total), where))


def _sums(rw: Rewriter, value: Value, over: Sequence[int], dtype: DType, batch: Sequence[int] = ()) -> Value:
    """Sums over dimensions, of a constant at compile time. They are formed as a product with ones, which is a kernel of
    its own: a reduction would be fused with what reads it, and take that away from the product it is to correct."""
    known = constant_value(value)
    if known is not None:
        array = known.astype(np.int64).sum(tuple(over))
        return mk.constant(rw, tensor(array.shape, dtype), array)
    if batch or not over:
        return mk.reduce_sum(rw, mk.convert(rw, value, dtype), over)
    ones = mk.constant(rw, tensor(tuple(mk.shape_of(value)[d] for d in over), I8), 1)
    return mk.dot(rw, (ones, value), [(), (), tuple(range(len(over))), tuple(over)], dtype)


# ---------------------------------------------------------------------------- dot_general, dot
def _dot_general(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    numbers = op.attributes["dot_dimension_numbers"]
    roles = [
        tuple(dims_of(numbers, f"{side}_{kind}_dimensions")) for kind in ("batching", "contracting")
        for side in ("lhs", "rhs")
    ]  # fmt: skip
    return _product(rw, op, operands, roles)


def _dot(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    return _product(rw, op, operands, [(), (), (operands[0].tensor.rank - 1,), (0,)])


def _product(rw: Rewriter, op: Op, operands: list[Value], roles: list[tuple[int, ...]]) -> Sequence[Value] | None:
    x, y = (quantization(v) for v in op.operands)
    if y is None or (quantization(op.result) is None and x is not None):
        return None
    if x is None:
        dtype = op.result.tensor.storage
        return [mk.dot(rw, (operands[0], dequantize(rw, operands[1], y)), roles, dtype, _precision(op))]
    lhs_batch, rhs_batch, lhs_sum, rhs_sum = roles
    depth = math.prod(mk.shape_of(operands[0])[d] for d in lhs_sum)
    dtype = _sum_type(depth, x, y)
    if dtype is None or x.axis is not None or y.axis in rhs_sum:
        return None
    lhs, rhs = _sides(rw, operands, (x, y), dtype)
    total = mk.dot(rw, (lhs.value, rhs.value), roles, dtype)
    lhs_free = [d for d in range(lhs.value.tensor.rank) if d not in lhs_batch + lhs_sum]
    rhs_free = [d for d in range(rhs.value.tensor.rank) if d not in rhs_batch + rhs_sum]
    rows = {d: i for i, d in enumerate((*lhs_batch, *lhs_free))}
    columns = {d: i for i, d in enumerate(rhs_batch)}
    columns |= {d: len(rows) + i for i, d in enumerate(rhs_free)}
    if lhs.zero:
        total = _corrected(rw, total, lhs.zero, _sums(rw, rhs.value, rhs_sum, dtype, rhs_batch), _along(columns))
    if rhs.zero:
        total = _corrected(rw, total, rhs.zero, _sums(rw, lhs.value, lhs_sum, dtype, lhs_batch), _along(rows))
    if lhs.zero and rhs.zero:
        total = mk.apply(rw, "add", total, mk.splat_like(rw, total, depth * lhs.zero * rhs.zero))
    return _finish(rw, op, total, None if y.axis is None else columns[y.axis])


def _along(places: dict[int, int]) -> list[int]:
    """Result dimensions of an operand's kept dimensions, in the operand's order."""
    return [places[d] for d in sorted(places)]


def _precision(op: Op) -> dict[str, Any]:
    return {k: op.attributes[k] for k in ("precision_config", "algorithm") if k in op.attributes}


# ---------------------------------------------------------------------------- convolution
def _convolution(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    x, y = (quantization(v) for v in op.operands[:2])
    attributes = dict(op.attributes)
    if op.name == "stablehlo.dynamic_conv":
        padding = constant_ints(op.operands[2])
        if padding is None:
            return None
        attributes["padding"] = Dense(tensor((len(padding) // 2, 2), I64), np.reshape(padding, (-1, 2)))
    if y is None or (quantization(op.result) is None and x is not None):
        return None
    lhs, rhs = operands[:2]
    if x is None:
        rhs = dequantize(rw, rhs, y)
        return rw.emit("stablehlo.convolution", [lhs, rhs], [op.result.type], attributes)
    numbers = attributes["dimension_numbers"]
    assert isinstance(numbers, ConvDims)
    feature = numbers.kernel_output_feature_dimension
    depth = math.prod(n for d, n in enumerate(mk.shape_of(rhs)) if d != feature)
    dtype = _sum_type(depth, x, y)
    if dtype is None or x.axis is not None or y.axis not in (None, feature):
        return None
    sides = _sides(rw, (lhs, rhs), (x, y), dtype)
    total = _integer_convolution(rw, op, sides, attributes, depth, dtype)
    return _finish(rw, op, total, None if y.axis is None else numbers.output_feature_dimension)


def _integer_convolution(
    rw: Rewriter, op: Op, sides: tuple[Side, Side], attributes: dict[str, Any], depth: int, dtype: DType
) -> Value:
    """The convolution of value - zero for both sides, in `dtype`."""
    lhs, rhs = sides
    numbers = attributes["dimension_numbers"]
    if lhs.zero:
        lhs = Side(_padded(rw, lhs, numbers, window_of(attributes, len(numbers.input_spatial_dimensions))), lhs.zero)
        attributes = {k: v for k, v in attributes.items() if k not in ("padding", "lhs_dilation")}
    shape = op.result.tensor.extents
    feature = numbers.output_feature_dimension
    kernel_feature = numbers.kernel_output_feature_dimension
    total = _convolve(rw, lhs.value, rhs.value, dtype, shape, attributes)
    if lhs.zero:
        over = [d for d in range(rhs.value.tensor.rank) if d != kernel_feature]
        total = _corrected(rw, total, lhs.zero, _sums(rw, rhs.value, over, dtype), (feature,))
    if not rhs.zero:
        return total
    groups = op.int("feature_group_count", 1) * op.int("batch_group_count", 1)
    ones = mk.constant(rw, tensor(_replaced(mk.shape_of(rhs.value), kernel_feature, groups), I8), 1)
    sums = _convolve(rw, lhs.value, ones, dtype, _replaced(shape, feature, groups), attributes)
    each = (*shape[:feature], groups, shape[feature] // groups, *shape[feature + 1 :])
    sums = mk.broadcast(rw, sums, each, [d if d <= feature else d + 1 for d in range(len(shape))])
    total = _corrected(rw, total, rhs.zero, mk.reshape(rw, sums, shape), range(len(shape)))
    if lhs.zero:
        total = mk.apply(rw, "add", total, mk.splat_like(rw, total, depth * lhs.zero * rhs.zero))
    return total


def _convolve(
    rw: Rewriter, lhs: Value, rhs: Value, dtype: DType, shape: tuple[int, ...], attributes: dict[str, Any]
) -> Value:
    """A convolution of integers with a result of `dtype`; of bytes as a product where that pays."""
    if pays(lhs, rhs, dtype, shape, attributes):
        return byte_convolution(rw, lhs, rhs, dtype, shape, attributes)
    operands = [mk.convert(rw, v, dtype) for v in (lhs, rhs)]
    return rw.emit1("stablehlo.convolution", operands, tensor(shape, dtype), attributes)


def _padded(rw: Rewriter, side: Side, numbers: ConvDims, window: Window) -> Value:
    """The operand with its padding and dilation written out, filled with its zero point."""
    low, high, inner = ([0] * side.value.tensor.rank for _ in range(3))
    for d, pair, gap in zip(numbers.input_spatial_dimensions, window.padding, window.lhs_dilation, strict=True):
        (low[d], high[d]), inner[d] = pair, gap - 1
    return mk.pad(rw, side.value, side.zero, low, high, inner)


def _replaced(shape: tuple[int, ...], dim: int, extent: int) -> tuple[int, ...]:
    return (*shape[:dim], extent, *shape[dim + 1 :])


PRODUCTS = {
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
    "stablehlo.convolution": _convolution,
    "stablehlo.dynamic_conv": _convolution,
}
