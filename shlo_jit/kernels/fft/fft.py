"""Fast Fourier transforms as passes over memory: Stockham's algorithm, which needs no bit reversal.

A *block* is `columns` transforms of length n side by side: n rows of `columns` elements. A pass of radix r splits every
transform in r. With s the product of the previous radices and the columns, and m = n columns / (s r), it computes

    for p < m, q < s:   y[q + s (r p + i)] = w^(p i) DFT_r(x[q + s (p + m k)] for k < r)[i],   w = exp(-2 pi i / (m r))

The reads are contiguous in t = q + s p whatever the radix, and so are the writes once s fills a register; before that
the results of one register of t's are interleaved. Powers of two come first, so s soon fills a register. The twiddle
factors are computed once and accurately, so the error is that of the log n roundings on the way (Van Loan,
"Computational Frameworks for the Fast Fourier Transform", 1992, sections 1.7 and 2.4).

Each variety of a pass (`PassCode`) is a routine: machine code that takes extents and strides as arguments, in an array
of i64, so a program with a transform of any length is a few calls. The inverse transform runs the same code: its
twiddle factors are the conjugates, and it reads the inputs x[1], ..., x[r-1] of each butterfly in reverse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from shlo_jit.kernels.attributes import attributes
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.fft.access import Mask, Side, first_lanes, load, side, span_loop, store, zip_lanes
from shlo_jit.kernels.fft.butterfly import Point, butterfly, multiply, scale
from shlo_jit.kernels.llvm_values import Index, V, i64
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

PARAMS = [("ptr", "source"), ("ptr", "target"), ("ptr", "table"), ("ptr", "sizes"), ("i64", "first"), ("i64", "last")]
"""Parameters of every pass; it computes the units from `first` to `last`. `sizes` are i64: the FIELDS of its class."""
WRITTEN_OUT = (2, 3, 4, 5, 7, 8, 11)
"""Radices with a dedicated butterfly; other primes use `generic.py`."""


MANY_ROOTS = 4096
MOST_ROOTS_KEPT = 1 << 20
"""Length of a transform up to which all its roots are computed at once: 16 MB."""


@dataclass(frozen=True)
class Step:
    """A pass of a certain length: its routine and the arguments."""

    routine: Routine
    sizes: tuple[int, ...]
    units: int
    table: np.ndarray = field(compare=False)
    written: int
    """Real numbers of the target that are written, from its first on, if it is a buffer between passes."""
    sequences: bool = False
    """Whether the units are the sequences of a block."""

    @property
    def symbol(self) -> str:
        return self.routine.symbols[0]


class Sizes:
    """The sizes of a pass, by name, as registers of its function."""

    def __init__(self, b: Builder, names: Sequence[str]) -> None:
        self._values = {name: b.load("i64", b.element(b.params[3], "i64", k)) for k, name in enumerate(names)}

    def __getattr__(self, name: str) -> V:
        return self._values[name]


class Code:
    """A variety of a pass; the subclasses are frozen dataclasses."""

    FIELDS: ClassVar[tuple[str, ...]]

    @property
    def name(self) -> str:
        raise NotImplementedError

    def write(self, b: Builder, sizes: Sizes) -> None:
        raise NotImplementedError

    def routine(self) -> Routine:
        symbol = f"shlo_fft_{self.name}"

        def build(module: ModuleText, target: Target) -> None:
            b = module.function(symbol, PARAMS, linkage="", attributes=attributes(target))
            self.write(b, Sizes(b, self.FIELDS))
            b.ret()

        return Routine(symbol, (symbol,), build)

    def step(self, units: int, table: np.ndarray, written: int = 0, **sizes: int) -> Step:
        return Step(self.routine(), tuple(sizes[name] for name in self.FIELDS), units, table, written)


@dataclass(frozen=True)
class PassCode(Code):
    """A pass with a certain radix, width and layouts.

    A unit is one p (or a slice of its q's) or one row of the result. With `run`, it is one register of t's, whose
    results are interleaved in runs of `run` lanes.
    """

    part: str
    """float or double."""
    radix: int
    lanes: int
    source: str
    target: str
    last: bool
    """Whether there are no twiddle factors, but a scale."""
    rows: str
    """Registers of a unit: `one`; `partial`, the first lanes of one; `several`; `overlapping`, where the last begins
    inside the one before; `masked`, several and a rest under a mask."""
    run: int = 0

    FIELDS: ClassVar = (
        "slices", "span", "in_p", "in_first", "in_step", "in_plane", "out_p", "out_step", "out_plane", "radix",
    )  # fmt: skip

    @property
    def name(self) -> str:
        flags = "_last" * self.last + f"_run{self.run}" * (self.run > 0)
        kinds = f"{self.source}_{self.target}"
        return f"{'f32' if self.part == 'float' else 'f64'}x{self.lanes}_radix{self.radix}_{kinds}_{self.rows}{flags}"

    def write(self, b: Builder, sizes: Sizes) -> None:
        source = side(b, self.source, b.params[0], self.part, sizes.in_plane)
        target = side(b, self.target, b.params[1], self.part, sizes.out_plane)
        first, end = b.params[4:]
        if self.run:
            with b.loop(first, end, 1, "unit") as u:
                self._zipped(b, sizes, u, source, target)
            return
        row = b.mul(sizes.slices, sizes.span)
        start = [b.udiv(first, sizes.slices), b.mul(b.urem(first, sizes.slices), sizes.span)]
        with b.loop_carry(first, end, start, 1, "unit") as carry:
            p, q = carry.values
            self._rows(b, sizes, (p, q), source, target)
            after = b.add(q, sizes.span)
            ends = b.icmp("eq", after, row)
            carry.next(b.select(ends, b.add(p, 1), p), b.select(ends, i64(0), after))

    def _points(self, b: Builder, sizes: Sizes, at: V, source: Side, mask: Mask | None) -> list[Point]:
        places = [at, b.add(at, sizes.in_first)]
        for _ in range(2, self.radix):
            places.append(b.add(places[-1], sizes.in_step))
        x = [load(b, source, b.params[0], self.part, place, self.lanes, mask) for place in places[: self.radix]]
        y = butterfly(b, x)
        if self.last:
            factor = b.splat(b.load(self.part, b.params[2]), self.lanes)
            y = [scale(b, v, factor) for v in y]
        return y

    def _rows(self, b: Builder, sizes: Sizes, unit: tuple[V, V], source: Side, target: Side) -> None:
        """Emits a unit, which is given by its p and the first of its q's."""
        r, n = self.radix, self.lanes
        p, at_in, at_out = self._place(b, sizes, unit)
        factors: list[Point] = []
        if not self.last:
            factors = twiddles_of(b, self.part, p, r)

        def body(q: V, _: int, mask: Mask | None) -> None:
            y = self._points(b, sizes, b.add(at_in, q), source, mask)
            for i, w in enumerate(factors):
                y[i + 1] = multiply(b, y[i + 1], (b.splat(w[0], n), b.splat(w[1], n)))
            place = b.add(at_out, q)
            for i, v in enumerate(y):
                store(b, target, b.params[1], self.part, place, v, mask)
                if i + 1 < r:
                    place = b.add(place, sizes.out_step)

        self._span(b, sizes, body)

    def _place(self, b: Builder, sizes: Sizes, unit: tuple[V, V]) -> tuple[V, V, V]:
        """Returns p of a unit, and where the unit begins in the source and in the target."""
        p, q = unit
        return p, b.add(b.mul(p, sizes.in_p), q), b.add(b.mul(p, sizes.out_p), q)

    def _span(self, b: Builder, sizes: Sizes, body: Callable[[V, int, Mask | None], None]) -> None:
        if self.rows == "one":
            body(i64(0), self.lanes, None)
        elif self.rows == "partial":
            body(i64(0), self.lanes, first_lanes(b, self.lanes, sizes.span))
        elif self.rows == "masked":
            span_loop(b, sizes.span, self.lanes, body)
        else:
            last = b.sub(sizes.span, self.lanes)
            with b.loop(0, sizes.span, self.lanes, "q") as q:
                body(b.min_(q, last) if self.rows == "overlapping" else q, self.lanes, None)

    def _zipped(self, b: Builder, sizes: Sizes, u: V, source: Side, target: Side) -> None:
        """Emits a unit whose results, of one register of t's, fill r registers of adjacent elements. The last register
        may begin inside the one before: both write the same values there."""
        r, n = self.radix, self.lanes
        at = b.min_(b.mul(u, n), b.sub(sizes.span, n))
        y = self._points(b, sizes, at, source, None)
        if not self.last:
            row = b.element(b.params[2], self.part, b.mul(u, 2 * (r - 1) * n))
            for i in range(1, r):
                w = [b.load(f"<{n} x {self.part}>", b.element(row, self.part, (2 * (i - 1) + k) * n)) for k in (0, 1)]
                y[i] = multiply(b, y[i], (w[0], w[1]))
        real, imaginary = (zip_lanes(b, [v[k] for v in y], self.run) for k in (0, 1))
        for j, v in enumerate(zip(real, imaginary, strict=True)):
            store(b, target, b.params[1], self.part, b.add(b.mul(at, r), j * n), v)


def twiddles_of(b: Builder, part: str, p: Index, radix: int) -> list[Point]:
    """Loads the r - 1 factors of one p."""
    row = b.element(b.params[2], part, b.mul(p, 2 * (radix - 1)))
    parts = [b.load(part, b.element(row, part, k)) for k in range(2 * (radix - 1))]
    return list(zip(parts[0::2], parts[1::2], strict=True))


# ---------------------------------------------------------------------------- tables
def dtype_of(part: str) -> type:
    return np.float32 if part == "float" else np.float64


def roots(k: np.ndarray, n: int) -> np.ndarray:
    """Returns exp(-2 pi i k / n) in extended precision. Many roots are products of two out of 2 sqrt(n), since a cosine
    takes 100 ns."""
    k = k % n
    if len(k) <= MANY_ROOTS:
        return _exact_roots(k, n)
    shift = max(1, n.bit_length() // 2)
    low = _exact_roots(np.arange(min(n, 1 << shift)), n)
    high = _exact_roots(np.arange(0, n, 1 << shift), n)
    return low[k & ((1 << shift) - 1)] * high[k >> shift]


def _exact_roots(k: np.ndarray, n: int) -> np.ndarray:
    angle = 2 * np.arctan2(np.longdouble(0), np.longdouble(-1)) * k.astype(np.longdouble) / n
    return np.cos(angle) - 1j * np.sin(angle)


class Roots:
    """Roots exp(-2 pi i k / n) in double precision: products of two out of some 2 sqrt(n) cosines and sines of angles
    below pi/4. Rounded to f32 they are exact to the last bit; in f64 the error is one or two units."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._shift = 1
        while 4**self._shift < (n + 2) // 2:
            self._shift += 1
        few = 1 << self._shift
        self._low = np.array([_root(k, n) for k in range(few)]).T
        self._high = np.array([_root(k, n) for k in range(0, n // 2 + few, few)]).T

    @cached_property
    def _all(self) -> np.ndarray:
        """The roots for all k < n: consecutive ones take no gathers."""
        (x, y), (u, v) = self._low[:, None, :], self._high[:, :, None]
        re, im = (x * u - y * v).reshape(-1), (x * v + y * u).reshape(-1)
        half = self.n // 2 + 1
        mirror = slice(self.n - half, 0, -1)
        return np.concatenate([re[:half] + 1j * -im[:half], re[mirror] + 1j * im[mirror]])[: self.n]

    def __getitem__(self, k: np.ndarray) -> np.ndarray:
        """The roots for an array of k, any integers."""
        if len(self._low[0]) <= k.size and self.n <= MOST_ROOTS_KEPT:
            return self._all[k % self.n]
        k = k % self.n
        upper = 2 * k > self.n
        k = np.where(upper, self.n - k, k)
        x, y = self._low[:, k & ((1 << self._shift) - 1)], self._high[:, k >> self._shift]
        re, im = x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]
        return re + 1j * np.where(upper, im, -im)


@lru_cache(maxsize=2)
def roots_of(n: int) -> Roots:
    """Returns the roots of 1 from which all passes of a transform of length n take their factors."""
    return Roots(n)


def _root(k: int, n: int) -> tuple[float, float]:
    """Returns cosine and sine of 2 pi k / n, by the octant of k."""
    unit = float(np.arctan2(np.longdouble(0), np.longdouble(-1)) / 4 / n)
    octant, rest = divmod(8 * (k % n), n)
    angle = unit * (n - rest if octant % 2 else rest)
    re, im = math.cos(angle), math.sin(angle)
    if octant % 4 in (1, 2):
        re, im = im, re
    return -re if 2 <= octant < 6 else re, -im if octant >= 4 else im


def interleaved(w: np.ndarray, part: str) -> np.ndarray:
    """Returns real and imaginary parts alternately, as numbers of the part's type."""
    return np.stack([np.real(w), np.imag(w)], axis=-1).astype(dtype_of(part)).reshape(-1)


def twiddles(n: int, done: int, radix: int, count: int, inverse: bool) -> np.ndarray:
    """Returns w^(p i) for p < count and 0 < i < r, with w = exp(-2 pi i done / n) or its conjugate: [count, r - 1]."""
    w = _forward_twiddles(n, done, radix, count)
    return np.conj(w) if inverse else w


@lru_cache(maxsize=16)
def _forward_twiddles(n: int, done: int, radix: int, count: int) -> np.ndarray:
    p, i = np.arange(count)[:, None], np.arange(1, radix)[None, :]
    return roots_of(n)[p * i * done]


def forget_twiddles() -> None:
    """Drops the factors that are cached for further passes of the transform that is being planned."""
    _forward_twiddles.cache_clear()


def radix_roots(n: int, radix: int) -> np.ndarray:
    """Returns exp(2 pi i k / r), k < r, for a radix of a transform of length n."""
    return np.conj(roots_of(n)[np.arange(radix) * (n // radix)])
