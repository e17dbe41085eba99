"""Depthwise convolution: one input channel a group, channels adjacent in input, kernel and output.

Bound by memory, so nothing is copied: a line of pixels is computed four pixels at a time where their windows lie
inside the line, one at a time at its ends, vectors of channels inside. Lines of the window above and below the input
are cut off by counting, not by tests.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText, V, const, i64, vector
from shlo_jit.kernels.convolution.input import TASK_PARAMS, Arguments, dot, split
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.gemm.blocks import ceil_div
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.pack import convert
from shlo_jit.kernels.gemm.types import GemmPlan, GemmTypes, itemsize, storage
from shlo_jit.kernels.target import Target

PIXELS = 4
"""Pixels computed together: each loaded weight serves all of them."""


def lines_inside(b: Builder, g: Arguments, top: V, axis: str) -> tuple[V, V]:
    """The window positions k with 0 <= top + k * dilation < extent."""
    dilation, extent, window = g.ints(f"rdil_{axis} in_{axis} k{axis}")
    first = b.min_(ceil_div(b, b.max_(b.sub(0, top), 0), dilation), window)
    end = b.min_(ceil_div(b, b.max_(b.sub(extent, top), 0), dilation), window)
    return first, end


def multiply_add(b: Builder, plan: GemmPlan, target: Target, x: V, y: V, z: V) -> V:
    """x * y + z."""
    if plan.acc not in ("float", "double"):
        return b.add(b.mul(x, y), z)
    return b.fma(x, y, z) if target.has_fma else b.fadd(b.fmul(x, y), z)


class _Line:
    """One output line: where its parts are, and the range of window lines inside the input."""

    def __init__(self, b: Builder, g: Arguments, types: GemmTypes, target: Target, line: V):
        self.b, self.g, self.types, self.target = b, g, types, target
        self.plan = conv_plan(types, target)
        image, d, h = split(b, line, g.get("od"), g.get("oh"))
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

    def pixels(self, w: V, count: int) -> None:
        """`count` pixels from w on; for one, the window is cut to the line."""
        b, g, n = self.b, self.g, self.plan.lanes
        left = b.sub(b.mul(w, g.get("stride_w")), g.get("pad_w"))
        columns = lines_inside(b, g, left, "w") if count == 1 else (i64(0), g.get("kw"))
        source = b.offset(self.input, b.mul(left, g.get("in_sw")))
        to = b.offset(self.output, b.mul(w, g.get("o_pixel")))
        channels = g.get("groups")
        vectors = b.mul(b.udiv(channels, n), n)
        for first, end, lanes in ((i64(0), vectors, n), (vectors, channels, 1)):
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


def emit_depthwise_task(module: ModuleText, types: GemmTypes, target: Target) -> str:
    """`row_chunk` lines of output pixels."""
    name = f"shlo_conv_{types.name}_depthwise_task"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    frame, index, _ = b.params
    g = Arguments(b, frame)
    chunk, ow, first, end = g.ints("row_chunk ow inside0 inside1")
    lines = b.mul(b.mul(g.get("batch"), g.get("od")), g.get("oh"))
    l0 = b.mul(index, chunk)
    fours = b.add(first, b.mul(b.udiv(b.sub(end, first), PIXELS), PIXELS))
    with b.loop(l0, b.min_(b.add(l0, chunk), lines), hint="line") as line:
        at = _Line(b, g, types, target, line)
        with b.loop(first, fours, PIXELS, "inner") as w:
            at.pixels(w, PIXELS)
        singles = b.add(first, b.sub(ow, fours))
        with b.loop(0, singles, hint="outer") as s:
            # The pixels before the inner ones, then those after.
            w = b.select(b.icmp("slt", s, first), s, b.add(s, b.sub(fours, first)))
            at.pixels(w, 1)
        epilogue = g.pointer("epilogue")
        with b.if_(b.icmp("ne", epilogue, V("ptr", "null"))):
            row = b.mul(line, ow)
            b.call_pointer("void", epilogue, [g.pointer("frame"), i64(0), row, b.add(row, ow), i64(0), g.get("groups")])
    b.ret()
    return name
