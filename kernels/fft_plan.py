"""A one-dimensional transform of any length and kind as a list of passes (see `fft.py`).

Lengths with a large prime factor go by Bluestein's algorithm: with c[k] = exp(-i pi k^2 / n) and jk = (j^2 + k^2 -
(k-j)^2) / 2, a transform is c[k] times the convolution of x[j] c[j] with conj c, which is a product of transforms of
any length >= 2n - 1. A transform of 2h real numbers is one of h complex numbers and a pass over the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from shlo_jit.kernels.fft import Pass, plan_passes, radices, roots, split
from shlo_jit.kernels.fft_access import Side
from shlo_jit.kernels.fft_convert import Hermitian, Real, Rows

AnyPass: TypeAlias = Pass | Rows | Real | Hermitian


@dataclass(frozen=True)
class Transform:
    """What to do: `kind` is c2c, r2c or c2r; n is the length of the complex or real sequence; the rows of a block are
    `stride` elements apart, and `columns` of them are transformed together (1 where real numbers are involved)."""

    kind: str
    part: str
    n: int
    columns: int
    stride: int
    inverse: bool
    lanes: int


def plan(t: Transform) -> list[AnyPass]:
    """The passes, in order; the first reads the program's tensor, the last writes it."""
    pairs = Side("pairs", t.stride, swap=t.inverse)
    if t.kind == "c2c":
        return _complex(t, t.n, pairs, pairs, 1 / t.n if t.inverse else 1.0)
    plain, real = Side("pairs", t.stride), Side("real", t.stride)
    between, swapped = split(t.n, 1), replace(split(t.n, 1), swap=True)
    if t.n % 2:
        half = t.n // 2 + 1
        if t.kind == "r2c":
            return [*_complex(t, t.n, real, between, 1.0), Rows(t.part, half, half, 1, t.lanes, between, plain)]
        back = _complex(t, t.n, swapped, replace(real, swap=True), 1 / t.n)
        return [Hermitian(t.part, t.n, plain, between), *back]
    h = t.n // 2
    between, swapped = split(h, 1), replace(split(h, 1), swap=True)
    if t.kind == "r2c":
        return [*_complex(t, h, plain, between, 1.0), Real(t.part, h, t.lanes, between, plain, True)]
    back = _complex(t, h, swapped, replace(plain, swap=True), 1 / h)
    return [Real(t.part, h, t.lanes, plain, between, False), *back]


def _complex(t: Transform, n: int, source: Side, target: Side, scale: float) -> list[AnyPass]:
    if radices(n) is not None:
        return list(plan_passes(t.part, n, t.columns, t.lanes, source, target, scale))
    return _bluestein(t, n, source, target, scale)


def _bluestein(t: Transform, n: int, source: Side, target: Side, scale: float) -> list[AnyPass]:
    m = _convenient(2 * n - 1)
    k = np.arange(n, dtype=np.int64)
    chirp = roots(k * k, 2 * n)
    kernel = np.zeros(m, np.clongdouble)
    kernel[:n] = np.conj(chirp)
    kernel[m - n + 1 :] = np.conj(chirp[:0:-1])
    spectrum = np.fft.fft(kernel) / m
    between = split(m, t.columns)
    swapped = replace(between, swap=True)

    def rows(count: int, out: int, ends: tuple[Side, Side], factors: np.ndarray, scale: float = 1.0) -> Rows:
        return Rows(t.part, count, out, t.columns, t.lanes, *ends, factors, scale)

    def transform() -> list[Pass]:
        return plan_passes(t.part, m, t.columns, t.lanes, between, between, 1.0)

    return [
        rows(n, m, (source, between), chirp),
        *transform(),
        rows(m, m, (between, swapped), spectrum),  # swapped twice: the inverse transform
        *transform(),
        rows(n, n, (swapped, target), chirp, scale),
    ]


def _convenient(least: int) -> int:
    """The smallest of 2^a, 3 2^a, 5 2^a, 9 2^a from `least` on, a >= 4."""
    found = []
    for odd in (1, 3, 5, 9):
        size = 16 * odd
        while size < least:
            size *= 2
        found.append(size)
    return min(found)


def scratch_elements(passes: list[AnyPass]) -> int:
    """Complex elements of the larger buffer between passes; two such buffers are needed."""
    return max((p.target.plane for p in passes[:-1]), default=0)
