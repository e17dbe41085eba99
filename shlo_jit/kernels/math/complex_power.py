"""Powers of complex numbers (pairs of f64): e^(w log z), where a product with a factor 0 is 0.

That rule gives the values of a limit, for any infinity or NaN as the other factor:

    z^0 = 1^w = 1      inf^2 = 2^inf = inf      inf^-2 = 0.5^inf = 0      0^w = 0 for Re w > 0, infinite for Re w < 0

A result with an infinite modulus and no direction is inf + NaN i; one without a modulus (0^i, (-1)^inf) is NaN + NaN i.
"""

from __future__ import annotations

import math

from shlo_jit.kernels.math.complex_functions import exp
from shlo_jit.kernels.math.complex_numbers import Z, is_finite, log_modulus, rarely, real, sum_of_products
from shlo_jit.kernels.math.expr import X, copysign, fma, where


def power(z: Z, w: Z) -> Z:
    """Returns z^w; the sign of a zero z does not matter. Real powers of numbers on an axis are as accurate as `pow`."""
    (a, b), (c, d) = z, w
    size, angle = log_modulus(z), real("atan2", b, a)
    exponent = sum_of_products(c, size, -d, angle), sum_of_products(d, size, c, angle)
    lost = ~(is_finite(exponent[0]) & is_finite(exponent[1]))
    exponent = rarely(lost, lambda: _far_exponent(z, w, (size, angle), lost, exponent), exponent)
    result = exp(exponent)
    one = (c.eq(0.0) & d.eq(0.0)) | (a.eq(1.0) & b.eq(0.0))
    level = _is_flat(b, a)
    upright = _is_flat(a, b) & ~level

    def special() -> Z:
        re, im = _on_axis(z, w, upright, (level | upright) & d.eq(0.0), result)
        return where(one, a.like(1.0), re), where(one, a.like(0.0), im)

    return rarely(level | upright | one, special, result)


def _is_flat(x: X, y: X) -> X:
    """Returns whether the direction of two parts is exactly that of y."""
    return x.eq(0.0) | (y.abs().eq(math.inf) & is_finite(x))


def _far_exponent(z: Z, w: Z, log: Z, lost: X, exponent: Z) -> Z:
    """Returns w log z where it is not finite, or plain products do not compute it."""
    (a, b), (c, d) = z, w
    size, angle = log[0], where(a.eq(0.0) & b.eq(0.0), b, log[1])

    def product(x: X, y: X) -> X:
        return where(x.eq(0.0) | y.eq(0.0), x.like(0.0), x * y)

    re = product(c, size) - product(d, angle)
    im = product(d, size) + product(c, angle)
    return where(lost, re, exponent[0]), where(lost, im, exponent[1])


def _on_axis(z: Z, w: Z, upright: X, chosen: X, result: Z) -> Z:
    """Returns real powers of the `chosen` numbers, which lie on an axis: the real function of |z|, in a direction that
    is exact for quarters of a circle. (-2)^2 = 4, (-4)^0.5 = 2i, (2i)^2 = -4."""
    (a, b), (c, _) = z, w
    axis = where(upright, b, a)
    right = ~upright & (a >= 0.0)
    usable = chosen & ~axis.is_nan() & (right | is_finite(c))
    length = real("pow", axis.abs(), c)
    cosine, sine = _cos_and_sin_pi(where(right, a.like(0.0), where(upright, c * 0.5, c)))

    def part(x: X) -> X:
        return where(x.eq(0.0), x, length * x)

    re, im = part(cosine), part(where(right, copysign(a.like(0.0), c), sine)) * copysign(a.like(1.0), b)
    return where(usable, re, result[0]), where(usable, im, result[1])


def _cos_and_sin_pi(c: X) -> Z:
    """Returns cosine and sine of pi c, exact for multiples of 1/2."""
    rest = fma((c * 0.5).rint(), -2.0, c)  # in [-1, 1]
    quarters = (rest * 2.0).rint()
    angle = fma(quarters, -0.5, rest) * math.pi
    cosine, sine = real("cos", angle), real("sin", angle)
    odd, opposite = quarters.abs().eq(1.0), quarters.abs().eq(2.0)
    x, y = where(odd, 0.0 - quarters * sine, cosine), where(odd, quarters * cosine, sine)
    return where(opposite, 0.0 - x, x), where(opposite, 0.0 - y, y)
