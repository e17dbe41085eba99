"""Alternatives to the schedule of a loop nest, for a search by measurement (see `autotune/`).

Each alternative changes one decision. Decisions that depend on it are adapted: a chunk becomes a multiple of the
elements that an iteration takes, and moves that the nest no longer allows are dropped. Alternatives are legal, because
each of them was scheduled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from shlo_jit import tuning
from shlo_jit.fuse.nest import Key
from shlo_jit.fuse.plan import NestStep, Step
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.moves import (
    BatchRows,
    Fuse,
    IllegalMove,
    Interleave,
    Keep,
    Move,
    Parallel,
    Peel,
    Prefetch,
    Reorder,
    Repeat,
    Split,
    Stream,
    Transpose,
    Unroll,
    Vectorize,
    of_kind,
)
from shlo_jit.schedule.nest import NestSchedule, reschedule
from shlo_jit.schedule.reducers import simple_op
from shlo_jit.sizes import NotSymbolic, Size, hint_of

Moves = tuple[Move, ...]
Change = tuple[list[Move], Moves]
"""All moves of an alternative, and those of them that it is about."""
FACTORS = (2.0, 0.5, 4.0, 0.25)
"""Factors by which a number of a move is changed, the most promising first."""
PREFETCH_BYTES = 1024
"""Distance of a prefetch where there was none."""
MOST_CODE = 4
"""Factor by which unrolled loops may be longer than those that the compiler unrolls: compiling them takes time."""
TASKS = (4, 16, 64)
"""Numbers of tasks for a nest that has been one task."""


def nest_alternatives(step: Step, scheduled: KernelSchedule, target: Target) -> Iterator[Moves]:
    """Yields legal schedules of a nest that differ from the given one in one decision, the most promising first."""
    assert isinstance(step, NestStep) and isinstance(scheduled, NestSchedule)
    seen = {frozenset(scheduled.moves)}
    for moves, wanted in _changes(scheduled):
        found = _legal(scheduled, moves, wanted)
        if found is not None and frozenset(found) not in seen:
            seen.add(frozenset(found))
            yield found


def nest_changes_bits(step: Step, scheduled: KernelSchedule, moves: Sequence[Move], target: Target) -> bool:
    """Whether the moves may give results with other bits than the schedule: they add up in another order."""
    assert isinstance(scheduled, NestSchedule)
    return _order_of_sums(scheduled) != _order_of_sums(reschedule(scheduled, moves))


def _order_of_sums(s: NestSchedule) -> tuple[object, ...]:
    """Everything that determines the order in which the elements of a row are combined; empty if it cannot be observed.

    Lanes along a row combine every so many elements, and chunks of a row leave partial results. Other loops keep the
    order of the row. Row batching combines the lanes of each row as a single row does.
    """
    if not any(map(_rounds, s.passes.reduces)):
        return ()
    v, chunks = s.space.vector, None if s.split is None else (s.space.inner[0], s.split.chunk)
    if v not in s.space.inner:
        return (chunks,)
    assert v is not None
    return chunks, v, s.space.width, s.unroll.value, s.space.extents[v]


def _rounds(reduction: Key) -> bool:
    """Whether the result of a reduction depends on its order. Integers do not, nor the largest element."""
    value, _ = reduction
    simple = simple_op(value.op) if value.op is not None else None
    is_exact = simple is not None and simple.has("idempotent")
    return not is_exact and (value.tensor.storage.is_float or value.tensor.storage.is_complex)


def _legal(s: NestSchedule, moves: Sequence[Move], wanted: Moves) -> Moves | None:
    """The moves of the schedule that these lead to, without those that are no longer possible. Tasks become smaller if
    a single one would be left. Returns None if one of the `wanted` moves is illegal, or would be dropped."""
    rest = list(moves)
    while True:
        try:
            return reschedule(s, rest).moves
        except IllegalMove as error:
            if error.move in wanted or error.move not in rest:
                return None
            rest.remove(error.move)
            if isinstance(error.move, Parallel) and error.move.grain > 1:
                rest.append(Parallel(max(1, error.move.grain // 4)))
        except NotSymbolic:
            return None


def _changes(s: NestSchedule) -> Iterator[Change]:
    """Changes to a schedule, legal or not."""
    yield from _unrolls(s)
    yield from _lanes(s)
    yield from _kept_values(s)
    yield from _tasks(s)
    yield from _writes_and_prefetches(s)
    yield from _peeled_and_batched(s)
    yield from _other_lanes(s)
    yield from _transposed(s)
    yield from _orders(s)
    yield from _chunks(s)
    yield from _iterations(s)


# ---------------------------------------------------------------------- parts of changes
def _without(moves: Iterable[Move], *dropped: Move) -> list[Move]:
    return [move for move in moves if move not in dropped]


def _scaled(number: int) -> Iterator[int]:
    """Larger and smaller numbers near a positive one."""
    for factor in FACTORS:
        if (changed := int(number * factor)) >= 1 and changed != number:
            yield changed


def _toggled(s: NestSchedule, move: Move) -> Change:
    """Drops a move that the schedule has, or adds one that it does not have."""
    if move in s.moves:
        return _without(s.moves, move), ()
    return [*s.moves, move], (move,)


def _swapped(s: NestSchedule, old: Move, new: Move) -> Change:
    """Puts a move in the place of another one."""
    return [new if move == old else move for move in s.moves], (new,)


def _with_chunks_of(moves: Iterable[Move], vector: int, step: int) -> list[Move]:
    """The moves, with chunks of the vector loop that are multiples of what an iteration takes."""
    found: list[Move] = []
    for move in moves:
        if isinstance(move, Split) and move.loop == vector:
            move = replace(move, by=max(1, round(move.by / step)) * step)
        found.append(move)
    return found


def _chunk(s: NestSchedule, loop: int, step: int) -> Split:
    """A chunk of a loop that makes a medium number of tasks."""
    return Split(loop, max(1, hint_of(s.space.extents[loop]) // (TASKS[1] * step)) * step)


def _vectors(s: NestSchedule, lanes: int, unroll: int) -> list[Move]:
    """The schedule with other lanes, and another number of vectors per iteration."""
    v = s.space.vector
    assert v is not None
    moves = [move for move in s.moves if not isinstance(move, Unroll) or move.loop != v]
    moves = [Vectorize(v, lanes) if isinstance(move, Vectorize) else move for move in moves]
    moves = [replace(move, side=lanes) if isinstance(move, Transpose) else move for move in moves]
    moves += [Unroll(v, unroll)] if unroll > 1 else []
    return _with_chunks_of(moves, v, lanes * unroll)


# ---------------------------------------------------------------------- changes, by subject
def _unrolls(s: NestSchedule) -> Iterator[Change]:
    """Other numbers of vectors per iteration, and short reduced loops that are unrolled or not."""
    v = s.space.vector
    if v is not None and s.interleaved is None:
        for unroll in _scaled(s.unroll.value):
            yield _vectors(s, s.space.width, unroll), (Unroll(v, unroll),) if unroll > 1 else ()
    body = s.unroll.value * (len(s.nest.nodes) + len(s.nest.loads)) * prod(s.space.extents[u] for u in s.unrolled)
    for loop in s.space.inner:
        extent = s.space.extents[loop]
        is_short = not isinstance(extent, Size) and body * extent <= MOST_CODE * tuning.UNROLLED_OPS
        if loop != v and (loop in s.unrolled or is_short):
            yield _toggled(s, Unroll(loop, extent))


def _lanes(s: NestSchedule) -> Iterator[Change]:
    """Other numbers of lanes along the same loop."""
    v = s.space.vector
    if v is not None:
        for lanes in _scaled(s.space.width):
            if lanes > 1:
                yield _vectors(s, lanes, s.unroll.value), (Vectorize(v, lanes),)


def _kept_values(s: NestSchedule) -> Iterator[Change]:
    """Values that several passes need: all computed again, or each kept or not."""
    kept = of_kind(s.moves, Keep)
    if len(kept) > 1:
        yield _without(s.moves, *kept), ()
    if s.space.inner:
        for value in range(len(s.nest.nodes)):
            yield _toggled(s, Keep(value))


def _tasks(s: NestSchedule) -> Iterator[Change]:
    """Larger and smaller tasks, and a single one."""
    (*_, old) = (None, *of_kind(s.moves, Parallel))
    if old is None:
        units = hint_of(s.tasks.units)
        grains = dict.fromkeys(max(1, -(-units // tasks)) for tasks in TASKS)
        yield from (([*s.moves, move], (move,)) for move in map(Parallel, grains) if move.grain < units)
        return
    for grain in _scaled(old.grain):
        yield _swapped(s, old, Parallel(grain))
    yield _without(s.moves, old), ()


def _writes_and_prefetches(s: NestSchedule) -> Iterator[Change]:
    """Stores past the caches or not; loads that are prefetched from another distance, or not at all."""
    streams = tuple(of_kind(s.moves, Stream))
    if streams:
        yield _without(s.moves, *streams), ()
    else:
        added = tuple(map(Stream, range(len(s.nest.stores))))
        yield [*s.moves, *added], added
    fetched = of_kind(s.moves, Prefetch)
    for factor in FACTORS if fetched else ():
        moves = [replace(m, distance=int(m.distance * factor)) if isinstance(m, Prefetch) else m for m in s.moves]
        yield moves, tuple(of_kind(moves, Prefetch))
    if fetched:
        yield _without(s.moves, *fetched), ()
    for load in range(len(s.nest.loads)):
        if load not in [move.load for move in fetched]:
            yield _toggled(s, Prefetch(load, PREFETCH_BYTES))


def _peeled_and_batched(s: NestSchedule) -> Iterator[Change]:
    """An interior with code of its own or not; rows that run together or not; results that are stored as a run."""
    yield _toggled(s, Peel())
    for loop in s.space.rows:
        yield _toggled(s, BatchRows(loop))
        extent = s.space.extents[loop]
        if loop != s.space.vector and not isinstance(extent, Size) and extent <= tuning.JAMMED_ROWS:
            yield _toggled(s, Unroll(loop, extent))
    for loop in (*s.space.rows, *s.space.inner[-1:]):
        yield _toggled(s, Interleave(loop))


def _other_lanes(s: NestSchedule) -> Iterator[Change]:
    """Lanes along another loop, with one vector per iteration or several; or no lanes."""
    v = s.space.vector
    moves = [m for m in s.moves if not isinstance(m, Vectorize | Transpose | Interleave | BatchRows)]
    moves = [m for m in moves if not isinstance(m, Unroll | Split) or m.loop != v]
    most = 2 * (s.space.width if v is not None else s.target.lanes(32))
    for loop in (loop for loop in (*s.space.rows, *s.space.inner) if loop != v):
        for lanes in (most, most // 2, most // 4):
            for unroll in (1, 4) if lanes > 1 else ():
                wanted: Moves = (Vectorize(loop, lanes), *([Unroll(loop, unroll)] if unroll > 1 else []))
                yield [*moves, *wanted, _chunk(s, loop, lanes * unroll)], wanted
    if v is not None:
        yield moves, ()


def _transposed(s: NestSchedule) -> Iterator[Change]:
    """Loads that are transposed in registers or not, and other tiles of them."""
    for old in of_kind(s.moves, Transpose):
        yield from (_swapped(s, old, replace(old, tiles=tiles)) for tiles in _scaled(old.tiles))
        yield _without(s.moves, old), ()
        return
    for loop in s.space.rows:
        for tiles in (4, 1):
            yield _toggled(s, Transpose(loop, s.space.width, tiles))


def _orders(s: NestSchedule) -> Iterator[Change]:
    """Two loops of rows that change places, and two loops that are no longer one."""
    rows = [loop for loop in s.space.order if loop not in s.nest.reduce_vars]
    inner = [loop for loop in s.space.order if loop in s.nest.reduce_vars]
    for outer, loop in pairwise(rows):
        changed = [{outer: loop, loop: outer}.get(row, row) for row in rows]
        order = Reorder((*changed, *inner))
        yield [order, *(move for move in s.moves if not isinstance(move, Reorder))], (order,)
    for fused in of_kind(s.moves, Fuse):
        yield _without(s.moves, fused), ()


def _chunks(s: NestSchedule) -> Iterator[Change]:
    """Larger and smaller chunks; reduced loops in chunks, or not."""
    for old in of_kind(s.moves, Split):
        for by in _scaled(old.by):
            yield _swapped(s, old, Split(old.loop, by))
        if old.loop in s.space.inner:
            yield _without(s.moves, old), ()
        return
    for loop in s.space.inner[:1]:
        step = s.space.width * s.unroll.value if loop == s.space.vector else 1
        for tasks in TASKS:
            by = -(-hint_of(s.space.extents[loop]) // (tasks * step)) * step
            yield [*s.moves, Split(loop, by)], (Split(loop, by),)


def _iterations(s: NestSchedule) -> Iterator[Change]:
    """Other numbers of iterations of the loop around the nest, on each tile."""
    for old in of_kind(s.moves, Repeat):
        yield from (_swapped(s, old, Repeat(iterations)) for iterations in _scaled(old.iterations))
