"""The moves of a nest's schedule, and a schedule that is given as moves.

`nest_moves` writes a schedule as moves. `GivenMoves` answers the questions of the scheduler from moves that a caller
gave; what they leave out is not done. At the end, `check_used` refuses the moves that the schedule does not have, so a
schedule that is accepted is the one that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.ir.core import Op, Value
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Choice
from shlo_jit.schedule.interior import Interior
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
from shlo_jit.schedule.space import GIVEN, OMITTED, Space, linear
from shlo_jit.schedule.tasks import Tasks
from shlo_jit.sizes import Size

if TYPE_CHECKING:
    from shlo_jit.schedule.nest import NestSchedule


def nest_moves(s: NestSchedule) -> tuple[Move, ...]:
    """The moves that lead to a schedule, in the order in which they are made. Stages of other steps have no units of
    their own; those on rectangles have lanes only."""
    if s.tile is not None:
        return tuple(_lanes(s))
    return (*_loops(s), *_iterations(s), *(_units(s) if s.part is None else ()), *_memory(s))


def _loops(s: NestSchedule) -> list[Move]:
    """Moves that order the loops and choose the lanes."""
    space = s.space
    moves: list[Move] = [Reorder(space.order)] if space.order else []
    moves += [Fuse(outer, inner) for outer, inner in space.dropped.items()]
    moves += _lanes(s)
    if s.transposed_loads is not None:
        t = s.transposed_loads
        moves.append(Transpose(t.across, t.side, t.tiles))
    return moves


def _lanes(s: NestSchedule) -> list[Move]:
    space = s.space
    return [] if space.vector is None else [Vectorize(space.vector, space.width, why=space.why_lanes)]


def _iterations(s: NestSchedule) -> list[Move]:
    """Moves that run several iterations together, or give some of them code of their own."""
    moves: list[Move] = []
    if s.interleaved is not None:
        moves.append(Interleave(s.interleaved))
    if s.space.vector is not None and s.unroll.value > 1:
        moves.append(Unroll(s.space.vector, s.unroll.value, why=s.unroll.why))
    if s.jammed is not None:
        moves.append(Unroll(s.jammed, s.space.extents[s.jammed]))
    moves += [Unroll(v, s.space.extents[v]) for v in s.unrolled]
    if s.row_batching is not None:
        moves.append(BatchRows(s.row_batching))
    if s.most_iterations:
        moves.append(Repeat(s.most_iterations))
    if s.interior is not None:
        moves.append(Peel())
    return moves


def _units(s: NestSchedule) -> list[Move]:
    """Moves that cut the work into units and tasks."""
    moves: list[Move] = []
    if s.split is not None:
        moves.append(Split(s.space.inner[0], s.split.chunk))
    elif s.chunk and s.space.vector is not None:
        moves.append(Split(s.space.vector, s.chunk))
    if not s.tasks.is_one:
        moves.append(Parallel(s.tasks.grain, why=s.tasks.why))
    return moves


def _memory(s: NestSchedule) -> list[Move]:
    """Moves about values that are kept, loads that are prefetched, and stores that write past the caches."""
    nodes, loads = list(s.nest.nodes), list(s.nest.loads)
    moves: list[Move] = [Keep(nodes.index(key), why=_kept(s.nest.nodes[key].op)) for key in s.stash]
    moves += [Prefetch(loads.index(key), distance) for key, distance in s.prefetches.items()]
    return moves + [Stream(i) for i, store in enumerate(s.nest.stores) if store.target in s.streams]


def _kept(op: Op) -> Reason:
    """Reason for a value in the row buffer, which names its op."""
    return Reason("needed-by-several-passes", f"{op.name.partition('.')[2]}: several passes need it")


class GivenMoves:
    """Moves that a caller gave, as answers to the scheduler's questions."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self.moves = tuple(moves)

    # ------------------------------------------------------------------ iterations
    def interleaved(self, found: int | None) -> int | None:
        """`found`: the only loop that can be interleaved."""
        return found if any(move.loop == found for move in of_kind(self.moves, Interleave)) else None

    def batched_rows(self, found: int | None) -> int | None:
        """`found`: the only loop whose rows can be batched."""
        return found if any(move.loop == found for move in of_kind(self.moves, BatchRows)) else None

    def jammed(self, space: Space) -> int | None:
        """The loop of rows whose iterations are all unrolled, along loops inside of it."""
        loops = [v for v in space.rows if v != space.vector]
        found = [m.loop for m in of_kind(self.moves, Unroll) if m.loop in loops and m.by == space.extents[m.loop]]
        return found[0] if found else None

    def unroll(self, vector: int, most: int) -> Choice[int]:
        """Vectors per iteration, at most `most`."""
        for move in of_kind(self.moves, Unroll):
            if move.loop == vector:
                if move.by & (move.by - 1) or not 1 < move.by <= most:
                    text = f"vectors per iteration are a power of two from 2 to {most}; one needs no move"
                    raise IllegalMove(move, Reason("unroll-out-of-range", text))
                return Choice(move.by, GIVEN)
        return Choice(1, OMITTED)

    def unrolled(self, space: Space) -> tuple[int, ...]:
        """Reduced loops that are unrolled: the innermost ones, up to the vector loop."""
        wanted = {move.loop: move.by for move in of_kind(self.moves, Unroll)}
        found: list[int] = []
        for v in reversed(space.inner):
            extent = space.extents[v]
            if v == space.vector or isinstance(extent, Size) or wanted.get(v) != extent:
                break
            found.append(v)
        return tuple(found)

    def iterations(self, most: int) -> int:
        """Iterations of a `while` on a tile: at most `most`, after which the loop looks for interrupts."""
        for move in of_kind(self.moves, Repeat):
            return min(move.iterations, most) if move.iterations else most
        return most

    def interior(self, found: Interior | None) -> Interior | None:
        return found if of_kind(self.moves, Peel) else None

    # ------------------------------------------------------------------ units
    def chunk(self, vector: int, step: int) -> int:
        """Elements per unit of the only loop of rows, a multiple of what an iteration takes."""
        for move in of_kind(self.moves, Split):
            if move.loop == vector:
                if move.by < 1 or move.by % step:
                    text = f"an iteration takes {step} elements; chunks are a multiple of that"
                    raise IllegalMove(move, Reason("chunk-not-a-multiple", text))
                return move.by
        return step

    def row_split(self, space: Space, can_split: bool, step: int) -> int:
        """Elements per chunk of the outermost reduced loop; 0 if that is not split."""
        for move in of_kind(self.moves, Split):
            if space.inner and move.loop == space.inner[0]:
                if not can_split:
                    text = "the loop's results are needed in the row, or its elements are taken in order"
                    raise IllegalMove(move, Reason("row-not-split", text))
                if move.by < 1 or move.by % step:
                    text = f"an iteration takes {step} elements; chunks are a multiple of that"
                    raise IllegalMove(move, Reason("chunk-not-a-multiple", text))
                return move.by
        return 0

    def tasks(self, units: int, work: int) -> Tasks:
        for move in of_kind(self.moves, Parallel):
            if move.grain < 1:
                raise IllegalMove(move, Reason("empty-tasks", "a task has at least one unit"))
            if isinstance(units, Size):
                return Tasks(units, -(-units // move.grain), GIVEN, move.grain, work if isinstance(work, Size) else 0)
            tasks = -(-units // move.grain)
            return Tasks(units, tasks, GIVEN, 0 if -(-units // tasks) == move.grain else move.grain)
        return Tasks(units, 1, OMITTED)

    # ------------------------------------------------------------------ memory
    def kept(self, nest: Nest) -> set[Key]:
        nodes = list(nest.nodes)
        return {nodes[move.value] for move in of_kind(self.moves, Keep) if move.value < len(nodes)}

    def prefetches(self, nest: Nest, space: Space) -> dict[Key, int]:
        """Loads that are contiguous along the lanes, with distances in bytes."""
        loads, found = list(nest.loads), {}
        for move in of_kind(self.moves, Prefetch):
            if space.vector is None or move.load >= len(loads):
                continue
            key = loads[move.load]
            offset = space.collapse(linear(key))
            is_run = offset.coefficient(space.vector) == 1 and not offset.syms and not key[0].tensor.is_packed
            if is_run and move.distance > 0:
                found[key] = move.distance
        return found

    def streams(self, nest: Nest, large: Sequence[Value], least: int) -> tuple[Value, ...]:
        """Targets that are written past the caches, among those that are `large`. Memory of others, which have fewer
        than `least` bytes, is not aligned."""
        found: list[Value] = []
        for move in of_kind(self.moves, Stream):
            if move.store < len(nest.stores) and nest.stores[move.store].target not in large:
                text = f"only memory of at least {least:,} bytes is aligned for streaming stores"
                raise IllegalMove(move, Reason("stream-too-small", text))
            found += [store.target for store in nest.stores[move.store : move.store + 1]]
        return tuple(found)

    # ------------------------------------------------------------------ afterwards
    def check_used(self, made: Sequence[Move]) -> None:
        """Raises IllegalMove for the first move that the schedule does not have."""
        for move in self.moves:
            if move not in made:
                raise IllegalMove(move, Reason("move-without-use", "the nest has no such loop, value or choice"))
