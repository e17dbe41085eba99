"""Margins: pixels whose windows reach beyond the image. The task that needs them copies their input with its padding.

If an image is several stripes wide, most windows lie inside it and are read in place. A copy of the whole input for the
few others would be written to memory and read again; the input of a stripe at the margin stays in the first levels of
cache. The zeros are multiplied like other elements, so the bits are those of a padded input. An exception are window
lines that read only padding, which the table may leave out (`leaves_padding`).
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.input import Arguments, dot
from shlo_jit.kernels.convolution.task import Part
from shlo_jit.kernels.gemm.blocks import ceil_div
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.precision import GemmTypes
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.kernels.target import Target

MARGIN_PARAMS = [
    ("ptr", "frame"),
    ("i64", "group"),
    ("i64", "image"),
    ("i64", "d"),
    ("i64", "h"),
    ("i64", "w"),
    ("i64", "height"),
    ("i64", "depth"),
    ("i64", "tap"),
    ("i64", "lines"),
    ("ptr", "to"),
]
"""The stripe has `height` output pixels from (group, image, d, h, w) on. `lines` lines of its windows, from line `tap`
on and at depth `depth` of the window, are written to `to`, `margin_line` bytes apart."""


def margin_symbol(types: GemmTypes) -> str:
    return f"shlo_conv_{types.name}_margin"


def emit_margin(module: ModuleText, types: GemmTypes, target: Target) -> None:
    b = module.function(margin_symbol(types), MARGIN_PARAMS, attributes=attributes(target))
    frame, group, image, d, h, w, height, depth, first_line, lines, to = b.params
    g = Arguments(b, frame)
    pixel, extent, line_bytes = g.ints("a_w in_w margin_line")
    first = b.sub(b.mul(w, g.get("stride_w")), g.get("pad_w"))
    reach = b.mul(b.sub(g.get("kw"), 1), g.get("rdil_w"))
    count = b.add(b.add(b.mul(b.sub(height, 1), g.get("stride_w")), reach), 1)
    # Among `count` pixels, those from `start` to `end` belong to the image.
    start = b.min_(b.max_(b.sub(0, first), 0), count)
    end = b.max_(b.min_(b.sub(extent, first), count), start)
    left, right = b.mul(start, pixel), b.mul(end, pixel)
    whole = b.mul(count, pixel)
    z = input_place(b, g, d, depth, "d")
    places = (group, g.get("a_group")), (image, g.get("a_batch")), (z, g.get("a_d")), (b.add(first, start), pixel)
    source = b.offset(g.pointer("input"), dot(b, *places))
    deep = is_inside(b, g, z, "d")
    with b.loop(0, lines, hint="line") as nth:
        at = b.offset(to, b.mul(nth, line_bytes))
        y = input_place(b, g, h, b.add(first_line, nth), "h")
        inside = b.and_(deep, is_inside(b, g, y, "h"))
        b.memset(at, 0, b.select(inside, left, whole))
        with b.if_(inside):
            b.memcpy(b.offset(at, left), b.offset(source, b.mul(y, g.get("a_h"))), b.sub(right, left))
            b.memset(b.offset(at, right), 0, b.sub(whole, right))
    b.ret()


def input_place(b: Builder, g: Arguments, output: V, position: V, axis: str) -> V:
    """Returns the input's position along an axis, for an output and a position of its window."""
    stride, pad, dilation = g.ints(f"stride_{axis} pad_{axis} rdil_{axis}")
    return b.add(b.sub(b.mul(output, stride), pad), b.mul(position, dilation))


def is_inside(b: Builder, g: Arguments, place: V, axis: str) -> V:
    return b.icmp("ult", place, g.get(f"in_{axis}"))


def is_in_margin(b: Builder, g: Arguments, d: V, h: V, w: V, height: V) -> V:
    """Returns whether windows of the stripe reach beyond the image."""
    inside = b.and_(b.icmp("sge", w, g.get("inside0")), b.icmp("sle", b.add(w, height), g.get("inside1")))
    for axis, output in (("d", d), ("h", h)):
        for position in (i64(0), b.sub(g.get(f"k{axis}"), 1)):
            found = is_inside(b, g, input_place(b, g, output, position, axis), axis)
            # Window lines outside the image are not read in this case.
            found = b.or_(found, b.icmp("ne", g.get("leaves_padding"), 0)) if axis == "h" else found
            inside = b.and_(inside, found)
    return b.not_(inside)


def runs_inside(b: Builder, g: Arguments, part: Part, h: V) -> tuple[V, V, V]:
    """Returns which runs of a part of the window lie in the image, for output line `h`: the first run that does not
    only read padding, the number of such runs, and whether there are some before the part."""
    nth, lines, by_lines = _lines(b, g, part)
    stride, pad, dilation, extent, kh = g.ints("stride_h pad_h rdil_h in_h kh")
    leaves = b.icmp("ne", g.get("leaves_padding"), 0)
    corner = b.sub(b.mul(h, stride), pad)
    low = b.min_(ceil_div(b, b.max_(b.sub(0, corner), 0), dilation), kh)
    high = b.min_(ceil_div(b, b.max_(b.sub(extent, corner), 0), dilation), kh)
    first = b.min_(b.max_(b.sub(low, nth), 0), lines)
    count = b.sub(b.max_(b.min_(b.sub(high, nth), lines), first), first)
    # If runs are window positions of a line, either all of them are inside or none.
    runs_there = b.select(b.icmp("sgt", count, 0), part.runs, i64(0))
    before = b.or_(b.icmp("slt", low, nth), b.and_(b.not_(by_lines), b.icmp("sgt", part.place[2], 0)))
    return (
        b.select(b.and_(leaves, by_lines), first, i64(0)),
        b.select(leaves, b.select(by_lines, count, runs_there), part.runs),
        b.select(leaves, b.cast("zext", before, "i64"), part.more),
    )


def _lines(b: Builder, g: Arguments, part: Part) -> tuple[V, V, V]:
    """Returns the first window line of a part, the number of its lines, and whether its runs are lines; otherwise runs
    are window positions of a line."""
    by_lines = b.icmp("ne", g.get("margin_lines"), 0)
    _, line, run = part.place
    return b.select(by_lines, run, line), b.select(by_lines, part.runs, i64(1)), by_lines


def idle_lines(b: Builder, g: Arguments, part: Part, begin: V, end: V) -> V:
    """Returns the number of output lines in [begin, end) whose runs in a part of the window read only padding."""
    nth, lines, _ = _lines(b, g, part)
    stride, pad, dilation, extent, oh = g.ints("stride_h pad_h rdil_h in_h oh")
    # The part's last line reads the image from output line `first` on, its first line up to `stop`.
    last = b.mul(b.sub(b.add(nth, lines), 1), dilation)
    first = b.min_(ceil_div(b, b.max_(b.sub(pad, last), 0), stride), oh)
    stop = ceil_div(b, b.max_(b.sub(b.add(extent, pad), b.mul(nth, dilation)), 0), stride)
    each = b.sub(b.max_(b.min_(stop, oh), first), first)

    def before(line: V) -> V:
        inside = b.min_(b.max_(b.sub(b.urem(line, oh), first), 0), each)
        return b.add(b.mul(b.udiv(line, oh), each), inside)

    busy = b.sub(before(end), before(begin))
    idle = b.sub(b.sub(end, begin), busy)
    return b.select(b.icmp("ne", g.get("leaves_padding"), 0), idle, i64(0))
