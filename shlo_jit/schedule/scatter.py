"""Schedule of a scatter: its loops, the one that runs along lanes, and the one that is cut into tasks.

Loops, outermost first: hoisted window dimensions (see `_order`), scatter dimensions, window dimensions, and along the
lanes the window dimension that is contiguous in both the result and the updates. Tasks split a loop whose iterations
update different elements: window dimensions that no index moves, batching dimensions, or any loop if indices are
unique.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shlo_jit import tuning
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import strides_of
from shlo_jit.ops.contract import dims_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.bodies import body_cost, choose_lanes
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.tasks import Tasks, cut
from shlo_jit.sizes import at_most, equal, hint_of


@dataclass(frozen=True)
class Loop:
    """A loop with its extent, and its strides in the result, the updates and the indices, in elements."""

    extent: int
    result: int
    update: int
    index: int = 0
    disjoint: bool = False
    """Whether different iterations update different elements of the result."""
    start: int | None = None
    """The component of the index vector that moves this window dimension."""
    scale: int = 1
    """Iterations per element of that dimension."""

    def merged(self, inner: Loop) -> Loop | None:
        """This loop and the one inside it as one loop, if their strides nest; otherwise None."""
        n = inner.extent
        steps = equal((self.result, self.update, self.index), (inner.result * n, inner.update * n, inner.index * n))
        if not steps or self.disjoint != inner.disjoint or inner.start is not None:
            return None
        return replace(inner, extent=self.extent * n, start=self.start, scale=self.scale * n)


@dataclass(frozen=True)
class Start:
    """A component of an index vector: its offset in the vector, and the stride and extents of the dimension that it
    moves."""

    at: int
    stride: int
    extent: int
    window: int
    """Extents of that dimension in the operand and in the window."""


@dataclass(frozen=True)
class Shape:
    """A scatter as loops."""

    outer: tuple[Loop, ...]
    """Window dimensions hoisted out of the scatter dimensions."""
    scatter: tuple[Loop, ...]
    window: tuple[Loop, ...]
    lanes: Loop | None
    starts: tuple[Start, ...]


def _merge(loops: Sequence[Loop]) -> list[Loop]:
    out: list[Loop] = []
    for loop in loops:
        if equal(loop.extent, 1):
            continue
        both = out[-1].merged(loop) if out else None
        if both is not None:
            out[-1] = both
        else:
            out.append(loop)
    return out


def _shape_of(op: Op) -> Shape:
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
        fixed = unique or equal(positions, 1) or start is None
        window.append(Loop(update[d], strides[w], update_strides[d], 0, fixed, start))
        window_extents[w] = update[d]
    step = index_strides[vector_dim] if vector_dim < len(indices) else 0
    starts = [Start(k * step, strides[d], operand[d], window_extents[d]) for k, d in enumerate(to_operand)]
    return _order(_merge(scatter), _merge(window), starts)


def _order(scatter: list[Loop], window: list[Loop], starts: list[Start]) -> Shape:
    """Chooses the lanes. Without lanes, window loops move outside the scatter loops if that keeps the order of updates
    of each element: they have long strides."""
    if window and equal((window[-1].result, window[-1].update), (1, 1)):
        return Shape((), tuple(scatter), tuple(window[:-1]), window[-1], tuple(starts))
    if not scatter:
        return Shape((), tuple(scatter), tuple(window), None, tuple(starts))
    fixed = [w for w in window if w.disjoint and w.start is None]
    inner = tuple(w for w in window if w not in fixed)
    return Shape(tuple(fixed), tuple(scatter), inner, None, tuple(starts))


@dataclass(frozen=True, kw_only=True)
class ScatterSchedule(KernelSchedule):
    """Schedule of a scatter."""

    shape: Shape
    width: int
    """Number of lanes."""
    unroll: int
    """Vectors per iteration of the lane loop."""
    block: int
    """Elements of the lane loop per unit."""
    split: Loop | None
    """The loop whose iterations are the units."""
    tasks: Tasks

    @property
    def notes(self) -> list[Note]:
        s = self.shape
        groups = [("hoisted", s.outer), ("positions", s.scatter), ("window", s.window)]
        loops = ", ".join(f"{name} {' x '.join(str(x.extent) for x in part)}" for name, part in groups if part)
        lanes = f"{self.width}, along a window dimension of {s.lanes.extent}" if s.lanes else "none"
        why = Reason("no-contiguous-window", "no window dimension is contiguous in the result and in the updates")
        if s.lanes:
            why = Reason("contiguous-window", "contiguous in the result and in the updates")
        safe = Reason("ordered-updates", "updates of one element happen in order")
        if self.split:
            safe = Reason("disjoint-updates", "iterations update different elements")
        tasks = self.tasks.note("iteration")
        return [
            Note("loops", loops or "one element"),
            Note("lanes", lanes, why),
            tasks._replace(why=safe.then(tasks.why)),
        ]


def schedule_scatter(step: OpStep, context: Context) -> KernelSchedule:
    """Schedules a scatter. Raises UnsupportedError if the region's element types differ from the inputs'."""
    op = step.op
    _check(op)
    n = len(op.results)
    if op.operands[n + 1].tensor.size == 0 or op.result.tensor.size == 0:
        return NOTHING
    shape, body = _shape_of(op), op.block()
    width, unroll, block = 1, tuning.SCATTER_VECTORS, 1
    if shape.lanes is not None:
        width = choose_lanes(context.target, [a.tensor.storage for a in body.arguments], hint_of(shape.lanes.extent))
        block = at_most(shape.lanes.extent, width * unroll)

    def iterations(loop: Loop) -> int:
        return -(-loop.extent // block) if loop is shape.lanes else loop.extent

    split = _choose_split(shape, iterations)
    work = op.operands[-1].tensor.size * (body_cost(body) + tuning.SCATTER_ACCESS_COST * n)
    tasks = cut(1 if split is None else iterations(split), work)
    return ScatterSchedule(shape=shape, width=width, unroll=unroll, block=block, split=split, tasks=tasks)


def _choose_split(s: Shape, iterations: Callable[[Loop], int]) -> Loop | None:
    """The outermost loop with enough iterations, or the one with the most."""
    loops = [x for x in (*s.outer, *s.scatter, *s.window, *([s.lanes] if s.lanes else [])) if x.disjoint]
    enough = [x for x in loops if hint_of(iterations(x)) >= tuning.SCATTER_UNITS]
    return enough[0] if enough else max(loops, key=lambda x: hint_of(iterations(x)), default=None)


def _check(op: Op) -> None:
    """Raises UnsupportedError unless operands, arguments and results have the same types: the results share the inputs'
    memory."""
    for operand, argument, result in zip(op.operands, op.block().arguments, op.results, strict=False):
        if not operand.tensor.storage == argument.tensor.storage == result.tensor.storage:
            raise UnsupportedError(
                diagnose("scatter: the region's element types differ from the inputs'", op.span, label="region-types")
            )
