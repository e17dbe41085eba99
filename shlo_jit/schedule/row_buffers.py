"""Buffers of row blocks: where a worker keeps the rows of a block of each value between stages.

A nest on buffers addresses them by the number of the row among all rows, like a value in memory: the address that it
is given is that of row 0, even if only the rows of the block are in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shlo_jit.fuse.nest import Key, Nest, Node, Store
from shlo_jit.fuse.plan import NestStep, RowBlocksStep
from shlo_jit.fuse.row_places import Rows, column_variables, leading_store, place_of, rows_of, shared_widths, width_of
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At
from shlo_jit.ir.types import tensor
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.moves import Move
from shlo_jit.schedule.nest import NestSchedule, schedule_nest
from shlo_jit.schedule.scratch import ALIGN, Field
from shlo_jit.schedule.space import Part, Tile
from shlo_jit.schedule.tasks import Tasks


@dataclass(frozen=True)
class Buffers:
    """The buffers of a step's values."""

    step: RowBlocksStep
    block: int
    rows: Mapping[Value, Value]
    """For each value inside, a value of the buffer's layout: all rows, with the row stride of the buffer."""

    def of(self, value: Value) -> Value | None:
        """The buffer of a value, or of the value whose memory it is."""
        return self.rows.get(self.step.source(value))

    def stride(self, value: Value) -> int:
        """Elements from one row of a value's buffer to the next."""
        return self.rows[self.step.source(value)].tensor.extents[1]

    def nbytes(self, value: Value) -> int:
        """Bytes of the buffer of a value."""
        return self.block * self.stride(value) * value.tensor.storage.itemsize


def make_buffers(step: RowBlocksStep, block: int) -> Buffers:
    """Returns the buffers of the values inside a step, for blocks of so many rows."""
    units = step.batch * step.rows
    found = {v: _buffer(v, units, widths_of(step)[v], block, bool(step.sums)) for v in step.inside}
    return Buffers(step, block, found)


def widths_of(step: RowBlocksStep) -> dict[Value, int]:
    """Returns the elements in a row of each value inside a step."""
    widths = {v: width_of(v, step.batch * step.rows) for v in step.inside}
    return {v: width for v, width in widths.items() if width is not None}


