"""Hyperbolic functions: tanh, sinh, cosh and their inverses."""

from __future__ import annotations

import math

from shlo_jit.kernels.math.coefficients import COEFFICIENTS
from shlo_jit.kernels.math.exponential import LN2 as LN2_PARTS
from shlo_jit.kernels.math.exponential import LOG2E, reduce_q
from shlo_jit.kernels.math.expr import X, at_most, copysign, fast_two_sum, fma, polynomial, where
from shlo_jit.kernels.math.logarithm import log1p
from shlo_jit.kernels.math.piecewise import has_tables, odd_piecewise

LN2 = math.log(2)


def tanh(x: X) -> X:
    """-t / (2 + t), t = e^-2a - 1 for a = |x|. (With e^2a the quotient for large a has one more rounding.)

    -a = n ln2/2 + r with the constants of exp halved, and e^-2a = S (1 + 2h), h = r + r^2 (2 P(2r)), whose
    coefficients are those of exp times powers of two. t/2 = S h + (S - 1)/2 and 1 + t/2 = S h + (S + 1)/2 are one fused
    multiply-add each; for small a the first is h itself. 2 ULP.

    f32 with AVX-512: a piecewise polynomial, which takes 16 operations."""
    if has_tables(x):
        return odd_piecewise("tanh", x)
    f = x.format
    a = at_most(x.abs(), f.pick(10.0, 20.0))
    shifted = fma(a, -2.0 * LOG2E, f.magic)
    n = shifted - f.magic
    high, low = LN2_PARTS[f.bits]
    r = fma(n, -low / 2, fma(n, -high / 2, -a))
    first, *others = (math.ldexp(c, k + 1) for k, c in enumerate(COEFFICIENTS["exp", f.bits]))
    p = fma(r, polynomial(r, others), first)
    h = fma(r * r, p, r)
    s = ((shifted.bits() << f.fraction) + (f.bias << f.fraction)).as_float()
    y = fma(s, h, fma(s, 0.5, -0.5)) / fma(s, h, fma(s, 0.5, 0.5))
    return copysign(y, x)


def quarter_exponential(a: X) -> X:
    """e^a / 4 for a >= 0; infinite only where sinh and cosh are."""
    f = a.format
    n, q = reduce_q(at_most(a, f.pick(89.5, 710.6)))
    s = ((n << f.fraction) + ((f.bias - 2) << f.fraction)).as_float()
    return fma(s, q, s)


def sinh(x: X) -> X:
    """(e^a - e^-a) / 2 for a = |x|, a + a^3 P(a^2) for a < 1. 2 ULP."""
    a = x.abs()
    e = quarter_exponential(a)
    large = e - 0.0625 / e
    z = a * a
    small = fma(a * z, polynomial(z, COEFFICIENTS["sinh", x.format.bits]), a)
    return copysign(where(a < 1.0, small, large + large), x)


def cosh(x: X) -> X:
    """(e^a + e^-a) / 2. 2 ULP."""
    e = quarter_exponential(x.abs())
    y = e + 0.0625 / e
    return y + y


def asinh(x: X) -> X:
    """log1p(a + a^2 / (1 + sqrt(1 + a^2))), a = |x|; log(a) + ln2 if 1 + a^2 rounds to a^2. 3 ULP."""
    a = x.abs()
    huge = a > x.format.pick(2.0**26, 2.0**56)
    b = where(huge, a.like(1.0), a)
    t = b + (b * b) / (1.0 + fma(b, b, 1.0).sqrt())
    y = log1p(where(huge, a, t))
    return copysign(where(huge, y + LN2, y), x)


def acosh(x: X) -> X:
    """log1p(z + sqrt(2z + z^2)), z = x - 1; log(x) + ln2 for huge x; NaN below 1 (by the square root). 3 ULP."""
    huge = x > x.format.pick(2.0**26, 2.0**56)
    z = x - 1.0
    c = where(huge, z.like(1.0), z)
    root = fma(c, c, c + c).sqrt()
    t, lost = fast_two_sum(root, c)
    y = log1p(where(huge, x, t), where(huge, x.like(0.0), lost))
    return where(x < 1.0, x.like(math.nan), where(huge, y + LN2, y))


def atanh(x: X) -> X:
    """log1p(2a + 2a^2 / (1 - a)) / 2, a = |x|. 3 ULP."""
    a = x.abs()
    twice = a + a
    y = 0.5 * log1p(fma(twice, a / (1.0 - a), twice))
    beyond = where(a.eq(1.0), a.like(math.inf), a.like(math.nan))
    return copysign(where(a < 2.0**-60, a, where(a < 1.0, y, beyond)), x)
