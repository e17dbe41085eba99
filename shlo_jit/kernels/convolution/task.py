"""Base of the tasks that multiply: addresses of pixels and panels, and the parts of the window that a call covers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.convolution.input import Arguments, dot, split
from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.gemm.micro import stripe_symbol
from shlo_jit.kernels.gemm.precision import GemmTypes
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.kernels.target import Target


class Part(NamedTuple):
    """A part of the window: some runs of k."""

    place: tuple[V, V, V]
    """The indices of the two outer loops, and the first run."""
    offset: V
    """Bytes from a window's corner to the part, in A."""
    done: V
    """Elements of k before the part."""
    runs: V
    more: V
    """1 if C holds partial sums already."""
    final: V


class Stripe(NamedTuple):
    """Pixels of a task that one pass over the tiles covers."""

    nth: V
    """Index among the task's stripes."""
    first: V
    """Index of the first pixel."""
    w: V
    """Index of the first pixel in its line; 0 if pixels are gathered."""
    height: V
    a: V
    a_rs: V
    """Stride from pixel to pixel."""
    a_cs: V
    """Stride from step to step of k in a run."""


class Steps(NamedTuple):
    """The steps of k that a stripe takes from a part of the window."""

    before: V
    """Elements of k that are left out before them."""
    k: V
    """Elements of k in a run."""
    runs: V
    run_stride: V
    skipped: V
    """Bytes of a panel between runs."""
    more: V
    """1 if C holds partial sums already."""


class ConvTask:
    """Base of the task emitters: the arguments, and addresses in the input and the packed kernel."""

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
        """Returns the offset of the corner of an output pixel's window."""
        b, g = self.b, self.g
        strides = zip(g.ints("stride_d stride_h stride_w"), g.ints("a_d a_h a_w"), strict=True)
        return dot(b, *((x, b.mul(s, a)) for x, (s, a) in zip((d, h, w), strides, strict=True)))

    def panel(self, group: V, nth: V, done: V, k: V) -> tuple[V, V]:
        """Returns the address of the `k` rows after the first `done` of a kernel panel, and the distance to the next
        panel. Prepacked panels are cut into blocks of k; others are contiguous."""
        b, g = self.b, self.g
        row, whole = b.mul(g.get("w_width"), self.unit), g.get("k_bytes_per_panel")
        block = b.mul(k, row)
        before = b.mul(b.mul(done, g.get("w_panels")), row)
        place = b.select(self.prepacked, b.add(before, b.mul(nth, block)), b.add(b.mul(nth, whole), b.mul(done, row)))
        place = b.add(place, b.mul(group, g.get("w_group_bytes")))
        return b.offset(self.weights, place), b.select(self.prepacked, block, whole)

    def pointers(self, table: V, first: V, count: V, group: V, offset: V) -> None:
        """Stores the addresses of `count` pixels, from flat pixel (image, d, h, w) `first` on."""
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
        """Emits `body` for every part of the window, in order of k."""
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

    def stripe(
        self,
        args: list[V],
        later: tuple[V, V] | None = None,
        left_out: tuple[V, V] = (i64(0), i64(0)),
        own_tiles: Sequence[int] = (),
    ) -> None:
        """Calls the stripe. `later`: the address to prefetch from beside the tiles, and the bytes beside each tile; see
        STRIPE_PARAMS. `left_out`: bytes of a panel between runs, and elements of k before the first. `own_tiles`:
        frequent heights of stripes, which have dedicated tiles."""
        b, args = self.b, [*args, *(later or (args[4], i64(0))), *left_out]

        def call(own: int | None = None) -> list[V]:
            b.call("void", stripe_symbol(self.plan, own), args)
            return []

        def choose(heights: Sequence[int]) -> list[V]:
            if not heights:
                return call()
            own, *others = heights
            return b.if_else(b.icmp("eq", args[3], own), partial(call, own), partial(choose, others))

        choose(own_tiles)

    def report(self, final: V, ends: list[V]) -> None:
        b = self.b
        epilogue = self.g.pointer("epilogue")
        with b.if_(b.and_(final, b.icmp("ne", epilogue, V("ptr", "null")))):
            b.call_pointer("void", epilogue, [self.g.pointer("frame"), *ends])
