"""Error functions: erf, erfc, erf_inv."""

from __future__ import annotations

import math

from shlo_jit.kernels.math.coefficients import COEFFICIENTS
from shlo_jit.kernels.math.exponential import exp_with_tail, reduce, reduce_q, scale
from shlo_jit.kernels.math.expr import X, at_least, at_most, copysign, fma, horner, polynomial, where
from shlo_jit.kernels.math.logarithm import log
from shlo_jit.kernels.math.piece_coefficients import PIECES
from shlo_jit.kernels.math.piecewise import has_tables, odd_piecewise, piecewise


def erf(x: X) -> X:
    """x + x P(x^2) for |x| < 1. For larger |x| it is 1 - e^(-a - a Q(a)) with a = |x|: 1 - 2^n (1 + q) is one fused
    multiply-add from the parts of the exponential. 1 ULP.

    f32 with AVX-512: a piecewise polynomial, which takes 17 operations."""
    if has_tables(x):
        return odd_piecewise("erf", x)
    f = x.format
    a = x.abs()
    small = fma(x, horner(x * x, COEFFICIENTS["erf_small", f.bits]), x)
    b = at_least(at_most(a, f.pick(4.0, 6.0)), 1.0)
    n, q = reduce_q(-fma(b, polynomial(b, COEFFICIENTS["erf_large", f.bits]), b))
    power = ((n << f.fraction) + (f.bias << f.fraction)).as_float()
    large = fma(-power, q, 1.0 - power)
    return where(a < 1.0, small, copysign(large, x))


def erfc(x: X) -> X:
    """e^(-a^2) P(t) / (1 + 2a) with t = (a - c) / (a + c), a = |x|, and 2 minus that for negative x. The rounding
    error of a^2 is added to the exponential's argument. Near zero it is 1 - erf(x) (f64). f32 is computed in f64, with
    shorter polynomials: 0.7 ULP. f64: 4 ULP.

    f32 with AVX-512: see `erfc_piecewise`."""
    if has_tables(x):
        return erfc_piecewise(x)
    single = x.format.bits == 32
    wide = x.to_f64()
    a = at_most(wide.abs(), 10.2 if single else 27.3)
    c = 2.0 if single else 4.0
    t = (a - c) / (a + c)
    p = polynomial(t, COEFFICIENTS["erfc_f32" if single else "erfc", 64]) / fma(a, 2.0, 1.0)
    square = a * a
    e = exp_with_tail(-square, -fma(a, a, -square))
    y = e * p
    y = where(wide < 0.0, 2.0 - y, y)
    if not single:
        near = 1.0 - fma(x, polynomial(x * x, COEFFICIENTS["erf_small", 64]), x)
        y = where(x.abs() < 0.75, near, y)
    return y.to_f32() if single else y


def erfc_piecewise(x: X) -> X:
    """e^(-a^2) g(a), a = |x|, with a piecewise polynomial g, and 2 minus that for negative x. a^2 = s + lost, and
    e^(-s - lost) = (1 + q) 2^n with the lost part added to the reduced argument. 2 ULP."""
    a = at_most(x.abs(), PIECES["scaled_erfc"].limit)
    square = a * a
    e = reduce(-square, fma(-a, a, square))
    g = piecewise("scaled_erfc", a)
    y = scale(fma(e.q(), g, g), e)
    return where(x < 0.0, 2.0 - y, y)


def erf_inv(x: X) -> X:
    """x P(w - 2.5) for w = -log(1 - x^2) < 5, else x Q(sqrt(w) - c): after M. Giles, with newly fitted coefficients.
    f64 has a third range. f32: 4 ULP. Rounding 1 - x^2 once changes w by little compared to 2.5."""
    f = x.format
    a = x.abs()
    w = -log(fma(-a, a, 1.0))
    root = w.sqrt()
    y = horner(w - 2.5, COEFFICIENTS["erf_inv_middle", f.bits])
    tail = horner(root - f.pick(3.0, 3.2), COEFFICIENTS["erf_inv_tail", f.bits])
    y = where(w < 5.0, y, tail)
    if f.bits == 64:
        y = where(w < 16.5, y, horner(root - 5.0, COEFFICIENTS["erf_inv_far", 64]))
    y = x * y
    return where(a < 1.0, y, where(a.eq(1.0), x * math.inf, x.like(math.nan)))
