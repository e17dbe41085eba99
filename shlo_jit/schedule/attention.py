"""Attention by blocks of rows: two products and the row program between them (see `fuse/attention.py`).

A task has some rows of one batch, or several whole batches. For each block of its rows it computes the first product
into private memory and runs the row program there. It then multiplies the row program's results by the right operand
of the second product. The right operands that all blocks of a task share are packed once, before its first block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.attention import store_of
from shlo_jit.fuse.nest import Key, Nest, Node, Store
from shlo_jit.fuse.plan import Attention, OpStep
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At, Expr, strides_of
from shlo_jit.ir.types import tensor
from shlo_jit.kernels.gemm.gemm import GemmStrategy, GemmTypes, gemm_routine, scratch_bytes
from shlo_jit.kernels.gemm.panels import block_bytes, block_routine, panels_bytes, reads_in_place
from shlo_jit.kernels.gemm.policy import Layout
from shlo_jit.kernels.gemm.precision import gemm_plan
from shlo_jit.kernels.target import Target
from shlo_jit.ops.attention_rows import min_rows_per_task
from shlo_jit.ops.runs import extents_of, roles_of, run_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.epilogue import Epilogue, schedule_epilogue
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.nest import NestSchedule, schedule_nest
from shlo_jit.schedule.product_layout import Placed
from shlo_jit.schedule.products import gemm_types
from shlo_jit.schedule.schedule import Context
from shlo_jit.schedule.scratch import ALIGN, Field, Scratch
from shlo_jit.schedule.segments import Part, parts_of, way_of_parts
from shlo_jit.schedule.tasks import Tasks
from shlo_jit.sizes import Size, hint_of


class Matrices(NamedTuple):
    """Layout of the matrices of a product's operand. Strides are in elements."""

    row: int
    column: int
    batch: tuple[tuple[int, int], ...]
    """Extent and stride of every batch dimension."""


class Product(NamedTuple):
    """C[m, n] = A[m, k] @ B[k, n] for each batch."""

    types: GemmTypes
    n: int
    k: int
    a: Matrices
    b: Matrices
    parts: tuple[tuple[Part, Matrices], ...]
    """The parts that B is read as, if the products are skinny: all of it, or the segments of a concatenation."""
    way: GemmStrategy
    """The algorithm by which the routine multiplies them."""


@dataclass(frozen=True, kw_only=True)
class AttentionSchedule(KernelSchedule):
    """Schedule of an attention."""

    parts: Attention
    first: Product
    second: Product
    batch: int
    m: int
    scores: Value
    """A block of the first product: its rows, with a fixed stride."""
    weights: Value
    """The result of the row program on `scores`."""
    in_place: bool
    """Whether the weights overwrite the scores."""
    rows: NestSchedule
    """The row program on a block: the units of a call are the rows of the block."""
    block: int
    """Rows of a block."""
    packed: tuple[bool, bool]
    """Whether the right operand of each product is packed once for all blocks of a task; otherwise it is read in
    place."""
    few: bool
    """Whether there are so few rows that each batch runs as two plain products."""
    task_rows: int
    each: int
    """Batches per task, if a task has all rows of its batches."""
    tasks: Tasks
    epilogue: Epilogue | None

    @property
    def notes(self) -> list[Note]:
        def size(p: Product) -> str:
            return f"{self.m} x {p.n} x {p.k}"

        of = f"{count(self.each, 'product')}" if self.task_rows >= self.m else f"{self.task_rows} rows"
        right = ", ".join("packed once per task" if p else "read in place" for p in self.packed)
        right = "each batch is two plain products" if self.few else f"right operands: {right}"
        pieces = tuple(len(p.parts) for p in (self.first, self.second))
        read = f"{pieces[0]} of the first matrix, {pieces[1]} of the second"
        why = Reason(
            "block-bytes",
            f"a block of scores has about {self.rows.target.bytes_of(tuning.ATTENTION_BLOCK_BYTES):,} bytes",
        )
        return [
            Note("products", f"{self.batch} x {size(self.first)}, then {size(self.second)}"),
            Note("row blocks", f"{count(self.block, 'row')}; {right}", why),
            *(
                [
                    Note(
                        "segments",
                        read,
                        Reason("skinny-concatenation", "few rows are multiplied by the concatenations"),
                    )
                ]
                if max(pieces) > 1
                else []
            ),
            Note("weights", "overwrite the scores" if self.in_place else "in a separate buffer"),
            Note("tasks", f"{count(self.tasks.tasks, 'task')} of {of}", self.tasks.why),
            *(Note(f"  {n.what}", n.value, n.why) for n in self.rows.notes if n.what != "tasks"),
            *(self.epilogue.notes if self.epilogue is not None else []),
        ]


