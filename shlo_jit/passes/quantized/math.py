"""Quantized arithmetic on storage values: dequantize, quantize and their parts (specification, "Quantization
computations"). The numpy counterpart in `ops/quantized.py` agrees with it bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shlo_jit.ir.core import Value
from shlo_jit.ir.types import F32, F64, I32, I64, DType, QuantizedType, TensorType, Type, storage_range, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter

SIGNIFICAND = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


def storage_type(t: Type) -> Type:
    """Returns a type with quantized elements replaced by their storage type."""
    if isinstance(t, TensorType) and isinstance(t.dtype, QuantizedType):
        return TensorType(t.shape, t.dtype.storage, t.bounds, t.encoding)
    return t


def expressed_type(t: Type) -> Type:
    """Returns a type with quantized elements replaced by their expressed type."""
    if isinstance(t, TensorType) and isinstance(t.dtype, QuantizedType):
        return TensorType(t.shape, t.dtype.expressed, t.bounds, t.encoding)
    return t


def spread(rw: Rewriter, like: Value, dtype: DType, numbers: Any, axis: int | None) -> Value:
    """Returns a constant of the shape of `like`: one number, or one for each index of `axis`."""
    array = np.asarray(numbers)
    if axis is None or bool((array == array.reshape(-1)[0]).all()):
        return mk.constant(rw, mk.with_dtype(like, dtype), array.reshape(-1)[0])
    line = mk.constant(rw, tensor(array.shape, dtype), array)
    return mk.broadcast(rw, line, mk.shape_of(like), (axis,))


def scales_of(q: QuantizedType) -> np.ndarray:
    """Returns the scales, rounded to the expressed type (f64 holds them exactly)."""
    return np.asarray(q.scales, np.float64).astype(q.expressed.numpy).astype(np.float64)


def working(dtype: DType) -> DType:
    """Returns the type in which floats of a type are computed."""
    return dtype if dtype.name == "f64" else F32


def dequantize(rw: Rewriter, x: Value, q: QuantizedType) -> Value:
    """(x - zero_point) * scale in the expressed type"""
    if any(q.zero_points):
        wide = I32 if q.storage.bits <= 16 else I64
        x = mk.convert(rw, x, wide)
        x = mk.apply(rw, "subtract", x, spread(rw, x, wide, q.zero_points, q.axis))
    dtype = working(q.expressed)
    difference = mk.convert(rw, mk.convert(rw, x, q.expressed), dtype)
    product = mk.apply(rw, "multiply", difference, spread(rw, x, dtype, scales_of(q), q.axis))
    return mk.convert(rw, product, q.expressed)


def quantize(rw: Rewriter, x: Value, q: QuantizedType) -> Value:
    """clamp(round_nearest_even(x / scale) + zero_point) in the storage type; NaN is stored as 0.

    The clamp comes before the addition, so all numbers are small integers, which the float type represents exactly."""
    dtype = working(x.tensor.storage)
    x = mk.convert(rw, x, dtype)
    rounded = mk.apply(rw, "round_nearest_even", mk.apply(rw, "divide", x, spread(rw, x, dtype, scales_of(q), q.axis)))
    if q.storage.bits > 16:
        dtype = F64
        rounded = mk.convert(rw, rounded, dtype)
    zeros = np.asarray(q.zero_points, np.float64)
    low = spread(rw, rounded, dtype, q.storage_min - zeros, q.axis)
    high = spread(rw, rounded, dtype, q.storage_max - zeros, q.axis)
    stored = rw.emit1("stablehlo.clamp", [low, rounded, high], rounded.type)
    if any(q.zero_points):
        stored = mk.apply(rw, "add", stored, spread(rw, stored, dtype, zeros, q.axis))
    stored = mk.convert(rw, stored, q.storage)
    if q.storage_min <= 0 <= q.storage_max:
        return stored
    ends = [mk.splat_like(rw, stored, n) for n in (q.storage_min, q.storage_max)]  # NaN has become 0
    return rw.emit1("stablehlo.clamp", [ends[0], stored, ends[1]], stored.type)


def requantize(rw: Rewriter, x: Value, source: QuantizedType, target: QuantizedType) -> Value:
    """quantize(dequantize(x)), or x if the types are the same and x survives the round trip"""
    if source == target and round_trips(source):
        return x
    return quantize(rw, dequantize(rw, x, source), target)


def round_trips(q: QuantizedType) -> bool:
    """Whether quantize(dequantize(x)) = x for every value of the storage type. Then order and selection on storage
    values are order and selection on the values that they represent.

    n * scale / scale is off by two roundings, 2^(1 - p) of n with p bits of significand; less than 1/2 rounds to n.
    """
    p = SIGNIFICAND.get(q.expressed.name)
    if p is None or (q.storage_min, q.storage_max) != storage_range(q.storage):
        return False
    largest = max(max(abs(q.storage_min - z), abs(q.storage_max - z)) for z in q.zero_points)
    if largest * 2.0 ** (1 - p) >= 0.25:
        return False
    scales = scales_of(q)
    limits = np.finfo(np.float64 if q.expressed.name == "f64" else np.float32)
    least = 2.0**-14 if q.expressed.name == "f16" else float(limits.tiny)
    most = 65504.0 if q.expressed.name == "f16" else float(limits.max) / 2
    return bool(scales.min() >= least) and math.isfinite(scales.max()) and float(scales.max()) * largest <= most
