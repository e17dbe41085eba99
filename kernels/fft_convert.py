"""Passes around an FFT that go row by row: products with a table, and the symmetry of real transforms.

Each writes `void (ptr source, ptr target, ptr table, i64 first, i64 last)` over its units, like `fft.Pass`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from shlo_jit.kernels.builder import Builder, V, const, i64, vector
from shlo_jit.kernels.fft import dtype_of, roots
from shlo_jit.kernels.fft_access import Mask, Side, load, span_loop, store
from shlo_jit.kernels.fft_butterfly import Point, add, multiply, scale, subtract


@dataclass(frozen=True)
class Rows:
    """target[row] = source[row] * factors[row] * scale for row < rows, and 0 up to `rows_out`."""

    part: str
    rows: int
    rows_out: int
    columns: int
    lanes: int
    source: Side
    target: Side
    factors: np.ndarray | None = field(default=None, compare=False)
    scale: float = 1.0

    @property
    def units(self) -> int:
        return 1 if self.columns == 1 else self.rows_out

    def table(self) -> np.ndarray:
        """Real parts of the factors, then the imaginary ones."""
        if self.factors is None:
            return np.zeros(0, dtype_of(self.part))
        w = self.factors * np.longdouble(self.scale)
        return np.concatenate([w.real, w.imag]).astype(dtype_of(self.part))

    def write(self, b: Builder, source: V, target: V, table: V, first: V, last: V) -> None:
        if self.columns == 1:
            self._run(b, source, target, table, i64(0), i64(0), self.rows, per_lane=True)
            with b.loop(self.rows, self.rows_out, 1, "zero") as row:
                self._zero(b, target, row, 1, None)
            return
        with b.loop(first, last, 1, "row") as row:

            def copy() -> list[V]:
                at, to = b.mul(row, self.source.stride), b.mul(row, self.target.stride)
                w = self._factor(b, table, row, 1)
                self._run(b, source, target, table, at, to, self.columns, w)
                return []

            def clear() -> list[V]:
                to = b.mul(row, self.target.stride)
                span_loop(b, self.columns, self.lanes, lambda q, n, mask: self._zero(b, target, b.add(to, q), n, mask))
                return []

            b.if_else(b.icmp("slt", row, self.rows), copy, clear)

    def _factor(self, b: Builder, table: V, row: V, n: int, mask: Mask | None = None) -> Point | None:
        if self.factors is None:
            return None
        at = Side("split", 1, self.rows)
        return load(b, at, table, self.part, row, n, mask)

    def _run(
        self, b: Builder, source: V, target: V, table: V, at: V, to: V, span: int, w: Point | None = None,
        *, per_lane: bool = False,
    ) -> None:  # fmt: skip
        def body(q: V, n: int, mask: Mask | None) -> None:
            x = load(b, self.source, source, self.part, b.add(at, q), n, mask)
            if per_lane:
                factor = self._factor(b, table, q, n, mask)
            else:
                factor = None if w is None else (b.splat(w[0], n), b.splat(w[1], n))
            if factor is not None:
                x = multiply(b, x, factor)
            elif self.scale != 1.0:
                x = scale(b, x, const(x[0].type, self.scale))
            store(b, self.target, target, self.part, b.add(to, q), x, mask)

        span_loop(b, span, self.lanes, body)

    def _zero(self, b: Builder, target: V, at: V, n: int, mask: Mask | None) -> None:
        zero = const(vector(self.part, n), 0.0)
        store(b, self.target, target, self.part, at, (zero, zero), mask)


@dataclass(frozen=True)
class Real:
    """Between the transform X of n = 2h real numbers and the transform Z of them as h complex ones.

    With E and O the transforms of the even and the odd elements, Z = E + iO and X = E + W O, W[k] = exp(-2 pi i k/n):
        X[k] = (Z[k] + conj Z[h-k]) / 2  -  i W[k] (Z[k] - conj Z[h-k]) / 2        (`forward`, k <= h, Z[h] = Z[0])
        Z[k] = (X[k] + conj X[h-k]) / 2  +  i conj W[k] (X[k] - conj X[h-k]) / 2   (k < h)
    The imaginary parts of X[0] and X[h] are taken as zero.
    """

    part: str
    h: int
    lanes: int
    source: Side
    target: Side
    forward: bool

    units = 1

    def table(self) -> np.ndarray:
        """-i W[k] / 2 or i conj W[k] / 2, for k < h."""
        w = roots(np.arange(self.h), 2 * self.h)
        w = -0.5j * w if self.forward else 0.5j * np.conj(w)
        return np.concatenate([w.real, w.imag]).astype(dtype_of(self.part))

    def write(self, b: Builder, source: V, target: V, table: V, first: V, last: V) -> None:
        self._ends(b, source, target)
        n = self.lanes
        whole = (self.h - 1) // n * n
        with b.loop(1, 1 + whole, n, "k") as k:
            self._some(b, source, target, table, k, n)
        with b.loop(1 + whole, self.h, 1, "k") as k:
            self._some(b, source, target, table, k, 1)

    def _some(self, b: Builder, source: V, target: V, table: V, k: V, n: int) -> None:
        """k, k+1, ..., n of them, where 0 < k < h."""
        x = load(b, self.source, source, self.part, k, n)
        back = load(b, self.source, source, self.part, b.sub(i64(self.h - n + 1), k), n)
        y = b.reverse(back[0]), b.fneg(b.reverse(back[1]))
        w = load(b, Side("split", 1, self.h), table, self.part, k, n)
        even = scale(b, add(b, x, y), const(x[0].type, 0.5))
        store(b, self.target, target, self.part, k, add(b, even, multiply(b, subtract(b, x, y), w)))

    def _ends(self, b: Builder, source: V, target: V) -> None:
        part, zero = self.part, const(self.part, 0.0)
        x = load(b, self.source, source, part, i64(0), 1)
        if self.forward:  # X[0] = E + O, X[h] = E - O
            store(b, self.target, target, part, i64(0), (b.fadd(x[0], x[1]), zero))
            store(b, self.target, target, part, i64(self.h), (b.fsub(x[0], x[1]), zero))
            return
        y, half = load(b, self.source, source, part, i64(self.h), 1), const(part, 0.5)
        z = b.fmul(b.fadd(x[0], y[0]), half), b.fmul(b.fsub(x[0], y[0]), half)
        store(b, self.target, target, part, i64(0), z)


@dataclass(frozen=True)
class Hermitian:
    """All n rows from the first n // 2 + 1 (n odd): X[n-k] = conj X[k]. The imaginary part of X[0] is taken as 0."""

    part: str
    n: int
    source: Side
    target: Side

    units = 1

    def table(self) -> np.ndarray:
        return np.zeros(0, dtype_of(self.part))

    def write(self, b: Builder, source: V, target: V, table: V, first: V, last: V) -> None:
        part = self.part
        x = load(b, self.source, source, part, i64(0), 1)
        store(b, self.target, target, part, i64(0), (x[0], const(part, 0.0)))
        with b.loop(1, self.n // 2 + 1, 1, "k") as k:
            re, im = load(b, self.source, source, part, k, 1)
            store(b, self.target, target, part, k, (re, im))
            store(b, self.target, target, part, b.sub(i64(self.n), k), (re, b.fneg(im)))
