"""Emitters of the tasks that multiply: pixels by features (`pixels.py`), features by pixels, or images by features."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.feature_lines import gather_lines_symbol
from shlo_jit.kernels.convolution.input import TASK_PARAMS, dot, split
from shlo_jit.kernels.convolution.narrow import emit_few
from shlo_jit.kernels.convolution.pixels import PixelsTask
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.convolution.task import ConvTask, Part, Steps, Stripe
from shlo_jit.kernels.gemm.blocks import ceil_div
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.precision import GemmTypes
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.kernels.target import Target


class _FewTask(PixelsTask):
    """Task of a skinny product: a panel is a single feature; see `narrow.py`."""

    def __init__(self, b: Builder, types: GemmTypes, target: Target, few: str, features: int):
        super().__init__(b, types, target, gathers=False)
        self.few, self.features = few, features

    def multiply(self, stripe: Stripe, panels: tuple[V, V], c: V, steps: Steps, later: tuple[V, V]) -> None:
        k = [steps.k, steps.more, steps.runs, steps.run_stride]
        args = [stripe.a, stripe.a_rs, stripe.height, *panels, c, self.g.get("o_pixel"), *k]
        self.b.call("void", self.few, args)

    def report(self, final: V, ends: list[V]) -> None:
        """Reports finished pixels. Those of a single feature may be adjacent; then they are reported as features
        first, image by image."""
        if self.features > 1:
            super().report(final, ends)
            return
        b, (_, first, end, feature, _) = self.b, ends
        od, oh, ow = self.g.ints("od oh ow")
        pixels = b.mul(b.mul(od, oh), ow)

        def by_image() -> list[V]:
            with b.loop(b.udiv(first, pixels), ceil_div(b, end, pixels), hint="image") as image:
                start = b.mul(image, pixels)
                part = b.sub(b.max_(first, start), start), b.sub(b.min_(end, b.add(start, pixels)), start)
                ConvTask.report(self, final, [image, feature, b.add(feature, 1), *part])
            return []

        def by_pixel() -> list[V]:
            ConvTask.report(self, final, ends)
            return []

        b.if_else(b.icmp("eq", self.g.get("o_pixel"), self.plan.out_bytes), by_image, by_pixel)


def emit_last_task(
    module: ModuleText, types: GemmTypes, target: Target, own_tile: int = 0, ends: int = 0, *, gathers: bool
) -> str:
    """Emits the task for features last; see `PixelsTask`. Returns its name."""
    name = f"shlo_conv_{types.name}_last_task"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    task = PixelsTask(b, types, target, gathers, own_tile, ends)
    task.each_call(task.part)
    b.ret()
    return name


def emit_skinny_task(module: ModuleText, types: GemmTypes, target: Target, features: int = 1) -> str:
    """Emits the task for features last with a few features; see `narrow.py`. Returns its name."""
    name = f"shlo_conv_{types.name}_few_task"
    few = emit_few(module, conv_plan(types, target), target, features)
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    task = _FewTask(b, types, target, few, features)
    task.each_call(task.part)
    b.ret()
    return name


def emit_first_task(module: ModuleText, types: GemmTypes, target: Target) -> str:
    """Emits the task whose rows are features: some features of a group by a chunk of an image's pixels, which are
    gathered into panels of B. Returns its name."""
    name = f"shlo_conv_{types.name}_first_task"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    t = ConvTask(b, types, target)
    g, plan = t.g, t.plan
    # Tasks of the same features follow each other: they read the same panels of the kernel.
    group, image, row, column = split(b, t.index, g.get("batch"), g.get("row_chunks"), g.get("column_chunks"))
    od, oh, ow = g.ints("od oh ow")
    pixels = b.mul(b.mul(od, oh), ow)
    nc, co = g.ints("nc co")
    p0, i0 = b.mul(column, nc), b.mul(row, g.get("row_chunk"))
    n, i1 = b.min_(b.sub(pixels, p0), nc), b.min_(b.add(i0, g.get("row_chunk")), co)
    feature_stride = g.get("o_feature")
    places = ((group, g.get("o_group")), (image, g.get("o_image")), (p0, i64(plan.out_bytes)))
    output = b.offset(g.pointer("output"), dot(b, *places))
    first_feature = b.mul(group, co)
    source = b.offset(t.input, dot(b, (image, g.get("a_batch")), (group, g.get("a_group"))))

    def part(part: Part) -> None:
        k = b.mul(g.get("run"), part.runs)
        panel = b.mul(k, plan.b_step)
        with b.loop(0, n, plan.nr, "panel") as j:
            to = b.offset(t.memory, b.mul(b.udiv(j, plan.nr), panel))
            pixel = source, b.add(p0, j), b.min_(b.sub(n, j), plan.nr), to
            _gather_part(t, part, pixel)
        with b.loop(i0, i1, plan.mr, "stripe") as i:
            height = b.min_(b.sub(i1, i), plan.mr)
            a, _ = t.panel(group, b.udiv(i, plan.mr), part.done, k)
            c = b.offset(output, b.mul(i, feature_stride))
            a_args = [a, i64(t.unit), i64(plan.mr * t.unit), height]
            t.stripe([*a_args, t.memory, i64(plan.b_step), panel, c, feature_stride, n, k, part.more, i64(1), i64(0)])
            feature = b.add(first_feature, i)
            t.report(part.final, [image, feature, b.add(feature, height), p0, b.add(p0, n)])

    t.each_call(part)
    b.ret()
    return name


def _gather_part(t: ConvTask, part: Part, pixels: tuple[V, V, V, V]) -> None:
    """Gathers what some pixels (image, first, count) read of a part of the window into a panel, the last of `pixels`.
    Runs are positions of a line of the window, or the features of a single pixel."""
    b, g, (x, y, first) = t.b, t.g, part.place
    of_features = b.icmp("eq", g.get("run"), 1)
    one = b.and_(of_features, b.icmp("eq", b.mul(b.mul(g.get("kd"), g.get("kh")), g.get("kw")), 1))
    taps = b.select(one, i64(0), first), b.select(one, i64(1), part.runs)
    features = b.select(one, first, i64(0)), b.select(one, part.runs, g.get("ci"))
    args = [b.params[0], *pixels, x, i64(1), y, i64(1), *taps, *features]
    b.call("void", gather_lines_symbol(t.types), args)


def emit_images_task(module: ModuleText, types: GemmTypes, target: Target) -> str:
    """Emits the task whose rows are images, which the table calls `ci`; `batch` is the number of input features. A task
    adds one input feature at a time to some output pixels, so that one read of the feature serves all of them. Returns
    its name."""
    name = f"shlo_conv_{types.name}_images_task"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    t = ConvTask(b, types, target)
    g, plan = t.g, t.plan
    images, features, co, depth = g.ints("ci batch co outer0")
    od, oh, ow = g.ints("od oh ow")
    pixels = b.mul(b.mul(od, oh), ow)
    p0 = b.mul(t.index, g.get("row_chunk"))
    p1 = b.min_(b.add(p0, g.get("row_chunk")), pixels)
    step, row = b.mul(g.get("rdil_w"), g.get("a_w")), g.get("o_image")
    kernel = b.offset(g.pointer("kernel"), g.get("w_offset"))
    last = b.sub(b.mul(features, depth), 1)
    with b.loop(0, features, hint="feature") as f, b.loop(0, depth, hint="depth") as d:
        done = b.add(b.mul(f, depth), d)
        more = b.cast("zext", b.icmp("ne", done, 0), "i64")
        lines = b.offset(t.input, dot(b, (f, g.get("a_batch")), (d, g.get("outer0_stride"))))
        weights = b.offset(kernel, dot(b, (f, g.get("w_in")), (d, g.get("w_sd"))))
        with b.loop(p0, p1, hint="pixel") as p:
            _, x, y, z = split(b, p, od, oh, ow)
            a = b.offset(lines, t.pixel_offset(x, y, z))
            c = b.offset(g.pointer("output"), b.mul(p, g.get("o_pixel")))
            with b.loop(0, images, plan.mr, "stripe") as i:
                height = b.min_(b.sub(images, i), plan.mr)
                rows = [b.offset(a, b.mul(i, t.unit)), i64(t.unit), step, height]
                operand = [weights, g.get("w_sw"), i64(plan.b_step), b.offset(c, b.mul(i, row)), row]
                t.stripe([*rows, *operand, co, g.get("run"), more, g.get("runs"), g.get("run_stride")])
            final = b.icmp("eq", done, last)
            with b.loop(0, b.select(final, images, i64(0)), hint="image") as i:
                at = b.add(b.mul(i, pixels), p)
                t.report(final, [i64(0), at, b.add(at, 1), i64(0), co])
    b.ret()
    return name
