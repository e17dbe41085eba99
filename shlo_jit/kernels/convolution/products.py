"""The tasks that multiply: stripes of pixels against panels of features, or the other way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.convolution.few import emit_few
from shlo_jit.kernels.convolution.input import TASK_PARAMS, Arguments, dot, split
from shlo_jit.kernels.convolution.margins import is_in_margin, margin_symbol
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.gemm.blocks import FETCHED_A_STEP, ceil_div, is_told
from shlo_jit.kernels.gemm.micro import attributes, stripe_symbol
from shlo_jit.kernels.gemm.pack import transpose
from shlo_jit.kernels.gemm.types import GemmPlan, GemmTypes
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.values import V, i64, vector

GATHER_PARAMS = [
    ("ptr", "pointers"),
    ("i64", "count"),
    ("i64", "width"),
    ("ptr", "to"),
    ("i64", "run"),
    ("i64", "runs"),
    ("i64", "run_stride"),
]


def emit_gather(module: ModuleText, types: GemmTypes, target: Target) -> None:
    """A panel of `width` from `count` pixels given by address: `runs` stretches of `run` adjacent units of each."""
    plan = conv_plan(types, target)
    b = module.function(f"shlo_conv_{types.name}_gather", GATHER_PARAMS, attributes=attributes(target))
    pointers, count, width, to, run, runs, run_stride = b.params
    n, unit = plan.lanes, plan.unit_bytes
    step = b.mul(width, unit)
    last = b.sub(count, 1)
    whole = b.mul(b.udiv(run, n), n)

    def pixel(j: V) -> V:
        return b.load("ptr", b.element(pointers, "ptr", j), align=8)

    with b.loop_carry(0, runs, [to, i64(0)], hint="run") as at:
        panel, offset = at.values
        some = b.select(b.icmp("sgt", whole, 0), count, i64(0))
        with b.loop(0, some, n, "jblock") as j:
            rows = [b.offset(pixel(b.min_(b.add(j, r), last)), offset) for r in range(n)]
            place = b.offset(panel, b.mul(j, unit))
            with b.loop(0, whole, n, "kblock") as k:
                block = [b.load(vector(plan.unit, n), b.offset(row, b.mul(k, unit))) for row in rows]
                _store_block(b, plan, transpose(b, block), b.offset(place, b.mul(k, step)), step, b.sub(width, j))
        with b.loop(0, count, hint="rest") as j:
            row = b.offset(pixel(j), offset)
            place = b.offset(panel, b.mul(j, unit))
            with b.loop(whole, run) as k:
                b.store(b.load(plan.unit, b.offset(row, b.mul(k, unit))), b.offset(place, b.mul(k, step)))
        at.next(b.offset(panel, b.mul(run, step)), b.add(offset, run_stride))
    b.ret()


def _store_block(b: Builder, plan: GemmPlan, block: list[V], place: V, step: V, left: V) -> None:
    """Vector after vector; lanes beyond the panel's width are masked, or lie where the next step is written later."""
    n = plan.lanes
    mask: V | None = None
    if plan.masks:
        short = b.cast("trunc", b.sub(n, b.min_(left, n)), f"i{n}")
        word = b.lshr(V(f"i{n}", "-1"), short)
        mask = b.emit(f"<{n} x i1>", f"bitcast i{n} {word.text} to <{n} x i1>")
    for x in block:
        if mask is None:
            b.store(x, place)
        else:
            b.masked_store(x, place, mask)
        place = b.offset(place, step)


class Part(NamedTuple):
    """Of the window: some runs of k."""

    place: tuple[V, V, V]
    """Which: the turns of the two outer loops, and the first run."""
    offset: V
    """Of A."""
    done: V
    """k before it."""
    runs: V
    more: V
    """1 where C has sums already."""
    final: V


class Stripe(NamedTuple):
    """Pixels of a task that go through the tiles together."""

    nth: V
    """Of the task's stripes."""
    first: V
    """Pixel."""
    height: V
    a: V
    a_rs: V
    """From pixel to pixel."""
    a_cs: V
    """From step to step of k in a run."""


class Steps(NamedTuple):
    """Of k, what a stripe takes of a part of the window."""

    before: V
    """k of the part that is left out."""
    k: V
    """Of a run."""
    runs: V
    run_stride: V
    more: V
    """1 where C has sums already."""


