"""Passes before and after an FFT that work row by row: products with a table, and the symmetry of real transforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.fft.access import Mask, Side, load, side, span_loop, store
from shlo_jit.kernels.fft.butterfly import Point, add, multiply, scale, subtract
from shlo_jit.kernels.fft.fft import Code, Sizes, dtype_of, roots
from shlo_jit.kernels.llvm_values import V, const, i64, vector


def planes(w: np.ndarray, part: str) -> np.ndarray:
    """Returns the real parts, then the imaginary ones, as numbers of the part's type."""
    return np.concatenate([np.real(w), np.imag(w)]).astype(dtype_of(part))


@dataclass(frozen=True)
class RowsCode(Code):
    """Computes target[row] = source[row] * factors[row] for row < rows, and 0 up to `rows_out`. The table has `planes`
    of factors; without `factors`, one real number for all rows. A unit is a row of `span` elements. With `flat`, rows
    are single elements, and one unit has all of them."""

    part: str
    lanes: int
    source: str
    target: str
    factors: bool
    flat: bool

    FIELDS: ClassVar = ("rows", "rows_out", "span", "in_stride", "in_plane", "out_stride", "out_plane")

    @property
    def name(self) -> str:
        flags = "_factors" * self.factors + "_flat" * self.flat
        return f"{'f32' if self.part == 'float' else 'f64'}x{self.lanes}_rows_{self.source}_{self.target}{flags}"

    def write(self, b: Builder, sizes: Sizes) -> None:
        target = side(b, self.target, b.params[1], self.part, sizes.out_plane)

        def clear(at: V, n: int, mask: Mask | None) -> None:
            zero = const(vector(self.part, n), 0.0)
            store(b, target, b.params[1], self.part, at, (zero, zero), mask)

        if self.flat:
            self._run(b, sizes, i64(0), i64(0), sizes.rows, None)
            rest = b.sub(sizes.rows_out, sizes.rows)
            span_loop(b, rest, self.lanes, lambda q, n, mask: clear(b.add(sizes.rows, q), n, mask))
            return
        with b.loop(b.params[4], b.params[5], 1, "row") as row:
            to = b.mul(row, sizes.out_stride)

            def copy(row: V = row, to: V = to) -> list[V]:
                self._run(b, sizes, b.mul(row, sizes.in_stride), to, sizes.span, row)
                return []

            def empty(to: V = to) -> list[V]:
                span_loop(b, sizes.span, self.lanes, lambda q, n, mask: clear(b.add(to, q), n, mask))
                return []

            b.if_else(b.icmp("slt", row, sizes.rows), copy, empty)

    def _run(self, b: Builder, sizes: Sizes, at: V, to: V, span: V, row: V | None) -> None:
        """Emits the elements of one row or, if `row` is None, rows of one element."""
        source = side(b, self.source, b.params[0], self.part, sizes.in_plane)
        target = side(b, self.target, b.params[1], self.part, sizes.out_plane)
        table = side(b, "split", b.params[2], self.part, sizes.rows)
        one = load(b, table, b.params[2], self.part, row, 1) if self.factors and row is not None else None
        whole = b.load(self.part, b.params[2]) if not self.factors else None

        def body(q: V, n: int, mask: Mask | None) -> None:
            x = load(b, source, b.params[0], self.part, b.add(at, q), n, mask)
            if whole is not None:
                x = scale(b, x, b.splat(whole, n))
            elif one is not None:
                x = multiply(b, x, (b.splat(one[0], n), b.splat(one[1], n)))
            else:
                x = multiply(b, x, load(b, table, b.params[2], self.part, q, n, mask))
            store(b, target, b.params[1], self.part, b.add(to, q), x, mask)

        span_loop(b, span, self.lanes, body)


