"""Fast Fourier transforms as passes over memory: Stockham's algorithm, which needs no bit reversal.

A *block* is `columns` transforms of length n side by side: n rows of `columns` elements. A pass of radix r splits every
transform in r; with s the product of the radices so far times the columns, and m = n columns / (s r), it does

    for p < m, q < s:   y[q + s (r p + i)] = w^(p i) DFT_r(x[q + s (p + m k)] for k < r)[i],   w = exp(-2 pi i / (m r))

The reads are contiguous in t = q + s p whatever the radix, and so are the writes once s fills a register; before that
the results of one register of t's are zipped into place. Powers of two come first, so that is soon. The twiddle factors
are computed in extended precision, so the error is that of the log n roundings on the way (Van Loan, "Computational
Frameworks for the Fast Fourier Transform", 1992, sections 1.7 and 2.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from shlo_jit.kernels.builder import Builder, V, const
from shlo_jit.kernels.fft_access import Mask, Side, load, span_loop, store, zip_lanes
from shlo_jit.kernels.fft_butterfly import butterfly, multiply, scale

LARGEST_PRIME = 19
"""Lengths with a larger prime factor go by Bluestein's algorithm."""
SLICE = 2048
"""Elements of a row that one unit of a pass treats, where rows are long."""


def radices(n: int) -> list[int] | None:
    """n as a product of radices in the order of the passes; None when a prime factor is too large."""
    twos, rest = 0, n
    while rest % 2 == 0:
        twos, rest = twos + 1, rest // 2
    out = [8] * (twos // 3)
    if twos % 3 == 1:
        out = [*out[1:], 4, 4] if out else [2]
    elif twos % 3 == 2:
        out = [*out, 4]
    for prime in range(3, LARGEST_PRIME + 1, 2):
        while rest % prime == 0:
            out.append(prime)
            rest //= prime
    return out if rest == 1 else None


@dataclass(frozen=True)
class Pass:
    """One pass over a block. Writes `void (ptr source, ptr target, ptr twiddles, i64 first, i64 last)` over units."""

    part: str
    """float or double."""
    n: int
    columns: int
    done: int
    """Product of the radices before."""
    radix: int
    lanes: int
    source: Side
    target: Side
    scale: float = 1.0

    @property
    def s(self) -> int:
        return self.done * self.columns

    @property
    def m(self) -> int:
        return self.n // (self.done * self.radix)

    @property
    def zipped(self) -> int:
        """Lanes of registers whose results are zipped into place; 0 where they lie right as they are."""
        contiguous = all(x.kind == "split" or x.stride == self.columns for x in (self.source, self.target))
        width, s = self.lanes, self.s
        if s >= width or self.radix & (self.radix - 1) or s & (s - 1) or not contiguous:
            return 0
        while (s * self.m) % width:
            width //= 2
        return width if width > s else 0

    @property
    def strided_rows(self) -> bool:
        """The last pass, into rows that do not follow each other."""
        return self.m == 1 and self.target.kind != "split" and self.target.stride != self.columns

    @property
    def slices(self) -> int:
        return self.s // SLICE if self.s % SLICE == 0 and not self.strided_rows else 1

    @property
    def units(self) -> int:
        if self.zipped:
            return self.s * self.m // self.zipped
        return self.n // self.radix if self.strided_rows else self.m * self.slices

    # ------------------------------------------------------------------ twiddle factors
    def table(self) -> np.ndarray:
        """Twiddle factors in the order the pass reads them; empty when all are 1."""
        if self.m == 1:
            return np.zeros(0, dtype_of(self.part))
        p, i = np.arange(self.m)[:, None], np.arange(1, self.radix)[None, :]
        w = roots(p * i, self.m * self.radix)
        parts = [np.real(w), np.imag(w)]
        if self.zipped:
            shape = (-1, self.zipped, self.radix - 1)
            parts = [np.repeat(x, self.s, axis=0).reshape(shape).swapaxes(1, 2) for x in parts]
        both = np.stack(parts, axis=2)
        return np.ascontiguousarray(both.astype(dtype_of(self.part))).reshape(-1)

    # ------------------------------------------------------------------ code
    def write(self, b: Builder, source: V, target: V, twiddles: V, first: V, last: V) -> None:
        with b.loop(first, last, 1, "unit") as u:
            if self.zipped:
                self._zipped(b, source, target, twiddles, u)
            else:
                self._rows(b, source, target, twiddles, u)

    def _points(self, b: Builder, source: V, at: V, step: int, n: int, mask: Mask | None) -> list:
        x = [load(b, self.source, source, self.part, b.add(at, i * step), n, mask) for i in range(self.radix)]
        y = butterfly(b, x)
        return y if self.scale == 1.0 else [scale(b, v, const(v[0].type, self.scale)) for v in y]

    def _rows(self, b: Builder, source: V, target: V, twiddles: V, u: V) -> None:
        """A unit is one p (or a slice of its q's), or one row of the result."""
        r, s, m = self.radix, self.s, self.m
        stride_in = self.source.stride if self.done == 1 else s
        if self.strided_rows:
            span = self.columns
            step_in = stride_in if self.done == 1 else s
            step_out = self.n // r * self.target.stride
            at_in, at_out = b.mul(u, self.columns), b.mul(u, self.target.stride)
            p = None
        else:
            span, k = s // self.slices, self.slices
            p, q = b.udiv(u, k), b.mul(b.urem(u, k), span)
            step_in, step_out = m * stride_in, s
            at_in, at_out = b.add(b.mul(p, stride_in), q), b.add(b.mul(p, s * r), q)
        factors = []
        if m > 1 and p is not None:
            row = b.element(twiddles, self.part, b.mul(p, 2 * (r - 1)))
            parts = [b.load(self.part, b.element(row, self.part, k)) for k in range(2 * (r - 1))]
            factors = list(zip(parts[0::2], parts[1::2], strict=True))

        def body(q: V, n: int, mask: Mask | None) -> None:
            y = self._points(b, source, b.add(at_in, q), step_in, n, mask)
            for i, w in enumerate(factors):
                y[i + 1] = multiply(b, y[i + 1], (b.splat(w[0], n), b.splat(w[1], n)))
            for i, v in enumerate(y):
                store(b, self.target, target, self.part, b.add(b.add(at_out, q), i * step_out), v, mask)

        width = self.lanes
        while width > 1 and width >= 2 * span:
            width //= 2
        span_loop(b, span, width, body)

    def _zipped(self, b: Builder, source: V, target: V, twiddles: V, u: V) -> None:
        """A unit is one register of t's; their results fill r registers' worth of neighbours."""
        r, n = self.radix, self.zipped
        at = b.mul(u, n)
        y = self._points(b, source, at, self.s * self.m, n, None)
        if self.m > 1:
            row = b.element(twiddles, self.part, b.mul(u, 2 * (r - 1) * n))
            for i in range(1, r):
                w = [b.load(f"<{n} x {self.part}>", b.element(row, self.part, (2 * (i - 1) + k) * n)) for k in (0, 1)]
                y[i] = multiply(b, y[i], (w[0], w[1]))
        real, imaginary = (zip_lanes(b, [v[k] for v in y], self.s) for k in (0, 1))
        for j, v in enumerate(zip(real, imaginary, strict=True)):
            store(b, self.target, target, self.part, b.add(b.mul(at, r), j * n), v)


def dtype_of(part: str) -> type:
    return np.float32 if part == "float" else np.float64


def roots(k: np.ndarray, n: int) -> np.ndarray:
    """exp(-2 pi i k / n) in extended precision."""
    angle = 2 * np.arctan2(np.longdouble(0), np.longdouble(-1)) * (k % n).astype(np.longdouble) / n
    return np.cos(angle) - 1j * np.sin(angle)


def split(n: int, columns: int) -> Side:
    """The side between passes."""
    return Side("split", columns, n * columns)


def plan_passes(part: str, n: int, columns: int, lanes: int, source: Side, target: Side, scale: float) -> list[Pass]:
    """The passes of a transform of length n (which `radices` can split); one that copies for n = 1."""
    factors = radices(n)
    assert factors is not None
    factors = factors or [1]
    out, done = [], 1
    for k, r in enumerate(factors):
        ends = (source if k == 0 else split(n, columns), target if k == len(factors) - 1 else split(n, columns))
        factor = scale if k == len(factors) - 1 else 1.0
        out.append(Pass(part, n, columns, done, r, lanes, *ends, factor))
        done *= r
    return out
