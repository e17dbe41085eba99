"""Complex numbers as pairs of f64: modulus, argument, division, and powers of two that keep products in range.

complex<f32> is also computed in f64: the parts then have 29 spare bits. A `Z` is (real, imaginary).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shlo_jit.kernels import math as functions
from shlo_jit.kernels.llvm_values import V, const, lanes
from shlo_jit.kernels.math.expr import X, any_lane, copysign, fma, two_product, two_sum, where

Z = tuple[X, X]
LN2 = math.log(2.0)
HUGE, SMALL, STEP = 2.0**500, 2.0**-400, 600
"""Numbers in [SMALL, HUGE] have squares, products and sums in range; others are scaled by 2^STEP."""


def real(name: str, *args: X) -> X:
    """Applies a real function of `kernels/math`, by name."""
    return X(args[0].b, functions.call(args[0].b, name, *[a.v for a in args]))


def is_finite(x: X) -> X:
    return x.abs() < math.inf


def rarely(condition: X, special: Callable[[], Z], ordinary: Z) -> Z:
    """Returns `special` if the condition holds in any lane, else `ordinary`; `special` must return the ordinary values
    in the other lanes."""
    b = condition.b

    def written() -> list[V]:
        return [x.v for x in special()]

    both = b.if_else(any_lane(condition).v, written, lambda: [x.v for x in ordinary])
    return X(b, both[0]), X(b, both[1])


def larger(a: X, b: X) -> tuple[X, X]:
    """Returns max(|a|, |b|) and min(|a|, |b|); a NaN is one of the two."""
    x, y = a.abs(), b.abs()
    swap = x < y
    return where(swap, y, x), where(swap, x, y)


def exponent_of_scale(m: X) -> X:
    """Returns k, as a float, such that m 2^k is in the safe range (as far as one step moves it)."""
    return where(m > HUGE, m.like(-float(STEP)), where(m < SMALL, m.like(float(STEP)), m.like(0.0)))


def scale(k: X, share: float = 1.0) -> X:
    """Returns 2^(k share), where k is a multiple of STEP, at most two steps."""
    one = k.like(1.0)
    for steps in (-2, -1, 1, 2):
        if abs(steps * STEP * share) < 1022:
            one = where(k.eq(float(steps * STEP)), k.like(2.0 ** (steps * STEP * share)), one)
    return one


def modulus_in_range(m: X, n: X) -> X:
    """Returns sqrt(m^2 + n^2) for m >= n >= 0 whose squares are in range, with an error of slightly more than one
    rounding.

    Borges, "An improved algorithm for hypot": one Newton step with the exact residual.
    """
    h = fma(m, m, n * n).sqrt()
    mm, hh = m * m, h * h
    residual = fma(-n, n, hh - mm) + fma(h, h, -hh) - fma(m, m, -mm)
    better = h - residual / (h + h)
    return where((h > 0.0) & (h < math.inf), better, h)


def modulus(z: Z) -> X:
    """Returns |z| without intermediate overflow; infinite if a part is, even if the other is NaN."""
    m, n = larger(*z)
    k = exponent_of_scale(m)
    s = scale(k)
    h = modulus_in_range(m * s, n * s) * scale(-k)
    return where(m.eq(math.inf) | n.eq(math.inf), h.like(math.inf), h)


def modulus_of_singles(z: Z) -> X:
    """Returns |z| of numbers that were f32: their squares are in range, and half of the bits of f64 are enough."""
    m, n = z[0].abs(), z[1].abs()
    h = coarse_sqrt(fma(m, m, n * n))
    return where(m.eq(math.inf) | n.eq(math.inf), h.like(math.inf), h)


def coarse_sqrt(x: X) -> X:
    """Returns sqrt(x) to 27 bits for x >= 0: a Newton step from an approximation if the target has one. A square root
    of f64 takes ten times as long."""
    b, count = x.b, x.lanes
    target = b.module.target
    if target is None or not target.is_x86 or target.vector_bits != 512 or count % 8 or target.reproducible:
        return x.sqrt()
    blocks = [x.v if count == 8 else b.shuffle(x.v, None, range(i, i + 8)) for i in range(0, count, 8)]
    approximate = "llvm.x86.avx512.rsqrt14.pd.512"
    parts = [b.call(v.type, approximate, [v, const(v.type, 0), const("i8", -1)]) for v in blocks]
    while len(parts) > 1:
        wide = 2 * lanes(parts[0].type)
        parts = [b.shuffle(p, q, range(wide)) for p, q in zip(parts[::2], parts[1::2], strict=True)]
    inverse = X(b, parts[0])
    h = x * inverse
    better = fma(fma(-h, h, x) * 0.5, inverse, h)
    return where(x.eq(0.0), x, better)


def log_modulus(z: Z) -> X:
    """Returns log |z|. Near |z| = 1 it is log1p(|z|^2 - 1) / 2, with the squares in twice the precision."""
    m, n = larger(*z)
    k = exponent_of_scale(m)
    s = scale(k)
    far = real("log", modulus_in_range(m * s, n * s)) - k * LN2
    far = where(m.eq(math.inf) | n.eq(math.inf), far.like(math.inf), far)
    near = real("log1p", exact_sum_of_squares(m, n, m.like(-1.0))) * 0.5
    return where((m >= 0.5) & (m <= 2.0), near, far)


def exact_sum_of_squares(a: X, b: X, c: X) -> X:
    """Returns c + a^2 + b^2 with cancellation: rounded as if computed in twice the precision."""
    aa, al = two_product(a, a)
    bb, bl = two_product(b, b)
    s, e = two_sum(c, aa)
    t, f = two_sum(s, bb)
    return t + (((e + f) + al) + bl)


def sum_of_products(a: X, b: X, c: X, d: X) -> X:
    """Returns a b + c d within 1.5 roundings, with or without cancellation (Kahan)."""
    w = c * d
    return fma(a, b, w) + fma(c, d, -w)


def divide(z: Z, w: Z) -> Z:
    """Returns z / w by its definition on scaled operands; infinities and zeros as in C's Annex G."""
    (a, b), (c, d) = z, w
    top, below = larger(a, b)[0], larger(c, d)[0]
    kt, kb = exponent_of_scale(top), exponent_of_scale(below)
    st, sb = scale(kt), scale(kb)
    p, q, r, s = a * st, b * st, c * sb, d * sb
    size = fma(r, r, s * s)
    half = scale(kb - kt, 0.5)  # in two halves, since the whole factor may be out of range where the result is not
    re = sum_of_products(p, r, q, s) / size * half * half
    im = sum_of_products(q, r, -p, s) / size * half * half
    return _recover(z, w, (re, im))


