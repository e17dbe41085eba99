"""Input of convolutions whose output pixels are adjacent. Its lines hold one feature after the other, so lanes that run
along pixels read vectors.

Such an image is read in place, or as a padded copy [group, image, d, h, phase, feature, column]. Columns that are a
window's stride apart are adjacent in the copy: those with the same remainder are a phase. Tasks gather some pixels of
it into a panel, line by line.
"""

from __future__ import annotations

from functools import partial

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.input import TASK_PARAMS, Arguments, dot, packers, source_line, split
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.gemm.blocks import ceil_div
from shlo_jit.kernels.gemm.micro import attributes, lane_masks
from shlo_jit.kernels.gemm.pack import convert
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes, itemsize, storage
from shlo_jit.kernels.llvm_values import V, i64, vector
from shlo_jit.kernels.target import Target

GATHER_LINES_PARAMS = [
    ("ptr", "frame"),
    ("ptr", "image"),
    ("i64", "first"),
    ("i64", "count"),
    ("ptr", "to"),
    ("i64", "depth"),
    ("i64", "depths"),
    ("i64", "height"),
    ("i64", "heights"),
    ("i64", "tap"),
    ("i64", "taps"),
    ("i64", "feature"),
    ("i64", "features"),
]
"""The panel has `count` pixels of an image from pixel `first` on, for positions and features of the window that are a
box: (first, count) of each. `image` is the address of the image's first pixel and feature."""


def copy_lines_symbol(types: GemmTypes) -> str:
    """Returns the symbol of the task that copies some lines of the input."""
    return f"shlo_conv_{types.name}_copy_feature_lines"


def gather_lines_symbol(types: GemmTypes) -> str:
    """Returns the symbol of the function that gathers a panel."""
    return f"shlo_conv_{types.name}_gather_lines"


# ---------------------------------------------------------------------- the padded copy
def emit_copy_lines(module: ModuleText, types: GemmTypes, target: Target) -> None:
    """Emits the task that writes some lines (group, image, d, h) of the padded copy."""
    b = module.function(copy_lines_symbol(types), TASK_PARAMS, attributes=attributes(target))
    frame, index, _ = b.params
    g = Arguments(b, frame)
    lines, chunk, line_bytes, images, pd, ph = g.ints("copy_lines copy_chunk copy_line batch pd ph")
    first = b.mul(index, chunk)
    with b.loop(first, b.min_(b.add(first, chunk), lines), hint="line") as line:
        to = b.offset(g.pointer("scratch"), b.mul(line, line_bytes))
        group, image, d, h = split(b, line, images, pd, ph)
        inside, source = source_line(b, g, group, image, b.mul(d, g.get("copy_sd")), b.mul(h, g.get("copy_sh")))
        has_zeros = b.or_(b.not_(inside), b.icmp("ne", g.get("copy_zeros"), 0))
        with b.if_(has_zeros):
            b.memset(to, 0, line_bytes)
        with b.if_(inside):
            dense = b.icmp("eq", g.get("ldil_w"), 1)
            with b.if_(dense):
                _copy_phases(b, g, types, target, source, to)
            with b.if_(b.not_(dense)):
                _copy_dilated(b, g, types, target, source, to)
    b.ret()


def _copy_phases(b: Builder, g: Arguments, types: GemmTypes, target: Target, source: V, to: V) -> None:
    """Copies a line of the input, one phase after the other."""
    plan = conv_plan(types, target)
    step, pad, extent, width, pixel = g.ints("phase_step pad_w in_w pw in_sw")
    with b.loop(0, g.get("phases"), hint="phase") as phase:
        left = b.max_(b.sub(pad, phase), 0)
        skipped = b.udiv(b.add(left, b.sub(step, 1)), step)
        begin = b.sub(b.add(b.mul(skipped, step), phase), pad)
        exist = b.udiv(b.add(b.max_(b.sub(extent, begin), 0), b.sub(step, 1)), step)
        count = b.max_(b.min_(b.sub(width, skipped), exist), 0)
        at = b.offset(to, dot(b, (phase, g.get("phase_bytes")), (skipped, i64(plan.unit_bytes))))
        with b.if_(b.icmp("sgt", count, 0)):
            _copy_columns(b, g, types, target, b.offset(source, b.mul(begin, pixel)), at, count)


