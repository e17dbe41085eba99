"""Schedule of an epilogue, the loop that finishes a product: on the product's tiles, or after the product."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest, is_wide
from shlo_jit.fuse.plan import NestStep, OpStep
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.kernels.target import Target
from shlo_jit.ops import OPS
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.kernel import Allowed, KernelSchedule
from shlo_jit.schedule.moves import ComputeAt, IllegalMove
from shlo_jit.schedule.nest import NestSchedule, schedule_nest
from shlo_jit.schedule.product_layout import Placed, ProductLayout
from shlo_jit.schedule.space import GIVEN, Tile
from shlo_jit.sizes import equal, surely


class Epilogue(NamedTuple):
    """The loop over a product's result. If its schedule has a tile, it is called for every rectangle while that is in
    the cache; otherwise it is a separate kernel after the product."""

    step: NestStep
    schedule: NestSchedule
    why_late: Reason | None = None
    """The reason that it is not called for rectangles; None if it is."""

    @property
    def is_late(self) -> bool:
        return self.why_late is not None

    @property
    def notes(self) -> list[Note]:
        head = Note("epilogue", "after the product" if self.is_late else "on the product's tiles", self.why_late)
        return [head, *(Note(f"  {n.what}", n.value, n.why) for n in self.schedule.notes)]

    def streaming_where(self, allowed: Allowed) -> Epilogue:
        """The epilogue without streaming stores to targets that are not allowed."""
        return self._replace(schedule=self.schedule.streaming_where(allowed))


@dataclass(frozen=True, kw_only=True)
class WithEpilogue(KernelSchedule):
    """Schedule of a step that a loop over its result may finish."""

    epilogue: Epilogue | None

    def streaming_where(self, allowed: Allowed) -> Self:
        return self if self.epilogue is None else replace(self, epilogue=self.epilogue.streaming_where(allowed))


def schedule_epilogue(step: OpStep, target: Target, result: Placed, why_late: Reason | None = None) -> Epilogue | None:
    """Returns the schedule of a step's epilogue, for a product with this result; None if the step has none. `why_late`:
    a known reason against running it on tiles."""
    if step.epilogue is None:
        return None
    nest = step.epilogue.nest
    tile = None if why_late is not None else tile_of(nest, step.op.result, result)
    if tile is None:
        why = why_late or Reason(
            "loop-spans-rows-and-columns", "one of its loops spans rows and columns of the product"
        )
        return Epilogue(step.epilogue, schedule_nest(nest, target), why)
    if _goes_across(nest, tile):
        late = schedule_nest(nest, target)
        if late.transposed_loads is not None or late.interleaved is not None or late.space.vector != tile.columns[-1]:
            return Epilogue(
                step.epilogue,
                late,
                Reason("writes-across-columns", "its results are not contiguous along the product's columns"),
            )
    found = schedule_nest(nest, target, tile)
    return Epilogue(step.epilogue, replace(found, streams=_streams(step, found)))


def late_reason(layout: ProductLayout) -> Reason | None:
    """The reason that no epilogue runs on the tiles of a product; None if one can."""
    return Reason("several-calls", "the product is several calls") if layout.looped else None


def finish(
    step: OpStep, target: Target, layout: ProductLayout, place: ComputeAt | None
) -> tuple[Epilogue | None, Written | None]:
    """Returns the epilogue of a product, or the place that the routine writes to instead. `place`: the move of a caller
    that decides between them. Raises IllegalMove."""
    why_late, at = late_reason(layout), None if place is None else place.at
    written = None if layout.looped or at in ("tile", "after") else written_by_product(step, layout.result)
    if written is not None:
        return None, written
    epilogue = schedule_epilogue(step, target, layout.result, why_late or (GIVEN if at == "after" else None))
    if place is not None and epilogue is None:
        raise IllegalMove(place, Reason("no-epilogue", "no loop finishes the product"))
    if place is not None and at == "inline":
        text = "its epilogue computes, or its rows are not a constant stride apart in their final place"
        raise IllegalMove(place, Reason("epilogue-not-inline", text))
    if place is not None and at == "tile" and epilogue is not None and epilogue.why_late is not None:
        raise IllegalMove(place, epilogue.why_late)
    return epilogue, None


def place_epilogue(step: OpStep, target: Target, result: Placed, place: ComputeAt | None) -> Epilogue | None:
    """Returns the epilogue of a kernel that does not write to other places. `place`: the move of a caller. Raises
    IllegalMove."""
    epilogue = schedule_epilogue(step, target, result, GIVEN if place is not None and place.at == "after" else None)
    if place is None:
        return epilogue
    if epilogue is None:
        raise IllegalMove(place, Reason("no-epilogue", "no loop finishes the convolution"))
    if place.at == "inline":
        raise IllegalMove(place, Reason("epilogue-not-inline", "a convolution is written to its own place"))
    if place.at == "tile" and epilogue.why_late is not None:
        raise IllegalMove(place, epilogue.why_late)
    return epilogue


def places_of_epilogue(step: OpStep, target: Target, layout: ProductLayout) -> list[str]:
    """Returns where the epilogue of a product can run, as words of `ComputeAt`; the most promising place first."""
    found = []
    for at in ("inline", "tile", "after"):
        try:
            finish(step, target, layout, ComputeAt("epilogue", at))
        except IllegalMove:
            continue
        found.append(at)
    return found


def move_of_epilogue(
    epilogue: Epilogue | None, written: Written | None, place: ComputeAt | None
) -> tuple[ComputeAt, ...]:
    """Returns the move that says where the epilogue runs; none if there is no epilogue. `place`: that of a caller."""
    if epilogue is None and written is None:
        return ()
    at, why = "tile", Reason("tile-in-cache", "a tile of the product is in the cache when it is complete")
    if written is not None:
        at, why = "inline", written.note.why
    elif epilogue is not None and epilogue.why_late is not None:
        at, why = "after", epilogue.why_late
    return (ComputeAt("epilogue", at, why=why if place is None else GIVEN),)


def _streams(step: OpStep, schedule: NestSchedule) -> tuple[Value, ...]:
    """Targets to write with streaming stores: large concatenations, if the epilogue writes one part of them. They are
    so large that a later reader finds nothing in the caches, and the lines of the part need not be read first. Vectors
    begin at cache lines."""
    nest, width, vector = schedule.nest, schedule.space.width, schedule.space.vector
    groups = step.op.int("feature_group_count", 1) * step.op.int("batch_group_count", 1)
    if groups > 1 or step.kind != step.op.name or vector is None or width > schedule.target.lanes(32):
        return ()
    if schedule.tile is None or len(schedule.tile.columns) > 1:  # tasks begin anywhere in the innermost
        return ()
    found: list[Value] = []
    least = schedule.target.bytes_of(tuning.STREAM_BYTES)
    for s in nest.stores:
        offset = ix.linearize(s.index, s.target.tensor.extents)
        steps = [offset.const, *(c for v, c in offset.terms if v != vector)]
        whole = not offset.syms and all(equal(c % width, 0) for c in steps)
        is_part = s.value is not s.target and not any(k[0] is s.target for k in nest.loads)
        if is_part and whole and surely(lambda s=s: s.target.tensor.nbytes >= least):
            found.append(s.target)
    return tuple(found)


class Written(NamedTuple):
    """The final place of a product whose epilogue only moves it, so that the routine can write there directly."""

    target: Value
    offset: int
    """Offset of the first element, in elements."""
    result: Placed

    @property
    def note(self) -> Note:
        return Note(
            "result",
            "written to its final place",
            Reason("epilogue-only-moves", "the loop that reads the product only moves it"),
        )


def written_by_product(step: OpStep, result: Placed) -> Written | None:
    """Returns the place that the routine may write the product to, in place of its epilogue. None unless rows and
    products have constant strides there."""
    if step.epilogue is None or not _only_moves(step.epilogue.nest):
        return None
    nest, product = step.epilogue.nest, step.op.result
    tile = tile_of(nest, product, result)
    ((_, at),), (store,) = nest.loads, nest.stores
    here = ix.linearize(at.index, product.tensor.extents)
    there = ix.linearize(store.index, store.target.tensor.extents)
    if tile is None or here.const or not all(isinstance(e, int) for e in nest.extents):
        return None
    strides: list[int] = []
    for part, unit in zip(tile, (result.matrix, result.row, 1), strict=True):
        found = {there.coefficient(v) * unit / here.coefficient(v) for v in part}
        if len(found) > 1:
            return None
        strides.append(int(found.pop()) if found else 0)
    if tile.columns and strides[2] != 1:
        return None
    return Written(store.target, there.const, result._replace(row=strides[1], matrix=strides[0]))


def _only_moves(nest: Nest) -> bool:
    """Whether a nest only copies what it reads to another place."""
    moves = all(len(n.operands) == 1 and OPS[n.op.name].index_map is not None for n in nest.nodes.values())
    if not moves or len(nest.stores) != 1 or len(nest.loads) != 1:
        return False
    places = [*nest.loads, *nest.nodes, (nest.stores[0].target, ix.At(nest.stores[0].index))]
    return not any(at.conditions or any(e.syms for e in at.index) for _, at in places)


def _goes_across(nest: Nest, tile: Tile) -> bool:
    """Whether none of the nest's stores is contiguous along the columns of the product. False for dynamic sizes."""
    if not all(isinstance(e, int) for e in nest.extents):
        return False
    wide = [v for v in tile.columns if is_wide(nest.extents[v])]
    places = [ix.linearize(s.index, s.target.tensor.extents) for s in nest.stores]
    return bool(wide) and not any(p.coefficient(wide[-1]) == 1 for p in places)


def tile_of(nest: Nest, product: Value, result: Placed) -> Tile | None:
    """Assigns the nest's variables to batch, rows and columns of the product; None if a variable spans two of them."""
    ((_, at),) = [k for k in nest.loads if k[0] is product]
    offset = ix.linearize(at.index, product.tensor.extents)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for v, c in sorted(offset.terms, key=lambda t: -t[1]):
        part = _part_of(c, nest.extents[v], result)
        if part is None:
            return None
        parts[part].append(v)
    return Tile(*map(tuple, parts))


def _part_of(c: int, extent: int, result: Placed) -> int | None:
    """The part of the product that a variable with this coefficient counts: products (0), rows (1) or columns (2)."""
    batch, m, n, row, matrix = result
    if not equal(batch, 1) and (c >= matrix if matrix >= row else matrix <= c < row and c * extent <= row):
        return 0
    if c >= row and c * extent <= m * row:
        return 1
    return 2 if c < n and c * extent <= n else None
