"""Products whose matrix is read as the segments of a concatenation (see `fuse/segments.py`): one call per segment, in
order.

    C[m, n0:n1] = A[m, k] @ B1[k, n1 - n0]             a segment has some of the columns
    C[m, n]    += A[m, k0:k1] @ B1[k1 - k0, n]         a segment has some steps of k; the sums continue with them

Columns have the same bits as in the product with the whole matrix. So do sums that continue step by step, which are
those of a matrix that is read along its columns (`axpy` in `vector.py`). Tiles, and rows whose sums are folded, add up
the steps of a segment separately, as tiles do with those of a block of k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep, SegmentsStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.gemm.gemm import GemmStrategy, GemmTypes, gemm_routine, gemm_symbol, scratch_bytes
from shlo_jit.kernels.gemm.known_sizes import Layout
from shlo_jit.kernels.gemm.precision import gemm_plan
from shlo_jit.kernels.gemm.strategy import strategy_of_any
from shlo_jit.kernels.target import Target
from shlo_jit.ops.runs import Roles, roles_of, run_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.epilogue import WithEpilogue, schedule_epilogue
from shlo_jit.schedule.product_layout import Placed, gemm_types
from shlo_jit.schedule.scratch import Scratch


class Part(NamedTuple):
    """The matrix of a product, or a segment of it."""

    value: Value
    n0: int
    k0: int
    """Its first column, and its first step of k."""
    n: int
    k: int
    row: int
    column: int
    """Strides in elements along k and n."""


def parts_of(step: OpStep, matrix: Value, contracting: tuple[int, ...], free: tuple[int, ...]) -> tuple[Part, ...]:
    """Returns the parts in which an operand of a product is read. `contracting` and `free` are its dimensions along k
    and n."""
    shape = matrix.tensor.extents
    runs = run_of(shape, contracting), run_of(shape, free)
    k, n = (math.prod(shape[d] for d in dims) for dims in (contracting, free))
    strides = [run.stride for run in runs if run is not None]
    assert len(strides) == 2, "dimensions of a canonical product that form no run"
    if not isinstance(step, SegmentsStep) or step.segments.whole is not matrix:
        return (Part(matrix, 0, 0, n, k, *strides),)
    found, dimension, start = [], step.segments.dimension, 0
    for value in step.segments.parts:
        extents = value.tensor.extents
        length = extents[dimension]
        if dimension in free:
            (other,) = (run.stride for run in [run_of(extents, contracting)] if run is not None)
            each = n // shape[dimension]
            found.append(Part(value, start * each, 0, length * each, k, other, strides[1]))
        else:
            (other,) = (run.stride for run in [run_of(extents, free)] if run is not None)
            each = k // shape[dimension]
            found.append(Part(value, 0, start * each, n, length * each, strides[0], other))
        start += length
    return tuple(found)


def way_of_parts(types: GemmTypes, target: Target, m: int, n: int, k: int, layout: Layout) -> GemmStrategy:
    """The algorithm for multiplying a few rows with each part: the same as with the whole matrix, so that the sums have
    the same bits. More rows are never multiplied with segments, so the call decides."""
    return strategy_of_any(gemm_plan(types, target), m, n, k, layout) if m <= tuning.SEGMENT_ROWS else GemmStrategy.ANY


@dataclass(frozen=True, kw_only=True)
class SegmentsSchedule(WithEpilogue):
    """Schedule of such a product. A is the vector and B the matrix, whichever comes first."""

    types: GemmTypes
    a: Value
    a_batch: tuple[int, ...]
    b_batch: tuple[int, ...]
    """Batch dimensions of both operands."""
    looped: int
    """Leading batch dimensions that are looped over, with one call per index and part."""
    batch: int
    """Products of one call."""
    m: int
    n: int
    a_strides: tuple[int, int, int]
    """Strides along m, k and the batch of a call."""
    parts: tuple[Part, ...]
    b_strides: tuple[int, ...]
    """For each part, the stride along that batch."""
    way: GemmStrategy

    @property
    def notes(self) -> list[Note]:
        size = f"{self.batch} x " if self.batch > 1 else ""
        k = max(part.k0 + part.k for part in self.parts)
        sizes = ", ".join(f"{p.k} x {p.n}" for p in self.parts)
        return [
            Note("product", f"{size}{self.m} x {self.n} x {k} by {gemm_symbol(self.types, self.way)}"),
            Note(
                "segments",
                f"{len(self.parts)}: {sizes}",
                Reason("skinny-concatenation", "few rows are multiplied by the concatenation"),
            ),
            *(self.epilogue.notes if self.epilogue else []),
        ]


def schedule_segments(step: SegmentsStep, context: Context) -> SegmentsSchedule:
    op, target = step.op, context.target
    r, types = roles_of(op), gemm_types(op)
    a, b = op.operands
    if a is step.segments.whole:  # one column: the transpose of a row
        a, b, types = b, a, GemmTypes(types.b, types.a, types.acc)
        r = Roles(r.rhs_batch, r.lhs_batch, r.rhs_contracting, r.lhs_contracting, r.rhs_free, r.lhs_free)
    parts = parts_of(step, b, r.rhs_contracting, r.rhs_free)
    shape = a.tensor.extents
    values = [(a, r.lhs_batch), *((part.value, r.rhs_batch) for part in parts)]
    looped = next(o for o in range(len(r.lhs_batch) + 1) if all(run_of(v.tensor.extents, d[o:]) for v, d in values))
    runs = [run_of(v.tensor.extents, dims[looped:]) for v, dims in values]
    rows, along = run_of(shape, r.lhs_free), run_of(shape, r.lhs_contracting)
    assert rows is not None and along is not None, "dimensions of a canonical product that form no run"
    a_bs, *b_bs = (run.stride for run in runs if run is not None)
    batch, m = (math.prod(shape[d] for d in dims) for dims in (r.lhs_batch[looped:], r.lhs_free))
    n, k = (max(p.n0 + p.n for p in parts), max(p.k0 + p.k for p in parts))
    layout = Layout(rows.stride, along.stride, a_bs, parts[0].row, parts[0].column, b_bs[0])
    way = way_of_parts(types, target, m, n, k, layout)
    return SegmentsSchedule(
        types=types,
        a=a,
        a_batch=r.lhs_batch,
        b_batch=r.rhs_batch,
        looped=looped,
        batch=batch,
        m=m,
        n=n,
        a_strides=(rows.stride, along.stride, a_bs),
        parts=parts,
        b_strides=tuple(b_bs),
        way=way,
        epilogue=schedule_epilogue(
            step, target, Placed.dense(batch, m, n), Reason("several-calls", "the product is several calls")
        ),
        scratch=Scratch.of(lambda threads: scratch_bytes(types, target, batch, m, n, k, threads)),
        routines=(gemm_routine(types.a, types.b, types.acc, target, way),),
    )