def _copy_columns(b: Builder, g: Arguments, types: GemmTypes, target: Target, source: V, to: V, count: V) -> None:
    """Copies `count` columns of all features, `phase_step` apart in the input and adjacent in the copy."""
    plan, size = conv_plan(types, target), itemsize(types.a)
    step, width, pixel, features, feature = g.ints("phase_step pw in_sw ci in_feature")
    row = b.mul(width, plan.unit_bytes)

    def each(apart: int) -> list[V]:
        with b.loop(0, features, hint="feature") as c:
            x, y = b.offset(source, b.mul(c, feature)), b.offset(to, b.mul(c, row))
            _copy_row(b, types, plan, x, y, count, apart)
        return []

    def packed() -> list[V]:
        args = [source, b.mul(step, pixel), feature, to, width, count, features, i64(0)]
        b.call("void", packers(types, target)[0].name, args)
        return []

    def one_by_one() -> list[V]:
        with b.loop(0, features, hint="feature") as c, b.loop(0, count, hint="column") as w:
            x = b.load(storage(types.a), b.offset(source, dot(b, (b.mul(w, step), pixel), (c, feature))))
            place = dot(b, (c, row), (w, i64(plan.unit_bytes)))
            b.store(convert(b, x, types.a, plan.unit), b.offset(to, place))
        return []

    # Without masked stores the packer may write beyond a row.
    other = packed if plan.masks else one_by_one
    apart = b.select(b.icmp("eq", pixel, size), step, i64(0))
    at_two = partial(b.if_else, b.icmp("eq", apart, 2), partial(each, 2), other)
    b.if_else(b.icmp("eq", apart, 1), partial(each, 1), at_two)


def _copy_row(b: Builder, types: GemmTypes, plan: GemmPlan, source: V, to: V, count: V, apart: int) -> None:
    """Copies elements that are 1 or 2 elements apart to adjacent ones, a vector at a time."""
    n, size, element = plan.lanes, itemsize(types.a), storage(types.a)
    # A vector of every second element ends with one that is not copied, which may not exist.
    whole = b.mul(b.udiv(count if apart == 1 else b.max_(b.sub(count, 1), 0), n), n)
    with b.loop(0, whole, n, "columns") as w:
        x = b.load(vector(element, n * apart), b.offset(source, b.mul(w, apart * size)))
        x = x if apart == 1 else b.shuffle(x, None, range(0, 2 * n, 2))
        b.store(convert(b, x, types.a, plan.unit), b.offset(to, b.mul(w, plan.unit_bytes)))
    if plan.masks and apart == 1 and element == plan.unit:
        rest = b.sub(count, whole)
        with b.if_(b.icmp("sgt", rest, 0)):
            mask, at = lane_masks(b, plan, rest, 1)[0], b.mul(whole, size)
            x = b.masked_load(vector(element, n), b.offset(source, at), mask)
            b.masked_store(x, b.offset(to, at), mask)
        return
    with b.loop(whole, count, hint="rest") as w:
        x = b.load(element, b.offset(source, b.mul(w, apart * size)))
        b.store(convert(b, x, types.a, plan.unit), b.offset(to, b.mul(w, plan.unit_bytes)))


def _copy_dilated(b: Builder, g: Arguments, types: GemmTypes, target: Target, source: V, to: V) -> None:
    """Copies a line of a dilated input element by element: its columns may be in any phase."""
    plan = conv_plan(types, target)
    step, pad, phases, width = g.ints("phase_step pad_w phases pw")
    with b.loop(0, g.get("in_w"), hint="pixel") as w:
        column = b.add(b.mul(w, g.get("ldil_w")), pad)
        safe = b.max_(column, 0)
        phase, at = b.urem(safe, step), b.udiv(safe, step)
        fits = b.and_(b.icmp("slt", phase, phases), b.icmp("slt", at, width))
        with b.if_(b.and_(fits, b.icmp("sge", column, 0))), b.loop(0, g.get("ci"), hint="feature") as c:
            x = b.load(storage(types.a), b.offset(source, dot(b, (w, g.get("in_sw")), (c, g.get("in_feature")))))
            unit = i64(plan.unit_bytes)
            place = dot(b, (phase, g.get("phase_bytes")), (c, g.get("a_feature")), (at, unit))
            b.store(convert(b, x, types.a, plan.unit), b.offset(to, place))


