"""Memory of a plan's values, as data: storages, copies between them, and the arena's layout."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest, is_wide
from shlo_jit.fuse.plan import PlanBlock, ViewStep
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import TensorType, TokenType, TupleType
from shlo_jit.reasons import Reason
from shlo_jit.schedule.copies import CopySchedule, schedule_copy
from shlo_jit.schedule.scratch import ALIGN, ScratchBytes
from shlo_jit.sizes import Size, bound_of, degree_of, per_unit, size_of, surely


@dataclass(eq=False)
class Storage:
    """Memory of one or more values. `kind`: argument, result, constant, arena, none (tokens)."""

    kind: str
    nbytes: int
    number: int = 0
    """Number of the argument, result or constant; for the arena, the offset in bytes."""
    first: int = 1 << 60
    last: int = -1
    bound: int = 0
    """Number of values that have been bound to it."""
    last_read: int = -1
    """The last use of any value bound to it so far."""

    def live(self, at: int) -> None:
        self.first, self.last = min(self.first, at), max(self.last, at)


@dataclass
class Copy:
    """A copy of one value's memory to another's, at a place that the plan names."""

    source: Value
    target: Value
    why: Reason

    @property
    def how(self) -> CopySchedule:
        return schedule_copy(nbytes(self.source))


@dataclass
class MemoryPlan:
    storage: dict[Value, Storage]
    arena_bytes: int
    """A multiple of ALIGN."""
    shared: tuple[ScratchBytes, ...]
    """Scratch memory that grows with the number of threads. All of it is in the same place, after the rest of the
    arena."""
    constants: list[Value]
    before: dict[int, list[Copy]]
    """Copies to run before the step with this id() (updates that could not be in place, initial loop state)."""
    block_end: dict[int, list[Copy]]
    """Copies to run at the end of the block with this id() (loop state, branch results, program results)."""
    scratch: dict[int, Storage]
    """Scratch memory of the step with this id()."""
    aliases: dict[int, int]
    """Maps a result to the donated argument whose memory it has taken over."""
    overwritten: tuple[int, ...]
    """Donated arguments whose memory holds intermediate values of the program, but no result."""
    swaps: dict[int, list[tuple[Storage, Storage]]]
    """For the while with this id(), pairs of storages whose memory is swapped at the end of every iteration."""
    times: dict[int, tuple[int, int]]
    """Begin and end of the step with this id(), in the time units of lifetimes."""
    scratch_before: dict[int, ScratchBytes]
    """For the step with this id(), the scratch memory of other steps of its region, before its own at the same
    address."""

    @property
    def arena(self) -> ScratchBytes:
        """The arena as the scratch memory of a call."""
        fixed, per_thread = (bound_of(getattr(s, part) for s in self.shared) for part in ScratchBytes._fields)
        return ScratchBytes(self.arena_bytes + fixed, per_thread)


def nbytes(value: Value) -> int:
    t = value.type
    if isinstance(t, TensorType):
        return t.nbytes
    assert isinstance(t, (TokenType, TupleType)), t
    return 0


def place(storages: list[Storage]) -> int:
    """Assigns offsets to the storages in the arena, such that no two that live at the same time overlap. Returns the
    bytes that they need.

    Storages whose size is known only at the call come after the others. They are placed for a symbol of 1, each with
    its
    size per unit of the symbol, and all their offsets are multiplied by the symbol. Those that grow with the square of
    the
    symbol come after them, multiplied by the square, and so on.
    """
    mine = [s for s in storages if s.kind == "arena"]
    sized = [s for s in mine if isinstance(s.nbytes, Size)]
    total = _placed([s for s in mine if not isinstance(s.nbytes, Size)])
    for degree in sorted({degree_of(s.nbytes) for s in sized}):
        alike = [s for s in sized if degree_of(s.nbytes) == degree]
        times = _power(alike[0].nbytes, degree)
        units = [Storage("arena", per_unit(s.nbytes), 0, s.first, s.last) for s in alike]
        unit_bytes = _placed(units)
        for storage, unit in zip(alike, units, strict=True):
            storage.number = total + unit.number * times
        total += unit_bytes * times
    return total


def _power(number: int, exponent: int) -> int:
    """The symbol of a size, raised to a power."""
    assert isinstance(number, Size)
    return math.prod([size_of(number.symbol)] * exponent)


def _placed(storages: list[Storage]) -> int:
    return place_by_size(storages) if len(storages) <= tuning.FEW_STORAGES else place_by_time(storages)


def place_by_time(storages: list[Storage]) -> int:
    """Places storages in the order in which their lifetimes begin, each in the smallest gap that fits, as an allocator
    does."""
    gaps: list[tuple[int, int]] = []
    """Bytes and offset of each gap, smallest first."""
    starts: dict[int, int] = {}
    """Maps the offset of a gap to its bytes."""
    ends: dict[int, int] = {}
    """Maps the end of a gap to its offset."""
    alive: list[tuple[int, int, int]] = []
    """Last time of use, offset, bytes: a heap."""
    total = 0

    def take_gap(offset: int, size: int) -> None:
        del starts[offset], ends[offset + size]
        del gaps[bisect_left(gaps, (size, offset))]

    def add_gap(offset: int, size: int) -> None:
        starts[offset], ends[offset + size] = size, offset
        insort(gaps, (size, offset))

    for s in sorted(storages, key=lambda s: (s.first, -s.nbytes)):
        while alive and alive[0][0] < s.first:
            _, offset, size = heappop(alive)
            if offset in ends:
                before = ends[offset]
                take_gap(before, offset - before)
                offset, size = before, size + offset - before
            if offset + size in starts:
                after = starts[offset + size]
                take_gap(offset + size, after)
                size += after
            add_gap(offset, size)
        size = -(-s.nbytes // ALIGN) * ALIGN
        at = bisect_left(gaps, (size, 0))
        if at < len(gaps):
            found, s.number = gaps[at]
            take_gap(s.number, found)
            if found > size:
                add_gap(s.number + size, found - size)
        else:
            s.number = ends.get(total, total)
            if s.number < total:
                take_gap(s.number, total - s.number)
            total = s.number + size
        heappush(alive, (s.last, s.number, size))
    return total


def place_by_size(storages: list[Storage]) -> int:
    """Places storages first fit by size: each at the lowest offset that is free of storages alive at the same time."""
    placed: list[Storage] = []
    total = 0
    for s in sorted(storages, key=lambda s: (-s.nbytes, s.first)):
        meeting = [p for p in placed if p.first <= s.last and s.first <= p.last]
        offset = 0
        for p in sorted(meeting, key=lambda p: p.number):
            if p.number >= offset + s.nbytes:
                break
            offset = max(offset, -(-(p.number + p.nbytes) // ALIGN) * ALIGN)
        s.number = offset
        placed.append(s)
        total = max(total, offset + s.nbytes)
    return -(-total // ALIGN) * ALIGN


def view_closure(views: dict[Value, list[Value]], value: Value) -> set[Value]:
    """The value and all its direct and indirect views. `views` maps a value to its views."""
    out = {value}
    todo = [value]
    while todo:
        for view in views.get(todo.pop(), ()):
            out.add(view)
            todo.append(view)
    return out


def views_of(body: PlanBlock) -> dict[Value, list[Value]]:
    """Maps each value to the views that a block makes of it."""
    out: dict[Value, list[Value]] = {}
    for step in body.steps:
        if isinstance(step, ViewStep):
            out.setdefault(step.op.operands[0], []).append(step.op.results[0])
    return out


def same_place(a: ix.Expr, b: ix.Expr) -> bool:
    """Whether two offsets are equal in every iteration of the loops."""
    return surely(lambda: a == b)


def are_apart(nest: Nest, a: tuple[ix.Expr, ...], b: tuple[ix.Expr, ...]) -> bool:
    """Whether two places in values of one shape never share an element, in any iterations of the loops: their ranges
    along some dimension are disjoint."""

    def ends(e: ix.Expr) -> tuple[int, int] | None:
        spans = [c * (nest.extents[v] - 1) for v, c in e.terms]
        if e.syms or not all(isinstance(n, int) for n in (*spans, e.const)):
            return None
        return e.const + sum(min(0, n) for n in spans), e.const + sum(max(0, n) for n in spans)

    found = [(ends(x), ends(y)) for x, y in zip(a, b, strict=True)]
    return any(x is not None and y is not None and (x[1] < y[0] or y[1] < x[0]) for x, y in found)


def pointwise(nest: Nest, operand: Value, index: tuple[ix.Expr, ...], target: Value) -> bool:
    """Whether every element of `operand` is read only by the iteration that writes the same element of the target,
    before the write."""
    phases = len(nest.reduce_vars) > 0
    want = ix.linearize(index, target.tensor.extents)
    places = [at for v, at in nest.loads if v is operand]
    if phases or any(at.conditions for at in places):
        return False
    if nest.interchange is not None and any(is_wide(n) and not want.coefficient(v) for v, n in enumerate(nest.extents)):
        return False  # a scalar that every tile starts with
    if operand.tensor.storage.itemsize != target.tensor.storage.itemsize:
        return False
    return all(same_place(ix.linearize(at.index, operand.tensor.extents), want) for at in places)
