"""Trigonometric functions: sin, cos, tan.

Reduction (Cody and Waite): x = n pi/2 + r + tail with pi/2 in three parts of full precision. With fused multiply-adds
the first difference is exact, and the rounding errors of the second are kept in `tail`. It is valid for |x| <= 2^16
(f32), 2^28 (f64). Vectors with a larger argument also run `reduce_huge`.
sin(r) = r + r^3 S(r^2), cos(r) = 1 - r^2/2 + r^4 C(r^2), tan(r) = r + r^3 T(r^2) on |r| <= pi/4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from shlo_jit.kernels.llvm_values import V, const, mangle
from shlo_jit.kernels.math.coefficients import COEFFICIENTS
from shlo_jit.kernels.math.expr import (
    F64,
    X,
    any_lane,
    fast_two_sum,
    fma,
    horner,
    polynomial,
    two_product,
    two_sum,
    where,
)

HALF_PI = {
    32: (1.57079637050628662109375, -4.371138828673792886547744274139404296875e-08, -1.7151245100058819e-15),
    64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
}
TWO_OVER_PI = 0.6366197723675814
LIMIT = {32: 2.0**16, 64: 2.0**28}


class Angle(NamedTuple):
    """x = quadrant pi/2 + r + tail; only the low two bits of the integer `quadrant` matter."""

    quadrant: X
    r: X
    tail: X


def reduce(x: X) -> Angle:
    """Reduces x with |x| <= LIMIT."""
    f = x.format
    p1, p2, p3 = HALF_PI[f.bits]
    shifted = fma(x, TWO_OVER_PI, f.magic)
    n = shifted - f.magic
    r1 = fma(n, -p1, x)
    second, lost = two_product(n, n.like(p2))
    r2, tail = fast_two_sum(r1, -second)
    return Angle(shifted.bits(), r2, fma(n, -p3, tail - lost))


def sine(a: Angle, z: X) -> X:
    """Returns sin(r + tail), z = r^2."""
    r = a.r
    return r + fma(r * z, horner(z, COEFFICIENTS["sin", r.format.bits]), a.tail)


def cosine(a: Angle, z: X) -> X:
    """Returns cos(r + tail), z = r^2, with the rounding error of 1 - z/2 added back."""
    w = fma(z, -0.5, 1.0)
    lost = fma(z, -0.5, 1.0 - w)
    return w + fma(z * z, horner(z, COEFFICIENTS["cos", z.format.bits]), fma(-a.r, a.tail, lost))


def sin_of(a: Angle, quarter_turns: int) -> X:
    """Returns sin(angle + quarter_turns pi/2)."""
    f = a.r.format
    z = a.r * a.r
    quadrant = a.quadrant + quarter_turns if quarter_turns else a.quadrant
    y = where((quadrant & 1).eq(0), sine(a, z), cosine(a, z))
    return y.with_sign((quadrant & 2) << (f.bits - 2))


def tan_of(a: Angle) -> X:
    """tan(r) = r + r^3 T(r^2) = t or, in odd quadrants, -1/t, where a Newton step corrects for the rounding of t."""
    r, f = a.r, a.r.format
    z = r * r
    rest = fma(r * z, polynomial(z, COEFFICIENTS["tan", f.bits]), fma(a.tail, z, a.tail))
    t = r + rest
    lost = (r - t) + rest
    inverse = -1.0 / t
    inverse = fma(inverse, fma(inverse, lost, fma(inverse, t, 1.0)), inverse)
    return where((a.quadrant & 1).eq(0), t, inverse)


def reduce_huge(x: X) -> Angle:
    """Reduces any x: x 2/pi modulo 4, with sufficient precision.

    2/pi is cut into chunks so short that the product of one with (a half of) x is exact in f64. Each product is reduced
    modulo 4, which is exact too, and added to a sum in two parts. The chunks cover all bits of 2/pi that an x of the
    format can need: 1100 bits for f64. So this is slow, but it is vectorized and needs no table lookups per lane.
    """
    single = x.format.bits == 32
    wide = x.to_f64()
    wide = where(wide.abs() < math.inf, wide, wide.like(0.0))
    parts, width, shift = ([wide], 28, 0) if single else (halves(wide * 2.0**-SHIFT), 26, SHIFT)
    chunks = two_over_pi_chunks(width, 190 if single else 1200, shift)
    b = x.b
    table = f"shlo.two_over_pi.{len(chunks)}"
    b.module.define_global(table, f"internal constant [{len(chunks)} x double] " + array_text(chunks))
    with b.loop_carry(0, len(chunks), [wide.like(0.0).v, wide.like(0.0).v]) as carry:
        high, low = (X(b, v) for v in carry.values)
        chunk = X(b, b.splat(b.load("double", b.element(V("ptr", "@" + table), "double", carry.index)), x.lanes))
        for part in parts:
            high, low = add_modulo_4(high, low, part * chunk)
        carry.next(high.v, low.v)
    high, low = (X(b, v) for v in carry.values)
    n = high.rint()
    high, low = fast_two_sum(high - n, low)
    quadrant = (n + F64.magic).bits()
    p1, p2, _ = HALF_PI[64]
    r = high * p1
    tail = fma(high, p1, -r) + fma(high, p2, low * p1)
    r, tail = fast_two_sum(r, tail)
    if not single:
        return Angle(quadrant, r, tail)
    narrow = r.to_f32()
    return Angle(quadrant.cast("trunc", "i32"), narrow, (r - narrow.to_f64()).to_f32())


SHIFT = 200
"""Scaling in f64: x is multiplied by 2^-SHIFT and 2/pi by 2^SHIFT, which keeps the last chunks normal."""


def halves(x: X) -> list[X]:
    """Returns two numbers of 26 bits (27 with the sign) whose sum is x."""
    top = (x.bits() & ~((1 << 27) - 1)).as_float()
    return [top, x - top]


def add_modulo_4(high: X, low: X, product: X) -> tuple[X, X]:
    """Returns high + low + product modulo 4; the magnitude of high stays below 4."""
    rest = fma((product * 0.25).rint(), -4.0, product)
    high, lost = two_sum(high, rest)
    multiples = (high * 0.25).rint()
    return fma(multiples, -4.0, high), low + lost


def two_over_pi_chunks(width: int, total: int, shift: int) -> list[float]:
    """Returns 2/pi 2^shift as a sum of floats of `width` bits each, `total` bits in all."""
    digits = two_over_pi_bits(total + width)
    chunks: list[float] = []
    for end in range(width, total + width, width):
        chunk = (digits >> (total + width - end)) & ((1 << width) - 1)
        chunks.append(math.ldexp(chunk, shift - end))
    return chunks


@cache
def two_over_pi_bits(count: int) -> int:
    """Returns floor(2^count 2/pi), with pi by Machin's formula in integers."""
    guard = count + 64

    def arctan_inverse(n: int) -> int:
        term = (1 << guard) // n
        total, k, sign = term, 1, 1
        while term:
            term //= n * n
            k, sign = k + 2, -sign
            total += sign * (term // k)
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return (1 << (guard + count + 1)) // pi


def array_text(values: list[float]) -> str:
    """Returns the text of a constant array of doubles."""
    return "[" + ", ".join(f"double {const('double', v).text}" for v in values) + "]"


def periodic(x: X, name: str, finish: Callable[[Angle], X]) -> X:
    """Applies a function of the angle: with the fast reduction and, if a lane needs it, with the slow one in a separate
    function. Infinities give NaN."""
    b, limit = x.b, LIMIT[x.format.bits]
    fast = finish(reduce(x))
    # NaN takes the fast path.
    huge = x.abs() > limit
    symbol = f"shlo.{name}.huge.{mangle(x.type)}"
    if symbol not in b.module.functions:
        attributes = "memory(none) nounwind willreturn noinline cold"
        body = b.module.function(symbol, [(x.type, "x")], x.type, attributes=attributes)
        y = X(body, body.params[0])
        body.ret(where(y.abs() < math.inf, finish(reduce_huge(y)), y.like(math.nan)).v)

    def slow() -> list[V]:
        return [where(huge, X(b, b.call(x.type, symbol, [x.v])), fast).v]

    return X(b, b.if_else(any_lane(huge).v, slow, lambda: [fast.v])[0])


def sin(x: X) -> X:
    """Sine, computed from |x| so that -0 is kept. 1 ULP."""
    return periodic(x.abs(), "sin", lambda a: sin_of(a, 0)).with_sign(x.sign_bit())


def cos(x: X) -> X:
    """Cosine. 1 ULP."""
    return periodic(x.abs(), "cos", lambda a: sin_of(a, 1))


def tan(x: X) -> X:
    """Tangent, computed from |x| like `sin`. 2 ULP."""
    return periodic(x.abs(), "tan", tan_of).with_sign(x.sign_bit())
