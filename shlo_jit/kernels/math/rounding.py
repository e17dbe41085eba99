"""Functions on the bits or the integer part: rounding, next_after, remainder, is_finite."""

from __future__ import annotations

import math

from shlo_jit.kernels.llvm_values import V, mangle
from shlo_jit.kernels.math.expr import X, any_lane, copysign, fma, where


def floor(x: X) -> X:
    return x.floor()


def ceil(x: X) -> X:
    return x.intrinsic("ceil")


def round_nearest_even(x: X) -> X:
    return x.rint()


def round_nearest_afz(x: X) -> X:
    """Rounds to the nearest integer, ties away from zero."""
    t = x.trunc()
    away = where((x - t).abs() >= 0.5, x.like(1.0), x.like(0.0))
    return copysign(t + copysign(away, x), x)


def is_finite(x: X) -> X:
    """Returns a vector of i1."""
    return x.abs() < math.inf


def next_after(x: X, y: X) -> X:
    """Returns the next number after x towards y: the bits of x plus or minus one."""
    f = x.format
    i = x.bits()
    smallest = (y.bits() & -(1 << (f.bits - 1))) | 1
    step = where((x < y).eq(x > 0.0), i.like(1), i.like(-1))
    moved = where(x.eq(0.0), smallest, i + step).as_float()
    return where(x.is_nan() | y.is_nan(), x + y, where(x.eq(y), y, moved))


def remainder(x: X, y: X) -> X:
    """Returns x - y trunc(x / y), exactly, as C's fmod.

    With n the rounded quotient, x - n y is exact in a fused multiply-add as long as n has no more bits than the format;
    it is off by y at most. If the quotient is larger, a loop (in a separate function) subtracts multiples.
    """
    b, f = x.b, x.format
    a, c = x.abs(), y.abs()
    n = (a / c).rint()
    far = (n > 2.0 ** (f.precision - 1)) & (a < math.inf) & (c > 0.0)
    r = fma(-n, c, a)
    symbol = f"shlo.remainder.far.{mangle(x.type)}"
    if symbol not in b.module.functions:
        attributes = "memory(none) nounwind willreturn noinline cold"
        body = b.module.function(symbol, [(x.type, "x"), (x.type, "y")], x.type, attributes=attributes)
        body.ret(far_remainder(X(body, body.params[0]), X(body, body.params[1])).v)

    def slow() -> list[V]:
        return [where(far, X(b, b.call(x.type, symbol, [a.v, c.v])), r).v]

    r = X(b, b.if_else(any_lane(far).v, slow, lambda: [r.v])[0])
    r = where(r < 0.0, r + c, r)
    r = where(a < c, a, r)
    # This also covers the quotients 0/0, inf/y, x/0.
    r = where(a < math.inf, r, a.like(math.nan))
    r = where(c > 0.0, r, a.like(math.nan))
    return where(x.is_nan() | y.is_nan(), x + y, copysign(r, x))


def far_remainder(a: X, c: X) -> X:
    """Returns a - n c in [-c/2, c/2] for finite a >= 0, c > 0, by subtracting rounded quotients until none is left. If
    a quotient would overflow, c is multiplied by a power of two."""
    b = a.b
    step = 100 if a.format.bits == 32 else 800
    with b.repeat([a.v], "reduce") as reduction:
        r = X(b, reduction.values[0])
        once = r.abs() * 2.0**-step
        twice = once * 2.0**-step
        divisor = where(twice > c, c * 2.0**step * 2.0**step, where(once > c, c * 2.0**step, c))
        r = fma(-(r / divisor).rint(), divisor, r)
        reduction.next(r.v)
        reduction.again = any_lane(r.abs() > c * 0.75).v
    return X(b, reduction.values[0])