class _Task:
    """What the kinds of tasks share."""

    def __init__(self, b: Builder, types: GemmTypes, target: Target):
        self.b, self.types, self.plan = b, types, conv_plan(types, target)
        frame, self.index, worker = b.params
        self.g = g = Arguments(b, frame)
        scratch = g.pointer("scratch")
        copied = b.icmp("ne", g.get("copy_tasks"), 0)
        self.input = b.select(copied, scratch, g.pointer("input"))
        self.prepacked = b.icmp("ne", g.get("w_prepacked"), 0)
        self.weights = b.select(self.prepacked, g.pointer("kernel"), b.offset(scratch, g.get("scratch_weights")))
        at = b.add(g.get("scratch_workers"), b.mul(worker, g.get("worker_bytes")))
        self.memory = b.offset(scratch, at)
        self.unit = self.plan.unit_bytes

    def pixel_offset(self, d: V, h: V, w: V) -> V:
        """Of the corner of an output pixel's window."""
        b, g = self.b, self.g
        strides = zip(g.ints("stride_d stride_h stride_w"), g.ints("a_d a_h a_w"), strict=True)
        return dot(b, *((x, b.mul(s, a)) for x, (s, a) in zip((d, h, w), strides, strict=True)))

    def panel(self, group: V, nth: V, done: V, k: V) -> tuple[V, V]:
        """Where the `k` rows behind `done` of a panel of the kernel are, and how far it is to the next panel. Panels
        that were packed before are cut into blocks of k; others go on."""
        b, g = self.b, self.g
        row, whole = b.mul(g.get("w_width"), self.unit), g.get("k_bytes_per_panel")
        block = b.mul(k, row)
        before = b.mul(b.mul(done, g.get("w_panels")), row)
        place = b.select(self.prepacked, b.add(before, b.mul(nth, block)), b.add(b.mul(nth, whole), b.mul(done, row)))
        place = b.add(place, b.mul(group, g.get("w_group_bytes")))
        return b.offset(self.weights, place), b.select(self.prepacked, block, whole)

    def pointers(self, table: V, first: V, count: V, group: V, offset: V) -> None:
        """Addresses of `count` pixels from flat pixel (image, d, h, w) `first` on."""
        b, g = self.b, self.g
        extents = g.ints("od oh ow")
        with b.loop(0, count, hint="pixel") as r:
            image, d, h, w = split(b, b.add(first, r), *extents)
            at = b.add(dot(b, (image, g.get("a_batch")), (group, g.get("a_group"))), self.pixel_offset(d, h, w))
            b.store(b.offset(self.input, b.add(at, offset)), b.element(table, "ptr", r), align=8)

    def gather(self, table: V, count: V, width: V, to: V, runs: V) -> None:
        g = self.g
        args = [table, count, width, to, g.get("run"), runs, g.get("run_stride")]
        self.b.call("void", f"shlo_conv_{self.types.name}_gather", args)

    def each_call(self, body: Callable[[Part], None]) -> None:
        """`body` for every part of the window, in order of k."""
        b, g = self.b, self.g
        outer0, stride0, outer1, stride1 = g.ints("outer0 outer0_stride outer1 outer1_stride")
        runs, run, run_stride, each = g.ints("runs run run_stride runs_per_call")
        with b.loop(0, outer0, hint="depth") as x, b.loop(0, outer1, hint="height") as y, b.loop(0, runs, each) as s:
            n = b.min_(b.sub(runs, s), each)
            line = b.add(b.mul(x, outer1), y)
            done = b.mul(b.add(b.mul(line, runs), s), run)
            first = b.and_(b.icmp("eq", line, 0), b.icmp("eq", s, 0))
            final = b.and_(b.icmp("eq", b.add(line, 1), b.mul(outer0, outer1)), b.icmp("sge", b.add(s, n), runs))
            offset = dot(b, (x, stride0), (y, stride1), (s, run_stride))
            body(Part((x, y, s), offset, done, n, b.cast("zext", b.not_(first), "i64"), final))

    def stripe(self, args: list[V], later: tuple[V, V] | None = None, own_tile: int = 0) -> None:
        """`later`: what is fetched beside the tiles, and how many bytes beside each; see STRIPE_PARAMS.
        `own_tile`: the height that most stripes have, and for which there is a tile."""
        b, args = self.b, [*args, *(later or (args[4], i64(0)))]

        def call(height: int | None = None) -> list[V]:
            b.call("void", stripe_symbol(self.plan, height), args)
            return []

        if own_tile:
            height = args[3]
            b.if_else(b.icmp("eq", height, own_tile), lambda: call(own_tile), call)
        else:
            call()

    def report(self, final: V, ends: list[V]) -> None:
        b = self.b
        epilogue = self.g.pointer("epilogue")
        with b.if_(b.and_(final, b.icmp("ne", epilogue, V("ptr", "null")))):
            b.call_pointer("void", epilogue, [self.g.pointer("frame"), *ends])


