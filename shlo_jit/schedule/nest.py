"""Schedule of a nest: lanes, unrolling, passes over the row, tasks, and which values are stashed, prefetched or
streamed.

All decisions depend on shapes and the target alone, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shlo_jit import tuning
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import FIXED, Reason
from shlo_jit.schedule.choice import Choice, Note, count
from shlo_jit.schedule.interior import Interior, interior_conditions
from shlo_jit.schedule.kernel import Allowed, KernelSchedule
from shlo_jit.schedule.loop_interchange import TimeBlocks, most_iterations, vectors_a_tile
from shlo_jit.schedule.moves import Move
from shlo_jit.schedule.nest_moves import GivenMoves, nest_moves
from shlo_jit.schedule.nest_notes import nest_notes
from shlo_jit.schedule.nest_prefetches import prefetches
from shlo_jit.schedule.passes import Passes
from shlo_jit.schedule.reducers import simple_op
from shlo_jit.schedule.row_batching import batched_row_variable
from shlo_jit.schedule.row_buffer import row_buffer
from shlo_jit.schedule.row_split import Split, row_split
from shlo_jit.schedule.scalar_table import ScalarTable, scalar_table
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.selection import index_values, selection_of
from shlo_jit.schedule.short_loops import longer_loop
from shlo_jit.schedule.space import (
    GIVEN,
    Order,
    Part,
    Space,
    Tile,
    has_few_elements,
    is_interleaved,
    lanes_of,
    linear,
    make_space,
    side_by_side,
    tile_space,
)
from shlo_jit.schedule.sum_order import ACCUMULATORS, can_split_rows, fixes_order
from shlo_jit.schedule.tasks import Tasks, cut
from shlo_jit.schedule.transposed_loads import TransposedLoads, find_transposed_loads, given_transposed_loads
from shlo_jit.schedule.unroll_and_jam import accumulators_each, can_jam, jammed_variable
from shlo_jit.sizes import hint_of, surely


@dataclass(frozen=True, kw_only=True)
class NestSchedule(KernelSchedule):
    """Schedule of a nest."""

    nest: Nest
    target: Target
    space: Space
    tile: Tile | None
    """For an epilogue, how its variables map to rectangles of the product."""
    passes: Passes
    transposed_loads: TransposedLoads | None
    interleaved: int | None
    """The short variable whose results are adjacent. All of its iterations are unrolled, and their results are stored
    as one run."""
    batches_rows: bool
    """Whether the rows of all iterations of the interleaved variable advance together along the reduced variables. This
    is required if elements of rows are stored as one run with those of the rows between them."""
    jammed: int | None
    """The short row variable whose rows run along the reduced variable together (see `unroll_and_jam.py`)."""
    unroll: Choice[int]
    """Vectors per iteration of the vector loop."""
    unrolled: tuple[int, ...]
    """Reduced variables with few iterations, which are unrolled."""
    row_batching: int | None
    """The row variable of row batching, for lanes along short rows. As many of its iterations as there are lanes run
    together, and their accumulators are combined with each other."""
    chunk: int
    """Elements of the vector variable per unit, if that is the only row variable; otherwise 0."""
    tasks: Tasks
    """The tasks. A unit is an iteration of the outer row loops, a chunk of the vector variable, or (`split`) a chunk of
    the row."""
    split: Split | None
    most_iterations: int
    """Maximum number of iterations of a loop on one tile before the next tile; 0 without such a loop."""
    scalar_table: ScalarTable | None
    """For such a loop, the scalars of its iterations that are computed once for all tiles."""
    prefetches: dict[Key, int]
    """Loads that stream a large operand from memory, with the prefetch distance of each in bytes."""
    stash: dict[Key, int]
    """Values that several passes need, with the bytes of a row of each. The first pass stores it, later passes read
    it."""
    streams: tuple[Value, ...]
    """Targets that exceed every cache: written with streaming stores."""
    no_streams: Refusal | None = None
    """The reason that other such targets are not."""
    is_fully_unrolled: bool = False
    """Whether all rows are unrolled, with constant indices, because there are few."""
    interior: Interior | None = None
    """The interior in which the source of most elements is known, if it depends on the place."""
    blocks: TimeBlocks | None = None
    """For the body of a loop, the iterations that run per pass (see `temporal_tiling.py`)."""
    no_blocks: Refusal | None = None
    """For the body of a loop that is a candidate for temporal tiling, the reason that its iterations run one after the
    other."""
    part: Part | None = None
    """For a stage of other steps, what each call of the nest's function computes."""

    @property
    def row_loops(self) -> list[int]:
        """The loops around the vectors, outermost first."""
        return [v for v in self.space.rows if v not in (self.space.vector, self.interleaved, self.jammed)]

    @property
    def is_whole(self) -> bool:
        """Whether every call of the nest's function has all units. Stripes of several iterations are parts, even if
        there is only one stripe."""
        return self.tasks.is_one and self.blocks is None

    @property
    def notes(self) -> list[Note]:
        return nest_notes(self)

    @property
    def is_tasks(self) -> bool:
        return self.nest.interchange is None and self.nest.overwrites is None

    def streaming_where(self, allowed: Allowed) -> NestSchedule:
        streams = tuple(target for target in self.streams if allowed(self.nest, target))
        if len(streams) == len(self.streams):
            return self
        why = Refusal("memory-of-argument", "results in the memory of arguments need not be aligned")
        return replace(self, streams=streams, no_streams=why)

    @property
    def moves(self) -> tuple[Move, ...]:
        return nest_moves(self)


