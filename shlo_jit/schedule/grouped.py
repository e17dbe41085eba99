"""Schedule of grouped products (see `ops/grouped.py`): each group calls the shared GEMM routine for its range of rows.

A task has some columns of a block of rows (or of the result of one group) and goes through the groups in order, so
that ranges may overlap. Tasks depend on shapes alone, although the work of each depends on the ranges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.plan import ComputedOperandStep, OpStep
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import strides_of
from shlo_jit.kernels.gemm.computed import BOX_TERMS
from shlo_jit.kernels.gemm.gemm import GemmStrategy, GemmTypes, gemm_routine, scratch_bytes
from shlo_jit.kernels.gemm.policy import PAIR_PANELS, has_skinny_path
from shlo_jit.kernels.gemm.precision import GemmPlan, gemm_plan, itemsize
from shlo_jit.kernels.target import Target
from shlo_jit.ops.grouped import Grouped, grouped_of
from shlo_jit.ops.runs import Run, run_of
from shlo_jit.reasons import Reason
from shlo_jit.schedule.boxes import Boxes, BoxSize, boxes_of
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.tasks import Tasks


class Strides(NamedTuple):
    """Elements from one index of a dimension to the next in the four arrays; 0 where an array lacks the dimension."""

    extent: int
    lhs: int
    rhs: int
    bounds: int
    result: int


@dataclass(frozen=True, kw_only=True)
class GroupedSchedule(KernelSchedule):
    """Schedule of a grouped product: for each index of the outer dimensions and each group, C[m, n] += A[m, k] B[k, n],
    with m in the group's range or, with `sums`, k."""

    types: GemmTypes
    sums: bool
    outer: tuple[Strides, ...]
    """Batch dimensions, and free dimensions of lhs besides the ragged one."""
    groups: Strides
    ragged: Strides
    m: int
    n: int
    k: int
    a: tuple[int, int]
    """Strides of A's rows and columns."""
    b: tuple[int, int]
    c: int
    """Stride of C's rows."""
    rows: int
    """Rows of the result that a task computes."""
    columns: int
    """Columns of the result that a task computes."""
    skinny: bool
    """Whether groups with few rows take the routine for skinny products."""
    boxes: Boxes | None
    """How the matrices are computed; None if they are in memory. Strides of rhs are numbers of matrices then."""
    tasks: Tasks

    @property
    def row_blocks(self) -> int:
        return -(-self.m // self.rows)

    @property
    def column_blocks(self) -> int:
        return -(-self.n // self.columns)

    @property
    def notes(self) -> list[Note]:
        what = "terms" if self.sums else "rows"
        how = "as the rows of a group need"
        if self.skinny:
            how = f"read in place for up to {tuning.GEMM_SKINNY_ROWS} rows"
        if self.boxes is not None:
            how = f"computed for groups with rows, {self.boxes.terms} terms of {self.columns} columns at a time"
        why = Reason("grouped-ranges", f"groups are ranges of {what}, which are known when the step runs")
        return [
            Note("groups", f"{self.groups.extent} of {self.ragged.extent} {what} in all", why),
            Note("B", how),
            self.tasks.note(f"block of {self.rows} x {self.columns}"),
        ]


def schedule_grouped(step: OpStep, context: Context, computed: ComputedOperandStep | None = None) -> KernelSchedule:
    """Returns the schedule of a grouped product. `computed`: its step with the loop that computes the matrices."""
    op, g = step.op, grouped_of(step.op)
    assert g is not None
    if op.result.tensor.size == 0:
        return NOTHING
    types = GemmTypes(*(v.tensor.storage.name for v in (*op.operands[:2], op.result)))
    plan = gemm_plan(types, context.target)
    dims = _Dims(op, g, is_computed=computed is not None)
    columns = _columns(plan, dims.n, dims.k)
    rows = min(dims.m, tuning.GROUPED_ROWS)
    units = -(-dims.n // columns) * -(-dims.m // rows) * math.prod(s.extent for s in dims.outer)
    units *= dims.groups.extent if g.sums else 1
    boxes = None if computed is None else _boxes(computed, context.target, columns, dims.k, itemsize(types.b))
    b, least = (dims.b, dims.k) if boxes is None else (boxes.strides, dims.k % boxes.terms or boxes.terms)
    skinny = not g.sums and b[1] == 1 and _is_skinny(plan, columns, least)
    ways = (GemmStrategy.ANY, *((GemmStrategy.FEW,) if skinny else ()))
    fields = [] if boxes is None else [Field("box", boxes.box.tensor.nbytes)]
    work = scratch_bytes(types, context.target, 1, rows, columns, max(1, dims.k), 1)
    why = Reason("shape-alone", "the ranges are not known before, and change neither the tasks nor the order of sums")
    return GroupedSchedule(
        types=types,
        sums=g.sums,
        outer=dims.outer,
        groups=dims.groups,
        ragged=dims.ragged,
        m=dims.m,
        n=dims.n,
        k=dims.k,
        a=dims.a,
        b=b,
        c=dims.c,
        rows=rows,
        columns=columns,
        skinny=skinny,
        boxes=boxes,
        tasks=Tasks(units, units, why),
        scratch=Scratch(worker=(Field("work", work), *fields)),
        routines=tuple(gemm_routine(types.a, types.b, types.acc, context.target, way) for way in ways),
    )


def _columns(plan: GemmPlan, n: int, k: int) -> int:
    """Columns of a task: long runs of B's rows, about GEMM_TASKS tasks, and so much of each matrix that the routine
    multiplies it by few rows without packing it."""
    width = plan.nr * PAIR_PANELS
    least = -(-n // tuning.GEMM_TASKS)
    if not has_skinny_path(plan):
        least = max(least, -(-tuning.GEMM_THIN_BYTES // (max(1, k) * itemsize(plan.types.b))))
    return min(n, -(-least // width) * width)


def _is_skinny(plan: GemmPlan, columns: int, terms: int) -> bool:
    """Whether the routine for few rows takes a matrix whose columns are contiguous."""
    return has_skinny_path(plan) and columns >= plan.nr * PAIR_PANELS and terms >= plan.lanes


def _boxes(step: ComputedOperandStep, target: Target, columns: int, k: int, size: int) -> Boxes:
    """Boxes with the columns of a task, and as many terms as the second-level cache keeps."""
    most = max(BOX_TERMS, tuning.GROUPED_BOX // (columns * size) // BOX_TERMS * BOX_TERMS)
    terms = min(-(-k // BOX_TERMS) * BOX_TERMS, most)
    # A box is as wide as a task, which begins anywhere.
    boxes = BoxSize(columns, terms, (columns, terms))
    return boxes_of(step.producer.nest, step.operand.parts, boxes, target)


class _Dims:
    """The strides of an op's dimensions, by what they are in the products of its groups."""

    def __init__(self, op: Op, g: Grouped, *, is_computed: bool):
        self.g = g
        lhs, rhs, starts, _ = op.operands
        self.shapes = [v.tensor.extents for v in (lhs, rhs, starts)]
        self.strides = [list(strides_of(shape)) for shape in self.shapes]
        self.places = self._places_in_result()
        self.result = strides_of(op.result.tensor.extents)
        free, columns = g.lhs_free(lhs.tensor.rank), g.rhs_free(rhs.tensor.rank)
        n = self._run(1, columns)
        k = (self._run(0, g.lhs_sum), self._run(1, g.rhs_sum))
        self.n, self.k = n.extent, k[0].extent
        self.ragged = self._of_lhs(g.ragged)
        if g.sums:
            m = self._run(0, free)
            self.m, self.a, self.c = m.extent, (m.stride, k[0].stride), n.extent
            others: Sequence[int] = g.lhs_batch
        else:
            self.m, self.a, self.c = self.ragged.extent, (self.ragged.lhs, k[0].stride), self.ragged.result
            others = [*g.lhs_batch, *(d for d in free if d != g.ragged)]
        self.b = (k[1].stride, n.stride)
        if is_computed:
            self._number_matrices()
        self.outer = tuple(self._of_lhs(d) for d in others)
        groups = self.shapes[2][-1]
        self.groups = Strides(groups, 0, 0 if g.group is None else self.strides[1][g.group], 1, self.result[0])
        if not g.sums:
            self.groups = self.groups._replace(result=0)

    def _number_matrices(self) -> None:
        """Replaces strides of the matrices by the numbers of matrices, groups first."""
        assert self.g.group is not None
        order = (self.g.group, *self.g.rhs_batch)
        numbers = strides_of(tuple(self.shapes[1][d] for d in order))
        for d, number in zip(order, numbers, strict=True):
            self.strides[1][d] = number

    def _places_in_result(self) -> dict[int, int]:
        """Result's dimension of each dimension of lhs that it has."""
        kept = (*self.g.lhs_batch, *self.g.lhs_free(len(self.shapes[0])))
        return {d: i + int(self.g.sums) for i, d in enumerate(kept)}

    def _run(self, side: int, dims: tuple[int, ...]) -> Run:
        found = run_of(self.shapes[side], dims)
        assert found is not None, "dimensions of a grouped product that form no run"
        return found

    def _of_lhs(self, d: int) -> Strides:
        """The strides of a dimension of lhs."""
        g = self.g
        rhs = 0
        for left, right in ((g.lhs_batch, g.rhs_batch), (g.lhs_sum, g.rhs_sum)):
            rhs = self.strides[1][right[left.index(d)]] if d in left else rhs
        bounds = self.strides[2][g.prefix.index(d)] if d in g.prefix else 0
        result = self.result[self.places[d]] if d in self.places else 0
        return Strides(self.shapes[0][d], self.strides[0][d], rhs, bounds, result)
