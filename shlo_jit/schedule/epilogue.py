"""How the loop that finishes a product runs: on the product's tiles, or after it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import NestStep, OpStep
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.nest import NestSchedule, schedule_nest
from shlo_jit.schedule.space import Tile
from shlo_jit.sizes import equal, surely


class Epilogue(NamedTuple):
    """The loop over a product's result. With a tile in its schedule it is called for every rectangle while that is in
    the cache; without, it is a kernel of its own after the product."""

    step: NestStep
    schedule: NestSchedule
    why_late: str = ""
    """Why it is not called for rectangles; empty where it is."""

    @property
    def is_late(self) -> bool:
        return bool(self.why_late)

    @property
    def notes(self) -> list[Note]:
        head = Note("epilogue", "after the product" if self.is_late else "on the product's tiles", self.why_late)
        return [head, *(Note(f"  {n.what}", n.value, n.why) for n in self.schedule.notes)]


def schedule_epilogue(
    step: OpStep, target: Target, batch: int, rows: int, columns: int, why_late: str = ""
) -> Epilogue | None:
    """Of a step whose product is numbered as `batch` matrices of `rows` x `columns`; None when it has none. `why_late`:
    what is known to be in the way of tiles."""
    if step.epilogue is None:
        return None
    nest = step.epilogue.nest
    tile = None if why_late else tile_of(nest, step.op.result, batch, rows, columns)
    if tile is None:
        why = why_late or "one of its loops spans rows and columns of the product"
        return Epilogue(step.epilogue, schedule_nest(nest, target), why)
    found = schedule_nest(nest, target, tile)
    return Epilogue(step.epilogue, replace(found, streams=_streams(step, found)))


def _streams(step: OpStep, schedule: NestSchedule) -> tuple[Value, ...]:
    """Concatenations of which it writes a part, and that are so large that what reads them finds nothing in the caches:
    the lines of the part need not be read before. Vectors begin where lines of the cache do."""
    nest, width, vector = schedule.nest, schedule.space.width, schedule.space.vector
    groups = step.op.int("feature_group_count", 1) * step.op.int("batch_group_count", 1)
    if groups > 1 or step.kind != step.op.name or vector is None or width > schedule.target.lanes(32):
        return ()
    found: list[Value] = []
    for s in nest.stores:
        offset = ix.linearize(s.index, s.target.tensor.extents)
        steps = [offset.const, *(c for v, c in offset.terms if v != vector)]
        whole = not offset.syms and all(equal(c % width, 0) for c in steps)
        is_part = s.value is not s.target and not any(k[0] is s.target for k in nest.loads)
        if is_part and whole and surely(lambda s=s: s.target.tensor.nbytes >= tuning.STREAM_BYTES):
            found.append(s.target)
    return tuple(found)


def tile_of(nest: Nest, product: Value, batch: int, m: int, n: int) -> Tile | None:
    """The nest's variables as batch, rows and columns of the product; None when one of them spans two parts."""
    ((_, at),) = [k for k in nest.loads if k[0] is product]
    offset = ix.linearize(at.index, product.tensor.extents)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for v, c in sorted(offset.terms, key=lambda t: -t[1]):
        extent = nest.extents[v]
        if not equal(batch, 1) and c >= m * n:
            parts[0].append(v)
        elif c >= n and c * extent <= m * n:
            parts[1].append(v)
        elif c < n and c * extent <= n:
            parts[2].append(v)
        else:
            return None
    return Tile(*map(tuple, parts))
