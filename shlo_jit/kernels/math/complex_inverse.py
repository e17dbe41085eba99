"""Inverse trigonometric and hyperbolic functions of complex numbers (pairs of f64).

The algorithm is that of Hull, Fairgrieve, Tang, "Implementing the complex arcsine and arccosine functions using
exception handling" (1997). The real part is an atan2 of its sine and cosine, so both ends need no special case. Signs
of zeros choose the side of a branch cut.
"""

from __future__ import annotations

import math

from shlo_jit.kernels.math.complex_numbers import HUGE, LN2, Z, larger, log_modulus, modulus, real
from shlo_jit.kernels.math.expr import X, copysign, fma, where


def arc_parts(x: X, y: X) -> tuple[X, X]:
    """Returns d and e with asin(x + iy) = atan2(x, d) + i e, for x, y >= 0.

    With r, s the distances of x + iy from -1 and 1 and a = (r + s) / 2: d = sqrt(a^2 - x^2) and
    e = log(a + sqrt(a^2 - 1)). Both differences are rewritten without cancellation.
    """
    left = x <= 1.0
    up = x + 1.0
    r, s = modulus((up, y)), modulus((x - 1.0, y))
    a = (r + s) * 0.5
    half = (a + x) * 0.5
    above = r + up
    past = s + (x - 1.0)  # for x >= 1
    short = s + (1.0 - x)  # for x <= 1
    inside = (half * (y * y / above + short)).sqrt()
    ratio = where(y.eq(0.0), y, y / past)
    outside = y.sqrt() * fma(half, ratio, y / above * half).sqrt()
    d = where(left, inside, outside)
    # a - 1, and sqrt(a^2 - 1). A factor that may be subnormal is not halved; the other factor is.
    weight = 0.5 / above + 0.5 / short  # for x < 1
    twice = y * y / above + past
    excess = where(x < 1.0, y * y * weight, twice * 0.5)
    root = where(x < 1.0, y * (weight * (a + 1.0)).sqrt(), (twice * ((a + 1.0) * 0.5)).sqrt())
    small = real("log1p", excess + root)
    large = real("log", a + ((a - 1.0) * (a + 1.0)).sqrt())
    e = where(a <= 1.5, small, large)
    huge = larger(x, y)[0] > HUGE
    return where(huge, y, d), where(huge, log_modulus((x, y)) + LN2, e)


def _angle(x: X, d: X) -> X:
    """Returns atan2(x, d) for d of `arc_parts` and |x| of its x; 0 for x = 0, where d > 0 or NaN."""
    return where(x.eq(0.0), x, real("atan2", x, d))


def asin(z: Z) -> Z:
    d, e = arc_parts(z[0].abs(), z[1].abs())
    return copysign(_angle(z[0].abs(), d), z[0]), copysign(e, z[1])


def acos(z: Z) -> Z:
    d, e = arc_parts(z[0].abs(), z[1].abs())
    return _angle_from_one(d, z[0]), copysign(e, -z[1])


def _angle_from_one(d: X, x: X) -> X:
    """Returns atan2(d, x) for d of `arc_parts`; pi / 2 for x = 0, where d > 0 or NaN."""
    return where(x.eq(0.0), d.like(math.pi / 2), real("atan2", d, x))


def asinh(z: Z) -> Z:
    """i asin(-i z)"""
    d, e = arc_parts(z[1].abs(), z[0].abs())
    return copysign(e, z[0]), copysign(_angle(z[1].abs(), d), z[1])


def acosh(z: Z) -> Z:
    """acos(z) times i or -i, such that the real part is >= 0."""
    d, e = arc_parts(z[0].abs(), z[1].abs())
    return e, copysign(_angle_from_one(d, z[0]), z[1])


def _atanh_parts(x: X, y: X) -> tuple[X, X]:
    """Returns log1p(4x / ((1 - x)^2 + y^2)) / 4 and atan2(2y, (1 - x)(1 + x) - y^2) / 2 for x, y >= 0.

    The first is 0 for x = 0 and for an infinite x or y, the second is pi / 2 for an infinite y, for any other part.
    """
    gap = 1.0 - x
    re = real("log1p", x * 4.0 / fma(gap, gap, y * y)) * 0.25
    pole = x.eq(1.0) & (y < 2.0**-100)
    re = where(pole, (LN2 - real("log", y)) * 0.5, re)
    m, n = larger(x, y)
    ratio = n / m
    infinite = x.eq(math.inf) | y.eq(math.inf)
    huge = (m > HUGE) | infinite
    re = where(huge, x / m / fma(n * 0.25, ratio, m * 0.25) * 0.25, re)
    re = where(infinite | x.eq(0.0), x.like(0.0), re)
    im = real("atan2", y + y, fma(gap, x + 1.0, -(y * y))) * 0.5
    return re, where(huge & y.eq(y), im.like(math.pi / 2), im)


def atanh(z: Z) -> Z:
    re, im = _atanh_parts(z[0].abs(), z[1].abs())
    return copysign(re, z[0]), copysign(im, z[1])


def atan(z: Z) -> Z:
    """-i atanh(i z)"""
    re, im = _atanh_parts(z[1].abs(), z[0].abs())
    return copysign(im, z[0]), copysign(re, z[1])


def asin_acos_kernel(z: Z) -> Z:
    """chlo's helper function: d and e of `arc_parts` as a complex number."""
    return arc_parts(z[0].abs(), z[1].abs())
