"""Depthwise convolution: one input channel per group, channels adjacent in input, kernel and output.

It is bound by memory, so nothing is copied. A line of pixels is computed four pixels at a time where their windows lie
inside the line, and one at a time at its ends; the innermost loop runs over vectors of channels. Window lines above and
below the input are excluded by the loop bounds, not by tests.

Small windows take another path (see `windows.py`), at least where they lie inside the input. It adds in the same order.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.input import TASK_PARAMS, Arguments, dot, split
from shlo_jit.kernels.convolution.padding_terms import Line, PaddingTerms
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.convolution.windows import Windows, multiply_add
from shlo_jit.kernels.gemm.blocks import ceil_div
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.pack import convert
from shlo_jit.kernels.gemm.precision import GemmTypes, itemsize, storage
from shlo_jit.kernels.llvm_values import V, const, i64, vector
from shlo_jit.kernels.target import Target

PIXELS = 4
"""Pixels computed together: each loaded weight serves all of them."""


def lines_inside(b: Builder, g: Arguments, top: V, axis: str) -> tuple[V, V]:
    """Returns the range [first, end) of window positions k with 0 <= top + k * dilation < extent."""
    dilation, extent, window = g.ints(f"rdil_{axis} in_{axis} k{axis}")
    first = b.min_(ceil_div(b, b.max_(b.sub(0, top), 0), dilation), window)
    end = b.min_(ceil_div(b, b.max_(b.sub(extent, top), 0), dilation), window)
    return first, end


class _Line:
    """One output line: addresses of its operands, and the range of window lines inside the input."""

    def __init__(self, b: Builder, g: Arguments, types: GemmTypes, target: Target, line: V):
        self.b, self.g, self.types, self.target = b, g, types, target
        self.plan = conv_plan(types, target)
        image, d, h = split(b, line, g.get("od"), g.get("oh"))
        self.place = d, h
        self.output = b.offset(g.pointer("output"), b.mul(b.mul(line, g.get("ow")), g.get("o_pixel")))
        self.kernel = b.offset(g.pointer("kernel"), g.get("w_offset"))
        self.tops: list[V] = []
        self.ranges: list[tuple[V, V]] = []
        for x, axis in ((d, "d"), (h, "h")):
            top = b.sub(b.mul(x, g.get(f"stride_{axis}")), g.get(f"pad_{axis}"))
            self.tops.append(top)
            self.ranges.append(lines_inside(b, g, top, axis))
        base = dot(b, (image, g.get("in_batch")), *zip(self.tops, g.ints("in_sd in_sh"), strict=True))
        self.input = b.offset(g.pointer("input"), base)
        plane = b.max_(b.min_(self.tops[0], b.sub(g.get("in_d"), 1)), 0)
        self.plane = b.offset(g.pointer("input"), dot(b, (image, g.get("in_batch")), (plane, g.get("in_sd"))))
        """The first plane of the window, clamped to the input."""

    def pixels(self, w: V, count: int, channels: tuple[V, V]) -> None:
        """Emits `count` pixels from w on; if it is 1, the window is clipped to the line."""
        b, g, n = self.b, self.g, self.plan.lanes
        left = b.sub(b.mul(w, g.get("stride_w")), g.get("pad_w"))
        columns = lines_inside(b, g, left, "w") if count == 1 else (i64(0), g.get("kw"))
        source = b.offset(self.input, b.mul(left, g.get("in_sw")))
        to = b.offset(self.output, b.mul(w, g.get("o_pixel")))
        begin, stop = channels
        whole = b.add(begin, b.mul(b.udiv(b.sub(stop, begin), n), n))
        for first, end, lanes in ((begin, whole, n), (whole, stop, 1)):
            with b.loop(first, end, lanes, "channel") as c:
                self._sums(b.offset(source, b.mul(c, itemsize(self.types.a))), to, c, columns, count, lanes)

    def _sums(self, source: V, to: V, c: V, columns: tuple[V, V], count: int, n: int) -> None:
        b, g, plan, types = self.b, self.g, self.plan, self.types
        kernel = b.offset(self.kernel, b.mul(c, itemsize(types.b)))
        pixel_step = b.mul(g.get("stride_w"), g.get("in_sw"))
        rd, rh, rw = (
            b.mul(r, s) for r, s in zip(g.ints("rdil_d rdil_h rdil_w"), g.ints("in_sd in_sh in_sw"), strict=True)
        )
        w_sd, w_sh, w_sw = g.ints("w_sd w_sh w_sw")
        sums = [const(vector(plan.acc, n), 0)] * count
        with b.loop_carry(*self.ranges[0], sums, hint="kd") as kd:
            with b.loop_carry(*self.ranges[1], kd.values, hint="kh") as kh:
                at = b.offset(source, dot(b, (kd.index, rd), (kh.index, rh)))
                weights = b.offset(kernel, dot(b, (kd.index, w_sd), (kh.index, w_sh)))
                with b.loop_carry(*columns, kh.values, hint="kw") as kw:
                    weight = self._load(b.offset(weights, b.mul(kw.index, w_sw)), types.b, n)
                    pixel = b.offset(at, b.mul(kw.index, rw))
                    kw.next(
                        *(
                            multiply_add(
                                b,
                                plan,
                                self.target,
                                self._load(b.offset(pixel, b.mul(pixel_step, p)), types.a, n),
                                weight,
                                x,
                            )
                            for p, x in enumerate(kw.values)
                        )
                    )
                kh.next(*kw.values)
            kd.next(*kh.values)
        for p, x in enumerate(kd.values):
            x = x if plan.out == plan.acc else b.cast("trunc", x, plan.out)
            place = b.offset(to, dot(b, (g.get("o_pixel"), i64(p)), (c, i64(plan.out_bytes))))
            b.store(x, place)

    def _load(self, at: V, dtype: str, n: int) -> V:
        return convert(self.b, self.b.load(vector(storage(dtype), n), at), dtype, self.plan.unit)

    def windows(self, size: int, channels: tuple[V, V]) -> None:
        """Emits the line with windows of `size` x `size` pixels in registers; the kernel has one plane. Without masks,
        only pixels whose windows lie inside the line."""
        b, g = self.b, self.g
        first, end = self.ranges[0]
        by_windows = Windows(b, g, self.types, self.target, size)
        by_windows.line(self.plane, self.kernel, self.output, channels, b.icmp("slt", first, end), self.tops[1])

    def is_whole(self, size: int) -> V:
        """Returns whether a window of one plane has this plane and all its lines inside the input."""
        b = self.b
        depth, height = (
            b.icmp("eq", b.sub(end, first), n) for n, (first, end) in zip((1, size), self.ranges, strict=True)
        )
        return b.and_(depth, height)

    def pixel_by_pixel(self, inner: tuple[V, V], channels: tuple[V, V]) -> None:
        """Emits the pixels of `inner`, whose windows lie inside the line, four at a time, then the others."""
        b, (first, end) = self.b, inner
        fours = b.add(first, b.mul(b.udiv(b.sub(end, first), PIXELS), PIXELS))
        with b.loop(first, fours, PIXELS, "inner") as w:
            self.pixels(w, PIXELS, channels)
        self.singles(first, fours, channels)

    def results(self, channels: tuple[V, V]) -> Line:
        """Returns the results of some channels of the line, for the correction by products with padding."""
        b, (begin, stop) = self.b, channels
        kernel = b.offset(self.kernel, b.mul(begin, itemsize(self.types.b)))
        output = b.offset(self.output, b.mul(begin, self.plan.out_bytes))
        steps = i64(self.plan.out_bytes), self.g.get("o_pixel")
        return Line(*self.place, kernel, output, b.sub(stop, begin), *steps)

    def singles(self, first: V, end: V, channels: tuple[V, V]) -> None:
        """Emits the pixels before `first`, then those from `end` on, one at a time."""
        b = self.b
        with b.loop(0, b.add(first, b.sub(self.g.get("ow"), end)), hint="outer") as s:
            self.pixels(b.select(b.icmp("slt", s, first), s, b.add(s, b.sub(end, first))), 1, channels)


def emit_depthwise_task(
    module: ModuleText, types: GemmTypes, target: Target, *, size: int, terms: PaddingTerms | None = None
) -> str:
    """Emits the task that computes `row_chunk` lines of output pixels, `nc` channels of each.

    `size` is the size of windows that stay in registers, or 0. `terms`: the correction for products with padding, if
    the kernel may contain NaN or infinities. Returns the task's name."""
    name = f"shlo_conv_{types.name}_depthwise_task"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    frame, index, _ = b.params
    g = Arguments(b, frame)
    row, column = split(b, index, g.get("column_chunks"))
    chunk, nc, ow, first, end = g.ints("row_chunk nc ow inside0 inside1")
    lines = b.mul(b.mul(g.get("batch"), g.get("od")), g.get("oh"))
    l0, c0 = b.mul(row, chunk), b.mul(column, nc)
    channels = c0, b.min_(b.add(c0, nc), g.get("groups"))
    with b.loop(l0, b.min_(b.add(l0, chunk), lines), hint="line") as line:
        at = _Line(b, g, types, target, line)

        def by_windows() -> list[V]:
            at.windows(size, channels)
            if not at.plan.masks:
                at.singles(first, end, channels)
            return []

        def by_pixels() -> list[V]:
            at.pixel_by_pixel((first, end), channels)
            return []

        if size and at.plan.masks:
            by_windows()
        elif size:
            b.if_else(at.is_whole(size), by_windows, by_pixels)
        else:
            by_pixels()
        if terms is not None:
            terms.add(b, frame, at.results(channels))
        epilogue = g.pointer("epilogue")
        with b.if_(b.icmp("ne", epilogue, V("ptr", "null"))):
            pixel = b.mul(line, ow)
            b.call_pointer("void", epilogue, [g.pointer("frame"), i64(0), pixel, b.add(pixel, ow), *channels])
    b.ret()
    return name
