"""Discrete Fourier transforms of a few points, in registers: the inner step of every pass of an FFT.

A point is a pair (real, imaginary) of registers, scalars or vectors. Sizes 2, 4 and 8 are written out; odd sizes pair
x[k] with x[r-k], which halves the products:

    a[k] = x[k] + x[r-k], b[k] = x[k] - x[r-k]
    X[j], X[r-j] = x[0] + sum a[k] cos(2 pi jk/r)  -/+  i sum b[k] sin(2 pi jk/r)

Products are rounded before they are added, and the sums run from left to right, as in the common portable FFTs
(FFTPACK's descendants, among them those of NumPy and SciPy). The passes lose no time by it: they are bound by loads,
shuffles and additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const

Point = tuple[V, V]


def add(b: Builder, x: Point, y: Point) -> Point:
    return b.fadd(x[0], y[0]), b.fadd(x[1], y[1])


def subtract(b: Builder, x: Point, y: Point) -> Point:
    return b.fsub(x[0], y[0]), b.fsub(x[1], y[1])


def multiply(b: Builder, x: Point, y: Point) -> Point:
    re = b.fsub(b.fmul(x[0], y[0]), b.fmul(x[1], y[1]))
    im = b.fadd(b.fmul(x[0], y[1]), b.fmul(x[1], y[0]))
    return re, im


def scale(b: Builder, x: Point, factor: V) -> Point:
    return b.fmul(x[0], factor), b.fmul(x[1], factor)


def conj(b: Builder, x: Point) -> Point:
    return x[0], b.fneg(x[1])


def times_minus_i(b: Builder, x: Point) -> Point:
    return x[1], b.fneg(x[0])


def butterfly(b: Builder, x: Sequence[Point]) -> list[Point]:
    """Returns the forward transform of the points."""
    if len(x) == 1:
        return list(x)
    if len(x) in (2, 4, 8):
        return {2: _two, 4: _four, 8: _eight}[len(x)](b, x)
    return _odd(b, x)


def backward(b: Builder, x: Sequence[Point]) -> list[Point]:
    """Returns the inverse transform, times the number of points."""
    return butterfly(b, [x[0], *x[:0:-1]])


def _two(b: Builder, x: Sequence[Point]) -> list[Point]:
    return [add(b, x[0], x[1]), subtract(b, x[0], x[1])]


def _four(b: Builder, x: Sequence[Point]) -> list[Point]:
    s02, d02 = _two(b, (x[0], x[2]))
    s13, d13 = _two(b, (x[1], x[3]))
    # X1 = d02 - i d13, X3 = d02 + i d13
    first = b.fadd(d02[0], d13[1]), b.fsub(d02[1], d13[0])
    third = b.fsub(d02[0], d13[1]), b.fadd(d02[1], d13[0])
    return [add(b, s02, s13), first, subtract(b, s02, s13), third]


def const_half(type: str) -> V:
    """Returns the square root of 1/2."""
    return const(type, float(np.sqrt(np.longdouble(0.5))))


def _eight(b: Builder, x: Sequence[Point]) -> list[Point]:
    even = _four(b, (x[0], x[2], x[4], x[6]))
    odd = _four(b, (x[1], x[3], x[5], x[7]))
    half = const_half(x[0][0].type)
    y1, y3 = odd[1], odd[3]
    # times exp(-i pi/4) and exp(-3 i pi/4)
    rotated1 = b.fmul(b.fadd(y1[0], y1[1]), half), b.fmul(b.fsub(y1[1], y1[0]), half)
    rotated3 = b.fmul(b.fsub(y3[1], y3[0]), half), b.fneg(b.fmul(b.fadd(y3[0], y3[1]), half))
    rotated = [odd[0], rotated1, times_minus_i(b, odd[2]), rotated3]
    return [add(b, e, o) for e, o in zip(even, rotated, strict=True)] + [
        subtract(b, e, o) for e, o in zip(even, rotated, strict=True)
    ]


def _odd(b: Builder, x: Sequence[Point]) -> list[Point]:
    even, odd = odd_terms(b, [v[0] for v in x])
    even_i, odd_i = odd_terms(b, [v[1] for v in x])
    out = [(even[0], even_i[0])]
    for j in range(1, len(x) // 2 + 1):
        out.append((b.fadd(even[j], odd_i[j - 1]), b.fsub(even_i[j], odd[j - 1])))
    for j in range(len(x) // 2, 0, -1):
        out.append((b.fsub(even[j], odd_i[j - 1]), b.fadd(even_i[j], odd[j - 1])))
    return out


def odd_terms(b: Builder, x: Sequence[V]) -> tuple[list[V], list[V]]:
    """Returns sums of an odd number r of real x: those with cosines for j <= r/2, and those with sines for
    0 < j <= r/2."""
    r, t = len(x), x[0].type
    pairs = range(1, r // 2 + 1)
    sums = [b.fadd(x[k], x[r - k]) for k in pairs]
    differences = [b.fsub(x[k], x[r - k]) for k in pairs]

    def total(start: list[V], terms: Sequence[V], factor: Callable[[int], float]) -> V:
        parts = start + [b.fmul(v, const(t, factor(k))) for k, v in zip(pairs, terms, strict=True)]
        value = parts[0]
        for p in parts[1:]:
            value = b.fadd(value, p)
        return value

    value = x[0]
    for s in sums:
        value = b.fadd(value, s)
    even, odd = [value], []
    for j in pairs:
        even.append(total([x[0]], sums, lambda k, j=j: _root(j * k, r)[0]))
        odd.append(total([], differences, lambda k, j=j: _root(j * k, r)[1]))
    return even, odd


def _root(k: int, r: int) -> tuple[float, float]:
    """Returns cosine and sine of 2 pi k / r."""
    angle = 2 * np.arctan2(np.longdouble(0), np.longdouble(-1)) * (k % r) / r
    return float(np.cos(angle)), float(np.sin(angle))


def real_butterfly(b: Builder, x: Sequence[V]) -> list[Point]:
    """Returns the first half of the forward transform of 2, 4 or an odd number of real numbers. X[0], and the last one
    of an even number, have no imaginary part (it equals their real part here)."""
    if len(x) == 2:
        s, d = b.fadd(x[0], x[1]), b.fsub(x[0], x[1])
        return [(s, s), (d, d)]
    if len(x) == 4:
        s02, s13 = b.fadd(x[0], x[2]), b.fadd(x[1], x[3])
        first, last = b.fadd(s02, s13), b.fsub(s02, s13)
        return [(first, first), (b.fsub(x[0], x[2]), b.fsub(x[3], x[1])), (last, last)]
    even, odd = odd_terms(b, x)
    return [(even[0], even[0]), *((e, b.fneg(o)) for e, o in zip(even[1:], odd, strict=True))]


def hermitian_butterfly(b: Builder, x: Sequence[Point], r: int) -> list[V]:
    """Returns the r real numbers (2, 4 or odd) of the inverse transform, times r, of the first half of a transform."""
    if r == 2:
        return [b.fadd(x[0][0], x[1][0]), b.fsub(x[0][0], x[1][0])]
    if r == 4:
        s, d = b.fadd(x[0][0], x[2][0]), b.fsub(x[0][0], x[2][0])
        re, im = b.fadd(x[1][0], x[1][0]), b.fadd(x[1][1], x[1][1])
        return [b.fadd(s, re), b.fsub(d, im), b.fsub(s, re), b.fadd(d, im)]
    zero = const(x[0][0].type, 0.0)
    rest = list(x[1:])
    full = [(x[0][0], zero), *rest, *(conj(b, v) for v in reversed(rest))]
    return [v[0] for v in backward(b, full)]
