"""Reference semantics of numbers in numpy: widening of element types, computation and rounding.

Integers wrap modulo 2^n. Floats narrower than f32 are computed in f32 and rounded. Functions that IEEE-754 leaves to
the implementation are computed in f64 and rounded to f32, so that the error of an f32 result is little more than half
a ULP. A narrower result is the rounded f32 result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shlo_jit.ir.core import Op
from shlo_jit.ir.dtypes import DType, by_numpy
from shlo_jit.ir.types import QuantizedType, TensorType
from shlo_jit.ops.type_algebra import expressed

Array = NDArray[Any]
WIDE = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.complex64), np.dtype(np.complex128))


def dtype_of(x: Array) -> DType:
    return by_numpy()[x.dtype]


def result_type(op: Op, index: int = 0) -> TensorType:
    t = op.results[index].type
    assert isinstance(t, TensorType)
    return t


def result_dtype(op: Op, index: int = 0) -> np.dtype:
    """Returns the numpy dtype of a result; for a quantized one that of its expressed type, since references compute on
    dequantized values."""
    return expressed(result_type(op, index).dtype).numpy


def storage_dtype(op: Op, index: int = 0) -> np.dtype:
    """Returns the numpy dtype in which a result is stored."""
    dtype = result_type(op, index).dtype
    return (dtype.storage if isinstance(dtype, QuantizedType) else dtype).numpy


# Integers


def wrap(x: Array, dtype: np.dtype) -> Array:
    """Converts integers of any width to `dtype`, modulo 2^n."""
    t = by_numpy()[dtype]
    if t.bits >= 8:
        return np.asarray(x).astype(dtype)
    x = np.asarray(x).astype(np.int64) & ((1 << t.bits) - 1)
    if t.kind == "i":
        half = 1 << (t.bits - 1)
        x = ((x + half) & ((1 << t.bits) - 1)) - half
    return x.astype(np.int8).astype(dtype)


def widen_int(x: Array) -> Array:
    """Converts i2 and i4 to i8, ui2 and ui4 to ui8; others stay unchanged."""
    t = dtype_of(x)
    return x if t.bits >= 8 else x.astype(np.int8 if t.kind == "i" else np.uint8)


def unsigned(x: Array) -> Array:
    """Reinterprets integers as unsigned ones of the same width (at least 8 bits, upper bits zero)."""
    t = dtype_of(x)
    if t.bits >= 8:
        return x.view(f"u{x.dtype.itemsize}")
    return x.astype(np.int8).view(np.uint8) & np.uint8((1 << t.bits) - 1)


# Floats


def narrow(x: Array, dtype: np.dtype) -> Array:
    """Rounds floats once to `dtype` (ml_dtypes would round f64 to f32 first, then to the narrower type)."""
    if x.dtype == dtype:
        return x
    if x.dtype == np.float64 and dtype not in (np.dtype(np.float32), np.dtype(np.float16)):
        return to_odd(x).astype(dtype)
    if x.dtype.itemsize == 1:  # exact in f32; ml_dtypes does not convert all of them to each other
        x = x.astype(np.float32)
    return x.astype(dtype)


def to_odd(x: Array) -> Array:
    """Rounds f64 to f32; inexact results become the neighbor with an odd mantissa, so that rounding again is exact."""
    near = x.astype(np.float32)
    bits = near.view(np.uint32) if near.ndim else near.reshape(1).view(np.uint32)
    back = near.astype(np.float64).reshape(bits.shape)
    want = np.asarray(x).reshape(bits.shape)
    wrong = (back != want) & np.isfinite(back) & ((bits & 1) == 0)
    toward_zero = np.abs(back) > np.abs(want)
    odd = np.where(wrong, np.where(toward_zero, bits - np.uint32(1), bits + np.uint32(1)), bits).astype(np.uint32)
    return odd.view(np.float32).reshape(near.shape)


def in_float(f: Callable[..., Any], *xs: Array) -> Array:
    """Applies `f` to f32 copies of narrow floats and rounds back; wide floats and complex numbers are used directly."""
    dtype = xs[0].dtype
    if dtype in WIDE:
        return np.asarray(f(*xs)).astype(dtype)
    return np.asarray(f(*(x.astype(np.float32) for x in xs))).astype(np.float32).astype(dtype)


def in_double(f: Callable[..., Any], *xs: Array) -> Array:
    """Computes `f` in f64 or complex<f64>, and rounds to f32 and from there to narrower types."""
    dtype = xs[0].dtype
    if dtype in (np.float64, np.complex128):
        return np.asarray(f(*xs)).astype(dtype)
    if dtype == np.complex64:
        return np.asarray(f(*(x.astype(np.complex128) for x in xs))).astype(dtype)
    y = np.asarray(f(*(x.astype(np.float64) for x in xs)))
    return y.astype(np.float32).astype(dtype)


# References of elementwise ops by kind of number


Meaning = Callable[..., Array]


def meaning(
    *,
    b: Callable[..., Any] | None = None,
    i: Callable[..., Any] | None = None,
    f: Callable[..., Any] | None = None,
    c: Callable[..., Any] | None = None,
    exact: bool = True,
) -> Meaning:
    """Returns a reference from one function per kind of number: b bool, i integers, f floats, c complex (default: f).

    `exact` functions are those that IEEE-754 defines to the last bit; others are computed in f64.
    """

    def reference(op: Op, *xs: Array) -> Array:
        kind = dtype_of(xs[0]).kind
        if kind == "b" and b is not None:
            return np.asarray(b(*xs)).astype(np.bool_)
        if kind in "iu" and i is not None:
            return wrap(np.asarray(i(*map(widen_int, xs))), xs[0].dtype)
        function = c if kind == "c" and c is not None else f
        if kind not in "fc" or function is None:
            raise TypeError(f"{op.name} has no meaning on {xs[0].dtype}")
        return in_float(function, *xs) if exact else in_double(function, *xs)

    return reference


def function(f: Callable[..., Any], c: Callable[..., Any] | None = None) -> Meaning:
    """Returns a reference for floats and complex numbers (default: `f`) that computes in f64."""
    return meaning(f=f, c=c, exact=False)


def divide_int(x: Array, y: Array) -> Array:
    """Returns the quotient rounded to zero. x / 0 is all ones; the most negative number divided by -1 is itself."""
    zero = y == 0
    if x.dtype.kind == "u":
        return np.where(zero, np.array(-1).astype(x.dtype), x // np.where(zero, 1, y).astype(y.dtype))
    overflow = (y == -1) & (x == np.iinfo(x.dtype).min)
    safe = np.where(zero | overflow, 1, y).astype(y.dtype)
    quotient = x // safe
    inexact = (x - quotient * safe != 0) & ((x < 0) != (safe < 0))
    return np.where(zero, -1, quotient + inexact).astype(x.dtype)


def remainder_int(x: Array, y: Array) -> Array:
    """Returns the remainder with the sign of x. x % 0 is x; the most negative number modulo -1 is 0."""
    skip = (y == 0) if x.dtype.kind == "u" else (y == 0) | (y == -1)
    safe = np.where(skip, 1, y).astype(y.dtype)
    return np.where(y == 0, x, np.where(skip, 0, np.fmod(x, safe))).astype(x.dtype)


def power_int(x: Array, y: Array) -> Array:
    """Returns the power modulo 2^n. A negative exponent gives 0 unless the base is 1 or -1."""
    x, y = np.broadcast_arrays(x, y)
    result = np.ones_like(x)
    base = x.copy()
    left = np.where(y < 0, 0, y).astype(np.uint64)
    while left.any():
        result = np.where(left & np.uint64(1), result * base, result).astype(x.dtype)
        base = (base * base).astype(x.dtype)
        left = left >> np.uint64(1)
    if x.dtype.kind == "u":
        return result
    minus = np.where(x == -1, np.where(y % 2 == 0, 1, -1), np.where(x == 1, 1, 0))
    return np.where(y < 0, minus, result).astype(x.dtype)


def power_float(x: Array, y: Array) -> Array:
    """Returns the power as IEEE-754 defines it. NumPy takes the square root where all exponents are one 0.5 in memory,
    which is another number for -inf and -0."""
    root = np.where(np.isneginf(x), np.inf, np.abs(x))
    return np.where((y == 0.5) & (np.isinf(x) | (x == 0)), root, np.power(x, y))


def total_order_key(x: Array) -> Array:
    """Returns integers that compare like the floats in the totalOrder of IEEE-754."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").reshape(x.shape)
    narrow_bits = dtype_of(x).bits
    if dtype_of(x).name == "f8E8M0FNU":
        return bits.view(np.uint8).astype(np.int64)  # it has no sign
    if narrow_bits < 8 * x.dtype.itemsize:
        bits = bits.astype(np.int64)
        sign = 1 << (narrow_bits - 1)
        return np.where(bits & sign, -(bits & (sign - 1)) - 1, bits)
    top = np.iinfo(bits.dtype).max
    return np.where(bits < 0, bits ^ top, bits)


