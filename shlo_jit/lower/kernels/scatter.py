"""scatter: results, which start as the inputs, updated in place by a region at places that indices name.

The scatter positions are visited in row-major order, and the elements of an update's window likewise, so updates of one
element happen in a fixed order whatever the number of threads. Elements of a window that lie outside of the operand
are skipped one by one, as the specification has it. Cost: an index vector per position, a load and store per element.

Loops, outermost first: window dimensions moved out (see `order`), scatter dimensions, window dimensions, and along the
lanes the window dimension that is contiguous in both the result and the updates. Tasks split a loop whose turns touch
different elements: window dimensions that no index moves, batching dimensions, or any loop when indices are unique.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import strides_of
from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder, V, i64
from shlo_jit.kernels.target import Target
from shlo_jit.lower.elements.convert import convert
from shlo_jit.lower.elements.reducers import run_body
from shlo_jit.lower.elements.registers import Reg, lanes_of, widen
from shlo_jit.lower.kernels import Kernel
from shlo_jit.lower.kernels.access import Buffer, choose_lanes, lanes_loop
from shlo_jit.lower.kernels.units import body_cost, run_units
from shlo_jit.ops.contract import dims_of

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering

UNROLL = 4
ACCESS_COST = 4
"""Of an element update's memory accesses, in element operations."""


@dataclass(frozen=True)
class Loop:
    """A loop and how far a turn moves in the result, the updates and the indices, in elements."""

    extent: int
    result: int
    update: int
    index: int = 0
    disjoint: bool = False
    """Different turns touch different elements of the result."""
    start: int | None = None
    """The component of the index vector that moves this window dimension."""
    scale: int = 1
    """Turns per element of that dimension."""

    def merged(self, inner: Loop) -> Loop | None:
        """This loop and the one inside it as one, where their steps nest."""
        n = inner.extent
        steps = (self.result, self.update, self.index) == (inner.result * n, inner.update * n, inner.index * n)
        if not steps or self.disjoint != inner.disjoint or inner.start is not None:
            return None
        return replace(inner, extent=self.extent * n, start=self.start, scale=self.scale * n)


@dataclass(frozen=True)
class Start:
    """One component of an index vector: its place there, what it moves in the result, and along which dimension."""

    at: int
    stride: int
    extent: int
    window: int
    """Extents of the operand and of the window."""


@dataclass(frozen=True)
class Place:
    """Where the loops are: offsets in elements."""

    result: V
    update: V
    index: V
    bounds: tuple[tuple[V, V], ...] = ()
    """Per component of the index vector, which elements of its window dimension are inside of the operand."""

    def moved(self, b: Builder, loop: Loop, i: V) -> Place:
        return replace(
            self,
            result=b.add(self.result, b.mul(i, loop.result)),
            update=b.add(self.update, b.mul(i, loop.update)),
            index=b.add(self.index, b.mul(i, loop.index)),
        )


@dataclass
class Shape:
    """A scatter as loops."""

    outer: list[Loop]
    scatter: list[Loop]
    window: list[Loop]
    lanes: Loop | None
    starts: list[Start]


