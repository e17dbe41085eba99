"""Passes of an FFT of real numbers, for a register of transforms side by side: rows of `lanes` numbers.

The half transform of n real numbers is stored in n rows: X[0], Re X[1], Im X[1], Re X[2], ..., and Re X[n/2] at the
end when n is even. A forward pass combines, for each of l1 sequences, r half transforms of length `ido` (of every r-th
element) into one of length r ido; X[i] and X[ido-i] come from the same complex butterfly. A backward pass is its
inverse, times r. That is half the work of complex transforms of the same numbers, for any n (Sorensen, Jones, Heideman
and Burrus, "Real-valued fast Fourier transform algorithms", 1987; the layout is that of Swarztrauber's FFTPACK).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.fft.butterfly import (
    Point,
    backward,
    butterfly,
    conj,
    const_half,
    hermitian_butterfly,
    multiply,
    real_butterfly,
)
from shlo_jit.kernels.fft.fft import Code, Sizes, interleaved, radix_roots, twiddles
from shlo_jit.kernels.fft.generic import Sums, Workspace, b_half, fold
from shlo_jit.kernels.llvm_values import Index, V, i64, vector

REAL_WRITTEN_OUT = (2, 3, 4, 5)


@dataclass(frozen=True)
class RealPassCode(Code):
    """One pass over all sequences. If `radix` is 0, the radix is an odd number among the sizes, and the table begins
    with its roots."""

    part: str
    radix: int
    lanes: int
    forward: bool

    FIELDS: ClassVar = ("l1", "ido", "radix")

    @property
    def name(self) -> str:
        direction = "forward" if self.forward else "backward"
        return f"{'f32' if self.part == 'float' else 'f64'}x{self.lanes}_real{self.radix}_{direction}"

    def write(self, b: Builder, sizes: Sizes) -> None:
        with b.loop(0, sizes.l1, 1, "k") as k:
            work = (_Generic if self.radix == 0 else _Fixed)(self, b, sizes, k)
            work.ends()
            with b.loop(1, b.udiv(b.add(sizes.ido, 1), 2), 1, "i") as i:
                work.inside(i)
            if self.radix in (2, 4):
                with b.if_(b.icmp("eq", b.and_(sizes.ido, i64(1)), 0)):
                    work.middle()


class _Work:
    """The pass for sequence k, with the addresses of its rows. Addresses are those of rows 0, and offsets lead to other
    rows."""

    def __init__(self, code: RealPassCode, b: Builder, sizes: Sizes, k: V) -> None:
        self.code, self.b, self.sizes, self.k = code, b, sizes, k
        self.type = vector(code.part, code.lanes)
        self.radix: Index = code.radix or sizes.radix
        self.row_bytes = code.lanes * (4 if code.part == "float" else 8)
        self.last = b.mul(b.sub(sizes.ido, 1), self.row_bytes)
        near, far = b.params[:2] if code.forward else b.params[1::-1]
        self._step = b.mul(sizes.ido, self.row_bytes)
        """Bytes from one transform of length ido to the next."""
        self._near, self._far = (b.offset(p, b.mul(self._step, n)) for p, n in ((near, k), (far, b.mul(k, self.radix))))

    def short(self, j: Index) -> V:
        """Returns the address of the half transform of length ido with number j."""
        b = self.b
        return b.offset(self._near, b.mul(b.mul(self.sizes.l1, self._step), j))

    def long(self, slot: Index) -> V:
        """Returns the address of slot `slot` of the transform of length r ido: X[i + ido j] is at i of slot 2j, its
        counterpart X[ido j - i] at ido - i of slot 2j - 1."""
        return self.b.offset(self._far, self.b.mul(self._step, slot))

    def load(self, row: V, offset: Index = 0) -> V:
        return self.b.load(self.type, self.b.offset(row, offset))

    def store(self, row: V, offset: Index, x: V) -> None:
        self.b.store(x, self.b.offset(row, offset))

    def offsets(self, i: V, back: bool = False) -> tuple[V, V]:
        """Returns the offsets of the rows of the parts of X[i], or of X[ido - i]."""
        b, n = self.b, self.row_bytes
        im = b.mul(i, 2 * n)
        if back:
            im = b.sub(self._step, im)
        return b.sub(im, n), im

    def load_pair(self, row: V, i: V, back: bool = False) -> Point:
        """Loads X[i], or the conjugate of X[ido - i]."""
        re, im = self.offsets(i, back)
        x = self.load(row, re), self.load(row, im)
        return conj(self.b, x) if back else x

    def store_pair(self, row: V, i: V, x: Point, back: bool = False) -> None:
        re, im = self.offsets(i, back)
        self.store(row, re, x[0])
        self.store(row, im, self.b.fneg(x[1]) if back else x[1])

    def twiddle(self, base: V, i: V, j: Index) -> Point:
        b, part = self.b, self.code.part
        at = b.mul(b.add(b.mul(i, b.sub(self.radix, 1)), b.sub(j, 1)), 2)
        re, im = (b.splat(b.load(part, b.element(base, part, b.add(at, w))), self.code.lanes) for w in (0, 1))
        return re, im


class _Fixed(_Work):
    """A pass whose radix has a dedicated butterfly."""

    def __init__(self, code: RealPassCode, b: Builder, sizes: Sizes, k: V) -> None:
        super().__init__(code, b, sizes, k)
        self.shorts, self.longs = ([at(j) for j in range(code.radix)] for at in (self.short, self.long))

    def slots(self) -> list[tuple[int, int, bool]]:
        """Returns (number of the output, slot, whether it is the counterpart) for a butterfly's outputs."""
        r = self.code.radix
        return [(slot // 2 if slot % 2 == 0 else r - (slot + 1) // 2, slot, slot % 2 == 1) for slot in range(r)]

    def ends(self) -> None:
        """Emits X[0] of the short transforms, which is real: multiples of ido in the long one."""
        r, longs, last = self.code.radix, self.longs, self.last
        if self.code.forward:
            y = real_butterfly(self.b, [self.load(p) for p in self.shorts])
            self.store(longs[0], 0, y[0][0])
            for j, v in enumerate(y[1:], 1):
                self.store(longs[2 * j - 1], last, v[0])
                if 2 * j < r:
                    self.store(longs[2 * j], 0, v[1])
            return
        first = self.load(longs[0])
        x = [(first, first)]
        for j in range(1, r // 2 + 1):
            re = self.load(longs[2 * j - 1], last)
            x.append((re, self.load(longs[2 * j]) if 2 * j < r else re))
        for p, v in zip(self.shorts, hermitian_butterfly(self.b, x, r), strict=True):
            self.store(p, 0, v)

    def inside(self, i: V) -> None:
        b, table = self.b, self.b.params[2]
        if self.code.forward:
            x = [self.load_pair(p, i) for p in self.shorts]
            x[1:] = [multiply(b, v, self.twiddle(table, i, j)) for j, v in enumerate(x[1:], 1)]
            y = butterfly(b, x)
            for number, slot, back in self.slots():
                self.store_pair(self.longs[slot], i, y[number], back)
            return
        x = [self.load_pair(self.longs[slot], i, back) for _, slot, back in sorted(self.slots())]
        y = backward(b, x)
        y[1:] = [multiply(b, v, self.twiddle(table, i, j)) for j, v in enumerate(y[1:], 1)]
        for p, v in zip(self.shorts, y, strict=True):
            self.store_pair(p, i, v)

    def middle(self) -> None:
        """Emits X[ido/2] of the short transforms, which is real: odd multiples of ido/2 in the long one."""
        b, shorts, longs, last = self.b, self.shorts, self.longs, self.last
        if self.code.radix == 2 and self.code.forward:
            self.store(longs[1], 0, b.fneg(self.load(shorts[1], last)))
            self.store(longs[0], last, self.load(shorts[0], last))
            return
        if self.code.radix == 2:
            re, im = self.load(longs[0], last), self.load(longs[1])
            self.store(shorts[0], last, b.fadd(re, re))
            self.store(shorts[1], last, b.fneg(b.fadd(im, im)))
            return
        half = const_half(self.type)
        if self.code.forward:
            x = [self.load(p, last) for p in shorts]
            re, im = b.fmul(b.fsub(x[1], x[3]), half), b.fneg(b.fmul(b.fadd(x[1], x[3]), half))
            self.store(longs[0], last, b.fadd(x[0], re))
            self.store(longs[2], last, b.fsub(x[0], re))
            self.store(longs[3], 0, b.fadd(im, x[2]))
            self.store(longs[1], 0, b.fsub(im, x[2]))
            return
        re, other, im, im_other = (self.load(longs[k], at) for k, at in ((0, last), (2, last), (3, 0), (1, 0)))
        sum_re, difference = b.fadd(re, other), b.fsub(re, other)
        sum_im, difference_im = b.fadd(im, im_other), b.fsub(im, im_other)
        twice = b.fadd(half, half)
        self.store(shorts[0], last, b.fadd(sum_re, sum_re))
        self.store(shorts[1], last, b.fmul(b.fsub(difference, sum_im), twice))
        self.store(shorts[2], last, b.fadd(difference_im, difference_im))
        self.store(shorts[3], last, b.fneg(b.fmul(b.fadd(difference, sum_im), twice)))


class _Generic(_Work):
    """A pass whose radix is an argument. Terms are added in groups of four, two and one."""

    GROUPS = (4, 2, 1)

    def __init__(self, code: RealPassCode, b: Builder, sizes: Sizes, k: V) -> None:
        super().__init__(code, b, sizes, k)
        self.spaces = [Workspace.new(b, code.part, code.lanes, tuning.FFT_LARGEST_PRIME // 2 + 2) for _ in range(4)]
        self.table = b.element(b.params[2], code.part, b.mul(sizes.radix, 2))

    def sums(self, j: V) -> Sums:
        return Sums(self.b, self.code.part, self.code.lanes, self.b.params[2], self.sizes.radix, j)

    def ends(self) -> None:
        b, radix, last, forward = self.b, self.sizes.radix, self.last, self.code.forward
        first = self.load(self.short(0) if forward else self.long(0))
        sums, differences = self.spaces[:2]

        def pair(k: V) -> tuple[tuple[V], tuple[V]]:
            if forward:
                return (self.load(self.short(k)),), (self.load(self.short(b.sub(radix, k))),)
            re = self.load(self.long(b.sub(b.mul(k, 2), 1)), last)
            return (re,), (re,)

        (total,) = fold(b, radix, (first,), pair, [sums, differences])
        self.store(self.long(0) if forward else self.short(0), 0, total)
        if not forward:
            with b.loop(1, b_half(b, radix), 1, "k") as k:
                im = self.load(self.long(b.mul(k, 2)))
                differences.store(b, k, b.fadd(im, im))
        with b.loop(1, b_half(b, radix), 1, "j") as j:
            even, odd = self.sums(j).run([first, None], [sums, differences], [0, 1], self.GROUPS)
            if forward:
                self.store(self.long(b.sub(b.mul(j, 2), 1)), last, even)
                self.store(self.long(b.mul(j, 2)), 0, b.fneg(odd))
            else:
                self.store(self.short(j), 0, b.fsub(even, odd))
                self.store(self.short(b.sub(radix, j)), 0, b.fadd(even, odd))

    def inside(self, i: V) -> None:
        b, radix, forward = self.b, self.sizes.radix, self.code.forward

        def twiddled(k: V) -> Point:
            return multiply(b, self.load_pair(self.short(k), i), self.twiddle(self.table, i, k))

        def pair(k: V) -> tuple[Point, Point]:
            if forward:
                return twiddled(k), twiddled(b.sub(radix, k))
            slot = b.mul(k, 2)
            return self.load_pair(self.long(b.sub(slot, 1)), i, True), self.load_pair(self.long(slot), i)

        x0 = self.load_pair(self.short(0) if forward else self.long(0), i)
        re, im = fold(b, radix, x0, pair, self.spaces)
        self.store_pair(self.long(0) if forward else self.short(0), i, (re, im))
        with b.loop(1, b_half(b, radix), 1, "j") as j:
            ar, ai, br, bi = self.sums(j).run([*x0, None, None], self.spaces, [0, 0, 1, 1], self.GROUPS)
            low = b.fadd(ar, bi), b.fsub(ai, br)
            high = b.fsub(ar, bi), b.fadd(ai, br)
            slot = b.mul(j, 2)
            if forward:
                self.store_pair(self.long(slot), i, low)
                self.store_pair(self.long(b.sub(slot, 1)), i, high, True)
            else:
                for number, v in ((j, low), (b.sub(radix, j), high)):
                    self.store_pair(self.short(number), i, multiply(b, v, self.twiddle(self.table, i, number)))

    def middle(self) -> None:
        raise AssertionError("odd radices come before the even ones")


def real_radices(n: int) -> list[int]:
    """Returns n as a product: the fours, a two in front, then odd primes. A forward transform begins with the last."""
    out, rest = [], n
    while rest % 4 == 0:
        out, rest = [*out, 4], rest // 4
    if rest % 2 == 0:
        out, rest = [2, *out[1:], *out[:1]], rest // 2
    divisor = 3
    while rest > 1:
        while rest % divisor == 0:
            out, rest = [*out, divisor], rest // divisor
        divisor += 2
    return out


def pass_table(part: str, n: int, l1: int, radix: int, forward: bool) -> np.ndarray:
    """Returns the twiddle factors of the interior i, from i = 0 on; before them the roots of a radix without a
    dedicated butterfly."""
    ido = n // (l1 * radix)
    w = twiddles(n, l1, radix, (ido + 1) // 2, not forward).reshape(-1)
    if radix not in REAL_WRITTEN_OUT:
        w = np.concatenate([radix_roots(n, radix), w])
    return interleaved(w, part)