def real_dtype(dtype: np.dtype) -> np.dtype:
    """Returns the dtype of a complex number's parts."""
    return {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}[dtype]


def make_complex(real: Array, imag: Array, dtype: np.dtype) -> Array:
    """Combines parts to complex numbers without arithmetic, which would make a NaN of an infinity."""
    real, imag = np.broadcast_arrays(real, imag)
    out = np.empty(real.shape, dtype)
    out.real = real
    out.imag = imag
    return out


# Conversion (specification, "convert")


def convert(x: Array, dtype: np.dtype) -> Array:
    """Converts between any two element types. Floats to integers saturate, NaN gives 0; integers wrap."""
    if x.dtype == dtype:
        return x
    source, target = dtype_of(x), by_numpy()[dtype]
    if target.kind == "c":
        if source.kind == "c":
            return x.astype(dtype)
        return make_complex(convert(x, real_dtype(dtype)), np.zeros(x.shape), dtype)
    if source.kind == "c":
        return convert(np.real(x), dtype)
    if target.kind == "b":
        return np.asarray(x != np.zeros((), x.dtype))
    if source.kind == "b":
        return x.astype(np.int8).astype(dtype)
    if target.kind == "f":
        if source.kind == "f":
            return narrow(x, dtype)
        return _int_to_float(widen_int(x), dtype)
    if source.kind == "f":
        return _float_to_int(x, target)
    return wrap(widen_int(x), dtype)


def _int_to_float(x: Array, dtype: np.dtype) -> Array:
    if dtype in (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)):
        return x.astype(dtype)
    return x.astype(np.float32).astype(dtype)


def _float_to_int(x: Array, target: DType) -> Array:
    wide = x.astype(np.float64)
    low = 0.0 if target.kind == "u" else -(2.0 ** (target.bits - 1))
    high = 2.0**target.bits if target.kind == "u" else 2.0 ** (target.bits - 1)
    whole = np.trunc(np.where(np.isnan(wide), 0.0, wide))
    too_high = whole >= high
    inside = np.where(too_high | (whole < low), 0.0, whole)
    middle = inside.astype(np.uint64 if target.kind == "u" else np.int64)
    limit_low, limit_high = int(low), int(high) - 1
    middle = np.where(too_high, np.array(limit_high).astype(middle.dtype), middle)
    middle = np.where(whole < low, np.array(limit_low).astype(middle.dtype), middle)
    return wrap(middle, target.numpy)