class _LastTask(_Task):
    """Rows are pixels: a chunk of rows (lines of pixels when read in place) against a chunk of features."""

    def __init__(self, b: Builder, types: GemmTypes, target: Target, gathers: bool, own_tile: int):
        super().__init__(b, types, target)
        g, plan, self.gathers, self.own_tile = self.g, self.plan, gathers, own_tile
        self.group, column, row = split(b, self.index, g.get("column_chunks"), g.get("row_chunks"))
        nc, co, ow = g.ints("nc co ow")
        j0 = b.mul(column, nc)
        self.n = b.min_(b.sub(co, j0), nc)
        self.panels, self.first_panel = ceil_div(b, self.n, plan.nr), b.udiv(j0, plan.nr)
        places = (self.group, g.get("o_group")), (j0, i64(plan.out_bytes))
        self.output = b.offset(g.pointer("output"), dot(b, *places))
        self.feature = b.add(b.mul(self.group, co), j0)
        count, self.per_line = (
            (g.get("rows"), i64(1)) if gathers else (ceil_div(b, g.get("rows"), ow), ceil_div(b, ow, g.get("stripe")))
        )
        self.begin = b.mul(row, g.get("row_chunk"))
        self.end = b.min_(b.add(self.begin, g.get("row_chunk")), count)
        rows = b.sub(self.end, self.begin)
        self.stripes = ceil_div(b, rows, plan.mr) if gathers else self._stripes_of_lines()
        self.first_pixel = self.begin if gathers else b.mul(self.begin, ow)
        self.table = b.alloca("ptr", plan.mr)
        self.told = b.alloca("i64", 1)
        """The first pixel that the epilogue was not told of."""
        self.later = b.alloca("ptr", 1)
        """What is fetched beside the next stripe."""
        self.share = b.udiv(g.following_bytes, b.max_(g.get("main_tasks"), 1))
        # Fetching from nowhere would be a walk of the page tables each time.
        following = b.select(b.icmp("eq", g.following_bytes, 0), g.pointer("output"), g.pointer("following"))
        self.soon = b.offset(following, b.mul(self.index, self.share))

    def _stripes_of_lines(self) -> V:
        b = self.b
        last = b.sub(self.end, 1)
        return b.add(
            b.mul(b.sub(last, self.begin), self.per_line), ceil_div(b, self._width(last), self.g.get("stripe"))
        )

    def _width(self, line: V) -> V:
        """Pixels of a line: the last part of one that has been cut may be shorter than the others."""
        b, (rows, ow) = self.b, self.g.ints("rows ow")
        return b.min_(ow, b.sub(rows, b.mul(line, ow)))

    def part(self, part: Part) -> None:
        """All stripes against the panels of a part of the window."""
        b, g, done, final = self.b, self.g, part.done, part.final
        k = b.mul(g.get("run"), part.runs)
        packed, panel_bytes = self.panel(self.group, self.first_panel, done, k)
        # The next part's panels come from memory beside this one's tiles; beside the last part's, what follows.
        after = self.panel(self.group, self.first_panel, b.add(done, k), k)[0]
        fetched = b.select(final, self.share, b.mul(self.panels, panel_bytes))
        fetched = b.select(self.prepacked, fetched, i64(0))
        stripes = self.stripes if self.gathers else b.sub(self.stripes, b.mul(self._idle_lines(part), self.per_line))
        piece = b.udiv(fetched, b.mul(self.panels, b.max_(stripes, 1)))
        piece = b.min_(piece, b.mul(k, FETCHED_A_STEP))
        b.store(self.first_pixel, self.told, align=8)
        b.store(b.select(final, self.soon, after), self.later, align=8)

        def multiply(stripe: Stripe, steps: Steps) -> None:
            later = b.load("ptr", self.later, align=8)
            b.store(b.offset(later, b.mul(self.panels, piece)), self.later, align=8)
            before = b.mul(b.mul(steps.before, g.get("w_width")), self.unit)
            c = b.offset(self.output, b.mul(stripe.first, g.get("o_pixel")))
            self.multiply(stripe, (b.offset(packed, before), panel_bytes), c, steps, (later, piece))

        def done_with(stripe: Stripe, steps: Steps) -> None:
            """Multiply, where there is something to do; the epilogue is told of some stripes at a time."""
            with b.if_(b.icmp("sgt", steps.runs, 0)):
                multiply(stripe, steps)
            first, end = b.load("i64", self.told, align=8), b.add(stripe.first, stripe.height)
            nbytes = b.mul(b.sub(end, first), b.mul(self.n, self.plan.out_bytes))
            with b.if_(is_told(b, nbytes, b.icmp("eq", b.add(stripe.nth, 1), self.stripes))):
                self.report(final, [i64(0), first, end, self.feature, b.add(self.feature, self.n)])
                b.store(end, self.told, align=8)

        if self.gathers:
            self._gathered(part, done_with)
        else:
            self._in_place(part, done_with)

    def multiply(self, stripe: Stripe, panels: tuple[V, V], c: V, steps: Steps, later: tuple[V, V]) -> None:
        """A stripe by panels (address, distance), the sums to c. `later`: see `stripe`."""
        first, distance = panels
        rows = [stripe.a, stripe.a_rs, stripe.a_cs, stripe.height]
        operand = [first, i64(self.plan.b_step), distance, c, self.g.get("o_pixel")]
        k = [steps.k, steps.more, steps.runs, steps.run_stride]
        self.stripe([*rows, *operand, self.n, *k], later, self.own_tile)

    def _in_place(self, part: Part, stripe: Callable[[Stripe, Steps], None]) -> None:
        b, g = self.b, self.g
        od, oh, ow, most = g.ints("od oh ow stripe")
        step, group_offset = b.mul(g.get("stride_w"), g.get("a_w")), b.mul(self.group, g.get("a_group"))
        # Of long sums a part has few lines to read and many products to do beside; with strides half is for nothing.
        whole = b.and_(b.and_(part.final, b.icmp("eq", part.more, 0)), b.icmp("eq", g.get("stride_w"), 1))
        with b.loop(self.begin, self.end, hint="line") as line:
            image, d, h = split(b, line, od, oh)
            first, runs, more = self._runs_inside(part, h)
            below = b.mul(first, g.get("run_stride"))
            at = b.add(b.mul(image, g.get("a_batch")), self.pixel_offset(d, h, i64(0)))
            start = b.offset(self.input, b.add(b.add(b.add(at, g.get("a_corner")), part.offset), group_offset))
            width = self._width(line)
            with b.loop(0, width, most, "stripe") as w:
                height = b.min_(b.sub(width, w), most)
                with b.if_(whole):
                    self._fetch_below(b.offset(start, b.mul(w, step)), b.mul(height, step))
                nth = b.add(b.mul(b.sub(line, self.begin), self.per_line), b.udiv(w, most))

                def inside(w: V = w) -> list[V]:
                    return [b.offset(start, b.add(b.mul(w, step), below)), g.get("run_stride")]

                def at_margin(w: V = w, height: V = height) -> list[V]:
                    return self._with_padding(part, (first, runs), (image, d, h, w, height))

                copied = b.and_(b.icmp("ne", g.get("margin_line"), 0), is_in_margin(b, g, d, h, w, height))
                a, run_stride = b.if_else(copied, at_margin, inside)
                pixels = Stripe(nth, b.add(b.mul(line, ow), w), height, a, step, i64(self.unit))
                run = g.get("run")
                stripe(pixels, Steps(b.mul(first, run), run, runs, run_stride, more))

    def _runs_inside(self, part: Part, h: V) -> tuple[V, V, V]:
        """Of a part of the window of output line `h`: the first of its runs that is not all padding, how many such
        there are, and whether there are some before the part."""
        b, g, nth = self.b, self.g, part.place[2]
        stride, pad, dilation, extent, taps = g.ints("stride_h pad_h rdil_h in_h kh")
        leaves = b.icmp("ne", g.get("leaves_padding"), 0)
        corner = b.sub(b.mul(h, stride), pad)
        low = b.min_(ceil_div(b, b.max_(b.sub(0, corner), 0), dilation), taps)
        high = b.min_(ceil_div(b, b.max_(b.sub(extent, corner), 0), dilation), taps)
        first = b.min_(b.max_(b.sub(low, nth), 0), part.runs)
        end = b.max_(b.min_(b.sub(high, nth), part.runs), first)
        more = b.cast("zext", b.icmp("slt", low, nth), "i64")
        return (
            b.select(leaves, first, i64(0)),
            b.select(leaves, b.sub(end, first), part.runs),
            b.select(leaves, more, part.more),
        )

    def _idle_lines(self, part: Part) -> V:
        """Lines of the task whose runs in a part of the window are all padding."""
        b, g, nth = self.b, self.g, part.place[2]
        stride, pad, dilation, extent, oh = g.ints("stride_h pad_h rdil_h in_h oh")
        # The last run meets the image from the first line on, the first run up to the end.
        last = b.mul(b.sub(b.add(nth, part.runs), 1), dilation)
        first = b.min_(ceil_div(b, b.max_(b.sub(pad, last), 0), stride), oh)
        end = ceil_div(b, b.max_(b.sub(b.add(extent, pad), b.mul(nth, dilation)), 0), stride)
        each = b.sub(b.max_(b.min_(end, oh), first), first)

        def before(line: V) -> V:
            inside = b.min_(b.max_(b.sub(b.urem(line, oh), first), 0), each)
            return b.add(b.mul(b.udiv(line, oh), each), inside)

        busy = b.sub(before(self.end), before(self.begin))
        idle = b.sub(b.sub(self.end, self.begin), busy)
        return b.select(b.icmp("ne", g.get("leaves_padding"), 0), idle, i64(0))

    def _fetch_below(self, a: V, nbytes: V) -> None:
        """The pixels below the windows of a stripe, which the next line's windows meet first, from memory."""
        b, g = self.b, self.g
        down = b.add(b.mul(b.sub(g.get("kh"), 1), g.get("rdil_h")), g.get("stride_h"))
        below = b.offset(a, b.mul(down, g.get("a_h")))
        with b.loop(0, nbytes, FETCHED_A_STEP, "fetch") as i:
            b.prefetch(b.offset(below, i), locality=2)

    def _with_padding(self, part: Part, some: tuple[V, V], stripe: tuple[V, ...]) -> list[V]:
        """What a stripe (image, d, h, w, height) at the margin reads of `some` (first, count) of a part's runs, copied
        with its padding: where that is, and how far it is from run to run. Runs are lines of the window, or taps of
        one line."""
        b, g = self.b, self.g
        lines = b.icmp("ne", g.get("margin_lines"), 0)
        depth, line, run = part.place
        first, runs = some
        tap, count = b.select(lines, b.add(run, first), line), b.select(lines, runs, i64(1))
        b.call("void", margin_symbol(self.types), [b.params[0], self.group, *stripe, depth, tap, count, self.memory])
        run_stride = b.select(lines, g.get("margin_line"), g.get("run_stride"))
        return [b.offset(self.memory, b.select(lines, i64(0), b.mul(run, run_stride))), run_stride]

    def _gathered(self, part: Part, stripe: Callable[[Stripe, Steps], None]) -> None:
        b, plan = self.b, self.plan
        with b.loop(self.begin, self.end, plan.mr, "stripe") as i:
            height = b.min_(b.sub(self.end, i), plan.mr)
            width = height if plan.masks else i64(plan.mr)
            self.pointers(self.table, i, height, self.group, part.offset)
            self.gather(self.table, height, width, self.memory, part.runs)
            k, nth = b.mul(self.g.get("run"), part.runs), b.udiv(b.sub(i, self.begin), plan.mr)
            pixels = Stripe(nth, i, height, self.memory, i64(self.unit), b.mul(width, self.unit))
            stripe(pixels, Steps(i64(0), k, i64(1), i64(0), part.more))