def divide_of_singles(z: Z, w: Z) -> Z:
    """Returns z / w of numbers that were f32: products are exact, sums and squares in range."""
    (a, b), (c, d) = z, w
    inverse = 1.0 / fma(c, c, d * d)
    return _recover(z, w, (fma(a, c, b * d) * inverse, fma(b, c, -(a * d)) * inverse))


def _recover(z: Z, w: Z, quotient: Z) -> Z:
    """Replaces quotients that are NaN + NaN i but should be infinite or zero."""
    lost = quotient[0].is_nan() & quotient[1].is_nan()
    return rarely(lost, lambda: _recovered(z, w, quotient, lost), quotient)


def _recovered(z: Z, w: Z, quotient: Z, lost: X) -> Z:
    (a, b), (c, d), (re, im) = z, w, quotient
    infinite = copysign(re.like(math.inf), c)
    by_zero = lost & c.eq(0.0) & d.eq(0.0) & ~(a.is_nan() & b.is_nan())
    re, im = where(by_zero, infinite * a, re), where(by_zero, infinite * b, im)

    def unit(x: X) -> X:
        return copysign(where(x.abs().eq(math.inf), x.like(1.0), x.like(0.0)), x)

    huge = lost & (a.abs().eq(math.inf) | b.abs().eq(math.inf)) & (c.abs() < math.inf) & (d.abs() < math.inf)
    p, q = unit(a), unit(b)
    re = where(huge, (p * c + q * d) * math.inf, re)
    im = where(huge, (q * c - p * d) * math.inf, im)
    tiny = lost & (c.abs().eq(math.inf) | d.abs().eq(math.inf)) & (a.abs() < math.inf) & (b.abs() < math.inf)
    r, s = unit(c), unit(d)
    re = where(tiny, (a * r + b * s) * 0.0, re)
    im = where(tiny, (b * r - a * s) * 0.0, im)
    return re, im


def multiply(z: Z, w: Z) -> Z:
    (a, b), (c, d) = z, w
    return sum_of_products(a, c, -b, d), sum_of_products(a, d, b, c)


def sign(z: Z) -> Z:
    """Returns z / |z|; zero for zero."""
    m, n = larger(*z)
    s = scale(exponent_of_scale(m))
    a, b = z[0] * s, z[1] * s
    h = modulus_in_range(m * s, n * s)
    zero, nan = m.eq(0.0) & n.eq(0.0), m.is_nan() | n.is_nan()

    def part(x: X) -> X:
        return where(nan, x.like(math.nan), where(zero, x.like(0.0), x / h))

    return part(a), part(b)


def precedes(z: Z, w: Z) -> X:
    """Returns whether z precedes w in the lexicographic order of (real, imaginary)."""
    return (z[0] < w[0]) | (z[0].eq(w[0]) & (z[1] < w[1]))
