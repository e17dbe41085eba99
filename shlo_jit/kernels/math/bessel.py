"""The Bessel function bessel_i1e."""

from __future__ import annotations

import math

from shlo_jit.kernels.math.coefficients import COEFFICIENTS
from shlo_jit.kernels.math.exponential import exp
from shlo_jit.kernels.math.expr import X, at_most, copysign, fma, horner, polynomial, where
from shlo_jit.kernels.math.gamma import in_f64


@in_f64
def bessel_i1e(x: X) -> X:
    """exp(-|x|) I1(x): e^-a (a/2 + a^3 P(a^2)) for a = |x| <= 8, where P has positive coefficients, and
    P(16/a - 1) / sqrt(a) for a > 8. f64: 4 ULP."""
    a = x.abs()
    b = at_most(a, 8.0)
    z = b * b
    small = exp(-b) * fma(b * z, horner(z, COEFFICIENTS["bessel_i1", 64]), 0.5 * b)
    large = polynomial(16.0 / a - 1.0, COEFFICIENTS["bessel_i1e_large", 64]) / a.sqrt()
    y = where(a > 8.0, large, small)
    return copysign(where(a.eq(math.inf), a.like(0.0), y), x)
