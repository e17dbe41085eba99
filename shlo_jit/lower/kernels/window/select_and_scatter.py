"""Lowers select_and_scatter: each source element goes to the place its window selects, combined by a second region.

Windows are visited in row-major order. In a window the first element that is not padding is chosen. Then each next one
replaces it unless select(chosen, next) holds; a window of only padding chooses nothing. Lanes are neighbours along the
last dimension if it has no window (channels, in NHWC): their windows do not overlap. Tasks split the dimensions
without windows. Cost: a load and a select per window position, then one load and store.
"""

from __future__ import annotations

import numpy as np

from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, i64, vector
from shlo_jit.kernels.target import Target
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.reducers import run_body
from shlo_jit.lower.elements.registers import Reg, constant, flatten, lanes_of, regroup, widen
from shlo_jit.lower.kernels.access import Buffer, lanes_loop
from shlo_jit.lower.kernels.units import run_units
from shlo_jit.lower.services import Services
from shlo_jit.schedule.select_and_scatter import Selection, SelectSchedule


class SelectWriter:
    """Writes the kernel of one select_and_scatter; the result holds the initial value already."""

    def __init__(self, op: Op, target: Target, selection: Selection):
        self.op = op
        self.target = target
        self.selection = selection
        self.plain, self.windowed = selection.plain, selection.windowed

    def write(self, b: Builder, pointers: list[V], first: V, last: V) -> None:
        self.b = b
        values = [*self.op.operands[:2], self.op.result]
        buffers = [Buffer(b, v.tensor.storage, p) for v, p in zip(values, pointers, strict=True)]
        self.operand, self.source, self.result = buffers
        with b.loop(first, last, 1, "unit") as unit:
            start = b.mul(b.urem(unit, self.selection.blocks), self.selection.block)
            stop = b.min_(b.add(start, self.selection.block), self.selection.columns)
            rest, read, source = b.udiv(unit, self.selection.blocks), i64(0), i64(0)
            for d, in_stride, out_stride in reversed(self.plain):
                i, rest = b.urem(rest, d.extent), b.udiv(rest, d.extent)
                read, source = b.add(read, b.mul(i, in_stride)), b.add(source, b.mul(i, out_stride))
            self.windows([], read, source, start, stop)

    def windows(self, index: list[V], read: V, source: V, start: V, stop: V) -> None:
        """Emits all windows of a slice, which begins at `read` in the operand and at `source` in the source."""
        b = self.b
        if len(index) < len(self.windowed):
            d, _, stride = self.windowed[len(index)]
            with b.loop(0, d.out, 1, "window") as i:
                self.windows([*index, i], read, b.add(source, b.mul(i, stride)), start, stop)
            return

        def body(i: V, n: int, mask: V | None) -> None:
            place = self.choose(index, b.add(read, i), n, mask)
            self.combine(place, self.source.load(b.add(source, i), n, mask), n, mask)

        lanes_loop(b, self.target, start, stop, self.selection.width, body)

    def choose(self, index: list[V], read: V, n: int, mask: V | None) -> V:
        """The selected place of each lane's window; -1 if there is none."""
        b = self.b
        lane = b.iota("i64", n)
        start = widen(b, constant(self.operand.dtype, np.zeros((), self.operand.dtype.numpy)), n)

        def loops(k: int, inside: V, at: V, state: list[V]) -> list[V]:
            if k < len(index):
                d, stride, _ = self.windowed[k]
                begin, end = i64(0), i64(d.size)
                if d.size > d.extent:  # positions in the padding, which choose nothing, are skipped
                    corner = b.sub(i64(d.low), b.mul(index[k], d.stride))
                    begin, end = b.max_(corner, 0), b.min_(b.add(corner, d.extent), d.size)
                with b.loop_carry(begin, b.max_(begin, end), state, 1, "position") as carry:
                    x = b.sub(b.add(b.mul(index[k], d.stride), carry.index), d.low)
                    ok = b.and_(inside, b.icmp("ult", x, i64(d.extent)))
                    carry.next(*loops(k + 1, ok, b.add(at, b.mul(x, stride)), carry.values))
                return carry.values
            place, chosen = state[0], regroup(state[1:], [[start]])[0][0]
            at = b.select(inside, at, read)
            element = self.operand.load(at, n, mask)
            (keep,) = run_body(b, self.op.block(), [chosen, element])
            assert isinstance(keep, V)
            keep = b.and_(keep, b.icmp("sge", place, const(place.type, 0)))
            keep = b.or_(keep, b.splat(b.not_(inside), n))
            here = b.add(b.splat(at, n), lane) if n > 1 else at
            new = [b.select(keep, x, y) for x, y in zip(flatten([chosen]), flatten([element]), strict=True)]
            return [b.select(keep, place, here), *new]

        begin = [const(vector("i64", n), -1), *flatten([start])]
        return loops(0, V("i1", "true"), read, begin)[0]

    def combine(self, place: V, source: Reg, n: int, mask: V | None) -> None:
        """Emits result[place] = scatter(result[place], source), unless the place is -1."""
        b = self.b
        found = b.icmp("sge", place, const(place.type, 0))
        dtype = self.op.block(1).arguments[1].tensor.storage
        source = convert(b, self.source.dtype, dtype, source)
        if n == 1:
            with b.if_(found, "found"):
                (value,) = run_body(b, self.op.block(1), [self.result.load(place), source])
                self.result.store(place, value)
            return
        found = found if mask is None else b.and_(found, mask)
        (value,) = run_body(b, self.op.block(1), [self.result.gather(place, found), source])
        self.result.scatter(place, value if lanes_of(value) == n else widen(b, value, n), found)


def fill(low: Services, op: Op, schedule: SelectSchedule) -> None:
    """Sets the result to the initial value."""
    size, dtype = op.result.tensor.size, op.result.tensor.storage

    def write(b: Builder, pointers: list[V], first: V, last: V) -> None:
        initial = Buffer(b, op.operands[2].tensor.storage, pointers[0])
        value = convert(b, initial.dtype, dtype, initial.load(0))
        result = Buffer(b, dtype, pointers[1])

        def body(i: V, n: int, mask: V | None) -> None:
            result.store(i, widen(b, value, n), n, mask)

        stop = b.min_(b.mul(last, schedule.fill_block), size)
        lanes_loop(b, low.target, b.mul(first, schedule.fill_block), stop, schedule.fill_width, body, 4)

    run_units(low, "fill", [low.pointer(op.operands[2]), low.pointer(op.result)], write, schedule.fill)


def lower(low: Services, step: OpStep, schedule: SelectSchedule) -> None:
    op = step.op
    fill(low, op, schedule)
    if schedule.selection is None:
        return
    writer = SelectWriter(op, low.target, schedule.selection)
    pointers = [low.pointer(v) for v in (*op.operands[:2], op.result)]
    run_units(low, "select_and_scatter", pointers, writer.write, schedule.selection.tasks)
