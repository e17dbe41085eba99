"""Roots, exponentials, logarithms, trigonometric and hyperbolic functions of complex numbers (pairs of f64)."""

from __future__ import annotations

import math
from typing import NamedTuple

from shlo_jit.kernels.math.complex_numbers import (
    Z,
    divide,
    exact_sum_of_squares,
    exponent_of_scale,
    is_finite,
    larger,
    log_modulus,
    modulus_in_range,
    multiply,
    rarely,
    real,
    scale,
)
from shlo_jit.kernels.math.expr import X, at_most, copysign, fma, where

FAR = 700.0
"""Above this, exp may overflow where a product with it does not: exp(x) = exp(x - FAR) * exp(FAR), at most twice."""
EXP_FAR = math.exp(FAR)


def _root(z: Z) -> tuple[X, X, X, X]:
    """Scales z by s, a power of two that moves it into range. Returns the larger part of sqrt(s z), twice that, |s z|,
    and log2 s."""
    m, n = larger(*z)
    k = exponent_of_scale(m)
    s = scale(k)
    h = modulus_in_range(m * s, n * s)
    u = ((z[0].abs() * s + h) * 0.5).sqrt()
    return u, u + u, h, k


def sqrt(z: Z) -> Z:
    """The root with real part >= 0: u = sqrt((|a| + |z|) / 2) and b / 2u are its parts, in an order that depends on
    a."""
    a, b = z
    u, twice, _, k = _root(z)
    down = k < 0.0  # s b may be subnormal where b / 2u is not
    v = where(u.eq(0.0), u, b.abs() * where(down, k.like(1.0), scale(k)) / twice)
    back = scale(-k, 0.5)
    v = v * where(down, scale(k, 0.5), back)
    u = u * back
    right = a >= 0.0
    ordinary = where(right, u, v), copysign(where(right, v, u), b)
    return rarely(~(is_finite(a) & is_finite(b)), lambda: _special_root(z, ordinary), ordinary)


def _special_root(z: Z, ordinary: Z) -> Z:
    """Returns the roots of infinities and NaNs, and the `ordinary` ones for other numbers."""
    a, b = z
    nan = a.is_nan() | b.is_nan()
    re, im = (where(nan, a + b, x) for x in ordinary)
    infinite = b.abs().eq(math.inf)
    re = where(infinite | a.eq(math.inf), re.like(math.inf), re)
    im = where(infinite | (a.eq(-math.inf) & nan), copysign(im.like(math.inf), b), im)
    return re, im


def rsqrt(z: Z) -> Z:
    """conj(sqrt(z)) / |z|"""
    a, b = z
    u, twice, h, k = _root(z)
    back = scale(k, 0.5)
    up = 2.0**400  # quotients of a small b may be subnormal where this is not
    v = where(u.eq(0.0), u, b.abs() * scale(k) * up / h / twice) * (back * (1 / up))
    u = u / h * back
    right = a >= 0.0
    re, im = where(right, u, v), where(right, v, u)
    nan = a.is_nan() | b.is_nan()
    zero = a.eq(0.0) & b.eq(0.0)
    far = a.abs().eq(math.inf) | b.abs().eq(math.inf)
    re = where(zero, re.like(math.inf), where(far, re.like(0.0), where(nan, a + b, re)))
    im = where(zero | far, im.like(0.0), where(nan, a + b, im))
    return re, copysign(im, -b)


def cbrt(z: Z) -> Z:
    """The root with a third of the argument; infinite for an infinity whose argument is NaN."""
    m, n = larger(*z)
    k = exponent_of_scale(m)
    s = scale(k)
    root = real("cbrt", modulus_in_range(m * s, n * s)) * scale(-k, 1 / 3)
    third = real("atan2", z[1], z[0]) / 3.0
    cosine, sine = real("cos", third), real("sin", third)
    flat = z[1].abs() < z[0] * 2.0**-28  # an angle that may be subnormal where its product with the root is not
    ordinary = root * cosine, where(flat, z[1] * (1.0 / (root * root * 3.0)), root * sine)

    def special() -> Z:
        infinite, length = m.eq(math.inf) | n.eq(math.inf), m.like(math.inf)
        re = where(infinite, where(third.is_nan(), length, length * cosine), ordinary[0])
        return re, where(infinite, where(sine.eq(0.0), sine, length * sine), ordinary[1])

    return rarely(~(is_finite(m) & is_finite(n)), special, ordinary)


