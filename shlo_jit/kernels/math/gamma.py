"""Gamma functions: lgamma, digamma, zeta, polygamma. They compute in f64; f32 arguments are converted and rounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from shlo_jit.kernels.llvm_values import i64
from shlo_jit.kernels.math.coefficients import COEFFICIENTS
from shlo_jit.kernels.math.exponential import exp
from shlo_jit.kernels.math.expr import X, any_lane, fma, horner, polynomial, where
from shlo_jit.kernels.math.logarithm import log
from shlo_jit.kernels.math.power import pow

HALF_LOG_2PI = 0.91893853320467274178
PI = math.pi


def in_f64(function: Callable[..., X]) -> Callable[..., X]:
    """Returns a function for both formats that computes in f64."""

    def either(*args: X) -> X:
        y = function(*[a.to_f64() for a in args])
        return y.to_f32() if args[0].format.bits == 32 else y

    either.__doc__ = function.__doc__
    return either


def sin_pi(f: X) -> X:
    """Returns sin(pi f) / pi for |f| <= 1/2."""
    z = f * f
    return fma(f * z, horner(z, COEFFICIENTS["sinpi", 64]), f)


def cos_pi(f: X) -> X:
    """Returns cos(pi f) for |f| <= 1/4."""
    z = f * f
    return fma(z, horner(z, COEFFICIENTS["cospi", 64]), 1.0)


@in_f64
def lgamma(x: X) -> X:
    """log |gamma(x)|. With z = x, or 1 - x if x < 1/2:

    z >= 8: Stirling's formula. 2.5 <= z < 8: the argument is reduced to [1.5, 2.5) by gamma(z) = (z-1) gamma(z-1);
    z < 1.5: it is increased by one. There log(gamma(2+t)) = t P(t). One logarithm serves all three. Then
    lgamma(x) = -log(|sin(pi x)| / pi) - lgamma(1-x) on the left.
    Near the zeros 1 and 2 the relative error is small; near those on the negative axis the absolute one.
    """
    left = x < 0.5
    z = where(left, 1.0 - x, x)
    w, product = z, z.like(1.0)
    for _ in range(6):
        above = w >= 2.5
        less = w - 1.0
        product = where(above, product * less, product)
        w = where(above, less, w)
    low, high = z < 1.5, z >= 8.0
    t = where(low, z - 1.0, w - 2.0)
    near = t * polynomial(t, COEFFICIENTS["lgamma", 64])
    logarithm = log(where(low | high, z, product))
    inverse = 1.0 / z
    series = inverse * polynomial(inverse * inverse, COEFFICIENTS["stirling", 64])
    far = fma(z - 0.5, logarithm - 1.0, (HALF_LOG_2PI - 0.5) + series)
    y = where(high, far, near + where(low, -logarithm, logarithm))
    fraction = x - x.rint()
    y = where(left, -log(sin_pi(fraction).abs()) - y, y)
    return where(x.abs().eq(math.inf) | (left & fraction.eq(0.0)), x.like(math.inf), y)


@in_f64
def digamma(x: X) -> X:
    """The derivative of log gamma. With z = x, or 1 - x for negative x, increased to w >= 10 by
    digamma(z) = digamma(z+1) - 1/z (the sum of the 1/z as one fraction), then the asymptotic series. On the left,
    digamma(x) = digamma(1-x) - pi cot(pi x). NaN at the poles. Near the zeros the absolute error is small."""
    left = x < 0.0
    z = where(left, 1.0 - x, x)
    w, top, bottom = z, z.like(0.0), z.like(1.0)
    for _ in range(10):
        below = w < 10.0
        top = where(below, fma(top, w, bottom), top)
        bottom = where(below, bottom * w, bottom)
        w = where(below, w + 1.0, w)
    inverse = 1.0 / w
    square = inverse * inverse
    series = square * polynomial(square, COEFFICIENTS["digamma", 64])
    y = (log(w) - fma(inverse, 0.5, series)) - top / bottom
    fraction = x - x.rint()
    size = fraction.abs()
    outer = size > 0.25
    g = where(outer, 0.5 - size, size)
    s, c = sin_pi(g), cos_pi(g)
    cotangent = where(outer, s * (PI * PI), c) / where(outer, c, s)  # pi cot(pi |fraction|)
    y = where(left, y - cotangent.with_sign(fraction.sign_bit()), y)
    pole = (x <= 0.0) & fraction.eq(0.0)
    return where(pole, x.like(math.nan), y)


def bernoulli_ratios(count: int) -> list[float]:
    """Returns B_2k / (2k)! for k = 1 ... count, the coefficients of Euler and Maclaurin's formula."""
    b = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        b.append(-sum((Fraction(math.comb(n + 1, k)) * b[k] for k in range(n)), Fraction(0)) / (n + 1))
    return [float(b[2 * k] / math.factorial(2 * k)) for k in range(1, count + 1)]


