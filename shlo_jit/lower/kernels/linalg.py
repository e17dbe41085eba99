"""cholesky and triangular_solve by the routines of `kernels/substitution.py`, as `canonical_linalg` has prepared them.

Both work in place: the result starts as a copy of the operand. Cost of each: n^2 / 2 multiply-adds a column.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.builder import Builder, V, const, i64
from shlo_jit.kernels.substitution import (
    SOLVE,
    UNIT,
    cholesky_routine,
    cholesky_scratch,
    solve_routine,
    strip_columns,
    symbol,
)
from shlo_jit.lower.kernels import Kernel
from shlo_jit.lower.kernels.units import MAX_TASKS, TASK_WORK, run_units
from shlo_jit.memory.scratch import Scratch

if TYPE_CHECKING:
    from shlo_jit.ir.core import Op
    from shlo_jit.kernels.routine import Routine
    from shlo_jit.kernels.target import Target
    from shlo_jit.lower.program import ProgramLowering

PARALLEL_MATRIX = 256
"""Order from which on threads work on one matrix rather than on several."""


def _on_one_matrix(count: int, n: int) -> bool:
    """Whether threads work together on each matrix, not on different ones."""
    return count == 1 or n >= PARALLEL_MATRIX


def scratch_of_cholesky(low: ProgramLowering, step: OpStep) -> Scratch:
    """Of one matrix for all threads, or of one matrix for each thread."""
    *batch, _, n = step.op.result.tensor.extents
    count, dtype = math.prod(batch), step.op.result.tensor.storage.name
    if count * n == 0:
        return Scratch()
    if _on_one_matrix(count, n):
        return Scratch.of(lambda threads: cholesky_scratch(dtype, low.target, n, threads))
    return Scratch(0, _aligned(cholesky_scratch(dtype, low.target, n, 1)))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def cholesky_routines(op: Op, target: Target) -> list[Routine]:
    t = op.result.tensor
    return [cholesky_routine(t.storage.name, target)] if t.size else []


def solve_routines(op: Op, target: Target) -> list[Routine]:
    t = op.result.tensor
    return [solve_routine(t.storage.name, target)] if t.size else []


def cholesky(low: ProgramLowering, step: OpStep) -> None:
    op = step.op
    t = op.result.tensor
    *batch, _, n = t.extents
    if t.size == 0:
        return
    dtype = t.storage.name
    nbytes, name = n * n * t.storage.itemsize, symbol("cholesky", dtype)
    count = math.prod(batch)
    pointers = [low.pointer(op.operands[0]), low.pointer(op.result)]
    pointers.append(low.scratch(step) if id(step) in low.memory.scratch else const("ptr", 0))

    def factor(b: Builder, a: V, u: V, scratch: V, i: V, threads: V) -> None:
        source, target = (b.offset(p, b.mul(i, nbytes)) for p in (a, u))
        b.memcpy(target, source, nbytes)
        b.call("void", name, [target, i64(n), scratch, threads])

    if _on_one_matrix(count, n):
        a, u, scratch = pointers
        with low.b.loop(0, count, 1, "matrix") as i:
            factor(low.b, a, u, scratch, i, low.thread_count)
        return
    each = _aligned(cholesky_scratch(dtype, low.target, n, 1))
    tasks = max(1, min(MAX_TASKS, count, count * n * n * (n + 8) // 48 // TASK_WORK))
    grain = -(-count // tasks)
    task = low.new_name("cholesky")
    b = low.module.function(task, [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes="nounwind")
    frame, index, worker = b.params
    a, u, scratch = (b.load("ptr", b.element(frame, "ptr", k)) for k in range(3))
    first = b.mul(index, grain)
    with b.loop(first, b.min_(b.add(first, grain), count), 1, "matrix") as i:
        factor(b, a, u, b.offset(scratch, b.mul(worker, each)), i, i64(1))
    b.ret()
    low.parallel(low.share("cholesky", task), pointers, -(-count // grain))


def triangular_solve(low: ProgramLowering, step: OpStep) -> None:
    op = step.op
    *batch, n, m = op.result.tensor.extents
    if op.result.tensor.size == 0:
        return
    dtype, size = op.result.tensor.storage.name, op.result.tensor.storage.itemsize
    name = symbol(f"substitute{UNIT if op.attributes['unit_diagonal'] else SOLVE}", dtype)
    transposed = op.attributes["transpose_a"].value != "NO_TRANSPOSE"
    backward = bool(op.attributes["lower"]) == transposed
    a_row, a_col, x_row = (1, n, m) if transposed else (n, 1, m)
    a_start, x_start = 0, 0
    if backward:  # from the last row up: strides turn round
        a_start, x_start = n * n - 1, (n - 1) * m
        a_row, a_col, x_row = -a_row, -a_col, -x_row
    width = min(m, strip_columns(dtype, low.target))
    strips, count = -(-m // width), math.prod(batch)

    def write(b: Builder, pointers: list[V], first: V, last: V) -> None:
        a, right, x = pointers
        with b.loop(first, last, 1, "strip") as unit:
            matrix, column = b.udiv(unit, strips), b.mul(b.urem(unit, strips), width)
            columns = b.min_(b.sub(i64(m), column), width)
            at = b.add(b.mul(matrix, n * m), column)
            with b.loop(0, n, 1, "row") as i:
                where = b.mul(b.add(at, b.mul(i, m)), size)
                b.memcpy(b.offset(x, where), b.offset(right, where), b.mul(columns, size))
            a_at = b.offset(a, b.mul(b.add(b.mul(matrix, n * n), a_start), size))
            x_at = b.offset(x, b.mul(b.add(at, x_start), size))
            args = [a_at, i64(a_row), i64(a_col), x_at, i64(x_row), i64(0), i64(n), columns]
            b.call("void", name, args)

    pointers = [low.pointer(v) for v in (*op.operands, op.result)]
    run_units(low, "triangular_solve", pointers, write, strips * count, count * n * n * m // 16 + count * n * m)


CHOLESKY = Kernel(cholesky, scratch_of_cholesky, cholesky_routines)
TRIANGULAR_SOLVE = Kernel(triangular_solve, routines=solve_routines)
