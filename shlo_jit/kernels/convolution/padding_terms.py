"""Products with padding that the direct convolutions leave out: they are 0, except for kernels with NaN or infinities.

The specification multiplies padding by the kernel, and 0 * NaN and 0 * inf are NaN. `depthwise.py` and `planes.py`
leave out window positions outside the image. So the routine checks a kernel that is not known to be finite once per
call, in one pass over its few numbers. If one is not finite, each line of results is corrected after it has been
computed: a result becomes NaN if its window has such a number outside the image. This is slow, and rare.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.input import FRAME, Arguments, dot
from shlo_jit.kernels.convolution.margins import input_place, is_inside
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.convolution.windows import multiply_add
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.pack import convert
from shlo_jit.kernels.gemm.precision import GemmTypes, itemsize, storage
from shlo_jit.kernels.lane_sums import fold
from shlo_jit.kernels.llvm_values import V, const, i64, vector
from shlo_jit.kernels.target import Target

ODD_KERNEL = len(FRAME)
"""Slot of the tasks' frame, after those of `FRAME`: 1 if the kernel has a number that is not finite, else 0."""
SUMS = 4
"""Vectors of the kernel that are checked together."""
LINE_PARAMS = [
    ("ptr", "frame"),
    ("i64", "d"),
    ("i64", "h"),
    ("ptr", "kernel"),
    ("ptr", "output"),
    ("i64", "channels"),
    ("i64", "channel_step"),
    ("i64", "pixel_step"),
]
"""A line of output pixels: its place, the addresses of its first channel's kernel and results, the number of channels,
whose kernels are adjacent, and the distances in bytes between channels and between pixels of the results."""


def has_padding_terms(types: GemmTypes) -> bool:
    """Whether products with 0 may differ from 0."""
    return types.acc in ("f32", "f64")


class Line(NamedTuple):
    """A line of output pixels; see LINE_PARAMS."""

    d: V
    h: V
    kernel: V
    output: V
    channels: V
    channel_step: V
    pixel_step: V


def find_nonfinite_kernel(module: ModuleText, types: GemmTypes, target: Target, b: Builder, g: Arguments) -> V:
    """Returns 1 (i64) if the kernel of a call has a number that is not finite, else 0."""
    name = _emit_is_odd(module, types, target)
    count = b.mul(b.mul(g.get("groups"), g.get("co")), g.get("ci"))
    for extent in g.ints("kd kh kw"):
        count = b.mul(count, extent)
    return b.call("i64", name, [g.pointer("kernel"), count])


def _emit_is_odd(module: ModuleText, types: GemmTypes, target: Target) -> str:
    """Emits `i64 odd(ptr kernel, i64 count)`. The sum of all products with 0 is NaN if one of them is NaN."""
    name = f"shlo_conv_{types.name}_odd"
    b = module.function(name, [("ptr", "kernel"), ("i64", "count")], "i64", attributes=attributes(target))
    kernel, count = b.params
    plan = conv_plan(types, target)

    def plus(total: V, at: V, n: int) -> V:
        x = b.load(vector(storage(types.b), n), b.offset(kernel, b.mul(at, itemsize(types.b))))
        x = convert(b, x, types.b, plan.unit)
        return multiply_add(b, plan, target, x, const(x.type, 0), total)

    step = plan.lanes * SUMS
    whole = b.mul(b.udiv(count, step), step)
    with b.loop_carry(0, whole, [const(vector(plan.acc, plan.lanes), 0)] * SUMS, step, "some") as some:
        places = [b.add(some.index, i * plan.lanes) for i in range(SUMS)]
        some.next(*(plus(x, at, plan.lanes) for x, at in zip(some.values, places, strict=True)))
    total = some.values[0]
    for x in some.values[1:]:
        total = b.fadd(total, x)
    with b.loop_carry(whole, count, [fold(b, total)], 1, "rest") as rest:
        rest.next(plus(rest.values[0], rest.index, 1))
    b.ret(b.cast("zext", b.fcmp("uno", rest.values[0], rest.values[0]), "i64"))
    return name


class PaddingTerms:
    """Correction of finished lines, for the tasks of a routine that checks its kernel."""

    def __init__(self, module: ModuleText, types: GemmTypes, target: Target):
        self.name = _emit_line(module, types, target)

    def add(self, b: Builder, frame: V, line: Line) -> None:
        """Emits the check of the kernel and the correction, which makes results NaN where padding requires it."""
        odd = b.load("i64", b.offset(frame, 8 * ODD_KERNEL), align=8)
        with b.if_(b.icmp("ne", odd, 0)):
            b.call("void", self.name, [frame, *line])


def _emit_line(module: ModuleText, types: GemmTypes, target: Target) -> str:
    """Emits `void terms(LINE_PARAMS)`, which makes results NaN where padding requires it. Returns its name."""
    name = f"shlo_conv_{types.name}_padding_terms"
    b = module.function(name, LINE_PARAMS, attributes=attributes(target))
    frame, d, h, kernel, output, channels, channel_step, pixel_step = b.params
    plan = conv_plan(types, target)
    g = Arguments(b, frame)
    places = [input_place(b, g, d, i64(0), "d"), input_place(b, g, h, i64(0), "h")]

    def terms(c: V, corner: list[V] | None) -> V:
        """Returns the sum of a channel's products with 0: of all window positions, or of those outside the image."""
        zero = const(plan.acc, 0)
        with b.loop_carry(0, g.get("kd"), [zero], hint="kd") as kd:
            with b.loop_carry(0, g.get("kh"), kd.values, hint="kh") as kh:
                with b.loop_carry(0, g.get("kw"), kh.values, hint="kw") as kw:
                    position = [kd.index, kh.index, kw.index]
                    at = dot(b, *zip(position, g.ints("w_sd w_sh w_sw"), strict=True), (c, i64(itemsize(types.b))))
                    x = convert(b, b.load(storage(types.b), b.offset(kernel, at)), types.b, plan.unit)
                    more = b.fadd(kw.values[0], b.fmul(x, zero))
                    if corner is not None:
                        more = b.select(_is_whole(b, g, corner, position), kw.values[0], more)
                    kw.next(more)
                kh.next(*kw.values)
            kd.next(*kh.values)
        return kd.values[0]

    def is_nan(x: V) -> V:
        return b.fcmp("uno", x, x)

    with (
        b.loop(0, channels, hint="channel") as c,
        b.if_(is_nan(terms(c, None))),
        b.loop(0, g.get("ow"), hint="pixel") as w,
    ):
        total = terms(c, [*places, input_place(b, g, w, i64(0), "w")])
        with b.if_(is_nan(total)):
            b.store(total, b.offset(output, dot(b, (c, channel_step), (w, pixel_step))))
    b.ret()
    return name


def _is_whole(b: Builder, g: Arguments, corner: list[V], position: list[V]) -> V:
    """Returns whether a window position is inside the image."""
    inside = V("i1", "true")
    for place, step, axis in zip(corner, position, "dhw", strict=True):
        at = b.add(place, b.mul(step, g.get(f"rdil_{axis}")))
        inside = b.and_(inside, is_inside(b, g, at, axis))
    return inside