@dataclass(frozen=True)
class RealCode(Code):
    """Converts between the transform X of n = 2h real numbers and the transform Z of them as h complex numbers.

    With E and O the transforms of the even and the odd elements, Z = E + iO and X = E + W O, W[k] = exp(-2 pi i k/n):
        X[k] = (Z[k] + conj Z[h-k]) / 2  -  i W[k] (Z[k] - conj Z[h-k]) / 2        (`forward`, k <= h, Z[h] = Z[0])
        Z[k] = (X[k] + conj X[h-k]) / 2  +  i conj W[k] (X[k] - conj X[h-k]) / 2   (k < h)
    The imaginary parts of X[0] and X[h] are taken as zero. X is stored as pairs, Z split; there is one unit.
    """

    part: str
    lanes: int
    forward: bool

    FIELDS: ClassVar = ("h", "plane")

    @property
    def name(self) -> str:
        direction = "forward" if self.forward else "backward"
        return f"{'f32' if self.part == 'float' else 'f64'}x{self.lanes}_halves_{direction}"

    def table(self, h: int) -> np.ndarray:
        """Returns -i W[k] / 2 or i conj W[k] / 2, for k < h."""
        w = roots(np.arange(h), 2 * h)
        return planes(-0.5j * w if self.forward else 0.5j * np.conj(w), self.part)

    def write(self, b: Builder, sizes: Sizes) -> None:
        split, pairs = side(b, "split", b.params[0 if self.forward else 1], self.part, sizes.plane), Side("pairs")
        source, target = (split, pairs) if self.forward else (pairs, split)
        self._ends(b, sizes, source, target)
        n, h = self.lanes, sizes.h
        whole = b.mul(b.udiv(b.sub(h, 1), n), n)
        with b.loop(1, b.add(whole, 1), n, "k") as k:
            self._some(b, h, source, target, k, n)
        with b.loop(b.add(whole, 1), h, 1, "k") as k:
            self._some(b, h, source, target, k, 1)

    def _some(self, b: Builder, h: V, source: Side, target: Side, k: V, n: int) -> None:
        """Emits n elements from k on, where 0 < k < h."""
        x = load(b, source, b.params[0], self.part, k, n)
        back = load(b, source, b.params[0], self.part, b.sub(b.add(h, 1 - n), k), n)
        y: Point = b.reverse(back[0]), b.fneg(b.reverse(back[1]))
        w = load(b, side(b, "split", b.params[2], self.part, h), b.params[2], self.part, k, n)
        even = scale(b, add(b, x, y), const(x[0].type, 0.5))
        store(b, target, b.params[1], self.part, k, add(b, even, multiply(b, subtract(b, x, y), w)))

    def _ends(self, b: Builder, sizes: Sizes, source: Side, target: Side) -> None:
        part, zero = self.part, const(self.part, 0.0)
        x = load(b, source, b.params[0], part, i64(0), 1)
        if self.forward:  # X[0] = E + O, X[h] = E - O
            store(b, target, b.params[1], part, i64(0), (b.fadd(x[0], x[1]), zero))
            store(b, target, b.params[1], part, sizes.h, (b.fsub(x[0], x[1]), zero))
            return
        y, half = load(b, source, b.params[0], part, sizes.h, 1), const(part, 0.5)
        z = b.fmul(b.fadd(x[0], y[0]), half), b.fmul(b.fsub(x[0], y[0]), half)
        store(b, target, b.params[1], part, i64(0), z)


@dataclass(frozen=True)
class HermitianCode(Code):
    """Computes all n elements, split, from the first n // 2 + 1 (n odd), pairs: X[n-k] = conj X[k]. The imaginary part
    of X[0] is taken as 0. There is one unit."""

    part: str

    FIELDS: ClassVar = ("n", "plane")

    @property
    def name(self) -> str:
        return f"{'f32' if self.part == 'float' else 'f64'}_hermitian"

    def write(self, b: Builder, sizes: Sizes) -> None:
        part, source, target = self.part, Side("pairs"), side(b, "split", b.params[1], self.part, sizes.plane)
        x = load(b, source, b.params[0], part, i64(0), 1)
        store(b, target, b.params[1], part, i64(0), (x[0], const(part, 0.0)))
        with b.loop(1, b.add(b.udiv(sizes.n, 2), 1), 1, "k") as k:
            re, im = load(b, source, b.params[0], part, k, 1)
            store(b, target, b.params[1], part, k, (re, im))
            store(b, target, b.params[1], part, b.sub(sizes.n, k), (re, b.fneg(im)))