class _Scaled(NamedTuple):
    """factor e^a as a product of three numbers, for multiples of it that may be in range where e^a is not. For a <= FAR
    it is the first number."""

    size: X
    once: X
    twice: X

    @staticmethod
    def of(a: X, factor: float = 1.0) -> _Scaled:
        """Returns factor e^a. For a > 3 FAR every product overflows, or is 0."""
        one, two = a > FAR, a > 2 * FAR
        moved = at_most(a, 3 * FAR) - where(two, a.like(2 * FAR), where(one, a.like(FAR), a.like(0.0)))
        once, twice = (where(far, a.like(EXP_FAR), a.like(1.0)) for far in (one, two))
        return _Scaled(real("exp", moved) * factor, once, twice)

    def times(self, x: X) -> X:
        """Returns the product with x, |x| <= 1, which may be subnormal."""
        small = x.abs() < 2.0**-900
        return where(small, x * self.once * self.size, self.size * x * self.once) * self.twice


def exp(z: Z) -> Z:
    """e^a (cos b + i sin b); for an infinite a it is infinite or 0, for any b (as in C's Annex G)."""
    a, b = z
    size, cosine, sine = real("exp", a), real("cos", b), real("sin", b)
    special = ~((a <= FAR) & is_finite(b))
    return rarely(special, lambda: _special_exp(z, cosine, sine), (size * cosine, size * sine))


def _special_exp(z: Z, cosine: X, sine: X) -> Z:
    """`exp` if e^a overflows or a part is not finite, from the cosine and the sine of b; correct for all numbers."""
    a, b = z
    scaled = _Scaled.of(a)
    nowhere, gone = ~is_finite(b), a.eq(-math.inf)
    re = where(nowhere & a.abs().eq(math.inf), where(gone, a.like(0.0), a), scaled.times(cosine))
    im = where(nowhere & gone, copysign(a.like(0.0), b), scaled.times(sine))
    return re, where(b.eq(0.0), b, im)


def expm1(z: Z) -> Z:
    """(expm1(a) cos b - 2 sin(b/2)^2) + i e^a sin b"""
    a, b = z
    half, size, less_one = real("sin", b * 0.5), real("exp", a), real("expm1", a)
    cosine, sine = real("cos", b), real("sin", b)
    near = fma(less_one, cosine, half * half * -2.0)

    def special() -> Z:
        re, im = _special_exp(z, cosine, sine)
        re = where((a > FAR) | ~is_finite(b), re, near)
        re = where(a.is_nan() & b.eq(0.0), a, re)
        return where(a.eq(-math.inf), a.like(-1.0), re), im

    return rarely(~((a.abs() <= FAR) & is_finite(b)), special, (near, size * sine))


def log(z: Z) -> Z:
    """log|z| + i arg z"""
    return log_modulus(z), real("atan2", z[1], z[0])


def log1p(z: Z) -> Z:
    """log|1 + z| + i arg(1 + z), with |1 + z|^2 - 1 = 2a + a^2 + b^2 if that is neither near -1 nor large."""
    a, b = z
    moved = (a + 1.0, b)
    excess = exact_sum_of_squares(a, b, a + a)
    near = real("log1p", excess) * 0.5
    usable = (excess > -0.75) & (excess < 8.0)
    return where(usable, near, log_modulus(moved)), real("atan2", b, moved[0])