class _FewTask(_LastTask):
    """A panel is a feature; see `few.py`."""

    def __init__(self, b: Builder, types: GemmTypes, target: Target, few: str, features: int):
        super().__init__(b, types, target, gathers=False, own_tile=0)
        self.few, self.features = few, features

    def multiply(self, stripe: Stripe, panels: tuple[V, V], c: V, steps: Steps, later: tuple[V, V]) -> None:
        k = [steps.k, steps.more, steps.runs, steps.run_stride]
        args = [stripe.a, stripe.a_rs, stripe.height, *panels, c, self.g.get("o_pixel"), *k]
        self.b.call("void", self.few, args)

    def report(self, final: V, ends: list[V]) -> None:
        """A single feature's pixels may be adjacent: then they are told of as features first, image by image."""
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
                _Task.report(self, final, [image, feature, b.add(feature, 1), *part])
            return []

        def by_pixel() -> list[V]:
            _Task.report(self, final, ends)
            return []

        b.if_else(b.icmp("eq", self.g.get("o_pixel"), self.plan.out_bytes), by_image, by_pixel)


def emit_last_task(module: ModuleText, types: GemmTypes, target: Target, own_tile: int = 0, *, gathers: bool) -> str:
    """Features last; see `_LastTask`. `own_tile`: the height of stripes for which there is a tile."""
    name = f"shlo_conv_{types.name}_last_task"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    task = _LastTask(b, types, target, gathers, own_tile)
    task.each_call(task.part)
    b.ret()
    return name


