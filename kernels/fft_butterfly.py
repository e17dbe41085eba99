"""Discrete Fourier transforms of a few points, in registers: the inner step of every pass of an FFT.

A point is a pair (real, imaginary) of registers, scalars or vectors. Sizes 2, 4 and 8 are written out; odd sizes pair
x[k] with x[r-k], which halves the products:

    a[k] = x[k] + x[r-k], b[k] = x[k] - x[r-k]
    X[j], X[r-j] = x[0] + sum a[k] cos(2 pi jk/r)  -/+  i sum b[k] sin(2 pi jk/r)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from shlo_jit.kernels.builder import Builder, V, const

Point = tuple[V, V]


def add(b: Builder, x: Point, y: Point) -> Point:
    return b.fadd(x[0], y[0]), b.fadd(x[1], y[1])


def subtract(b: Builder, x: Point, y: Point) -> Point:
    return b.fsub(x[0], y[0]), b.fsub(x[1], y[1])


def multiply(b: Builder, x: Point, y: Point) -> Point:
    """x * y, each part with one product rounded on its own and one contracted."""
    re = b.intrinsic("fmuladd", x[0].type, [x[0], y[0], b.fneg(b.fmul(x[1], y[1]))])
    im = b.intrinsic("fmuladd", x[0].type, [x[0], y[1], b.fmul(x[1], y[0])])
    return re, im


def scale(b: Builder, x: Point, factor: V) -> Point:
    return b.fmul(x[0], factor), b.fmul(x[1], factor)


def times_minus_i(b: Builder, x: Point) -> Point:
    return x[1], b.fneg(x[0])


def butterfly(b: Builder, x: Sequence[Point]) -> list[Point]:
    """The forward transform of the points."""
    if len(x) == 1:
        return list(x)
    if len(x) in (2, 4, 8):
        return {2: _two, 4: _four, 8: _eight}[len(x)](b, x)
    return _odd(b, x)


def _two(b: Builder, x: Sequence[Point]) -> list[Point]:
    return [add(b, x[0], x[1]), subtract(b, x[0], x[1])]


def _four(b: Builder, x: Sequence[Point]) -> list[Point]:
    s02, d02 = _two(b, (x[0], x[2]))
    s13, d13 = _two(b, (x[1], x[3]))
    # X1 = d02 - i d13, X3 = d02 + i d13
    first = b.fadd(d02[0], d13[1]), b.fsub(d02[1], d13[0])
    third = b.fsub(d02[0], d13[1]), b.fadd(d02[1], d13[0])
    return [add(b, s02, s13), first, subtract(b, s02, s13), third]


def _eight(b: Builder, x: Sequence[Point]) -> list[Point]:
    even = _four(b, (x[0], x[2], x[4], x[6]))
    odd = _four(b, (x[1], x[3], x[5], x[7]))
    half = const(x[0][0].type, float(np.sqrt(np.longdouble(0.5))))
    y1, y3 = odd[1], odd[3]
    # times exp(-i pi/4) and exp(-3 i pi/4)
    turned1 = b.fmul(b.fadd(y1[0], y1[1]), half), b.fmul(b.fsub(y1[1], y1[0]), half)
    turned3 = b.fmul(b.fsub(y3[1], y3[0]), half), b.fneg(b.fmul(b.fadd(y3[0], y3[1]), half))
    turned = [odd[0], turned1, times_minus_i(b, odd[2]), turned3]
    return [add(b, e, o) for e, o in zip(even, turned, strict=True)] + [
        subtract(b, e, o) for e, o in zip(even, turned, strict=True)
    ]


def _odd(b: Builder, x: Sequence[Point]) -> list[Point]:
    r, t = len(x), x[0][0].type
    pairs = range(1, r // 2 + 1)
    sums = [add(b, x[k], x[r - k]) for k in pairs]
    differences = [subtract(b, x[k], x[r - k]) for k in pairs]
    out: list[Point] = [x[0]] * r
    total = x[0]
    for s in sums:
        total = add(b, total, s)
    out[0] = total

    def fma(a: V, factor: float, c: V | None) -> V:
        w = const(t, factor)
        return b.fmul(a, w) if c is None else b.intrinsic("fmuladd", t, [a, w, c])

    for j in pairs:
        even: tuple[V, V] = x[0]
        odd: tuple[V | None, V | None] = (None, None)
        for k, s, d in zip(pairs, sums, differences, strict=True):
            angle = 2 * np.pi * np.longdouble(1) * ((j * k) % r) / r
            cos, sin = float(np.cos(angle)), float(np.sin(angle))
            even = fma(s[0], cos, even[0]), fma(s[1], cos, even[1])
            odd = fma(d[0], sin, odd[0]), fma(d[1], sin, odd[1])
        assert odd[0] is not None and odd[1] is not None
        out[j] = b.fadd(even[0], odd[1]), b.fsub(even[1], odd[0])
        out[r - j] = b.fsub(even[0], odd[1]), b.fadd(even[1], odd[0])
    return out