def schedule_attention(step: OpStep, context: Context) -> AttentionSchedule:
    target, op, parts = context.target, step.op, step.attention
    assert parts is not None
    batch, m, _, _ = extents_of(op)
    first, second = (product_of(s, m, target) for s in (parts.first, step))
    tile = gemm_plan(first.types, target).mr
    size = parts.first.op.result.tensor.storage.itemsize
    few = m <= tile
    packed = tuple(not reads_in_place(p.types, target, p.n, p.b.row, p.b.column) for p in (first, second))
    task_rows, each, tasks = _tasks(batch, m, tile, first.n, first.k + second.n)
    blocks = -(-task_rows // max(tile, target.bytes_of(tuning.ATTENTION_BLOCK_BYTES) // (first.n * size)))
    block = min(task_rows, even(task_rows, blocks, tile))
    rows, (scores,), (weights,) = schedule_rows(parts, batch, m, block, target)
    in_place = may_overwrite(rows, scores, weights)
    if few:
        panels, work = [0, 0], max(scratch_bytes(p.types, target, 1, m, p.n, p.k, 1) for p in (first, second))
    else:
        products = zip((first, second), packed, strict=True)
        panels = [panels_bytes(p.types, target, p.n, p.k) if is_packed else 0 for p, is_packed in products]
        work = max(block_bytes(p.types, target) for p in (first, second))
    sizes = [block * v.tensor.extents[1] * v.tensor.storage.itemsize for v in (scores, weights)]
    names = ("first panels", "second panels", "scores", "weights", "work")
    fields = [*panels, sizes[0], 0 if in_place else sizes[1], work]
    return AttentionSchedule(
        parts=parts,
        first=first,
        second=second,
        batch=batch,
        m=m,
        scores=scores,
        weights=weights,
        in_place=in_place,
        rows=rows,
        block=block,
        packed=(packed[0], packed[1]),
        few=few,
        task_rows=task_rows,
        each=each,
        tasks=tasks,
        epilogue=schedule_epilogue(step, target, Placed.dense(batch, m, second.n)),
        scratch=Scratch(worker=tuple(map(Field, names, fields))),
        routines=tuple(
            gemm_routine(p.types.a, p.types.b, p.types.acc, target, p.way) if few else block_routine(p.types, target)
            for p in {(p.types, p.way): p for p in (first, second)}.values()
        ),
    )


def product_of(step: OpStep, m: int, target: Target) -> Product:
    op, r = step.op, roles_of(step.op)
    lhs, rhs = op.operands
    _, _, n, k = extents_of(op)
    types = gemm_types(op)
    a = _matrices(lhs.tensor.extents, r.lhs_batch, r.lhs_free, r.lhs_contracting)
    b = _matrices(rhs.tensor.extents, r.rhs_batch, r.rhs_contracting, r.rhs_free)
    parts = [
        (part, Matrices(part.row, part.column, _batches(part.value.tensor.extents, r.rhs_batch)))
        for part in parts_of(step, rhs, r.rhs_contracting, r.rhs_free)
    ]
    way = way_of_parts(types, target, m, n, k, Layout(a.row, a.column, 0, b.row, b.column, 0))
    return Product(types, n, k, a, b, tuple(parts), way)


def _matrices(shape: tuple[int, ...], batch: tuple[int, ...], *dims: tuple[int, ...]) -> Matrices:
    row, column = (run_of(shape, d) for d in dims)
    assert row is not None and column is not None, "dimensions of a canonical product that form no run"
    return Matrices(row.stride, column.stride, _batches(shape, batch))


def _batches(shape: tuple[int, ...], batch: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    strides = strides_of(shape)
    return tuple((shape[d], strides[d]) for d in batch)


def even(rows: int, parts: int, tile: int) -> int:
    """Rows in each of about `parts` parts of equal size, a multiple of `tile`."""
    return -(-rows // (parts * tile)) * tile


def _tasks(batch: int, m: int, tile: int, n: int, features: int) -> tuple[int, int, Tasks]:
    """Returns the rows per task, the batches per task (if a task has all rows of its batches), and the tasks."""
    one = m * n * features
    serial = min(tuning.GEMM_SERIAL, m * tuning.PARALLEL_WORK)
    if not isinstance(batch, Size) and batch * one <= serial:
        return m, batch, Tasks(batch, 1, _serial(batch * one, serial))
    groups = max(1, min(-(-tuning.ATTENTION_TASKS // max(1, hint_of(batch))), m // min_rows_per_task(features)))
    rows = even(m, groups, tile)
    text = f"about {tuning.ATTENTION_TASKS} tasks, of at least {min_rows_per_task(features)} rows each"
    why = Reason("tasks-by-rows", text)
    if rows < m:
        tasks = batch * -(-m // rows)
        return rows, 1, Tasks(tasks, tasks, why, 1)
    each = max(1, serial // 4 // one)
    return m, each, Tasks(batch, -(-batch // each), why, each, batch * one if isinstance(batch, Size) else 0)


def _serial(work: int, serial: int) -> Reason:
    return Reason("too-little-work", f"{work:,} multiply-adds; the caller does up to {serial:,} alone")


def schedule_rows(
    parts: Attention, batch: int, m: int, block: int, target: Target
) -> tuple[NestSchedule, list[Value], list[Value]]:
    """Returns the row program on a block, with the buffers for the products it reads and those for its results."""
    nest, scores, weights = _on_blocks(parts, batch * m, block)
    rows = schedule_nest(nest, target, by_rows=True)
    rows = replace(
        rows,
        tasks=Tasks(batch * m, batch * -(-m // block), each=block),
        prefetches={key: n for key, n in rows.prefetches.items() if key[0] not in scores},
        origin=len(nest.extents) - 1,
    )
    return rows, scores, weights


def _on_blocks(parts: Attention, units: int, block: int) -> tuple[Nest, list[Value], list[Value]]:
    """Returns the row program on buffers that hold one block of rows, and those buffers. The first row of the block is
    the last variable of the nest."""
    nest, products = parts.rows.nest, [step.op.result for step in parts.firsts]
    (at,) = [at for v, at in nest.loads if v is products[0]]
    offset = ix.linearize(at.index, products[0].tensor.extents)
    n = nest.reduced
    origin = len(nest.extents)
    unit = Expr(0, (*((v, c // n) for v, c in offset.terms if c >= n), (origin, -1)))
    place = At((unit, Expr(0, tuple((v, c) for v, c in offset.terms if c < n))))
    by_columns = bool(parts.sums)
    scores, weights = ([_buffer(v, units, n, block, by_columns) for v in values] for values in (products, parts.inside))
    moved = {key: (scores[products.index(key[0])], place) for key in nest.loads if key[0] in products}
    nodes = {key: Node(node.op, [moved.get(o, o) for o in node.operands]) for key, node in nest.nodes.items()}
    loads = dict.fromkeys(moved.get(key, key) for key in nest.loads)
    stores = []
    for value, buffer in zip(parts.inside, weights, strict=True):
        store = store_of(nest, value)
        stores.append(Store(*moved.get((store.value, store.at), (store.value, store.at)), buffer, place.index))
    stores += [s for s in nest.stores if s.target not in parts.inside or s.target in parts.kept]
    return Nest([*nest.extents, 1], nest.reduce_vars, nodes, loads, stores), scores, weights


def _buffer(value: Value, units: int, n: int, block: int, by_columns: bool) -> Value:
    """A buffer for rows of n elements, each row in separate cache lines. A load has to wait for a masked store that it
    overlaps, even if only lanes overlap that are not stored. Rows that are a multiple of half a page apart fall into
    few sets of the first level cache, so the row stride avoids that."""
    item = value.tensor.storage.itemsize
    line = ALIGN // item
    width = -(-n // line) * line
    width += line if block > 1 and width * item % (2 * ALIGN if by_columns else 2048) == 0 else 0
    return Value(tensor((units, width), value.tensor.dtype), None, 0, value.name)


def may_overwrite(rows: NestSchedule, scores: Value, weights: Value) -> bool:
    """Whether the weights may overwrite the scores: no pass reads scores after weights have been written there. Values
    that an earlier pass has stashed are not read again."""
    (store,) = [s for s in rows.nest.stores if s.target is weights]
    if scores.tensor.storage.itemsize != weights.tensor.storage.itemsize:
        return False
    (read,) = [key for key in rows.nest.loads if key[0] is scores]
    passes, written = rows.passes, rows.passes.phase((store.value, store.at))
    needed = [set(passes.needed(passes.roots(p))) for p in range(passes.count + 1)]
    if read not in needed[written]:
        return False
    kept = {key for key in rows.stash if any(key in values for values in needed[: written + 1])}
    return not any(read in _needed_beside(rows, p, kept) for p in range(written + 1, passes.count + 1))


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
