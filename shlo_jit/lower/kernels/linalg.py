"""cholesky and triangular_solve by the routines of `kernels/substitution.py`, in the form `passes/linalg.py` gives them.

Both work in place: the result starts as a copy of the operand. Cost of each: n^2 / 2 multiply-adds a column.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.builder import Builder, V, i64
from shlo_jit.kernels.substitution import (
    SOLVE,
    UNIT,
    cholesky_routine,
    solve_routine,
    strip_columns,
    symbol,
)
from shlo_jit.lower.kernels import Kernel
from shlo_jit.lower.kernels.units import run_units

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering

PARALLEL_MATRIX = 256
"""Order from which on threads work on one matrix rather than on several."""


def cholesky(low: ProgramLowering, step: OpStep) -> None:
    op = step.op
    t = op.result.tensor
    *batch, _, n = t.extents
    if t.size == 0:
        return
    dtype = t.storage.name
    low.use(cholesky_routine(dtype, low.target))
    bytes_, name = n * n * t.storage.itemsize, symbol("cholesky", dtype)
    count = math.prod(batch)
    pointers = [low.pointer(op.operands[0]), low.pointer(op.result)]

    def factor(b: Builder, a: V, u: V, i: V, threads: V) -> None:
        source, target = (b.offset(p, b.mul(i, bytes_)) for p in (a, u))
        b.memcpy(target, source, bytes_)
        b.call("void", name, [target, i64(n), threads])

    if count == 1 or n >= PARALLEL_MATRIX:
        with low.b.loop(0, count, 1, "matrix") as i:
            factor(low.b, *pointers, i, low.thread_count)
        return

    def write(b: Builder, ps: list[V], first: V, last: V) -> None:
        with b.loop(first, last, 1, "matrix") as i:
            factor(b, *ps, i, i64(1))

    run_units(low, "cholesky", pointers, write, count, count * n * n * n // 6 // 8 + count * n)


def triangular_solve(low: ProgramLowering, step: OpStep) -> None:
    op = step.op
    *batch, n, m = op.result.tensor.extents
    if op.result.tensor.size == 0:
        return
    dtype, size = op.result.tensor.storage.name, op.result.tensor.storage.itemsize
    low.use(solve_routine(dtype, low.target))
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


CHOLESKY = Kernel(cholesky)
TRIANGULAR_SOLVE = Kernel(triangular_solve)
