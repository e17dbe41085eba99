"""Convolutions in groups of a few channels, as many out as in, with channels adjacent in input, kernel and output.

Lanes run along the output channels of several groups. A vector of input channels holds everything that they need: for
the i-th channel of each group, a shuffle broadcasts this channel to all lanes of its group.

    channels of x        a0 a1 a2 a3 | b0 b1 b2 b3       groups of four
    for i = 1            a1 a1 a1 a1 | b1 b1 b1 b1       times a vector of weights, added to the sums

Some pixels of a line are computed together, so that one vector of weights serves all of them. A shuffle takes as long
as a multiply-add; so if windows are three pixels wide and start at adjacent pixels, a shuffled vector is used for all
windows that contain it. Nothing is copied: pixels of the window beyond the input are zeros. The last block of pixels of
a line is moved back until it fits, so some pixels are computed twice.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.input import TASK_PARAMS, Arguments, dot, split
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.convolution.windows import multiply_add
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes
from shlo_jit.kernels.llvm_values import V, const, i64, vector
from shlo_jit.kernels.target import Target

WIDE = 3
"""Width of the windows that share shuffled vectors: that of nearly all models."""
PIXELS = (8, 4, 2, 1)
"""Pixels computed together: the first of these that a line has. Starts at half of that with half as many registers."""


class _Line:
    """A line of output pixels of a grouped convolution."""

    def __init__(self, b: Builder, g: Arguments, plan: GemmPlan, target: Target, size: int, line: V):
        self.b, self.g, self.plan, self.target, self.size = b, g, plan, target, size
        image, d, h = split(b, line, g.get("od"), g.get("oh"))
        self.input = b.offset(g.pointer("input"), b.mul(image, g.get("in_batch")))
        self.output = b.offset(g.pointer("output"), b.mul(b.mul(line, g.get("ow")), g.get("o_pixel")))
        self.kernel = b.offset(g.pointer("kernel"), g.get("w_offset"))
        self.tops = [b.sub(b.mul(x, g.get(f"stride_{axis}")), g.get(f"pad_{axis}")) for x, axis in ((d, "d"), (h, "h"))]
        self.is_whole = b.and_(*(self._fits(top, axis) for top, axis in zip(self.tops, "dh", strict=True)))
        """Whether all lines of the window are lines of the input."""
        width, *steps = g.ints("kw stride_w rdil_w")
        self.shares = b.and_(b.icmp("eq", width, WIDE), b.icmp("eq", b.mul(*steps), 1))
        """Whether windows start at adjacent pixels and have the common width."""

    def _fits(self, top: V, axis: str) -> V:
        b, g = self.b, self.g
        last = b.add(top, b.mul(b.sub(g.get(f"k{axis}"), 1), g.get(f"rdil_{axis}")))
        return b.and_(b.icmp("sge", top, 0), b.icmp("slt", last, g.get(f"in_{axis}")))

    def channels(self, c: V, counts: tuple[int, ...]) -> None:
        """Emits all pixels of the line, for a vector of channels from c on."""
        b, ow = self.b, self.g.get("ow")
        count, *fewer = counts

        def here() -> list[V]:
            with b.loop(0, ow, count, "pixel") as w:
                self._pixels(b.min_(w, b.sub(ow, count)), c, count)
            return []

        def otherwise() -> list[V]:
            self.channels(c, tuple(fewer))
            return []

        if fewer:
            b.if_else(b.icmp("sge", ow, count), here, otherwise)
        else:
            here()

    def _pixels(self, w: V, c: V, count: int) -> None:
        b, (first, end) = self.b, self.g.ints("inside0 inside1")
        inside = b.and_(b.icmp("sge", w, first), b.icmp("sle", b.add(w, count), end))
        inside = b.and_(inside, self.is_whole)

        def plain() -> list[V]:
            return b.if_else(self.shares, lambda: self._shared(w, c, count), lambda: self._sums(w, c, count, False))

        sums = b.if_else(inside, plain, lambda: self._sums(w, c, count, True))
        to = b.offset(self.output, dot(b, (w, self.g.get("o_pixel")), (c, i64(self.plan.out_bytes))))
        for p, x in enumerate(sums):
            b.store(x, b.offset(to, b.mul(self.g.get("o_pixel"), p)))

    def _sums(self, w: V, c: V, count: int, tested: bool) -> list[V]:
        """Returns the sums of `count` pixels. `tested`: they may read beyond the input."""
        b, g, plan = self.b, self.g, self.plan
        sums = [const(vector(plan.acc, plan.lanes), 0)] * count
        left = b.sub(b.mul(w, g.get("stride_w")), g.get("pad_w"))
        at = b.mul(c, plan.unit_bytes)
        with b.loop_carry(0, g.get("kd"), sums, hint="kd") as kd:
            with b.loop_carry(0, g.get("kh"), kd.values, hint="kh") as kh:
                with b.loop_carry(0, g.get("kw"), kh.values, hint="kw") as kw:
                    place = dot(b, *((x.index, g.get(f"w_s{d}")) for x, d in zip((kd, kh, kw), "dhw", strict=True)))
                    weights = b.offset(b.offset(self.kernel, place), at)
                    lines = self._lines(kd.index, kh.index)
                    column = b.add(left, b.mul(kw.index, g.get("rdil_w")))
                    pixels = self._tested(lines, column, at, count) if tested else self._read(lines, column, at, count)
                    kw.next(*self._terms(pixels, weights, kw.values))
                kh.next(*kw.values)
            kd.next(*kh.values)
        return kd.values

    def _shared(self, w: V, c: V, count: int) -> list[V]:
        """Returns the same as `_sums`, for windows inside the input that start at adjacent pixels."""
        b, g, unit = self.b, self.g, vector(self.plan.unit, self.plan.lanes)
        sums = [const(vector(self.plan.acc, self.plan.lanes), 0)] * count
        at, left = b.mul(c, self.plan.unit_bytes), b.sub(w, g.get("pad_w"))
        with b.loop_carry(0, g.get("kd"), sums, hint="kd") as kd:
            with b.loop_carry(0, g.get("kh"), kd.values, hint="kh") as kh:
                place = dot(b, *((x.index, g.get(f"w_s{d}")) for x, d in zip((kd, kh), "dh", strict=True)))
                weights = b.offset(b.offset(self.kernel, place), at)
                pixels = self._read(self._lines(kd.index, kh.index), left, at, count + WIDE - 1)
                picked = [[self._picked(x, i) for x in pixels] for i in range(self.size)]
                sums = kh.values
                for i, k in self._shared_terms():
                    of_i = b.offset(weights, b.mul(g.get("w_in"), i))
                    weight = b.load(unit, b.offset(of_i, b.mul(g.get("w_sw"), k)))
                    sums = self._plus(picked[i][k : k + count], weight, sums)
                kh.next(*sums)
            kd.next(*kh.values)
        return kd.values

    def _shared_terms(self) -> list[tuple[int, int]]:
        """Returns the terms of a line of the window as channel and position. A shuffled vector is best used for all
        positions, one after the other, but reproducible sums have the order of the window, channels innermost."""
        channels, positions = range(self.size), range(WIDE)
        if self.target.reproducible:
            return [(i, k) for k in positions for i in channels]
        return [(i, k) for i in channels for k in positions]

    def _lines(self, kd: V, kh: V) -> list[V]:
        """Returns the input's plane and line at a plane and line of the window."""
        b = self.b
        return [
            b.add(top, b.mul(x, self.g.get(f"rdil_{d}"))) for top, x, d in zip(self.tops, (kd, kh), "dh", strict=True)
        ]

    def _picked(self, x: V, i: int) -> V:
        """Returns a vector with the i-th channel of each group in all lanes of the group."""
        return self.b.shuffle(x, None, [lane // self.size * self.size + i for lane in range(self.plan.lanes)])

    def _plus(self, picked: list[V], weight: V, sums: list[V]) -> list[V]:
        pairs = zip(picked, sums, strict=True)
        return [multiply_add(self.b, self.plan, self.target, x, weight, total) for x, total in pairs]

    def _terms(self, pixels: list[V], weights: V, sums: list[V]) -> list[V]:
        """Returns the sums plus the terms of one pixel of the window."""
        b, unit = self.b, vector(self.plan.unit, self.plan.lanes)
        for i in range(self.size):
            weight = b.load(unit, b.offset(weights, b.mul(self.g.get("w_in"), i)))
            sums = self._plus([self._picked(x, i) for x in pixels], weight, sums)
        return sums

    def _read(self, lines: list[V], column: V, at: V, count: int) -> list[V]:
        """Returns a vector of each pixel's channels."""
        b, g = self.b, self.g
        strides = zip((*lines, column), g.ints("in_sd in_sh in_sw"), strict=True)
        source = b.offset(b.offset(self.input, dot(b, *strides)), at)
        step = b.mul(g.get("stride_w"), g.get("in_sw"))
        unit = vector(self.plan.unit, self.plan.lanes)
        return [b.load(unit, b.offset(source, b.mul(step, p))) for p in range(count)]

    def _tested(self, lines: list[V], column: V, at: V, count: int) -> list[V]:
        """Returns zeros for pixels beyond the input. These are not read: the load is clamped to a pixel inside."""
        b, g = self.b, self.g
        near, inside = zip(*(self._clamped(x, axis) for x, axis in zip(lines, "dh", strict=True)), strict=True)
        source = b.offset(b.offset(self.input, dot(b, *zip(near, g.ints("in_sd in_sh"), strict=True))), at)
        unit = vector(self.plan.unit, self.plan.lanes)
        found: list[V] = []
        for p in range(count):
            place, fits = self._clamped(b.add(column, b.mul(g.get("stride_w"), p)), "w")
            pixel = b.load(unit, b.offset(source, b.mul(place, g.get("in_sw"))))
            found.append(b.select(b.and_(fits, b.and_(*inside)), pixel, const(unit, 0)))
        return found

    def _clamped(self, x: V, axis: str) -> tuple[V, V]:
        """Returns the nearest place inside the input, and whether that is the place itself."""
        b = self.b
        near = b.max_(b.min_(x, b.sub(self.g.get(f"in_{axis}"), 1)), 0)
        return near, b.icmp("eq", x, near)


def emit_grouped_task(module: ModuleText, types: GemmTypes, target: Target, size: int = 2) -> str:
    """Emits the task that computes `row_chunk` lines of output pixels, `nc` channels of each, in groups of `size`.
    Returns its name."""
    name = f"shlo_conv_{types.name}_grouped{size}_task"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    frame, index, _ = b.params
    g, plan = Arguments(b, frame), conv_plan(types, target)
    counts = PIXELS if plan.masks else PIXELS[1:]
    row, column = split(b, index, g.get("column_chunks"))
    chunk, nc, ow = g.ints("row_chunk nc ow")
    lines = b.mul(b.mul(g.get("batch"), g.get("od")), g.get("oh"))
    l0, c0 = b.mul(row, chunk), b.mul(column, nc)
    c1 = b.min_(b.add(c0, nc), b.mul(g.get("groups"), size))
    with b.loop(l0, b.min_(b.add(l0, chunk), lines), hint="line") as line:
        at = _Line(b, g, plan, target, size, line)
        with b.loop(c0, c1, plan.lanes, "channel") as c:
            at.channels(c, counts)
        epilogue = g.pointer("epilogue")
        with b.if_(b.icmp("ne", epilogue, V("ptr", "null"))):
            pixel = b.mul(line, ow)
            b.call_pointer("void", epilogue, [g.pointer("frame"), i64(0), pixel, b.add(pixel, ow), c0, c1])
    b.ret()
    return name
