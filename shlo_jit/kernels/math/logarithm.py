"""Logarithms: log, log1p, log2.

x = 2^k m with 2/3 <= m < 4/3 (f32) or sqrt(1/2) <= m < sqrt(2) (f64), by integer operations on the bits; f = m - 1.
f32: log(1+f) = f - f^2/2 + f^3 P(f), no division.
f64: with s = f / (2+f), z = s^2: log(1+f) = f - (f^2/2 - s (f^2/2 + z P(z))), which is 2 atanh(s) arranged so that the
rounding of s hardly matters.
k ln2 is added by a fused multiply-add; in f64 in two parts, the first of which has an exact product.
"""

from __future__ import annotations

import math

from shlo_jit.kernels.math.coefficients import COEFFICIENTS
from shlo_jit.kernels.math.expr import X, fma, polynomial, two_sum, where

LN2_F32 = 0.693147182464599609375
"""Logarithm of 2 as an f32; its relative error is 2^-28."""
LN2_PARTS_F32 = 0.693145751953125, 1.428606765330187e-06
"""A part of 16 bits, whose product with k is exact, and the rest."""
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
"""Parts for f64: one of 33 bits, whose product with k is exact, and the rest."""
LOWEST = {32: 0x3F2AAAAB, 64: 0x3FE6A09E667F3BCD}
"""Bits of the smallest m: 2/3, sqrt(1/2)."""
INF = math.inf


def split(x: X, subnormal: bool = True) -> tuple[X, X]:
    """Returns k (as a float) and m with x = 2^k m, for x > 0. `subnormal`: whether x may be subnormal."""
    f = x.format
    offset = x.like(2.0**f.fraction + f.bias)
    if subnormal:
        small = x < f.tiny
        x = where(small, x * 2.0**f.precision, x)
        offset = where(small, offset.like(2.0**f.fraction + f.bias + f.precision), offset)
    lowest = LOWEST[f.bits]
    moved = x.bits() + ((f.bias << f.fraction) - lowest)
    # The biased exponent, put into the low bits of 2^23 (2^52), is an integer as a float without a conversion.
    biased = ((moved >> f.fraction) | ((f.bias + f.fraction) << f.fraction)).as_float()
    m = ((moved & ((1 << f.fraction) - 1)) + lowest).as_float()
    return biased - offset, m


def log_sum(k: X, f: X, tail: X | None = None) -> X:
    """Returns k ln2 + log(1 + f + tail)."""
    if f.format.bits == 32:
        square = f * f
        rest = fma(f, polynomial(f, COEFFICIENTS["log", 32]), -0.5)
        if tail is None:
            return fma(k, LN2_F32, fma(square, rest, f))
        high, low = LN2_PARTS_F32
        s = fma(k, high, f)
        lost = fma(k, high, -s) + f
        return s + fma(square, rest, fma(k, low, lost + tail))
    s = f / (2.0 + f)
    z = s * s
    half_square = 0.5 * f * f
    correction = fma(s, fma(z, polynomial(z, COEFFICIENTS["log_atanh", 64]), half_square), k * LN2_LOW)
    if tail is not None:
        correction = correction + tail
    return fma(k, LN2_HIGH, f - (half_square - correction))


def log(x: X) -> X:
    """ln x. 1 ULP."""
    k, m = split(x)
    y = log_sum(k, m - 1.0)
    y = where(x < INF, y, x)
    return where(x > 0.0, y, where(x.eq(0.0), x.like(-INF), where(x < 0.0, x.like(math.nan), x)))


def log1p(x: X, extra: X | None = None) -> X:
    """ln(1 + x + extra), where extra is tiny compared to x. k comes from u = 1 + x rounded. f = 2^-k x + (2^-k - 1) is
    computed from x itself, with its rounding error, so nothing of x is lost. 1 ULP."""
    f = x.format
    u = 1.0 + x
    lowest = LOWEST[f.bits]
    exponent = (u.bits() + ((f.bias << f.fraction) - lowest)) & -(1 << f.fraction)
    # k may be 128 (1024), and 2^-k would be subnormal, so a quarter of x is multiplied by four times the power.
    k = ((exponent >> f.fraction) | ((f.bias + f.fraction) << f.fraction)).as_float() - (2.0**f.fraction + f.bias)
    quarter = (((2 * f.bias + 2) << f.fraction) - exponent).as_float()  # 4 2^-k
    scaled = (0.25 * x) * quarter
    fraction, tail = two_sum(fma(quarter, 0.25, -1.0), scaled)
    if extra is not None:
        tail = fma(0.25 * extra, quarter, tail)
    tail = fma(-fraction, tail, tail)  # tail / (1 + fraction), nearly: the derivative of log
    y = where(x.abs() < 2.0**-60, x, log_sum(k, fraction, tail))
    # -1 times infinity is the correct result, and so are infinity and NaN.
    return where((x > -1.0) & (x < INF), y, where(x < -1.0, x.like(math.nan), x * INF))


def log2(x: X) -> X:
    """log2 x. About 2 ULP."""
    k, m = split(x)
    y = fma(log_sum(x.like(0.0), m - 1.0), 1.4426950408889634, k)
    y = where(x < INF, y, x)
    return where(x > 0.0, y, where(x.eq(0.0), x.like(-INF), where(x < 0.0, x.like(math.nan), x)))