def schedule_nest(
    nest: Nest,
    target: Target,
    tile: Tile | None = None,
    part: Part | None = None,
    moves: Sequence[Move] | None = None,
) -> NestSchedule:
    """Returns the schedule of a nest. With a `tile`, the nest is the epilogue of a product, on rectangles of it.
    `part`: the nest is a stage of other steps. `moves`: all decisions, for a nest that is no epilogue; what is in no
    move is not done. Raises IllegalMove if the nest does not allow one of them."""
    return _Scheduler(nest, target, tile if part is None else part.tile, part, moves).run()


def reschedule(s: NestSchedule, moves: Sequence[Move]) -> NestSchedule:
    """Returns the schedule of the same nest, or the same part of it, with other moves. Raises IllegalMove."""
    return schedule_nest(s.nest, s.target, part=s.part, moves=moves)


class _Scheduler:
    """The state of one scheduling run: each decision depends on those made before."""

    def __init__(
        self, nest: Nest, target: Target, tile: Tile | None, part: Part | None, moves: Sequence[Move] | None = None
    ):
        self.nest = nest
        self.given = None if moves is None else GivenMoves(moves)
        self.is_fixed = fixes_order(nest, target)
        """Whether sums must be in the same order on all targets, and for any number of rows."""
        self.target = target.of_sums if self.is_fixed else target
        self.simple = {n.op: simple_op(n.op) for n in nest.nodes.values() if n.op.name == "stablehlo.reduce"}
        others = [op for op, simple in self.simple.items() if simple is None]
        self.selections = {op: found for op in others if (found := selection_of(nest, op)) is not None}
        self.ordered = len(self.selections) < len(others)
        self.tile = tile
        self.part = part
        self.by_rows = part is not None and tile is None
        """Whether units are whole rows, one after the other."""
        self.jammed: int | None = None
        if tile is None:
            self.choose_loops(Order.STRICT if self.ordered else Order.IN_LANES if others else Order.ANY)
            strided = hint_of(nest.reduced) <= tuning.STRIDED_LOAD
            if self.given is None and self.short() and (strided or self.choose_row_batching() is None):
                self.choose_loops(Order.STRICT)
        else:
            self.space, self.tile = tile_space(nest, target, tile, moves)
            self.transposed_loads, self.passes = None, Passes(nest, self.space, self.selections)
        self.heavy = sum(cost(n.op) for n in nest.nodes.values())

    def choose_loops(self, asked: Order) -> None:
        """Chooses the loops, and what follows from them alone."""
        nest = self.nest
        indices = frozenset(v for op in self.selections for v in index_values(nest, op))
        moves = None if self.given is None else self.given.moves
        self.space = make_space(nest, self.target, asked, indices, self.by_rows, moves)
        if moves is None and not self.by_rows and not self.is_fixed:
            longer = longer_loop(nest, self.space, self.target, indices, lanes_of(asked, self.space.inner))
            if longer is not None:
                self.space = make_space(nest, self.target, asked, indices, chosen=longer)
        if moves is not None:
            self.transposed_loads = given_transposed_loads(nest, self.space, moves)
        else:
            self.transposed_loads = find_transposed_loads(nest, self.space) if nest.interchange is None else None
        if self.transposed_loads is not None:
            self.space = self.space._replace(width=self.transposed_loads.side)
        self.passes = Passes(nest, self.space, self.selections)

    def short(self) -> bool:
        """Whether elements are selected from many rows that are too short for lanes along them."""
        gathers = any(s.dtype.bits >= 32 for s in self.selections.values()) and not self.is_fixed
        few = hint_of(self.nest.rows) < self.target.lanes(32)
        return gathers and not few and hint_of(self.nest.reduced) < tuning.SHORT_SELECTION

    def run(self) -> NestSchedule:
        self.interleaved = self.choose_interleaved()
        self.batches_rows = self.choose_batches_rows()
        self.scalar_table = scalar_table(self.nest, self.space, self.target)
        if self.scalar_table is not None:
            self.heavy -= self.scalar_table.cost
        self.most_iterations = self.choose_iterations()
        self.jammed = self.choose_jammed()
        self.unroll = self.choose_unroll()
        self.chunk = self.choose_chunk()
        tasks, split = self.choose_tasks()
        unrolled = self.choose_unrolled() if split is None else ()
        plain = self.tile is None and self.transposed_loads is None
        streams = self.choose_streams() if self.chunk and plain and split is None else ()
        interior = interior_conditions(self.nest, self.space) if plain and self.interleaved is None else None
        if self.given is not None:
            interior = self.given.interior(interior)
        found = NestSchedule(
            nest=self.nest,
            target=self.target,
            space=self.space,
            tile=self.tile,
            passes=self.passes,
            transposed_loads=self.transposed_loads,
            interleaved=self.interleaved,
            batches_rows=self.batches_rows,
            jammed=self.jammed,
            unroll=self.unroll,
            unrolled=unrolled,
            row_batching=self.choose_row_batching() if split is None else None,
            most_iterations=self.most_iterations,
            scalar_table=self.scalar_table,
            chunk=self.chunk,
            tasks=tasks,
            split=split,
            is_fully_unrolled=tasks.is_one and self.space.vector is None and has_few_elements(self.nest),
            prefetches=self.choose_prefetches() if plain else {},
            part=self.part,
            stash=self.choose_stash() if split is None else {},
            streams=streams,
            interior=interior,
            scratch=Scratch(self.scratch_fields(split)),
        )
        if self.given is not None:
            self.given.check_used(found.moves)
        return found

    def scratch_fields(self, split: Split | None) -> tuple[Field, ...]:
        """The memory that all tasks share."""
        if split is not None:
            return split.partials
        return self.scalar_table.fields if self.scalar_table is not None else ()

    # ------------------------------------------------------------------ vectors
    def choose_interleaved(self) -> int | None:
        found = self.find_interleaved()
        return found if self.given is None else self.given.interleaved(found)

    def find_interleaved(self) -> int | None:
        """The variable whose results lie between those of neighbouring lanes, if there are vectors of them; otherwise
        None."""
        space, v = self.space, self.space.vector
        plain = self.tile is None and self.transposed_loads is None
        if v is None or v not in space.rows or not plain or hint_of(space.extents[v]) < 2 * space.width:
            return None
        for s in self.nest.stores:
            if not s.target.tensor.storage.is_complex:
                offset = space.collapse(linear((s.target, At(s.index))))
                c = side_by_side(offset, space.extents, v, [*space.rows, *space.inner[-1:]])
                if c is not None:
                    return c
        return None

    def choose_batches_rows(self) -> bool:
        """Whether a store inside the row waits for the results of the rows between its lanes. If so, these rows must
        advance together."""
        c, space = self.interleaved, self.space
        if c is None or c not in space.rows:
            return False
        return any(self.passes.inside(s) and is_interleaved(s, space, c) for s in self.nest.stores)

    def choose_jammed(self) -> int | None:
        """The short row variable whose rows run together, unless values are kept: a row buffer has room for one row."""
        if self.part is not None or self.tile is not None or self.is_fixed:
            return None
        if self.given is None:
            found, wanted = jammed_variable(self.nest, self.space, self.passes, self.target), None
        else:
            found, wanted = self.given.jammed(self.space), self.given.kept(self.nest)
        if found is None or not can_jam(self.nest, self.space, self.passes, found):
            return None
        return None if row_buffer(self.nest, self.space, self.passes, 1, wanted) else found

    @property
    def rows_at_a_time(self) -> int:
        """Vectors of rows that advance together along the reduced variables."""
        return self.space.extents[self.interleaved] if self.batches_rows else self.unroll.value  # type: ignore[index]

    def choose_row_batching(self) -> int | None:
        """The row variable of row batching: several of its iterations combine their lanes together."""
        plain = self.tile is None and self.transposed_loads is None and self.nest.interchange is None
        plain = plain and self.jammed is None
        found = batched_row_variable(self.nest, self.space, self.passes) if plain and not self.by_rows else None
        if self.given is not None:
            found = self.given.batched_rows(found)
        return None if found is None or self.choose_stash() else found

    def choose_unroll(self) -> Choice[int]:
        """Vectors per iteration: several for small bodies, to hide latency."""
        space, passes = self.space, self.passes
        if space.vector is None:
            return Choice(1, Reason("no-vectors", "no vectors"))
        if self.tile is not None:
            return Choice(1, Reason("few-columns-per-tile", "tiles of a product have few columns"))
        if self.interleaved is not None:
            return Choice(1, Reason("already-unrolled", f"the iterations of v{self.interleaved} are unrolled"))
        if self.given is not None:
            return self.given.unroll(space.vector, self.target.vector_registers // 2)
        vectors = hint_of(space.extents[space.vector]) // space.width
        size = len(self.nest.nodes) + len(self.nest.loads)
        if self.nest.interchange is not None:
            limit = vectors_a_tile(self.nest, self.target)
        elif self.nest.reduce_vars and space.vector in space.rows and space.inner:
            several = passes.count > 1 + any(not passes.inside(s) for s in self.nest.stores)
            registers = self.target.vector_registers // 2
            limit = registers if size <= 4 else 4 if size <= (40 if several else 12) else 1
        elif self.is_fixed:
            limit = ACCUMULATORS
        elif self.nest.reduce_vars:
            room = accumulators_each(self.space, self.passes, self.jammed, self.target)
            limit = min(4 if size <= 24 else 2, room)
        else:
            limit = 4 if size <= 8 else 2 if size <= 16 and self.heavy < 40 else 1
        why = FIXED if self.is_fixed else Reason("body-size", f"{size} ops and loads in the body")
        while limit > 1 and vectors < limit:
            limit //= 2
            why = Reason("short-loop", f"the loop has {count(vectors, 'vector')}")
        return Choice(limit, why)

    def choose_unrolled(self) -> tuple[int, ...]:
        """The reduced variables to unroll, innermost first, as long as the code stays short. A sum of 4 is 4
        instructions, or a chain of jumps."""
        space, found = self.space, []
        if self.given is not None:
            return self.given.unrolled(space)
        room = tuning.UNROLLED_OPS // (self.unroll.value * (len(self.nest.nodes) + len(self.nest.loads)))
        for v in reversed(space.inner):
            extent = space.extents[v]
            if v == space.vector or not isinstance(extent, int) or not 1 < extent <= room:
                break
            found.append(v)
            room //= extent
        return tuple(found)

    def choose_prefetches(self) -> dict[Key, int]:
        """Loads to prefetch, with their distances in bytes, because the hardware's prefetcher restarts in every page.
        If several loads follow each other (as in a stencil), only the foremost is prefetched."""
        space = self.space
        cached = frozenset() if self.part is None else self.part.cached
        if self.given is not None:
            found = self.given.prefetches(self.nest, space)
            return {key: distance for key, distance in found.items() if key[0] not in cached}
        return prefetches(self.nest, space, self.target, cached, self.unroll.value)

    def choose_streams(self) -> tuple[Value, ...]:
        """Outputs of a plain loop over one run that are large enough for streaming stores."""
        if self.nest.reduce_vars or self.nest.overwrites is not None:
            return ()
        targets = [s.target for s in self.nest.stores]
        least = self.target.bytes_of(tuning.STREAM_BYTES)
        large = tuple(t for t in targets if surely(lambda t=t: t.tensor.nbytes >= least))
        return large if self.given is None else self.given.streams(self.nest, large, least)

    # ------------------------------------------------------------------ tasks
    def choose_iterations(self) -> int:
        """Maximum number of iterations of a loop per tile: the scalars of all of them are in the table, if there is
        one."""
        if self.nest.interchange is None:
            return 0
        most = most_iterations(self.nest, self.space, self.heavy)
        if self.scalar_table is not None:
            most = min(most, self.scalar_table.capacity)
        return most if self.given is None else self.given.iterations(most)

    @property
    def expected_iterations(self) -> int:
        """Expected iterations of the loop per tile: a factor on the work per element."""
        if self.nest.interchange is None:
            return 1
        return max(1, min(self.most_iterations, self.nest.interchange.count or tuning.ASSUMED_TRIP_COUNT))

    def choose_chunk(self) -> int:
        space = self.space
        if space.vector not in space.rows or set(space.rows) - {space.vector, self.interleaved}:
            return 0
        step = space.width * self.unroll.value
        if self.given is not None and self.tile is None:
            assert space.vector is not None
            return self.given.chunk(space.vector, step)
        work = max(1, self.heavy + len(self.nest.loads)) * max(1, hint_of(self.nest.reduced)) * self.expected_iterations
        blocks = max(1, tuning.TASK_WORK // (step * work))
        return step * blocks

    def choose_tasks(self) -> tuple[Tasks, Split | None]:
        space = self.space
        if self.part is not None and self.part.tasks is not None:
            return self.part.tasks, None
        if self.chunk:
            assert space.vector is not None
            units = -(-space.extents[space.vector] // self.chunk)
        else:
            units = 1
            for v in space.rows:
                units *= space.extents[v] if v not in (space.vector, self.interleaved, self.jammed) else 1
            if self.transposed_loads is not None:
                across = space.extents[self.transposed_loads.across]
                units = units // across * -(-across // self.transposed_loads.width)
        each = max(1, self.heavy + len(self.nest.loads) + 1) * self.expected_iterations
        work = each * self.nest.rows * self.nest.reduced
        if self.given is not None and self.tile is None:
            cut_at = self.given.row_split(space, self.can_split(), self.split_step)
            if cut_at:
                chunks = -(-space.extents[space.inner[0]] // cut_at)
                return Tasks(chunks, chunks, GIVEN, 1), row_split(self.passes, self.simple, cut_at, chunks)
            return self.given.tasks(units, work), None
        if hint_of(work) >= tuning.PARALLEL_WORK and hint_of(units) < tuning.SPLIT_UNITS and self.can_split():
            chunk, chunks = self.choose_split(work)
            if hint_of(chunks) > 1:
                why = Reason("row-cut", f"{work:,} element operations in {count(units, 'row')}: the row itself is cut")
                return Tasks(chunks, chunks, why, 1), row_split(self.passes, self.simple, chunk, chunks)
        return cut(units, work), None

    def can_split(self) -> bool:
        """Whether the row may be split: one pass of reducers that accept chunks, and no store inside it needs their
        results."""
        passes, together = self.passes, self.interleaved is not None or self.jammed is not None
        if not self.space.inner or self.ordered or together or self.by_rows:
            return False
        if self.is_fixed and not can_split_rows(self.nest):
            return False
        if any(passes.inside(s) and passes.phase((s.value, s.at)) for s in self.nest.stores):
            return False
        return all(passes.phase(k) == 1 for k in passes.reduces)

    def choose_split(self, work: int) -> tuple[int, int]:
        """Elements of the outermost reduced variable per chunk, and the number of chunks."""
        extent, step = self.space.extents[self.space.inner[0]], self.split_step
        tasks = max(1, min(tuning.MAX_TASKS, hint_of(work) // tuning.TASK_WORK))
        chunk = -(-hint_of(extent) // tasks)
        chunk = -(-chunk // step) * step
        return chunk, -(-extent // chunk)

    @property
    def split_step(self) -> int:
        """Chunks of the outermost reduced variable are multiples of it."""
        return self.space.width * self.unroll.value if self.space.inner[:1] == (self.space.vector,) else 1

    # ------------------------------------------------------------------ what passes share
    def choose_stash(self) -> dict[Key, int]:
        wanted = None if self.given is None else self.given.kept(self.nest)
        rows = 1 if self.space.vector in self.space.inner else self.rows_at_a_time
        return row_buffer(self.nest, self.space, self.passes, rows, wanted)