def _buffer(value: Value, units: int, n: int, block: int, by_columns: bool) -> Value:
    """A buffer for rows of n elements, each row in separate cache lines. A load has to wait for a masked store that it
    overlaps, even if only lanes overlap that are not stored. Rows that are a multiple of half a page apart fall into
    few sets of the first level cache, so the row stride avoids that."""
    item = value.tensor.storage.itemsize
    line = ALIGN // item
    width = -(-n // line) * line
    width += line if block > 1 and width * item % (2 * ALIGN if by_columns else 2048) == 0 else 0
    return Value(tensor((units, width), value.tensor.dtype), None, 0, value.name)


def schedule_stage(
    part: NestStep, buffers: Buffers, target: Target, *, of_part: bool = False, moves: Sequence[Move] | None = None
) -> NestSchedule:
    """Returns the schedule of a loop on a block of rows: a row program takes the rows as its units, a loop without
    reductions takes the block as a rectangle. `of_part`: the caller passes only a part of the rows at a time. `moves`:
    those that decide instead. Raises IllegalMove."""
    step, nest = buffers.step, part.nest
    units = step.batch * step.rows
    rows = _rows(nest, step, units)
    nest, cached = _on_buffers(nest, buffers), frozenset(buffers.rows.values())
    if not nest.reduce_vars:
        tile = Tile((), rows.variables, column_variables(nest, rows))
        return schedule_nest(nest, target, part=Part(tile, None, cached), moves=moves)
    lead = leading_store(nest, rows.variables)
    assert lead is not None, "a row program that writes rows in another order"
    nest = replace(nest, stores=[nest.stores[lead], *nest.stores[:lead], *nest.stores[lead + 1 :]])
    blocks = max(step.batch * -(-step.rows // buffers.block), 2 if of_part else 1)
    tasks = Tasks(units, blocks, each=buffers.block)
    return schedule_nest(nest, target, part=Part(None, tasks, cached), moves=moves)


def _rows(nest: Nest, step: RowBlocksStep, units: int) -> Rows:
    """How a nest of the step numbers the rows."""
    widths = shared_widths(nest, step.stages, step.source, units)
    found = rows_of(nest, {v: width for v, width in widths.items() if width is not None}, units)
    assert isinstance(found, Rows), "a stage whose rows are not those of the others"
    return found


def _on_buffers(nest: Nest, buffers: Buffers) -> Nest:
    """The nest with the buffers in place of the values inside the step."""
    units = buffers.step.batch * buffers.step.rows

    def place(value: Value, index: At) -> At:
        width = width_of(value, units)
        assert width is not None
        found = place_of(index.index, value, width, nest.extents)
        assert found is not None, "an index that spans rows and columns"
        return At((found.row, found.column), index.conditions)

    moved: dict[Key, Key] = {}
    for value, at in nest.loads:
        buffer = buffers.of(value)
        if buffer is not None:
            moved[value, at] = (buffer, place(value, at))
    nodes = {key: Node(node.op, [moved.get(o, o) for o in node.operands]) for key, node in nest.nodes.items()}
    loads = dict.fromkeys(moved.get(key, key) for key in nest.loads)
    stores = []
    for s in nest.stores:
        value, at = moved.get((s.value, s.at), (s.value, s.at))
        buffer = buffers.of(s.target)
        target, index = (s.target, s.index) if buffer is None else (buffer, place(s.target, At(s.index)).index)
        stores.append(Store(value, at, target, index))
    return replace(nest, nodes=nodes, loads=loads, stores=stores)


# ---------------------------------------------------------------------- which buffers share memory
def assign_fields(buffers: Buffers, nests: Mapping[int, NestSchedule]) -> tuple[dict[Value, str], list[Field]]:
    """Returns the field of each value inside the step, and the fields. A stage writes into the memory of a value that
    no later stage reads; a loop also into that of a value that it reads last itself, where its elements are read before
    they are overwritten. `nests`: the schedules of the loops, by the number of the stage."""
    step = buffers.step
    last = {v: i for i, s in enumerate(step.stages) for v in map(step.source, s.reads) if v in buffers.rows}
    homes: dict[Value, str] = {}
    sizes: dict[str, int] = {}
    holds: dict[str, Value] = {}
    for i, stage in enumerate(step.stages):
        made = [v for v in stage.writes if v in buffers.rows]
        free = {v: [f for f, old in holds.items() if _may_take(buffers, nests.get(i), i, v, old, last)] for v in made}
        for value in sorted(made, key=lambda v: len(free[v])):  # those with the fewest choices first
            field = next((f for f in free[value] if holds[f] not in made), f"rows {len(sizes)}")
            homes[value], holds[field] = field, value
            sizes[field] = buffers.nbytes(value)
    return homes, [Field(name, nbytes) for name, nbytes in sizes.items()]


def _may_take(
    buffers: Buffers, nest: NestSchedule | None, stage: int, value: Value, old: Value, last: Mapping[Value, int]
) -> bool:
    """Whether a value that a stage writes may take the memory of an older one."""
    if buffers.nbytes(value) != buffers.nbytes(old) or buffers.stride(value) != buffers.stride(old):
        return False
    if last[old] < stage:
        return True
    return last[old] == stage and nest is not None and _may_overwrite(nest, buffers.rows[old], buffers.rows[value])


def _may_overwrite(nest: NestSchedule, old: Value, new: Value) -> bool:
    """Whether a loop may write one buffer over another that it reads: no pass reads an element after the new one has
    been written there. Values that an earlier pass has stashed are not read again."""
    stores = [s for s in nest.nest.stores if s.target is new]
    reads = [key for key in nest.nest.loads if key[0] is old]
    if len(stores) != 1 or len(reads) != 1 or old.tensor.storage.itemsize != new.tensor.storage.itemsize:
        return False
    (store,), (read,) = stores, reads
    if read[1].index != store.index or read[1].conditions:
        return False
    if nest.tile is not None:
        return True
    passes, written = nest.passes, nest.passes.phase((store.value, store.at))
    needed = [set(passes.needed(passes.roots(p))) for p in range(passes.count + 1)]
    if read not in needed[written]:
        return False
    kept = {key for key in nest.stash if any(key in values for values in needed[: written + 1])}
    return not any(read in _needed_beside(nest, p, kept) for p in range(written + 1, passes.count + 1))


def _needed_beside(rows: NestSchedule, p: int, kept: set[Key]) -> set[Key]:
    """Values that a pass computes or reads, except those stashed by earlier passes."""
    seen: set[Key] = set()
    todo = [*rows.passes.roots(p)]
    while todo:
        key = todo.pop()
        if key not in seen and key not in kept and not rows.passes.in_row(key):
            seen.add(key)
            todo += rows.nest.nodes[key].operands if key in rows.nest.nodes else []
    return seen