def _euler_maclaurin(x: X, q: X) -> X:
    """The sum over k of (q+k)^-x for q > 0: nine terms, then Euler and Maclaurin's formula from a = q + 9:
    a^(1-x) / (x-1) + a^-x / 2 + sum of B_2k / (2k)! x (x+1) ... (x+2k-2) a^(-x-2k+1)."""
    b = x.b
    with b.loop_carry(0, 9, [x.like(0.0).v, q.v]) as carry:
        total, a = (X(b, v) for v in carry.values)
        total = total + pow(a, -x)
        carry.next(total.v, (a + 1.0).v)
    total, a = (X(b, v) for v in carry.values)
    last = pow(a, -x)
    tail = fma(last, 0.5, last * (a / (x - 1.0)))
    inverse = 1.0 / a
    factor = last * (x * inverse)
    for k, ratio in enumerate(bernoulli_ratios(12)):
        tail = fma(factor, ratio, tail)
        factor = factor * ((x + (2.0 * k + 1.0)) * inverse) * ((x + (2.0 * k + 2.0)) * inverse)
    return total + where(last.eq(0.0), last, tail)


def hurwitz(x: X, q: X) -> X:
    """zeta(x, q) = sum over k of (q+k)^-x, x > 1.

    For q < 0 and integer x, with f = -q - floor(-q): the terms below zero are those of zeta(x, f) before those of
    zeta(x, 1 - q), with the sign (-1)^x; the others are zeta(x, 1 - f)."""
    b, integer, half = x.b, x.floor().eq(x), x * 0.5
    even = integer & half.floor().eq(half)
    below = q < 0.0
    f = -q - (-q).floor()
    sign = where(even, x.like(1.0), x.like(-1.0))
    with b.loop_carry(0, b.select(any_lane(below).v, i64(3), i64(1)), [x.like(0.0).v], hint="part") as part:
        first, second = (b.icmp("eq", part.index, k) for k in (0, 1))
        start = X(b, b.select(first, (1.0 - f).v, b.select(second, f.v, (1.0 - q).v)))
        value = _euler_maclaurin(x, where(below, start, q))
        total = X(b, part.values[0])
        added = total + sign * X(b, b.select(second, value.v, (-value).v))
        part.next(b.select(first, value.v, where(below, added, total).v))
    y = X(b, part.values[0])
    pole = (q <= 0.0) & q.floor().eq(q)
    y = where(pole, where(even, x.like(math.inf), x.like(math.nan)), y)
    y = where((q <= 0.0) & ~integer, x.like(math.nan), y)
    y = where(x.eq(math.inf) & (q > 1.0), x.like(0.0), y)
    y = where(x.eq(1.0), x.like(math.inf), where(x < 1.0, x.like(math.nan), y))
    return where(x.is_nan() | q.is_nan(), x + q, y)


@in_f64
def zeta(x: X, q: X) -> X:
    """Hurwitz's zeta function; NaN for x < 1, infinite for x = 1 and (x even) at the poles of q."""
    return hurwitz(x, q)


def factorial(n: X) -> X:
    """n! for integers n, exact up to 22!."""
    b = n.b
    with b.loop_carry(0, 22, [n.like(1.0).v, n.like(1.0).v]) as carry:
        product, k = (X(b, v) for v in carry.values)
        carry.next(where(k <= n, product * k, product).v, (k + 1.0).v)
    return where(n <= 22.0, X(b, carry.values[0]), exp(lgamma(n + 1.0)))


@in_f64
def polygamma(n: X, x: X) -> X:
    """The n-th derivative of digamma: (-1)^(n+1) n! zeta(n+1, x); NaN unless n is an integer >= 0."""
    y = factorial(n) * hurwitz(n + 1.0, x)
    half = n * 0.5
    even = half.floor().eq(half)
    y = where(even, -y, y)
    y = where(n.eq(0.0), digamma(x), y)
    whole = (n >= 0.0) & n.floor().eq(n)
    return where(whole, y, n.like(math.nan))
