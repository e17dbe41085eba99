"""Products of quantized tensors in integers: dot_general, dot, convolution.

An operand whose `x - zx` fits i8 or ui8 is converted to that type and has no zero point left. Otherwise, sums correct
for the zero point (`canonical/zero_points.py`). The integer sum is exact. Its product with both scales is rounded once
to the expressed type: it is the value that the specification's float product approximates. It is then quantized like
any float. Storage values of more than 8 bits are multiplied in f64 if that is exact.

A float lhs makes a hybrid product: the rhs is dequantized, and the product is computed in floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import ConvDims, Dense
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import F64, I8, I32, I64, UI8, DType, QuantizedType, storage_range, tensor
from shlo_jit.ops.contract import dims_of
from shlo_jit.ops.quantized import quantization
from shlo_jit.ops.type_algebra import constant_ints
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.zero_points import Side, integer_convolution, integer_product
from shlo_jit.passes.quantized.math import dequantize, quantize, scales_of, spread
from shlo_jit.passes.rewriter import Rewriter


# ---------------------------------------------------------------------------- operands
def _offsets(q: QuantizedType) -> tuple[int, int]:
    """Returns the smallest and the largest x - zero_point, over all storage values."""
    low, high = storage_range(q.storage)
    return low - max(q.zero_points), high - min(q.zero_points)


def _sum_type(depth: int, x: QuantizedType, y: QuantizedType) -> DType | None:
    """Returns a type that holds every sum of `depth` products, or None if there is none."""
    bound = depth * math.prod(max(map(abs, _offsets(q))) for q in (x, y))
    if bound < 1 << 31:
        return I32
    if max(x.storage.bits, y.storage.bits) <= 8:
        return I64
    return F64 if bound < 1 << 53 else None


def _bytes(rw: Rewriter, x: Value, q: QuantizedType) -> Side | None:
    """Returns the operand as bytes, with at most one zero point left, or None if that is impossible."""
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
    """Returns the operand with its zero point subtracted, in the type of the sums."""
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
    """Scales and quantizes the integer sums; `axis` is the result's dimension of the rhs's scales."""
    x, y, z = (quantization(v) for v in (*op.operands[:2], op.result))
    assert x is not None and y is not None and z is not None
    wide = mk.convert(rw, total, F64)
    scaled = mk.apply(rw, "multiply", wide, spread(rw, wide, F64, scales_of(x)[0] * scales_of(y), axis))
    return [quantize(rw, mk.convert(rw, scaled, y.expressed), z)]


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
    depth = math.prod(mk.shape_of(operands[0])[d] for d in roles[2])
    dtype = _sum_type(depth, x, y)
    if dtype is None or x.axis is not None or y.axis in roles[3]:
        return None
    lhs, rhs = _sides(rw, operands, (x, y), dtype)
    total, columns = integer_product(rw, lhs, rhs, roles, dtype)
    return _finish(rw, op, total, None if y.axis is None else columns[y.axis])


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
    total = integer_convolution(rw, *sides, attributes, op.result.tensor.extents, dtype)
    return _finish(rw, op, total, None if y.axis is None else numbers.output_feature_dimension)


PRODUCTS = {
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
    "stablehlo.convolution": _convolution,
    "stablehlo.dynamic_conv": _convolution,
}
