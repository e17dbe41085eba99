"""Inverse trigonometric functions: atan2, atan, asin, acos.

atan(t) = t + t^3 P(t^2) on [0, 1]; larger arguments by atan(t) = pi/2 - atan(1/t).
asin(t) = t + t^3 P(t^2) on [0, 1/2]; larger ones by asin(t) = pi/2 - 2 asin(sqrt((1 - t)/2)).
"""

from __future__ import annotations

from shlo_jit.kernels.math.coefficients import COEFFICIENTS
from shlo_jit.kernels.math.expr import X, copysign, fma, horner, polynomial, where

HALF_PI = {32: (1.57079637050628662109375, -4.371138828673793e-08), 64: (1.5707963267948966, 6.123233995736766e-17)}


def octant(t: X) -> X:
    """atan(t) - t on [0, 1]. Horner's rule: with alternating signs and z near 1, even and odd parts would cancel."""
    z = t * t
    return t * z * horner(z, COEFFICIENTS["atan", t.format.bits])


def atan(x: X) -> X:
    """Arctangent. 2 ULP."""
    high, low = HALF_PI[x.format.bits]
    a = x.abs()
    large = a > 1.0
    t = where(large, 1.0 / a, a)
    rest = octant(t)
    return copysign(where(large, high - t, t) + where(large, low - rest, rest), x)


def atan2(y: X, x: X) -> X:
    """The angle of (x, y), octant by octant; zeros and infinities as in C99. The reflections act on the quotient and on
    the rest separately, so that only the last addition has a large rounding error. 2 ULP."""
    high, low = HALF_PI[x.format.bits]
    a, c = y.abs(), x.abs()
    steep = a > c
    bottom, top = where(steep, a, c), where(steep, c, a)
    t = top / bottom
    t = where(top.eq(bottom), where(bottom.eq(0.0), t.like(0.0), t.like(1.0)), t)
    rest = octant(t)
    t, rest = where(steep, high - t, t), where(steep, low - rest, rest)
    negative = copysign(x.like(1.0), x) < 0.0
    t, rest = where(negative, 2.0 * high - t, t), where(negative, 2.0 * low - rest, rest)
    return where(x.is_nan() | y.is_nan(), x + y, copysign(t + rest, y))


def arc(a: X) -> tuple[X, X, X]:
    """Returns for a = |x| whether a > 1/2; s = sqrt((1-a)/2) if it is, else s = a; and asin(s) - s, with the rounding
    error of the root."""
    large = a > 0.5
    z = where(large, fma(a, -0.5, 0.5), a * a)
    s = where(large, z.sqrt(), a)
    rounding = where(large & (s > 0.0), fma(-s, s, z) / (s + s), s.like(0.0))
    return large, s, fma(s * z, polynomial(z, COEFFICIENTS["asin", a.format.bits]), rounding)


def asin(x: X) -> X:
    """Arcsine. 2 ULP; NaN outside [-1, 1] (by the square root)."""
    high, low = HALF_PI[x.format.bits]
    large, s, rest = arc(x.abs())
    p = s + rest
    return copysign(where(large, high - (2.0 * p - low), p), x)


def acos(x: X) -> X:
    """2 asin(sqrt((1-x)/2)) above 1/2, pi minus that of -x below -1/2, pi/2 - asin(x) between. 2 ULP."""
    high, low = HALF_PI[x.format.bits]
    large, s, rest = arc(x.abs())
    p = s + rest
    negative = x < 0.0
    twice = 2.0 * p
    outer = where(negative, 2.0 * high - (twice - 2.0 * low), twice)
    inner = high - (copysign(p, x) - low)
    return where(large, outer, inner)
