"""Roots, exponentials, logarithms, powers, trigonometric and hyperbolic functions of complex numbers (pairs of f64)."""

from __future__ import annotations

import math

from shlo_jit.kernels.math.complex_numbers import (
    Z,
    divide,
    exact_sum_of_squares,
    exponent_of_scale,
    larger,
    log_modulus,
    modulus_in_range,
    multiply,
    real,
    scale,
    sum_of_products,
)
from shlo_jit.kernels.math.expr import X, copysign, fma, where

FAR = 700.0
"""Beyond it exp may overflow where a product with it does not: exp(x) = exp(x - FAR) * exp(FAR)."""
EXP_FAR = math.exp(FAR)


def _root(z: Z) -> tuple[X, X, X, X]:
    """With s a power of two that brings z into range: max and min of the parts of sqrt(s z), |s z|, and log2 s."""
    m, n = larger(*z)
    k = exponent_of_scale(m)
    s = scale(k)
    h = modulus_in_range(m * s, n * s)
    u = ((z[0].abs() * s + h) * 0.5).sqrt()
    v = where(u.eq(0.0), u, z[1].abs() * s / (u + u))
    return u, v, h, k


def sqrt(z: Z) -> Z:
    """The root with real part >= 0: u = sqrt((|a| + |z|) / 2) and b / 2u are its parts, in an order a decides."""
    a, b = z
    u, v, _, k = _root(z)
    back = scale(-k, 0.5)
    u, v = u * back, v * back
    right = a >= 0.0
    re, im = where(right, u, v), copysign(where(right, v, u), b)
    nan = a.is_nan() | b.is_nan()
    re, im = where(nan, a + b, re), where(nan, a + b, im)
    infinite = b.abs().eq(math.inf)
    return where(infinite, re.like(math.inf), re), where(infinite, b, im)


def rsqrt(z: Z) -> Z:
    """conj(sqrt(z)) / |z|"""
    a, b = z
    u, _, h, k = _root(z)
    back = scale(k, 0.5)
    v = where(u.eq(0.0), u, b.abs() * scale(k) / h / (u + u)) * back  # b / 2u may be subnormal where this is not
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
    """The root with a third of the argument."""
    m, n = larger(*z)
    k = exponent_of_scale(m)
    s = scale(k)
    root = real("cbrt", modulus_in_range(m * s, n * s)) * scale(-k, 1 / 3)
    root = where(m.eq(math.inf) | n.eq(math.inf), root.like(math.inf), root)
    third = real("atan2", z[1], z[0]) / 3.0
    flat = z[1].abs() < z[0] * 2.0**-28  # an angle that may be subnormal where its product with the root is not
    im = where(flat, z[1] * (1.0 / (root * root * 3.0)), root * real("sin", third))
    return root * real("cos", third), im


def exp(z: Z) -> Z:
    """e^a (cos b + i sin b), which for an infinite a is infinite or 0 whatever b is (as in C's Annex G)."""
    a, b = z
    far = a > FAR
    size = real("exp", where(far, a - FAR, a))
    back = where(far, a.like(EXP_FAR), a.like(1.0))
    cosine, sine = real("cos", b), real("sin", b)
    re, im = size * cosine * back, size * sine * back
    nowhere, gone = cosine.is_nan(), a.eq(-math.inf)  # b is infinite or a NaN
    re = where(gone, a.like(0.0), where(a.eq(math.inf) & nowhere, a, re))
    im = where(gone, a.like(0.0), im)
    real_line = b.eq(0.0)
    return where(real_line, size * back, re), where(real_line, b, im)


def expm1(z: Z) -> Z:
    """(expm1(a) cos b - 2 sin(b/2)^2) + i e^a sin b"""
    a, b = z
    half = real("sin", b * 0.5)
    near = fma(real("expm1", a), real("cos", b), half * half * -2.0)
    re, im = exp(z)
    re = where(a > FAR, re, where(b.eq(0.0), real("expm1", a), near))
    return where(a.eq(-math.inf), a.like(-1.0), re), im


def log(z: Z) -> Z:
    """log|z| + i arg z"""
    return log_modulus(z), real("atan2", z[1], z[0])


def log1p(z: Z) -> Z:
    """log|1 + z| + i arg(1 + z), with |1 + z|^2 - 1 = 2a + a^2 + b^2 where that is not near -1 or large."""
    a, b = z
    moved = (a + 1.0, b)
    excess = exact_sum_of_squares(a, b, a + a)
    near = real("log1p", excess) * 0.5
    usable = (excess > -0.75) & (excess < 8.0)
    return where(usable, near, log_modulus(moved)), real("atan2", b, moved[0])


def power(z: Z, w: Z) -> Z:
    """e^(w log z); z^0 = 1, and 0^w = 0 for a w with positive real part."""
    c, d = w
    size, angle = log_modulus(z), real("atan2", z[1], z[0])
    zero, one = z[0].eq(0.0) & z[1].eq(0.0), c.eq(0.0) & d.eq(0.0)
    size = where(zero, size.like(0.0), size)
    re, im = exp((sum_of_products(c, size, -d, angle), sum_of_products(d, size, c, angle)))
    at_zero = where(c > 0.0, c.like(0.0), c.like(math.nan))
    re = where(one, c.like(1.0), where(zero, at_zero, re))
    return re, where(one, c.like(0.0), where(zero, at_zero, im))


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
def _halves(a: X) -> tuple[X, X, X]:
    """sinh a and cosh a, both to be multiplied by a third value last, which keeps them in range."""
    far = a.abs() > FAR
    half = real("exp", where(far, a.abs() - FAR, a.like(0.0))) * 0.5
    s = where(far, copysign(half, a), real("sinh", a))
    c = where(far, half, real("cosh", a))
    return s, c, where(far, a.like(EXP_FAR), a.like(1.0))


def sinh(z: Z) -> Z:
    """sinh a cos b + i cosh a sin b"""
    a, b = z
    s, c, back = _halves(a)
    re, im = s * real("cos", b) * back, c * real("sin", b) * back
    return where(b.eq(0.0), s * back, where(a.eq(0.0), a, re)), where(b.eq(0.0), b, im)


def cosh(z: Z) -> Z:
    """cosh a cos b + i sinh a sin b"""
    a, b = z
    s, c, back = _halves(a)
    sine = real("sin", b)
    re, im = c * real("cos", b) * back, s * sine * back
    flat = a.eq(0.0) | b.eq(0.0)
    zero = copysign(a.like(0.0), a) * copysign(a.like(1.0), where(b.eq(0.0), b, sine))
    return where(b.eq(0.0), c * back, re), where(flat, zero, im)


def tanh(z: Z) -> Z:
    """(sinh a cosh a + i sin b cos b) / (sinh(a)^2 + cos(b)^2); beyond |a| = 20 the denominator is e^2|a| / 4."""
    a, b = z
    far = a.abs() > 20.0
    near = where(far, a.like(1.0), a)
    s, c = real("sinh", near), real("cosh", near)
    sine, cosine = real("sin", b), real("cos", b)
    size = fma(s, s, cosine * cosine)
    wave = sine * cosine
    im = where(far, wave * 4.0 * real("exp", a.abs() * -2.0), wave / size)
    flat = a.abs().eq(math.inf) | b.eq(0.0)
    im = where(flat, copysign(a.like(0.0), where(b.eq(0.0), b, wave)), im)
    return where(far, copysign(a.like(1.0), a), where(b.eq(0.0), real("tanh", a), s * c / size)), im


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
