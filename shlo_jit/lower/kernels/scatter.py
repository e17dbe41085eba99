"""Lowers scatter: results, which start as the inputs, are updated in place by a region at indexed places.

The scatter positions are visited in row-major order, and so are the elements of an update's window. So updates of one
element happen in a fixed order whatever the number of threads. Elements of a window that lie outside the operand are
skipped one by one, as the specification requires. Cost: an index vector per position, a load and store per element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.kernels.target import Target
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.reducers import run_body
from shlo_jit.lower.elements.registers import Reg, lanes_of, widen
from shlo_jit.lower.kernels.access import Buffer, lanes_loop
from shlo_jit.lower.kernels.units import run_units
from shlo_jit.lower.services import Services
from shlo_jit.schedule.scatter import Loop, ScatterSchedule
from shlo_jit.sizes import equal


@dataclass(frozen=True)
class Place:
    """Current position of the loops, as offsets in elements."""

    result: V
    update: V
    index: V
    bounds: tuple[tuple[V, V], ...] = ()
    """For each component of the index vector, the range of its window dimension that is inside the operand."""

    def moved(self, b: Builder, loop: Loop, i: V) -> Place:
        return replace(
            self,
            result=b.add(self.result, b.mul(i, loop.result)),
            update=b.add(self.update, b.mul(i, loop.update)),
            index=b.add(self.index, b.mul(i, loop.index)),
        )


class ScatterWriter:
    """Writes the kernel of one scatter."""

    def __init__(self, op: Op, target: Target, schedule: ScatterSchedule):
        self.op = op
        self.target = target
        self.n = len(op.results)
        self.schedule = schedule
        self.shape = schedule.shape
        self.body = op.block()
        self.dtypes: list[DType] = [a.tensor.storage for a in self.body.arguments]

    # ------------------------------------------------------------------ the kernel
    def write(self, b: Builder, pointers: list[V], first: V, last: V) -> None:
        n = self.n
        types = [o.tensor.storage for o in self.op.operands]
        self.b, self.first, self.last = b, first, last
        self.results = [Buffer(b, t, p) for t, p in zip(types[:n], pointers[:n], strict=True)]
        self.indices = Buffer(b, types[n], pointers[n])
        self.updates = [Buffer(b, t, p) for t, p in zip(types[n + 1 :], pointers[n + 1 :], strict=True)]
        zero = Place(i64(0), i64(0), i64(0))
        s = self.shape
        self.loops([*s.outer, *s.scatter], zero, self.position)

    def loops(self, loops: Sequence[Loop], place: Place, inside: Callable[[Place], None]) -> None:
        if not loops:
            inside(place)
            return
        loop, *rest = loops
        with self.b.loop(*self.bounds(loop, place), 1, "body") as i:
            self.loops(rest, place.moved(self.b, loop, i), inside)

    def bounds(self, loop: Loop, place: Place) -> tuple[V, V]:
        """First iteration and the one after the last: inside the operand, and in this task's units."""
        b = self.b
        start, stop = i64(0), i64(loop.extent)
        if loop.start is not None and not equal(loop.extent, 1):
            start, stop = (b.mul(x, loop.scale) for x in place.bounds[loop.start])
        if loop is self.schedule.split and self.first.literal is None:
            block = self.schedule.block if loop is self.shape.lanes else 1
            first, last = b.mul(self.first, block), b.mul(self.last, block)
            start, stop = (first if start.literal == 0 else b.max_(start, first)), b.min_(stop, last)
        return start, stop

    def position(self, place: Place) -> None:
        """Emits one scatter position: reads the index vector, and runs the part of the window that is inside."""
        b, inside, result = self.b, None, place.result
        bounds: list[tuple[V, V]] = []
        for start in self.shape.starts:
            at = self.component(b.add(place.index, start.at))
            result = b.add(result, b.mul(at, start.stride))
            if equal(start.window, 1):
                ok = b.icmp("ult", at, i64(start.extent))
                inside = ok if inside is None else b.and_(inside, ok)
                bounds.append((i64(0), i64(1)))
            else:
                bounds.append((b.max_(b.sub(i64(0), at), 0), b.min_(b.sub(i64(start.extent), at), start.window)))
        place = replace(place, result=result, bounds=tuple(bounds))
        if inside is None:
            self.loops(self.shape.window, place, self.run)
            return
        with b.if_(inside, "inside"):
            self.loops(self.shape.window, place, self.run)

    def component(self, index: V) -> V:
        """A component of an index vector, as i64."""
        b, dtype = self.b, self.indices.dtype
        x = self.indices.load(index)
        assert isinstance(x, V)
        if dtype.kind == "u" and dtype.bits == 64:
            return b.intrinsic("umin", "i64", [x, i64(2**63 - 1)])
        return b.cast("zext" if dtype.kind in "ub" else "sext", x, "i64")

    def run(self, place: Place) -> None:
        """Emits the loop over lanes, or the single element."""
        b, lanes = self.b, self.shape.lanes
        if lanes is None:
            self.update(place, 1, None)
            return

        def body(i: V, n: int, mask: V | None) -> None:
            self.update(place.moved(b, lanes, i), n, mask)

        s = self.schedule
        lanes_loop(b, self.target, *self.bounds(lanes, place), s.width, body, s.unroll)

    def update(self, place: Place, n: int, mask: V | None) -> None:
        b = self.b
        old = [r.load(place.result, n, mask) for r in self.results]
        new = [
            convert(b, u.dtype, t, u.load(place.update, n, mask))
            for u, t in zip(self.updates, self.dtypes[self.n :], strict=True)
        ]
        values: list[Reg] = run_body(b, self.body, [*old, *new])
        for target, value in zip(self.results, values, strict=True):
            target.store(place.result, value if lanes_of(value) == n else widen(b, value, n), n, mask)


def lower(low: Services, step: OpStep, schedule: ScatterSchedule) -> None:
    op = step.op
    pointers = [low.pointer(v) for v in (*op.results, *op.operands[len(op.results) :])]
    run_units(low, "scatter", pointers, ScatterWriter(op, low.target, schedule).write, schedule.tasks)
