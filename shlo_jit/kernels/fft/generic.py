"""Passes of an FFT whose radix is an odd number without a dedicated butterfly: the radix is an argument.

The sums over k of `butterfly.py` run over a copy of the points on the stack: a[k] and b[k], for 0 < k < r/2. Terms are
added in pairs (the first two to x[0] one by one), which is as fast as it is accurate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.fft.access import Mask, Side, load, store
from shlo_jit.kernels.fft.butterfly import multiply, scale
from shlo_jit.kernels.fft.fft import PassCode, Sizes
from shlo_jit.kernels.llvm_values import V, i64, vector

Numbers = tuple[V, ...]
"""The parts of a number: two, or only the real one."""


@dataclass(frozen=True)
class Workspace:
    """Numbered registers on the stack."""

    type: str
    pointer: V

    @staticmethod
    def new(b: Builder, part: str, lanes: int, count: int) -> Workspace:
        t = vector(part, lanes)
        return Workspace(t, b.alloca(t, count))

    def load(self, b: Builder, k: V) -> V:
        return b.load(self.type, self._at(b, k))

    def store(self, b: Builder, k: V, x: V) -> None:
        b.store(x, self._at(b, k))

    def _at(self, b: Builder, k: V) -> V:
        return b.emit("ptr", f"getelementptr inbounds {self.type}, ptr {self.pointer.text}, i64 {k.text}")


class Sums:
    """Sums with cosines and sines for one j. The table has cos and sin of 2 pi k / r, k < r, alternately."""

    def __init__(self, b: Builder, part: str, lanes: int, table: V, radix: V, j: V) -> None:
        self.b, self.part, self.lanes, self.table, self.radix, self.j = b, part, lanes, table, radix, j

    def root(self, k: V, which: int) -> V:
        b = self.b
        at = b.add(b.mul(b.urem(b.mul(self.j, k), self.radix), 2), which)
        return b.splat(b.load(self.part, b.element(self.table, self.part, at)), self.lanes)

    def term(self, space: Workspace, k: V, which: int) -> V:
        return self.b.fmul(space.load(self.b, k), self.root(k, which))

    def group(self, space: Workspace, k: V, size: int, which: int) -> V:
        """Returns the sum of `size` terms from k on."""
        total = self.term(space, k, which)
        for i in range(1, size):
            total = self.b.fadd(total, self.term(space, self.b.add(k, i), which))
        return total

    def run(
        self, starts: list[V | None], spaces: list[Workspace], which: list[int], groups: tuple[int, ...]
    ) -> list[V]:
        """Returns for each space its start plus all terms, in groups of the given sizes (as many as fit, each)."""
        b, end = self.b, b_half(self.b, self.radix)
        totals = []
        for start, space, w in zip(starts, spaces, which, strict=True):
            one, two = (self.term(space, i64(k), w) for k in (1, 2))
            totals.append(b.fadd(one, two) if start is None else b.fadd(b.fadd(start, one), two))
        k = i64(3)
        for size in groups:
            stop = b.add(k, b.mul(b.udiv(b.sub(end, k), size), size))
            with b.loop_carry(k, stop, totals, size, "k") as carry:
                sums = [self.group(space, carry.index, size, w) for space, w in zip(spaces, which, strict=True)]
                carry.next(*(b.fadd(t, s) for t, s in zip(carry.values, sums, strict=True)))
            totals, k = carry.values, stop
        return totals


def b_half(b: Builder, radix: V) -> V:
    """Returns (r + 1) / 2."""
    return b.udiv(b.add(radix, 1), 2)


@dataclass(frozen=True)
class GenericPassCode(PassCode):
    """A pass with a radix that is read from its sizes; `radix` is 0. Its table begins with the roots of the radix."""

    def _rows(self, b: Builder, sizes: Sizes, unit: tuple[V, V], source: Side, target: Side) -> None:
        n, radix = self.lanes, sizes.radix
        p, at_in, at_out = self._place(b, sizes, unit)
        spaces = [Workspace.new(b, self.part, n, tuning.FFT_LARGEST_PRIME // 2 + 2) for _ in range(4)]
        after = b.element(b.params[2], self.part, b.mul(radix, 2))

        def finish(i: V, x: tuple[V, V], to: V, mask: Mask | None) -> None:
            """Stores output i, for i > 0."""
            if self.last:
                factor = b.splat(b.load(self.part, after), n)
                x = scale(b, x, factor)
            else:
                at = b.mul(b.add(b.mul(p, b.sub(radix, 1)), b.sub(i, 1)), 2)
                w = [b.splat(b.load(self.part, b.element(after, self.part, b.add(at, k))), n) for k in (0, 1)]
                x = multiply(b, x, (w[0], w[1]))
            store(b, target, b.params[1], self.part, b.add(to, b.mul(i, sizes.out_step)), x, mask)

        def body(q: V, _: int, mask: Mask | None) -> None:
            def point(k: V) -> tuple[V, V]:
                at = b.add(b.add(b.add(at_in, q), sizes.in_first), b.mul(b.sub(k, 1), sizes.in_step))
                return load(b, source, b.params[0], self.part, at, n, mask)

            x0 = load(b, source, b.params[0], self.part, b.add(at_in, q), n, mask)
            to = b.add(at_out, q)
            re, im = fold(b, radix, x0, lambda k: (point(k), point(b.sub(radix, k))), spaces)
            total = re, im
            if self.last:
                total = scale(b, total, b.splat(b.load(self.part, after), n))
            store(b, target, b.params[1], self.part, to, total, mask)
            with b.loop(1, b_half(b, radix), 1, "j") as j:
                sums = Sums(b, self.part, n, b.params[2], radix, j)
                ar, ai, br, bi = sums.run([*x0, None, None], spaces, [0, 0, 1, 1], (2, 1))
                finish(j, (b.fadd(ar, bi), b.fsub(ai, br)), to, mask)
                finish(b.sub(radix, j), (b.fsub(ar, bi), b.fadd(ai, br)), to, mask)

        self._span(b, sizes, body)


def fold(
    b: Builder, radix: V, x0: Numbers, pair: Callable[[V], tuple[Numbers, Numbers]], spaces: list[Workspace]
) -> Numbers:
    """Stores the sums and the differences of x[k] and x[r-k], which `pair` returns, in the spaces: the sums of all
    parts, then the differences of all parts. Returns X[0]."""
    with b.loop_carry(1, b_half(b, radix), list(x0), 1, "k") as carry:
        k = carry.index
        both = list(zip(*pair(k), strict=True))
        sums = [b.fadd(x, y) for x, y in both]
        for space, v in zip(spaces, [*sums, *(b.fsub(x, y) for x, y in both)], strict=True):
            space.store(b, k, v)
        carry.next(*(b.fadd(t, s) for t, s in zip(carry.values, sums, strict=True)))
    return tuple(carry.values)