def merge(loops: Sequence[Loop]) -> list[Loop]:
    out: list[Loop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        both = out[-1].merged(loop) if out else None
        if both is not None:
            out[-1] = both
        else:
            out.append(loop)
    return out


def shape_of(op: Op) -> Shape:
    """The loops of a scatter."""
    n = len(op.results)
    numbers = op.attributes["scatter_dimension_numbers"]
    operand, indices, update = (op.operands[i].tensor.extents for i in (0, n, n + 1))
    strides, index_strides, update_strides = strides_of(operand), strides_of(indices), strides_of(update)
    windows, batching = dims_of(numbers, "update_window_dims"), dims_of(numbers, "input_batching_dims")
    gone = (*dims_of(numbers, "inserted_window_dims"), *batching)
    to_operand = dims_of(numbers, "scatter_dims_to_operand_dims")
    vector_dim = int(numbers.get("index_vector_dim", 0))
    batch_of = dict(zip(dims_of(numbers, "scatter_indices_batching_dims"), batching, strict=True))
    unique = bool(op.attributes.get("unique_indices", False))

    scatter: list[Loop] = []
    index_dims = [d for d in range(len(indices)) if d != vector_dim]
    for d, k in zip([d for d in range(len(update)) if d not in windows], index_dims, strict=True):
        stride = strides[batch_of[k]] if k in batch_of else 0
        scatter.append(Loop(update[d], stride, update_strides[d], index_strides[k], unique or k in batch_of))
    positions = 1
    for loop in scatter:
        positions *= loop.extent
    window: list[Loop] = []
    window_extents = [1] * len(operand)
    for d, w in zip(windows, [d for d in range(len(operand)) if d not in gone], strict=True):
        start = to_operand.index(w) if w in to_operand else None
        fixed = unique or positions == 1 or start is None
        window.append(Loop(update[d], strides[w], update_strides[d], 0, fixed, start))
        window_extents[w] = update[d]
    step = index_strides[vector_dim] if vector_dim < len(indices) else 0
    starts = [Start(k * step, strides[d], operand[d], window_extents[d]) for k, d in enumerate(to_operand)]
    return order(merge(scatter), merge(window), starts)


def order(scatter: list[Loop], window: list[Loop], starts: list[Start]) -> Shape:
    """Choose the lanes. Without any, window loops go outside of the positions where that changes no element's order
    of updates: they are the ones with long strides."""
    if window and window[-1].result == 1 and window[-1].update == 1:
        return Shape([], scatter, window[:-1], window[-1], starts)
    if not scatter:
        return Shape([], scatter, window, None, starts)
    fixed = [w for w in window if w.disjoint and w.start is None]
    return Shape(fixed, scatter, [w for w in window if w not in fixed], None, starts)


class Scatter:
    """Writes the kernel of one scatter."""

    def __init__(self, op: Op, target: Target):
        self.op = op
        self.target = target
        self.n = len(op.results)
        self.shape = shape_of(op)
        self.body = op.block()
        self.dtypes: list[DType] = [a.tensor.storage for a in self.body.arguments]
        self.width = 1
        if self.shape.lanes is not None:
            self.width = choose_lanes(target, self.dtypes, self.shape.lanes.extent)
        self.block = self.lane_block()
        self.split = self.choose_split()

    def lane_block(self) -> int:
        """Elements of the lane loop that a unit has."""
        lanes = self.shape.lanes
        return min(self.width * UNROLL, lanes.extent) if lanes is not None else 1

    def choose_split(self) -> Loop | None:
        """The loop whose turns are the units: the outermost with turns enough, or that with most."""
        s = self.shape
        loops = [x for x in (*s.outer, *s.scatter, *s.window, *([s.lanes] if s.lanes else [])) if x.disjoint]
        enough = [x for x in loops if self.turns(x) >= 16]
        return enough[0] if enough else max(loops, key=self.turns, default=None)

    def turns(self, loop: Loop) -> int:
        return -(-loop.extent // self.block) if loop is self.shape.lanes else loop.extent

    @property
    def units(self) -> int:
        return 1 if self.split is None else self.turns(self.split)

    @property
    def work(self) -> int:
        return self.op.operands[-1].tensor.size * (body_cost(self.body) + ACCESS_COST * self.n)

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
        with self.b.loop(*self.bounds(loop, place), 1, "turn") as i:
            self.loops(rest, place.moved(self.b, loop, i), inside)

    def bounds(self, loop: Loop, place: Place) -> tuple[V, V]:
        """First turn and the one after the last: inside of the operand, and of this task's units."""
        b = self.b
        start, stop = i64(0), i64(loop.extent)
        if loop.start is not None and loop.extent > 1:
            start, stop = (b.mul(x, loop.scale) for x in place.bounds[loop.start])
        if loop is self.split and self.first.literal is None:
            block = self.block if loop is self.shape.lanes else 1
            first, last = b.mul(self.first, block), b.mul(self.last, block)
            start, stop = (first if start.literal == 0 else b.max_(start, first)), b.min_(stop, last)
        return start, stop

    def position(self, place: Place) -> None:
        """One scatter position: read the index vector, and run the part of the window that is inside."""
        b, inside, result = self.b, None, place.result
        bounds: list[tuple[V, V]] = []
        for start in self.shape.starts:
            at = self.component(b.add(place.index, start.at))
            result = b.add(result, b.mul(at, start.stride))
            if start.window == 1:
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
        """A component of an index vector as i64."""
        b, dtype = self.b, self.indices.dtype
        x = self.indices.load(index)
        assert isinstance(x, V)
        if dtype.kind == "u" and dtype.bits == 64:
            return b.intrinsic("umin", "i64", [x, i64(2**63 - 1)])
        return b.cast("zext" if dtype.kind in "ub" else "sext", x, "i64")

    def run(self, place: Place) -> None:
        """The lanes, or the one element."""
        b, lanes = self.b, self.shape.lanes
        if lanes is None:
            self.update(place, 1, None)
            return

        def body(i: V, n: int, mask: V | None) -> None:
            self.update(place.moved(b, lanes, i), n, mask)

        lanes_loop(b, self.target, *self.bounds(lanes, place), self.width, body, UNROLL)

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


def check(op: Op) -> None:
    """The results share the inputs' memory, so both have the body's types."""
    for operand, argument, result in zip(op.operands, op.block().arguments, op.results, strict=False):
        if not operand.tensor.storage == argument.tensor.storage == result.tensor.storage:
            raise UnsupportedError(diagnose("scatter: a region of other element types than the inputs'", op.span))


def lower(low: ProgramLowering, step: OpStep) -> None:
    op = step.op
    check(op)
    n = len(op.results)
    if op.operands[n + 1].tensor.size == 0 or op.result.tensor.size == 0:
        return
    kernel = Scatter(op, low.target)
    pointers = [low.pointer(v) for v in (*op.results, *op.operands[n:])]
    run_units(low, "scatter", pointers, kernel.write, kernel.units, kernel.work)


KERNEL = Kernel(lower)