# ---------------------------------------------------------------------- panels
def emit_gather_lines(module: ModuleText, types: GemmTypes, target: Target) -> None:
    """Emits the function that gathers a panel; see GATHER_LINES_PARAMS."""
    plan = conv_plan(types, target)
    b = module.function(gather_lines_symbol(types), GATHER_LINES_PARAMS, attributes=attributes(target))
    frame, image, first, count, to, depth, depths, height, heights, tap, taps, feature, features = b.params
    g = Arguments(b, frame)
    segments = b.alloca("i64", 3 * plan.nr)
    number = _segments(b, g, plan, first, count, segments)
    step, k_tap, k_feature = g.get("a_feature"), g.get("k_tap"), b.mul(g.get("k_feature"), plan.b_step)
    image = b.offset(image, b.mul(feature, step))
    boxes = b.loop(0, depths, hint="depth"), b.loop(0, heights, hint="height"), b.loop(0, taps, hint="tap")
    with boxes[0] as x, boxes[1] as y, boxes[2] as z:
        column = b.mul(b.add(tap, z), g.get("rdil_w"))
        phase, columns = b.urem(column, g.get("phase_step")), b.udiv(column, g.get("phase_step"))
        below = b.mul(g.get("a_d"), g.get("rdil_d")), b.mul(g.get("a_h"), g.get("rdil_h"))
        lines = (b.add(depth, x), below[0]), (b.add(height, y), below[1])
        places = *lines, (phase, g.get("phase_bytes")), (columns, i64(plan.unit_bytes))
        source = b.offset(image, dot(b, *places))
        row = b.mul(b.add(b.mul(b.add(b.mul(x, heights), y), taps), z), k_tap)
        panel = b.offset(to, b.mul(row, plan.b_step))
        with b.loop(0, number, hint="segment") as i:
            entry = b.element(segments, "i64", b.mul(i, 3))
            at, place, pixels = (b.load("i64", b.element(entry, "i64", n), align=8) for n in range(3))
            rows = (b.offset(source, at), step), (b.offset(panel, place), k_feature)
            _copy_segment(b, plan, rows, pixels, features)
    b.ret()


def _segments(b: Builder, g: Arguments, plan: GemmPlan, first: V, count: V, to: V) -> V:
    """Stores, for each line of the pixels, the bytes from the image to its first pixel, from the panel to the same, and
    the number of pixels. Returns the number of lines."""
    width, end = g.get("ow"), b.add(first, count)
    begin = b.udiv(first, width)
    lines = b.sub(ceil_div(b, end, width), begin)
    with b.loop(0, lines, hint="line") as i:
        line = b.add(begin, i)
        pixel = b.mul(line, width)
        w = b.max_(b.sub(first, pixel), 0)
        pixels = b.sub(b.min_(b.sub(end, pixel), width), w)
        d, h = split(b, line, g.get("oh"))
        strides = b.mul(g.get("stride_d"), g.get("a_d")), b.mul(g.get("stride_h"), g.get("a_h"))
        at = dot(b, (d, strides[0]), (h, strides[1]), (w, i64(plan.unit_bytes)))
        place = b.mul(b.sub(b.add(pixel, w), first), plan.unit_bytes)
        entry = b.element(to, "i64", b.mul(i, 3))
        for n, value in enumerate((at, place, pixels)):
            b.store(value, b.element(entry, "i64", n), align=8)
    return lines


def _copy_segment(
    b: Builder, plan: GemmPlan, rows: tuple[tuple[V, V], tuple[V, V]], pixels: V, features: V
) -> None:
    """Copies some pixels of all features. `rows`: address and distance of the features' rows, here and there."""
    n, unit = plan.lanes, plan.unit_bytes
    (source, step), (to, row) = rows

    def each(at: V | int, kinds: list[str], mask: V | None = None) -> list[V]:
        """Copies values from byte `at` on of every row: one of each type, one after the other."""
        with b.loop_carry(0, features, [b.offset(source, at), b.offset(to, at)], hint="feature") as c:
            x, y = c.values
            for i, kind in enumerate(kinds):
                here, there = b.offset(x, i * n * unit), b.offset(y, i * n * unit)
                if mask is None:
                    b.store(b.load(kind, here), there)
                else:
                    b.masked_store(b.masked_load(kind, here, mask), there, mask)
            c.next(b.offset(x, step), b.offset(y, row))
        return []

    def other() -> list[V]:
        whole = b.mul(b.udiv(pixels, n), n)
        with b.loop(0, whole, n, "pixels") as w:
            each(b.mul(w, unit), [vector(plan.unit, n)])
        if plan.masks:
            rest = b.sub(pixels, whole)
            with b.if_(b.icmp("sgt", rest, 0)):
                each(b.mul(whole, unit), [vector(plan.unit, n)], lane_masks(b, plan, rest, 1)[0])
        else:
            with b.loop(whole, pixels, hint="rest") as w:
                each(b.mul(w, unit), [plan.unit])
        return []

    b.if_else(b.icmp("eq", pixels, plan.nr), lambda: each(0, [vector(plan.unit, n)] * plan.nv), other)
