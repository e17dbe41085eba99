"""Roots and powers: sqrt, rsqrt, cbrt, pow."""

from __future__ import annotations

import math

from shlo_jit.kernels.math.coefficients import COEFFICIENTS
from shlo_jit.kernels.math.exponential import exp_with_tail
from shlo_jit.kernels.math.expr import (
    F64,
    X,
    at_least,
    at_most,
    copysign,
    fast_two_sum,
    fma,
    polynomial,
    two_product,
    where,
)
from shlo_jit.kernels.math.logarithm import LN2_HIGH, LN2_LOW, split


def sqrt(x: X) -> X:
    """The IEEE square root."""
    return x.sqrt()


def rsqrt(x: X) -> X:
    """sqrt(1/x): the root halves the error of the quotient, so the error is 0.86 ULP without a correction. x is scaled
    by a power of four towards 1, so that 1/x neither overflows nor becomes subnormal."""
    f = x.format
    step = f.pick(24, 54)
    small = x.abs() < 1.0
    scaled = x * where(small, x.like(2.0**step), x.like(2.0**-step))
    y = (1.0 / scaled).sqrt() * where(small, x.like(2.0 ** (step / 2)), x.like(2.0 ** (-step / 2)))
    y = where(x < 0.0, x.like(math.nan), y)
    return where(x.eq(0.0), copysign(x.like(math.inf), x), y)


def cbrt(x: X) -> X:
    """Cube root. r ~ |x|^(-1/3) from the exponent bits (within 3.5 %), refined by the series of (1-h)^(-1/3) for
    h = 1 - x r^3; then y = x r^2 and one Newton step with y^3 - x to double precision. 1 ULP."""
    f = x.format
    a = x.abs()
    small = a < f.tiny
    step = 3 * 8 if f.bits == 32 else 3 * 18
    a = where(small, a * 2.0**step, a)
    # bits / 3 in floating point: the bits, without the lowest, are moved into the low bits of 2^23 (2^52).
    drop = 8 if f.bits == 32 else 12
    power = (f.bias + f.fraction) << f.fraction
    one = 2.0**f.fraction
    index = ((a.bits() >> drop) | power).as_float() - one
    start = 0x54A2FA8C if f.bits == 32 else 0x553EF0FF289DD796
    guess = fma(index, -1.0 / 3.0, one + float(start >> drop))
    r = (guess.bits() << drop).as_float()
    h = fma(-(a * r), r * r, 1.0)
    r = fma(r * h, fma(h, fma(h, 14.0 / 81.0, 2.0 / 9.0), 1.0 / 3.0), r)
    if f.bits == 64:
        h = fma(-(a * r), r * r, 1.0)
        r = fma(r * h, fma(h, 2.0 / 9.0, 1.0 / 3.0), r)
    r2 = r * r
    y = a * r2
    square = y * y
    lost = fma(y, y, -square)
    residual = fma(-lost, y, fma(-square, y, a))
    y = fma(residual * r2, 1.0 / 3.0, y)
    y = where(small, y * 2.0 ** (-step // 3), y)
    special = ~(a > 0.0) | a.eq(math.inf)
    return where(special, x, copysign(y, x))


def signs_of_power(x: X, y: X) -> tuple[X, X]:
    """Returns whether y is an odd integer, and whether x^y is invalid: x < 0 (not -inf) and y is not an integer."""
    integer = y.rint().eq(y)
    half = y * 0.5
    odd = integer & half.rint().ne(half)
    return odd, (x < 0.0) & (x > -math.inf) & ~integer


def finish_power(x: X, y: X, magnitude: X) -> X:
    """Returns x^y from |x|^y: the sign, and the cases of C99 Annex F."""
    odd, invalid = signs_of_power(x, y)
    sign = where(odd, x.sign_bit(), x.bits().like(0))
    z = where(x.abs().eq(1.0), x.like(1.0), magnitude).with_sign(sign)
    z = where(invalid, x.like(math.nan), z)
    z = where(x.is_nan() | y.is_nan(), x + y, z)
    return where(x.eq(1.0) | y.eq(0.0), x.like(1.0), z)


def pow(x: X, y: X) -> X:
    """x^y. 1 ULP."""
    magnitude = power_f32(x.abs(), y) if x.format.bits == 32 else power_f64(x.abs(), y)
    return finish_power(x, y, magnitude)


def power_f32(a: X, y: X) -> X:
    """a^y = 2^(y log2 a) in f64, where subnormals of f32 are normal; the last conversion rounds once."""
    k, m = split(a.to_f64(), subnormal=False)
    f = m - 1.0
    exponent = fma(f, polynomial(f, COEFFICIENTS["log2", 64]), k)
    exponent = where(a.eq(0.0), exponent.like(-math.inf), exponent)
    exponent = where(a.eq(math.inf), exponent.like(math.inf), exponent)
    e = at_least(at_most(exponent * y.to_f64(), 140.0), -160.0)
    shifted = e + F64.magic
    fraction = e - (shifted - F64.magic)
    scale = ((shifted.bits() << F64.fraction) + (F64.bias << F64.fraction)).as_float()
    return (polynomial(fraction, COEFFICIENTS["exp2", 64]) * scale).to_f32()


def power_f64(a: X, y: X) -> X:
    """a^y = e^(y log a) with log a to 2^-65 in two parts."""
    high, low = log_two_parts(a)
    high = where(a.eq(0.0), a.like(-math.inf), where(a.eq(math.inf), a, high))
    p = y * high
    tail = fma(y, high, -p) + y * low
    tail = where(p.abs() < 1000.0, tail, tail.like(0.0))
    return exp_with_tail(at_least(at_most(p, 710.0), -746.0), tail)


def log_two_parts(a: X) -> tuple[X, X]:
    """ln a = high + low for finite a > 0: k ln2 + 2s + s z (2/3 + z P(z)) with s = (m-1)/(m+1) in two parts, z = s^2.
    Every product and sum that matters is computed in two parts."""
    k, m = split(a)
    f, g = m - 1.0, m + 1.0
    g_low = m - (g - 1.0)
    inverse = 1.0 / g
    s = f * inverse
    s_low = fma(-s, g_low, fma(-s, g, f)) * inverse
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    series = z * polynomial(z, COEFFICIENTS["log_pow", 64])
    t, t_low = fast_two_sum(z.like(2.0 / 3.0), series)
    t_low = t_low + 3.700743415417188e-17  # 2/3 - float(2/3)
    u, u_low = two_product(z, t)
    u_low = u_low + fma(z, t_low, z_low * t)
    v, v_low = two_product(s, u)
    v_low = v_low + fma(s, u_low, s_low * u)
    total, lost = fast_two_sum(k * LN2_HIGH, s + s)
    total, lost_too = fast_two_sum(total, v)
    rest = fma(k, LN2_LOW, (lost + lost_too) + fma(s_low, 2.0, v_low))
    return fast_two_sum(total, rest)