def logistic(z: Z) -> Z:
    """1 / (1 + e^-z). With f = e^-|a|, c = cos(b/2) and g = 1 - f:

    |1 + e^-z|^2 = g^2 + 4 f c^2; the numerator's real part is g + 2 f c^2, or f (2 c^2 - g) for a < 0.
    """
    a, b = z
    f, g = real("exp", -a.abs()), -real("expm1", -a.abs())
    half = real("cos", b * 0.5)
    square = half * half
    size = fma(g, g, f * square * 4.0)
    right = fma(f * 2.0, square, g)
    left = f * fma(square, 2.0, -g)
    re = where(a < 0.0, left, right) / size
    im = f * real("sin", b) / size
    far = a.abs().eq(math.inf)
    re = where(far, where(a < 0.0, a.like(0.0), a.like(1.0)), re)
    return re, where(far | b.eq(0.0), copysign(a.like(0.0), b), im)


# ---------------------------------------------------------------------------- trigonometric and hyperbolic
def sinh(z: Z) -> Z:
    """sinh a cos b + i cosh a sin b"""
    a, b = z
    cosine, sine = real("cos", b), real("sin", b)
    s, c = real("sinh", a), real("cosh", a)

    def special() -> Z:
        far, scaled = a.abs() > FAR, _Scaled.of(a.abs(), 0.5)
        re = where(far, copysign(a.like(1.0), a) * scaled.times(cosine), s * cosine)
        im = where(far, scaled.times(sine), c * sine)
        kept = a.eq(0.0) | a.abs().eq(math.inf)
        return where(~is_finite(b) & kept, a, re), where(b.eq(0.0), b, im)

    return rarely(~((a.abs() <= FAR) & is_finite(b)), special, (s * cosine, c * sine))


def cosh(z: Z) -> Z:
    """cosh a cos b + i sinh a sin b"""
    a, b = z
    cosine, sine = real("cos", b), real("sin", b)
    s, c = real("sinh", a), real("cosh", a)

    def special() -> Z:
        far, scaled = a.abs() > FAR, _Scaled.of(a.abs(), 0.5)
        re = where(far, scaled.times(cosine), c * cosine)
        im = where(far, copysign(a.like(1.0), a) * scaled.times(sine), s * sine)
        nowhere = ~is_finite(b)
        re = where(nowhere & a.abs().eq(math.inf), a.abs(), re)
        im = where(nowhere & a.eq(0.0), a, im)
        return re, where(b.eq(0.0) & a.is_nan(), b, im)

    return rarely(~((a.abs() <= FAR) & is_finite(b)), special, (c * cosine, s * sine))


def tanh(z: Z) -> Z:
    """(sinh a cosh a + i sin b cos b) / (sinh(a)^2 + cos(b)^2); for |a| > 20 the denominator is e^2|a| / 4."""
    a, b = z
    far = a.abs() > 20.0
    near = where(far, a.like(1.0), a)
    s, c = real("sinh", near), real("cosh", near)
    sine, cosine = real("sin", b), real("cos", b)
    size = fma(s, s, cosine * cosine)
    wave = sine * cosine
    im = where(far, wave * 4.0 * real("exp", a.abs() * -2.0), wave / size)
    one = copysign(a.like(1.0), a)
    ordinary = where(far, one, where(b.eq(0.0), real("tanh", a), s * c / size)), im

    def special() -> Z:
        nowhere, end = ~is_finite(b), a.abs().eq(math.inf)
        re = where(end, one, where(a.eq(0.0), a, a.like(math.nan)))
        im = where(end, copysign(a.like(0.0), b), b - b)
        return where(nowhere, re, ordinary[0]), where(nowhere, im, where(b.eq(0.0), b, ordinary[1]))

    return rarely(~is_finite(b) | a.is_nan(), special, ordinary)


def sin(z: Z) -> Z:
    """-i sinh(i z)"""
    re, im = sinh((z[1], z[0]))
    return im, re


def tan(z: Z) -> Z:
    """-i tanh(i z)"""
    re, im = tanh((z[1], z[0]))
    return im, re


def cos(z: Z) -> Z:
    """cosh(i z)"""
    re, im = cosh((z[1], z[0]))
    return re, -im


def atan2(y: Z, x: Z) -> Z:
    """-i log((x + i y) / sqrt(x^2 + y^2))"""
    xx, yy = multiply(x, x), multiply(y, y)
    size = sqrt((xx[0] + yy[0], xx[1] + yy[1]))
    re, im = log(divide((x[0] - y[1], x[1] + y[0]), size))
    return im, -re
