"""Lowers reduce_window: folds the elements under a window with a region, starting from initial values.

Each output is folded in row-major order of its window. A place in the padding or between dilated elements counts as an
initial value, as the specification requires. If nearly all of a wide window is padding, the padding is counted and
folded as a whole (see `padding.py`), and only elements of the input are visited. Lanes are consecutive outputs of the
last dimension (channels, in NHWC). Outputs whose window lies inside the input are nearly all outputs of most pooling
ops. They take loads at constant distances without any bounds checks; the others check every window position. A window
that covers all elements before it (cumsum and similar ops) is a scan: see `scan.py`. Cost: a load and a body per output
and window position.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, i64, lanes, vector, vector_literal
from shlo_jit.kernels.target import Target
from shlo_jit.lower.elements.registers import Reg
from shlo_jit.lower.kernels.access import lanes_loop
from shlo_jit.lower.kernels.units import run_units
from shlo_jit.lower.kernels.window.fold import Fold
from shlo_jit.lower.kernels.window.padding import repeated
from shlo_jit.lower.kernels.window.scan import ScanWriter
from shlo_jit.lower.services import Services
from shlo_jit.schedule.window import Dim, Windows, WindowSchedule
from shlo_jit.sizes import Size, equal, surely


class WindowWriter:
    """Writes the kernel of one reduce_window."""

    def __init__(self, op: Op, target: Target, windows: Windows):
        self.op = op
        self.target = target
        self.windows = windows
        self.outer, self.last, self.dims = list(windows.outer), windows.last, list(windows.dims)
        self.in_strides = strides_of(tuple(d.extent for d in self.dims))
        self.out_strides = strides_of(tuple(d.out for d in self.dims))

    # ------------------------------------------------------------------ loops over the outputs
    def write(self, b: Builder, pointers: list[V], first: V, last: V) -> None:
        self.b = b
        self.fold = Fold(self.op, b, pointers)
        self.skip_init = self.fold.starts_neutral
        is_whole = equal(self.windows.blocks, 1)
        with b.loop(first, last, 1, "unit") as unit:
            block, rest = b.urem(unit, self.windows.blocks), b.udiv(unit, self.windows.blocks)
            index: list[V] = []
            for k, d in reversed(list(enumerate(self.outer[: self.windows.split]))):
                index.insert(0, rest if k == 0 else b.urem(rest, d.out))
                rest = b.udiv(rest, d.out)
            start = b.mul(block, self.windows.block)
            stop = i64(self.last.out) if is_whole else b.min_(b.add(start, self.windows.block), self.last.out)
            self.rows(index, i64(0) if is_whole else start, stop)

    def rows(self, index: list[V], start: V, stop: V) -> None:
        """Loops over the outer dimensions not yet fixed, then over the last one from `start` to `stop`."""
        if len(index) < len(self.outer):
            with self.b.loop(0, self.outer[len(index)].out, 1, "row") as i:
                self.rows([*index, i], start, stop)
            return
        b, inside = self.b, None
        for i, d in zip(index, self.outer, strict=True):
            low, high = d.interior
            if equal((low, high), (0, d.out)):
                continue
            within = b.icmp("ult", b.sub(i, low), i64(high - low))
            inside = within if inside is None else b.and_(inside, within)
        if inside is None:
            self.segments(index, start, stop)
            return

        def fast() -> list[V]:
            self.segments(index, start, stop)
            return []

        def slow() -> list[V]:
            self.tested(index, start, stop)
            return []

        b.if_else(inside, fast, slow)

    def segments(self, index: list[V], start: V, stop: V) -> None:
        """Emits a row whose window is inside along the outer dimensions: it needs bounds checks only at its ends."""
        b = self.b
        low, high = self.last.interior
        none = equal(high, 0)
        if low > 0 or none:
            self.tested(index, start, b.min_(stop, self.last.out if none else low))
        if none:
            return

        def body(i: V, n: int, mask: V | None) -> None:
            self.fold.store(self.place(index, i), self.inner_fold(index, i, n, mask), n, mask)

        lanes_loop(
            b, self.target, b.max_(start, low), b.min_(stop, high), self.windows.width, body, self.windows.unroll
        )
        if not surely(lambda: high >= self.last.out):
            self.tested(index, b.max_(start, high), stop)

    def tested(self, index: list[V], start: V, stop: V) -> None:
        def body(i: V, n: int, mask: V | None) -> None:
            self.fold.store(self.place(index, i), self.tested_fold(index, i, n, mask), n, mask)

        lanes_loop(self.b, self.target, start, stop, self.windows.width, body)

    def place(self, index: list[V], i: V) -> V:
        """Index of output (index, i)."""
        total = i
        for x, stride in zip(index, self.out_strides, strict=False):
            total = self.b.add(total, self.b.mul(x, stride))
        return total

    # ------------------------------------------------------------------ windows inside the input
    def inner_fold(self, index: list[V], i: V, n: int, mask: V | None) -> list[Reg]:
        b = self.b
        origin = i64(0)
        for x, d, stride in zip([*index, i], self.dims, self.in_strides, strict=True):
            origin = b.add(origin, b.mul(b.sub(b.mul(x, d.stride), d.low), stride))
        steps = [(d.size, d.dilation * s) for d, s in zip(self.dims, self.in_strides, strict=True) if d.size > 1]
        if self.windows.is_unrolled:
            values = None if self.skip_init else self.fold.start(n)
            for w in itertools.product(*(range(size) for size, _ in steps)):
                at = b.add(origin, sum(k * step for k, (_, step) in zip(w, steps, strict=True)))
                x = self.run_of(at, n, mask)
                values = x if values is None else self.fold.combine(values, x)
            assert values is not None
            return values
        return self.fold_loops(steps, origin, self.fold.start(n), n, mask)

    def fold_loops(self, steps: list[tuple[int, int]], at: V, values: list[Reg], n: int, mask: V | None) -> list[Reg]:
        if not steps:
            return self.fold.combine(values, self.run_of(at, n, mask))
        (size, step), *rest = steps
        with self.b.loop_carry(0, size, self.fold.flat(values), 1, "window") as carry:
            inner = self.b.add(at, self.b.mul(carry.index, step))
            carry.next(*self.fold.flat(self.fold_loops(rest, inner, self.fold.like(carry.values), n, mask)))
        return self.fold.like(carry.values)

    def run_of(self, at: V, n: int, mask: V | None) -> list[Reg]:
        """Loads the elements that n neighbouring outputs read, the first at `at`."""
        if n == 1 or self.last.stride == 1:
            return self.fold.load(at, n, mask)
        b = self.b
        steps = vector_literal("i64", [k * self.last.stride for k in range(n)])
        every = mask if mask is not None else const(vector("i1", n), 1)
        return self.fold.gather(b.add(b.splat(at, n), steps), every)

    # ------------------------------------------------------------------ windows that may reach out of it
    def tested_fold(self, index: list[V], i: V, n: int, mask: V | None) -> list[Reg]:
        """Folds all window positions of n outputs, the first at (index, i)."""
        b, fold = self.b, self.fold

        def loops(k: int, inside: V, at: V, values: list[Reg]) -> list[Reg]:
            """Loops over the positions along dimension k and those after it. `at` and `inside` are the place and the
            checks so far."""
            d = self.dims[k]
            if d.is_sparse:
                return self.sparse(k, index[k] if k < len(index) else i, inside, at, values, n, mask, loops)
            with b.loop_carry(0, d.size, fold.flat(values), 1, "window") as carry:
                values = fold.like(carry.values)
                if k == len(index):
                    values = fold.combine(values, self.element(i, carry.index, inside, at, n, mask))
                else:
                    x, ok = self.input_index(d, index[k], carry.index)
                    values = loops(k + 1, b.and_(inside, ok), b.add(at, b.mul(x, self.in_strides[k])), values)
                carry.next(*fold.flat(values))
            return fold.like(carry.values)

        return loops(0, V("i1", "true"), i64(0), fold.start(n))

    def sparse(
        self, k: int, o: V, inside: V, at: V, values: list[Reg], n: int, mask: V | None, loops: Callable[..., list[Reg]]
    ) -> list[Reg]:
        """Folds the positions along a dimension whose windows are nearly all padding: `loops` for positions with
        elements of the input, and the padding between them by count."""
        b, fold, d = self.b, self.fold, self.dims[k]
        sizes = [after.size for after in self.dims[k + 1 :]]
        corner = b.sub(b.mul(o, d.stride), d.low)
        first = b.max_(_ceil(b, corner, d.base), 0)
        last = b.add(corner, (d.size - 1) * d.dilation)
        end = b.min_(b.add(_floor(b, last, d.base), 1), d.extent)
        with b.loop_carry(first, b.max_(first, end), [i64(0), *fold.flat(values)], 1, "element") as carry:
            done, *flat = carry.values
            distance = b.sub(b.mul(carry.index, d.base), corner)
            position = b.udiv(distance, d.dilation)

            def element() -> list[V]:
                before = repeated(b, fold, fold.like(flat), [b.sub(position, done), *sizes], n)
                place = b.add(at, b.mul(carry.index, self.in_strides[k]))
                if k + 1 < len(self.dims):
                    after = loops(k + 1, inside, place, before)
                else:
                    found = fold.load(b.select(inside, place, i64(0)), n, mask)
                    after = fold.combine(before, fold.select(inside, found, fold.start(n)))
                return [b.add(position, 1), *fold.flat(after)]

            is_position = b.icmp("eq", b.urem(distance, d.dilation), 0)
            carry.next(*b.if_else(is_position, element, lambda: [done, *flat]))
        done, *flat = carry.values
        return repeated(b, fold, fold.like(flat), [b.sub(d.size, done), *sizes], n)

    def input_index(self, d: Dim, o: V, w: V) -> tuple[V, V]:
        """The index that output o (lanes or one) reads at window position w of a dimension, and whether it exists."""
        b = self.b
        at = b.add(_scaled(b, o, d.stride), b.splat(b.sub(b.mul(w, d.dilation), d.low), lanes(o.type)))
        if d.base == 1:
            return at, b.icmp("ult", at, _number(b, at.type, d.extent))
        base = const(at.type, d.base)
        x = b.emit(at.type, f"udiv {at.type} {at.text}, {base.text}")
        gap = b.emit(at.type, f"urem {at.type} {at.text}, {base.text}")
        return x, b.and_(b.icmp("ult", x, _number(b, at.type, d.extent)), b.icmp("eq", gap, const(at.type, 0)))

    def element(self, i: V, w: V, inside: V, at: V, n: int, mask: V | None) -> list[Reg]:
        """The elements under window position w of the last dimension; initial values outside the input."""
        b, fold = self.b, self.fold
        if any(d.extent == 0 for d in self.dims):
            return fold.start(n)
        if self.last.is_plain or n == 1:
            x, ok = self.input_index(self.last, i, w)
            ok = b.and_(inside, ok)
            place = b.select(ok, b.add(at, x), i64(0))
            return fold.select(ok, fold.load(place, n, mask), fold.start(n))
        x, ok = self.input_index(self.last, b.add(b.splat(i, n), b.iota("i64", n)), w)
        ok = b.and_(b.splat(inside, n), ok)
        return fold.select(ok, fold.gather(b.add(b.splat(at, n), x), ok), fold.start(n))


def _floor(b: Builder, x: V, divisor: int) -> V:
    """x / divisor, rounded down."""
    if divisor == 1:
        return x
    quotient = b.sdiv(x, i64(divisor))
    return b.select(b.icmp("slt", b.sub(x, b.mul(quotient, divisor)), 0), b.sub(quotient, 1), quotient)


def _ceil(b: Builder, x: V, divisor: int) -> V:
    return b.sub(0, _floor(b, b.sub(0, x), divisor))


def _number(b: Builder, type: str, number: int) -> V:
    """A number, which may be known only at the call, in every lane of a type."""
    return b.splat(i64(number), lanes(type)) if isinstance(number, Size) else const(type, number)


def _scaled(b: Builder, x: V, factor: int) -> V:
    return x if factor == 1 else b.mul(x, const(x.type, factor))


def lower(low: Services, step: OpStep, schedule: WindowSchedule) -> None:
    op = step.op
    pointers = [low.pointer(v) for v in (*op.operands, *op.results)]

    def windows() -> list[V]:
        assert schedule.windows is not None
        writer = WindowWriter(op, low.target, schedule.windows)
        run_units(low, "reduce_window", pointers, writer.write, schedule.windows.tasks)
        return []

    def scan() -> list[V]:
        assert schedule.scan is not None
        run_units(low, "scan", pointers, ScanWriter(op, low.target.of_sums, schedule.scan).write, schedule.scan.tasks)
        return []

    if schedule.scan is None:
        windows()
    elif schedule.windows is None:
        scan()
    else:
        low.b.if_else(Fold(op, low.b, pointers).init_is_absorbed(), scan, windows)