def emit_few_task(module: ModuleText, types: GemmTypes, target: Target, features: int = 1) -> str:
    """Features last, a few of them; see `few.py`."""
    name = f"shlo_conv_{types.name}_few_task"
    few = emit_few(module, conv_plan(types, target), target, features)
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    task = _FewTask(b, types, target, few, features)
    task.each_call(task.part)
    b.ret()
    return name


def emit_first_task(module: ModuleText, types: GemmTypes, target: Target) -> str:
    """Rows are features: all features of a group against a chunk of an image's pixels, gathered into panels of B."""
    name = f"shlo_conv_{types.name}_first_task"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    t = _Task(b, types, target)
    g, plan = t.g, t.plan
    group, image, column = split(b, t.index, g.get("batch"), g.get("column_chunks"))
    od, oh, ow = g.ints("od oh ow")
    pixels = b.mul(b.mul(od, oh), ow)
    nc, co = g.ints("nc co")
    p0 = b.mul(column, nc)
    n = b.min_(b.sub(pixels, p0), nc)
    feature_stride = g.get("o_feature")
    places = ((group, g.get("o_group")), (image, g.get("o_image")), (p0, i64(plan.out_bytes)))
    output = b.offset(g.pointer("output"), dot(b, *places))
    table = b.alloca("ptr", plan.nr)
    first_feature = b.mul(group, co)
    first_pixel = b.add(b.mul(image, pixels), p0)

    def part(part: Part) -> None:
        k = b.mul(g.get("run"), part.runs)
        panel = b.mul(k, plan.b_step)
        with b.loop(0, n, plan.nr, "panel") as j:
            count = b.min_(b.sub(n, j), plan.nr)
            t.pointers(table, b.add(first_pixel, j), count, group, part.offset)
            t.gather(table, count, i64(plan.nr), b.offset(t.memory, b.mul(b.udiv(j, plan.nr), panel)), part.runs)
        with b.loop(0, co, plan.mr, "stripe") as i:
            height = b.min_(b.sub(co, i), plan.mr)
            a, _ = t.panel(group, b.udiv(i, plan.mr), part.done, k)
            c = b.offset(output, b.mul(i, feature_stride))
            a_args = [a, i64(t.unit), i64(plan.mr * t.unit), height]
            t.stripe([*a_args, t.memory, i64(plan.b_step), panel, c, feature_stride, n, k, part.more, i64(1), i64(0)])
            feature = b.add(first_feature, i)
            t.report(part.final, [image, feature, b.add(feature, height), p0, b.add(p0, n)])

    t.each_call(part)
    b.ret()
    return name


def emit_images_task(module: ModuleText, types: GemmTypes, target: Target) -> str:
    """Rows are images, which the table calls `ci`; `batch` counts the input's features. Some pixels of the output are
    summed up a feature of the input at a time, so that what is read of it serves them all."""
    name = f"shlo_conv_{types.name}_images_task"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    t = _Task(b, types, target)
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
