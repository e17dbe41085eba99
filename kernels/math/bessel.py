"""bessel_i1e."""

from __future__ import annotations

import math

from shlo_jit.kernels.math.coefficients import COEFFICIENTS
from shlo_jit.kernels.math.expr import X, copysign, polynomial, where
from shlo_jit.kernels.math.gamma import in_f64


@in_f64
def bessel_i1e(x: X) -> X:
    """exp(-|x|) I1(x): a P(a/4 - 1) for a = |x| <= 8, P(16/a - 1) / sqrt(a) beyond."""
    a = x.abs()
    far = a > 8.0
    small = a * polynomial(a * 0.25 - 1.0, COEFFICIENTS["bessel_i1e_small", 64])
    large = polynomial(16.0 / a - 1.0, COEFFICIENTS["bessel_i1e_large", 64]) / a.sqrt()
    y = where(far, large, small)
    return copysign(where(a.eq(math.inf), a.like(0.0), y), x)
