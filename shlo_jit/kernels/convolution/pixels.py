"""Task of a convolution whose rows are pixels: stripes of pixels by panels of features."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.convolution.edge_tiles import each_call_of_columns
from shlo_jit.kernels.convolution.input import dot, split
from shlo_jit.kernels.convolution.margins import idle_lines, is_in_margin, margin_symbol, runs_inside
from shlo_jit.kernels.convolution.task import ConvTask, Part, Steps, Stripe
from shlo_jit.kernels.gemm.blocks import FETCHED_A_STEP, ceil_div, should_notify_epilogue
from shlo_jit.kernels.gemm.precision import GemmTypes
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.kernels.target import Target


class PixelsTask(ConvTask):
    """Task whose rows are pixels: a chunk of rows (lines of pixels if read in place) by a chunk of features."""

    def __init__(self, b: Builder, types: GemmTypes, target: Target, gathers: bool, own_tile: int = 0, ends: int = 0):
        super().__init__(b, types, target)
        g, plan, self.gathers, self.has_ends = self.g, self.plan, gathers, ends > 0
        self.own_tiles = [height for height in (own_tile, ends) if height > 1]
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
        self.reported = b.alloca("i64", 1)
        """The first pixel that has not been reported to the epilogue."""
        self.later = b.alloca("ptr", 1)
        """Address of the data to prefetch beside the next stripe."""
        self.share = b.udiv(g.following_bytes, b.max_(g.get("main_tasks"), 1))
        # A prefetch of an invalid address would walk the page tables each time.
        following = b.select(b.icmp("eq", g.following_bytes, 0), g.pointer("output"), g.pointer("following"))
        self.soon = b.offset(following, b.mul(self.index, self.share))

    def _stripes_of_lines(self) -> V:
        b = self.b
        last = b.sub(self.end, 1)
        return b.add(
            b.mul(b.sub(last, self.begin), self.per_line), ceil_div(b, self._width(last), self.g.get("stripe"))
        )

    def _width(self, line: V) -> V:
        """Returns the pixels of a line: the last part of a split line may be shorter than the others."""
        b, (rows, ow) = self.b, self.g.ints("rows ow")
        return b.min_(ow, b.sub(rows, b.mul(line, ow)))

    def part(self, part: Part) -> None:
        """Emits all stripes against the panels of a part of the window."""
        b, g, done, final = self.b, self.g, part.done, part.final
        k = b.mul(g.get("run"), part.runs)
        packed, panel_bytes = self.panel(self.group, self.first_panel, done, k)
        # The next part's panels are prefetched beside this one's tiles; beside the last part's, `following`.
        after = self.panel(self.group, self.first_panel, b.add(done, k), k)[0]
        fetched = b.select(final, self.share, b.mul(self.panels, panel_bytes))
        fetched = b.select(self.prepacked, fetched, i64(0))
        idle = i64(0) if self.gathers else b.mul(idle_lines(b, g, part, self.begin, self.end), self.per_line)
        stripes = b.sub(self.stripes, idle)
        per_tile = b.udiv(fetched, b.mul(self.panels, b.max_(stripes, 1)))
        per_tile = b.min_(per_tile, b.mul(k, FETCHED_A_STEP))
        b.store(self.first_pixel, self.reported, align=8)
        b.store(b.select(final, self.soon, after), self.later, align=8)

        def multiply(stripe: Stripe, steps: Steps) -> None:
            later = b.load("ptr", self.later, align=8)
            b.store(b.offset(later, b.mul(self.panels, per_tile)), self.later, align=8)
            row = b.mul(g.get("w_width"), self.unit)

            def call(stripe: Stripe, steps: Steps, nth: V) -> None:
                panels = b.offset(packed, b.mul(steps.before, row)), panel_bytes
                c = b.offset(self.output, b.mul(stripe.first, g.get("o_pixel")))
                beside = b.select(b.icmp("eq", nth, 0), per_tile, i64(0))
                self.multiply(stripe, panels, c, steps, (later, beside))

            if self.has_ends:
                each_call_of_columns(b, g, row, stripe, steps, call)
            else:
                call(stripe, steps, i64(0))

        def done_with(stripe: Stripe, steps: Steps) -> None:
            """Multiplies if there is anything to multiply. Stripes are reported to the epilogue a few at a time."""
            with b.if_(b.icmp("sgt", steps.runs, 0)):
                multiply(stripe, steps)
            first, end = b.load("i64", self.reported, align=8), b.add(stripe.first, stripe.height)
            nbytes = b.mul(b.sub(end, first), b.mul(self.n, self.plan.out_bytes))
            with b.if_(should_notify_epilogue(b, nbytes, b.icmp("eq", b.add(stripe.nth, 1), self.stripes))):
                self.report(final, [i64(0), first, end, self.feature, b.add(self.feature, self.n)])
                b.store(end, self.reported, align=8)

        if self.gathers:
            self._gathered(part, done_with)
        else:
            self._in_place(part, done_with)

    def multiply(self, stripe: Stripe, panels: tuple[V, V], c: V, steps: Steps, later: tuple[V, V]) -> None:
        """Multiplies a stripe by panels (address, distance) and stores the sums to c. `later`: see `stripe`."""
        first, distance = panels
        rows = [stripe.a, stripe.a_rs, stripe.a_cs, stripe.height]
        operand = [first, i64(self.plan.b_step), distance, c, self.g.get("o_pixel")]
        k = [steps.k, steps.more, steps.runs, steps.run_stride]
        self.stripe([*rows, *operand, self.n, *k], later, (steps.skipped, steps.before), self.own_tiles)

    def _in_place(self, part: Part, stripe: Callable[[Stripe, Steps], None]) -> None:
        b, g = self.b, self.g
        od, oh, ow, most = g.ints("od oh ow stripe")
        step, group_offset = b.mul(g.get("stride_w"), g.get("a_w")), b.mul(self.group, g.get("a_group"))
        # If sums are long, a part has few lines to read and many products to hide that. With a stride, half of the
        # prefetched bytes would be useless.
        whole = b.and_(b.and_(part.final, b.icmp("eq", part.more, 0)), b.icmp("eq", g.get("stride_w"), 1))
        with b.loop(self.begin, self.end, hint="line") as line:
            image, d, h = split(b, line, od, oh)
            first, runs, more = runs_inside(b, g, part, h)
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
                pixels = Stripe(nth, b.add(b.mul(line, ow), w), w, height, a, step, i64(self.unit))
                run = g.get("run")
                stripe(pixels, Steps(b.mul(first, run), run, runs, run_stride, i64(0), more))

    def _fetch_below(self, a: V, nbytes: V) -> None:
        """Prefetches the pixels below the windows of a stripe, which the next line's windows read first."""
        b, g = self.b, self.g
        down = b.add(b.mul(b.sub(g.get("kh"), 1), g.get("rdil_h")), g.get("stride_h"))
        below = b.offset(a, b.mul(down, g.get("a_h")))
        with b.loop(0, nbytes, FETCHED_A_STEP, "fetch") as i:
            b.prefetch(b.offset(below, i), locality=2)

    def _with_padding(self, part: Part, some: tuple[V, V], stripe: tuple[V, ...]) -> list[V]:
        """Emits a copy, with its padding, of what a stripe (image, d, h, w, height) at the margin reads of `some`
        (first, count) of a part's runs. Returns its address and the distance between runs. Runs are lines of the
        window, or positions in one line."""
        b, g = self.b, self.g
        lines = b.icmp("ne", g.get("margin_lines"), 0)
        depth, line, run = part.place
        first, runs = some
        first_line, count = b.select(lines, b.add(run, first), line), b.select(lines, runs, i64(1))
        b.call(
            "void", margin_symbol(self.types), [b.params[0], self.group, *stripe, depth, first_line, count, self.memory]
        )
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
            pixels = Stripe(nth, i, i64(0), height, self.memory, i64(self.unit), b.mul(width, self.unit))
            stripe(pixels, Steps(i64(0), k, i64(1), i64(0), i64(0), part.more))
