"""Schedules of cholesky and triangular_solve, as `canonical_linalg` has prepared them, by the routines of
`kernels/substitution.py`.

Both work in place: the result starts as a copy of the operand. Cost of each: n^2 / 2 multiply-adds per column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.substitution import (
    SOLVE,
    UNIT,
    cholesky_routine,
    cholesky_scratch,
    solve_routine,
    strip_columns,
    symbol,
)
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Choice, Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.scratch import Field, Scratch
from shlo_jit.schedule.tasks import Tasks, cut, enough_work, shared
from shlo_jit.sizes import at_most, equal, hint_of


@dataclass(frozen=True, kw_only=True)
class CholeskySchedule(KernelSchedule):
    """Schedule of a cholesky."""

    symbol: str
    """Name of the routine that factors one matrix."""
    count: int
    n: int
    """There are `count` matrices of n x n elements."""
    nbytes: int
    """Bytes per matrix."""
    cooperative: Choice[bool]
    """Whether all threads work on each matrix together, instead of on different matrices."""
    tasks: Tasks
    """The tasks of whole matrices, if threads work on different ones."""

    @property
    def notes(self) -> list[Note]:
        head = Note("matrices", f"{self.count} of {self.n} x {self.n} by {self.symbol}")
        if self.cooperative.value:
            return [head, Note("threads", "together on each matrix", self.cooperative.why)]
        return [head, Note("threads", "each on its own matrices", self.cooperative.why), self.tasks.note("matrix")]


@dataclass(frozen=True, kw_only=True)
class SolveSchedule(KernelSchedule):
    """Schedule of a triangular_solve. Lengths and strides are in elements."""

    symbol: str
    """Name of the routine that solves one matrix for a strip of right-hand sides."""
    n: int
    m: int
    """A is n x n, B and X are n x m."""
    a_start: int
    a_row: int
    a_col: int
    """Start of the elimination in A, and its strides: negative if it runs from the last row up."""
    x_start: int
    x_row: int
    width: int
    """Columns of a strip."""
    strips: int
    """Strips per matrix."""
    tasks: Tasks

    @property
    def notes(self) -> list[Note]:
        direction = "from the last row up" if self.x_row < 0 else "from the first row down"
        return [
            Note("matrices", f"{self.n} x {self.n}, {self.m} right-hand sides by {self.symbol}"),
            Note("strategy", direction),
            self.tasks.note(f"strip of {self.width} columns"),
        ]


def schedule_cholesky(step: OpStep, context: Context) -> KernelSchedule:
    """Schedules a cholesky. Scratch memory is that of one matrix for all threads, or of one matrix for each thread."""
    t = step.op.result.tensor
    if t.size == 0:
        return NOTHING
    *batch, _, n = t.extents
    dtype, count, target = t.storage.name, math.prod(batch), context.target
    cooperative = _cooperative(count, n)
    if cooperative.value:
        scratch = Scratch.of(lambda threads: cholesky_scratch(dtype, target, n, threads))
    else:
        scratch = Scratch(worker=(Field("work", cholesky_scratch(dtype, target, n, 1)),))
    return CholeskySchedule(
        symbol=symbol("cholesky", dtype),
        count=count,
        n=n,
        nbytes=n * n * t.storage.itemsize,
        cooperative=cooperative,
        tasks=_matrices_cut(count, n),
        scratch=scratch,
        routines=(cholesky_routine(dtype, target),),
    )


def _cooperative(count: int, n: int) -> Choice[bool]:
    if equal(count, 1):
        return Choice(True, Reason("one-matrix", "there is one matrix"))
    if hint_of(n) >= tuning.MATRIX_COOPERATIVE:
        return Choice(True, Reason("large-matrix", f"matrices of order {tuning.MATRIX_COOPERATIVE} or more"))
    return Choice(False, Reason("small-matrices", f"{count} matrices of order {n}, below {tuning.MATRIX_COOPERATIVE}"))


def _matrices_cut(count: int, n: int) -> Tasks:
    work = count * n * n * (n + 8) // 48
    most = work // tuning.TASK_WORK
    return shared(count, most, enough_work(work, most))


def schedule_triangular_solve(step: OpStep, context: Context) -> KernelSchedule:
    op, target = step.op, context.target
    if op.result.tensor.size == 0:
        return NOTHING
    *batch, n, m = op.result.tensor.extents
    dtype, count = op.result.tensor.storage.name, math.prod(batch)
    transposed = op.attributes["transpose_a"].value != "NO_TRANSPOSE"
    backward = bool(op.attributes["lower"]) == transposed
    a_row, a_col, x_row = (1, n, m) if transposed else (n, 1, m)
    width = at_most(m, strip_columns(dtype, target))
    strips, sign = -(-m // width), -1 if backward else 1
    return SolveSchedule(
        symbol=symbol(f"substitute{UNIT if op.attributes['unit_diagonal'] else SOLVE}", dtype),
        n=n,
        m=m,
        a_start=n * n - 1 if backward else 0,
        a_row=sign * a_row,
        a_col=sign * a_col,
        x_start=(n - 1) * m if backward else 0,
        x_row=sign * x_row,
        width=width,
        strips=strips,
        tasks=cut(strips * count, count * n * n * m // 16 + count * n * m),
        routines=(solve_routine(dtype, target),),
    )
