"""Exponential functions: exp, expm1, logistic.

Reduction: x = n ln2 + r with |r| <= ln2/2. n is rounded by adding a magic number (it is then in the low bits of the
sum). r takes two fused multiply-adds with ln2 in two parts, the first of which is exact. e^r = 1 + q,
q = r + r^2 P(r), with P of degree 5 (f32) or 10 (f64).
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.kernels.llvm_values import V, const, mangle
from shlo_jit.kernels.math.coefficients import COEFFICIENTS
from shlo_jit.kernels.math.expr import X, at_least, at_most, fma, polynomial, where

MAGIC_BITS = {32: 0x4B400000, 64: 0x4338000000000000}
"""Bits of the formats' magic numbers."""
LOG2E = 1.4426950408889634
LN2 = {32: (0.693147182464599609375, -1.9046542121259336e-09), 64: (0.6931471805599453, 2.3190468138462996e-17)}


class Reduced(NamedTuple):
    """x = n ln2 + r + tail and e^r = 1 + r + r^2 p."""

    n: X
    """An integer whose low bits (as many as an exponent has) are n; the high bits are those of the magic number."""
    r: X
    p: X
    exact: X
    """x - n ln2_high."""
    n_float: X

    def q(self) -> X:
        """Returns e^r - 1."""
        return fma(self.r * self.r, self.p, self.r)

    def tail(self) -> X:
        """Returns the rounding error of r times 1 + r, which is nearly e^r: what the error adds to e^r."""
        lost = fma(self.n_float, -LN2[self.r.format.bits][1], self.exact - self.r)
        return fma(self.r, lost, lost)


def reduce(x: X, rest: X | None = None) -> Reduced:
    """Reduces x, |x| below 2^(bits of the exponent); NaN gives r = NaN. A tiny `rest` is added to x."""
    f = x.format
    high, low = LN2[f.bits]
    shifted = fma(x, LOG2E, f.magic)
    n = shifted - f.magic
    exact = fma(n, -high, x)
    r = fma(n, -low, exact) if rest is None else exact + fma(n, -low, rest)
    first, *others = COEFFICIENTS["exp", f.bits]
    p = fma(r, polynomial(r, others), first)  # the step with the largest rounding error is the last
    return Reduced(shifted.bits(), r, p, exact, n)


def reduce_q(x: X) -> tuple[X, X]:
    """Returns n and q = e^r - 1."""
    e = reduce(x)
    return e.n, e.q()


def scale(y: X, e: Reduced, sign: X | None = None) -> X:
    """Returns y 2^n, rounded once; y is near 1. `sign`: a float that is negative only if n <= 1; None if n <= 1 in all
    lanes.

    It multiplies twice: by 2^n moved by 2^32 (or 2^64) towards zero, which is exact, and by that power of two, which
    overflows or becomes subnormal where it should. AVX-512 has an instruction for it, which takes n as a float."""
    f, target = y.format, y.b.module.target
    if target is not None and target.is_x86 and target.has_masks:
        return vscalef(y, e)
    step = 32 if f.bits == 32 else 64
    up, down = (e.n.like((f.bias + move) << f.fraction) for move in (step, -step))
    if sign is None:
        return y * ((e.n << f.fraction) + up).as_float() * 2.0**-step
    negative = sign < 0.0
    factor = where(negative, y.like(2.0**-step), y.like(2.0**step))
    return y * ((e.n << f.fraction) + where(negative, up, down)).as_float() * factor


def vscalef(y: X, e: Reduced) -> X:
    """Returns y 2^n by AVX-512's instruction. `llvm.ldexp` compiles to it, too, with a conversion of n."""
    b, v = y.b, y.v
    if y.lanes * y.format.bits != 512:
        exponent = e.n - MAGIC_BITS[y.format.bits]
        name = f"llvm.ldexp.{mangle(v.type)}.{mangle(exponent.type)}"
        return X(b, b.call(v.type, name, [v, exponent.v]))
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if y.format.bits == 32 else 'pd'}.512"
    all_lanes, nearest = const(f"i{y.lanes}", -1), const("i32", 4)
    return X(b, b.call(v.type, name, [v, e.n_float.v, V(v.type, "zeroinitializer"), all_lanes, nearest]))


def exp(x: X) -> X:
    """e^x as 1 + r (1 + r P(r)), where the square of r is not rounded; underflow gives subnormals. 1 ULP.

    A result of 0, as at the masked positions of a softmax, is not computed: an underflow takes the processor as long as
    a hundred operations."""
    gone = x < x.format.pick(-104.0, -746.0)
    x = at_most(where(gone, x.like(0.0), x), x.format.pick(89.0, 710.0))
    e = reduce(x)
    return where(gone, x.like(0.0), scale(fma(e.r, fma(e.r, e.p, 1.0), 1.0), e, x))


def exp_with_tail(x: X, tail: X) -> X:
    """e^(x + tail) for a tiny tail, to 0.55 ULP of its arguments, without clamping: |x| < 2^(bits of the exponent)."""
    e = reduce(x)
    rest = fma(e.r * e.r, e.p, e.tail())
    s = 1.0 + e.r
    lost = (1.0 - s) + e.r
    return scale(s + fma(tail, s + rest, rest + lost), e, x)


def half_power(n: X) -> X:
    """2^(n-1) for n as in `Reduced`: half of the power, so that n = 128 (1024) does not overflow."""
    f = n.format
    return ((n << f.fraction) + ((f.bias - 1) << f.fraction)).as_float()


def expm1(x: X) -> X:
    """e^x - 1 = 2 ((s - 1/2) + s r + s rest), s = 2^(n-1), the first sum with its rounding error. 1 ULP."""
    y = at_least(at_most(x, x.format.pick(89.0, 710.0)), x.format.pick(-20.0, -40.0))
    e = reduce(y)
    rest = fma(e.r * e.r, e.p, e.tail())
    s = half_power(e.n)
    base = s - 0.5
    high = fma(s, e.r, base)
    low = fma(s, e.r, base - high) + ((s - base) - 0.5)
    half = high + fma(s, rest, low)
    return where(x.abs() < 2.0**-60, x, half + half)


def logistic(x: X) -> X:
    """1 / (1 + e^-x), as e^x / (1 + e^x) for negative x, where the first form would overflow. e = e^-|x| = (1 + q) 2^n,
    and the rounding error of 1 + e is subtracted from the numerator's q. 2 ULP."""
    t = at_least(-x.abs(), x.format.pick(-104.0, -746.0))
    parts = reduce(t)
    q = parts.q()
    e = scale(1.0 + q, parts)
    denominator = 1.0 + e
    lost = e - (denominator - 1.0)
    return where(x < 0.0, scale(1.0 + (q - lost), parts), x.like(1.0)) / denominator
