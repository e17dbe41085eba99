"""Depthwise convolution with small windows, whose weights stay in registers.

For a vector of channels, a loop runs along the pixels of a line. Windows are loaded from the first level cache, where
its neighbour's loads have left it, and the loads overlap with multiply-adds that take as long. Where the target has
masks, window lines above and below the input are masked, so that all lines of pixels run the same code. Pixels beyond
the ends of a line and the last channels are masked, too. A masked term is not added. Without masks, only lines whose
windows have all their lines inside the input take this path, and of these the pixels whose windows lie inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.convolution.input import Arguments, dot
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.gemm.pack import convert
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes, itemsize, storage
from shlo_jit.kernels.llvm_values import V, const, i64, vector
from shlo_jit.kernels.target import Target


def multiply_add(b: Builder, plan: GemmPlan, target: Target, x: V, y: V, z: V) -> V:
    """Returns x * y + z, as a fused multiply-add where the target has one."""
    if plan.acc not in ("float", "double"):
        return b.add(b.mul(x, y), z)
    return b.fma(x, y, z) if target.has_fma else b.fadd(b.fmul(x, y), z)


class _Vector(NamedTuple):
    """A vector of channels of a line."""

    rows: list[V]
    """The addresses where the lines of the window begin in the input."""
    kernel: V
    words: list[V | None]
    """A bit for each lane that is inside the input, per line of the window; None if all lanes are known to be."""
    lanes: V | None
    """A bit for each lane that is inside the output; None if all lanes are known to be."""
    output: V
    """The address where the line of pixels begins."""


class Windows:
    """Emits a line of output pixels, with windows of `size` x `size` pixels."""

    def __init__(self, b: Builder, g: Arguments, types: GemmTypes, target: Target, size: int):
        self.b, self.g, self.types, self.target, self.size = b, g, types, target, size
        self.plan = conv_plan(types, target)

    def line(self, plane: V, kernel: V, output: V, channels: tuple[V, V], depth: V, top: V) -> None:
        """Emits some channels of a line. `plane` is the address of the window's plane in the input, and `depth` says
        whether that plane is inside the input. `top` is the input line of the window's first line."""
        b, g = self.b, self.g
        self.kernel, self.output, self.channels = kernel, output, channels
        self.rows, self.inside = [], []
        for y in range(self.size):
            row = b.add(top, b.mul(g.get("rdil_h"), y))
            known = self._clamped(row, "in_h")
            self.inside.append(b.and_(depth, b.icmp("eq", known, row)))
            self.rows.append(b.offset(plane, b.mul(known, g.get("in_sh"))))
        ow, first, end = self.g.ints("ow inside0 inside1")
        self._each_vector(lambda v: self._inner(v, first, end))
        if self.plan.masks:
            # First the pixels before the interior ones, then those after.
            with b.loop(0, b.add(first, b.sub(ow, end)), hint="outer") as s:
                self._outer(b.select(b.icmp("slt", s, first), s, b.add(s, b.sub(end, first))))

    def _clamped(self, place: V, extent: str) -> V:
        """Clamps a position to the input: a masked load reads nothing, but is slow if its address is invalid."""
        return self.b.max_(self.b.min_(place, self.b.sub(self.g.get(extent), 1)), 0)

    def _each_vector(self, body: Callable[[_Vector], None]) -> None:
        """Emits the body without masks for vectors whose window lines lie inside the input, and with masks for the
        others."""
        b, n, (first, end) = self.b, self.plan.lanes, self.channels
        if not self.plan.masks:
            with b.loop(first, end, n, "channel") as c:
                body(self._vector(c, None))
            return
        is_inside = self.inside[0]
        for x in self.inside[1:]:
            is_inside = b.and_(is_inside, x)
        whole = b.select(is_inside, b.add(first, b.mul(b.udiv(b.sub(end, first), n), n)), first)
        with b.loop(first, whole, n, "channel") as c:
            body(self._vector(c, None))
        with b.loop(whole, end, n, "channel") as c:
            body(self._vector(c, self._first_lanes(b.sub(end, c))))

    def _vector(self, c: V, lanes: V | None) -> _Vector:
        b = self.b
        rows = [b.offset(row, b.mul(c, itemsize(self.types.a))) for row in self.rows]
        kernel = b.offset(self.kernel, b.mul(c, itemsize(self.types.b)))
        words = [self._where(x, lanes) for x in self.inside]
        return _Vector(rows, kernel, words, lanes, b.offset(self.output, b.mul(c, self.plan.out_bytes)))

    def _weight(self, v: _Vector, y: int, x: int) -> V:
        b, (w_sh, w_sw) = self.b, self.g.ints("w_sh w_sw")
        return self._load(b.offset(v.kernel, dot(b, (i64(y), w_sh), (i64(x), w_sw))), self.types.b, v.lanes)

    def _inner(self, v: _Vector, first: V, end: V) -> None:
        """Emits the pixels from `first` to `end`, whose windows lie inside the line."""
        b, g, positions = self.b, self.g, range(self.size)
        weights = [[self._weight(v, y, x) for x in positions] for y in positions]
        stride, pixel, out = g.ints("stride_w in_sw o_pixel")
        step = b.mul(g.get("rdil_w"), pixel)
        places = [b.mul(step, x) for x in positions]
        start = b.mul(b.sub(b.mul(first, stride), g.get("pad_w")), pixel)
        with b.loop_carry(first, end, [start, b.offset(v.output, b.mul(first, out))], hint="pixel") as carry:
            at, to = carry.values
            total = None
            for row, of_row, word in zip(v.rows, weights, v.words, strict=True):
                begin = b.offset(row, at)
                for place, weight in zip(places, of_row, strict=True):
                    total = self._term(total, b.offset(begin, place), weight, word)
            assert total is not None
            self._store(total, to, v.lanes)
            carry.next(b.add(at, b.mul(stride, pixel)), b.offset(to, out))

    def _outer(self, w: V) -> None:
        """Emits a pixel whose window extends beyond the line. The common cases have code without masks along the line:
        at most half of the window lies beyond one end."""
        b, g, size = self.b, self.g, self.size
        left = b.sub(b.mul(w, g.get("stride_w")), g.get("pad_w"))
        columns = [b.add(left, b.mul(g.get("rdil_w"), x)) for x in range(size)]
        known = [self._clamped(x, "in_w") for x in columns]
        inside = [b.icmp("eq", x, y) for x, y in zip(columns, known, strict=True)]
        places = [b.mul(x, g.get("in_sw")) for x in known]
        count = i64(0)
        for x in inside:
            count = b.add(count, b.cast("zext", x, "i64"))

        def sums(positions: Sequence[int], v: _Vector, inside: list[V | None]) -> None:
            total = None
            for y, (row, word) in enumerate(zip(v.rows, v.words, strict=True)):
                for x in positions:
                    is_inside = inside[x]
                    some = word if is_inside is None else self._where(is_inside, word)
                    total = self._term(total, b.offset(row, places[x]), self._weight(v, y, x), some)
            assert total is not None
            self._store(total, b.offset(v.output, b.mul(w, g.get("o_pixel"))), v.lanes)

        def otherwise(cases: list[range]) -> list[V]:
            if not cases:
                lanes = self._first_lanes
                with b.loop(*self.channels, self.plan.lanes, "channel") as c:
                    sums(range(size), self._vector(c, lanes(b.sub(self.channels[1], c))), [*inside])
                return []
            positions, *rest = cases
            fits = b.and_(b.icmp("eq", count, len(positions)), b.and_(inside[positions[0]], inside[positions[-1]]))

            def here() -> list[V]:
                self._each_vector(lambda v: sums(positions, v, [None] * size))
                return []

            return b.if_else(fits, here, lambda: otherwise(rest))

        half = size // 2
        otherwise([*(range(n, size) for n in range(1, half + 1)), *(range(size - n) for n in range(1, half + 1))])

    # ------------------------------------------------------------------ vectors with masked lanes
    def _term(self, total: V | None, at: V, weight: V, word: V | None) -> V:
        """Returns the sum with one more term, added in the lanes of `word`.

        The first term is added to zeros in all lanes, and its weights are zero in the masked lanes. LLVM 22 combines a
        masked load and a masked multiply-add into one instruction. If that would overwrite zeros which are needed
        later, it splits the two again, into a load without a mask (`tests/kernels/test_convolution.py`).
        """
        b, x = self.b, self._load(at, self.types.a, word)
        if total is None:
            weight = weight if word is None else b.select(self._mask(word), weight, const(weight.type, 0))
            return multiply_add(b, self.plan, self.target, x, weight, const(vector(self.plan.acc, self.plan.lanes), 0))
        more = multiply_add(b, self.plan, self.target, x, weight, total)
        return more if word is None else b.select(self._mask(word), more, total)

    def _load(self, at: V, dtype: str, word: V | None) -> V:
        b, t = self.b, vector(storage(dtype), self.plan.lanes)
        x = b.load(t, at) if word is None else b.masked_load(t, at, self._mask(word))
        return convert(b, x, dtype, self.plan.unit)

    def _store(self, total: V, at: V, word: V | None) -> None:
        b, plan = self.b, self.plan
        x = total if plan.out == plan.acc else b.cast("trunc", total, plan.out)
        if word is None:
            b.store(x, at)
        else:
            b.masked_store(x, at, self._mask(word))

    def _first_lanes(self, count: V) -> V | None:
        """Returns a bit for each lane below `count`; None if the target has no masks, where none are needed."""
        b, n = self.b, self.plan.lanes
        if not self.plan.masks:
            return None
        return b.cast("trunc", b.sub(b.shl(i64(1), b.min_(count, n)), 1), f"i{n}")

    def _where(self, condition: V, word: V | None) -> V | None:
        """Returns the lanes, or none if the condition does not hold. Without masks the condition always holds."""
        return None if word is None else self.b.select(condition, word, const(word.type, 0))

    def _mask(self, word: V) -> V:
        n = self.plan.lanes
        return self.b.emit(f"<{n} x i1>", f"bitcast {word.type} {word.text} to <{n} x i1>")
