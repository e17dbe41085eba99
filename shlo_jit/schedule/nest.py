"""Decisions about a nest before any code is written: lanes, unrolling, passes over the row, the cut into tasks.

All of them depend on shapes and the target alone, never on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Key, Nest, Store
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import At, Expr
from shlo_jit.kernels.builder import bits
from shlo_jit.kernels.target import Target
from shlo_jit.lower.elements.reducers import Reducer, reducer_of
from shlo_jit.lower.elements.registers import flatten
from shlo_jit.schedule.crossing import STRIPE, find_crossing
from shlo_jit.schedule.space import Space, Tile, linear, make_space, tile_space

TASK_WORK = 1 << 15
"""Element operations a task should have, so that handing it over costs little."""
PARALLEL_WORK = 1 << 17
"""Element operations below which a nest runs on the caller."""
MAX_TASKS = 64
FAR = 1 << 21
"""Bytes of an operand from which it comes from memory, or the last level of cache."""
AHEAD = 2048
"""Bytes that such operands are fetched ahead."""
MIN_UNITS = 8
"""Row units below which a large reduction is split along the row."""


@dataclass
class Schedule:
    """How a nest's function is to be called."""

    units: int
    tasks: int
    """1: call it directly with (0, units)."""
    split: bool = False
    """Units are chunks of the outermost reduced variable: each leaves partial results in scratch memory, and a second
    function, called once, combines them in order and finishes the rows."""

    @property
    def grain(self) -> int:
        return -(-self.units // self.tasks)


class Reduction(NamedTuple):
    """A reduce at one place of a nest."""

    op: Op
    reducer: Reducer
    results: list[Key]
    operands: list[Key]
    initial: list[Key]


class NestPlan:
    """A nest with everything decided."""

    def __init__(self, nest: Nest, target: Target, tile: Tile | None = None):
        self.nest = nest
        self.target = target
        self.reduces: dict[Op, Reducer] = {}
        for node in nest.nodes.values():
            if node.op.name == "stablehlo.reduce" and node.op not in self.reduces:
                self.reduces[node.op] = reducer_of(node.op)
        scalar = any(r.simple is None for r in self.reduces.values())
        self.space: Space = make_space(nest, target, scalar) if tile is None else tile_space(nest, target, tile)
        self.reduced = set(nest.reduce_vars)
        self.phases: dict[Key, int] = {}
        self._row: dict[Key, bool] = {}
        self.crossing = find_crossing(nest, self.space) if tile is None else None
        if self.crossing is not None:
            self.space.width = self.crossing.side
        self.unroll = self.choose_unroll()
        self.chunk = self.choose_chunk()
        self.split_chunk = 0
        self.schedule = self.choose_schedule()
        self.ahead = self.choose_ahead() if tile is None and self.crossing is None else {}

    def heavy(self) -> int:
        return sum(cost(n.op) for n in self.nest.nodes.values())

    def choose_unroll(self) -> int:
        """Vectors a turn of the vector loop handles: several for small bodies, to hide latency."""
        space = self.space
        if space.vector is None:
            return 1
        turns = space.extents[space.vector] // space.width
        size = len(self.nest.nodes) + len(self.nest.loads)
        along_rows = space.vector in space.rows
        if self.reduced and along_rows and space.inner:
            several = self.passes > 1 + any(not self.inside(s) for s in self.nest.stores)
            limit = 16 if size <= 4 else 4 if size <= (40 if several else 12) else 1
            limit = min(limit, self.target.vector_registers // 2)
        elif self.reduced:
            limit = 4 if size <= 24 else 2
        else:
            limit = 4 if size <= 8 else 2 if size <= 16 and self.heavy() < 40 else 1
        while limit > 1 and turns < limit:
            limit //= 2
        return limit

    def choose_ahead(self) -> dict[Key, int]:
        """Loads that stream a large operand from memory, and how many bytes ahead of each to fetch: the hardware's
        prefetcher starts anew in every page. Of loads that follow each other (a stencil's) the foremost fetches."""
        space = self.space
        if space.vector is None or space.extents[space.vector] < 4 * space.width:
            return {}
        inner = space.vector if space.vector not in space.rows or not space.inner else space.inner[-1]
        foremost: dict[tuple, tuple[int, Key, int]] = {}
        for key in self.nest.loads:
            storage, offset = key[0].tensor.storage, space.collapse(linear(key))
            step = offset.coefficient(inner)
            if key[0].tensor.nbytes < FAR or offset.coefficient(space.vector) != 1 or not step or offset.syms:
                continue
            if inner == space.vector and not self.streams(offset, AHEAD // storage.itemsize):
                continue
            turn = space.width * self.unroll * storage.itemsize
            turns = max(1, AHEAD // turn) if inner != space.vector else AHEAD // storage.itemsize
            group = (key[0], offset.terms)
            if group not in foremost or foremost[group][0] < offset.const:
                foremost[group] = (offset.const, key, turns * step * storage.itemsize)
        return {key: distance for _, key, distance in foremost.values()}

    def streams(self, offset: Expr, ahead: int) -> bool:
        """Whether what lies so many elements ahead is what comes next: runs along the vector variable are long, or the
        next one begins where one ends."""
        space = self.space
        assert space.vector is not None
        order = [*space.rows, *space.inner]
        before = order[: order.index(space.vector)]
        run = space.extents[space.vector]
        return run >= 2 * ahead or (bool(before) and offset.coefficient(before[-1]) == run)

    def parallel_rows(self) -> list[int]:
        rows = [v for v in self.space.rows if v != self.space.vector]
        return rows

    def choose_chunk(self) -> int:
        """Elements of the vector variable a unit has, when that is the only row variable; 0 otherwise."""
        space = self.space
        if space.vector not in space.rows or self.parallel_rows():
            return 0
        assert space.vector is not None
        step = space.width * self.unroll
        work = max(1, self.heavy() + len(self.nest.loads)) * max(1, self.nest.reduced)
        blocks = max(1, TASK_WORK // (step * work))
        return step * blocks

    def choose_schedule(self) -> Schedule:
        space = self.space
        if self.chunk:
            assert space.vector is not None
            units = -(-space.extents[space.vector] // self.chunk)
        else:
            units = 1
            for v in self.parallel_rows():
                units *= space.extents[v]
            if self.crossing is not None:
                across = space.extents[self.crossing.across]
                units = units // across * -(-across // (STRIPE * self.crossing.side))
        work = max(1, self.heavy() + len(self.nest.loads) + 1) * self.nest.rows * self.nest.reduced
        if work >= PARALLEL_WORK and units < MIN_UNITS and self.can_split():
            self.split_chunk, chunks = self.choose_split(work)
            if chunks > 1:
                return Schedule(chunks, chunks, True)
        if work < PARALLEL_WORK or units < 2:
            return Schedule(units, 1)
        grain = -(-units // max(1, min(MAX_TASKS, units, work // TASK_WORK)))
        return Schedule(units, -(-units // grain))  # no task without units: it would run the tail of the last one

    def can_split(self) -> bool:
        """One pass of simple reducers; what is stored inside it needs none of them."""
        if not self.space.inner or any(r.simple is None for r in self.reduces.values()):
            return False
        if any(self.inside(s) and self.phase((s.value, s.at)) for s in self.nest.stores):
            return False
        return all(self.phase(k) == 1 for k, n in self.nest.nodes.items() if n.op in self.reduces)

    def choose_split(self, work: int) -> tuple[int, int]:
        """Elements of the outermost reduced variable a chunk has, and the number of chunks."""
        v = self.space.inner[0]
        extent = self.space.extents[v]
        step = self.space.width * self.unroll if v == self.space.vector else 1
        tasks = max(1, min(MAX_TASKS, work // TASK_WORK))
        chunk = -(-extent // tasks)
        chunk = -(-chunk // step) * step
        return chunk, -(-extent // chunk)

    def scratch_bytes(self) -> int:
        """Memory for the partial results of a split nest."""
        return self.partials()[1] if self.schedule.split else 0

    # ------------------------------------------------------------------ classification
    def in_row(self, key: Key) -> bool:
        """Whether a value belongs to the row: it does not vary over the reduced variables."""
        found = self._row.get(key)
        if found is None:
            found = self._row[key] = not self.space.depends(key[1], set(self.space.inner))
        return found

    def phase(self, key: Key) -> int:
        """Passes that must have run before the value can be computed in (or, for a row's value, after) one."""
        if key in self.phases:
            return self.phases[key]
        todo = [key]
        while todo:  # not by recursion: chains of ops are as deep as programs are long
            k = todo[-1]
            node = self.nest.nodes.get(k)
            operands = node.operands if node is not None else []
            missing = [o for o in operands if o not in self.phases]
            if missing:
                todo.extend(missing)
                continue
            todo.pop()
            reduces = node is not None and node.op.name == "stablehlo.reduce"
            self.phases[k] = max((self.phases[o] for o in operands), default=0) + int(reduces)
        return self.phases[key]

    def inside(self, s: Store) -> bool:
        """The store happens at every turn of the reduced variables."""
        return self.space.depends(At(s.index), set(self.space.inner))

    def reductions(self, p: int) -> list[Reduction]:
        """Reductions whose operands are known in pass p."""
        found: dict[tuple, Reduction] = {}
        for key, node in self.nest.nodes.items():
            if node.op in self.reduces and self.phase(key) == p + 1:
                entry = found.get((node.op, tuple(node.operands)))
                if entry is None:
                    n = len(node.op.results)
                    entry = Reduction(node.op, self.reduces[node.op], [], node.operands[:n], node.operands[n:])
                    found[(node.op, tuple(node.operands))] = entry
                entry.results.append(key)
        return list(found.values())

    def inner_stores(self, p: int) -> list[Store]:
        """Stores that happen at every turn of pass p."""
        return [s for s in self.nest.stores if self.inside(s) and self.phase((s.value, s.at)) == p]

    def roots(self, p: int) -> list[Key]:
        """What pass p computes."""
        roots = [(s.value, s.at) for s in self.inner_stores(p)]
        return roots + [k for r in self.reductions(p) for k in r.operands]

    @property
    def passes(self) -> int:
        """Passes over the row, a last one for what is stored after them included."""
        stores = [self.phase((s.value, s.at)) for s in self.nest.stores]
        reduces = [self.phase(k) for k, n in self.nest.nodes.items() if n.op in self.reduces]
        return 1 + max([*stores, *reduces], default=0)

    def needed(self, roots: list[Key]) -> set[Key]:
        """Values of the inner loops that the roots are computed from."""
        seen: set[Key] = set()
        todo = list(roots)
        while todo:
            key = todo.pop()
            if key in seen or self.in_row(key):
                continue
            seen.add(key)
            node = self.nest.nodes.get(key)
            todo.extend(node.operands if node is not None else [])
        return seen

    def partials(self) -> tuple[list[tuple[str, int]], int]:
        """Of a split nest: type and byte offset in scratch of every accumulator part, and the bytes of all."""
        out, offset = [], 0
        for r in self.reductions(0):
            for part in flatten([r.reducer.neutral()]):
                out.append((part.type, offset))
                size = max(1, bits(part.type) // 8) * self.schedule.units * self.nest.rows
                offset += -(-size // 64) * 64
        return out, offset
