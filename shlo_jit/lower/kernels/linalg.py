"""Lowers cholesky and triangular_solve to the routines of `kernels/substitution.py`, as `schedule/linalg.py` has
decided."""

from __future__ import annotations

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.units import run_units
from shlo_jit.lower.scratch import worker_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.linalg import CholeskySchedule, SolveSchedule


def cholesky(low: Services, step: OpStep, schedule: CholeskySchedule) -> None:
    op, count, tasks = step.op, schedule.count, schedule.tasks
    pointers = [low.pointer(op.operands[0]), low.pointer(op.result), low.scratch(step)]

    def factor(b: Builder, a: V, u: V, scratch: V, i: V, threads: V) -> None:
        source, target = (b.offset(p, b.mul(i, schedule.nbytes)) for p in (a, u))
        b.memcpy(target, source, schedule.nbytes)
        b.call("void", schedule.symbol, [target, i64(schedule.n), scratch, threads])

    if schedule.cooperative.value:
        a, u, scratch = pointers
        with low.b.loop(0, count, 1, "matrix") as i:
            factor(low.b, a, u, scratch, i, low.thread_count)
        return
    task = low.new_name("cholesky")
    b = low.task(task, 3)
    frame, index, worker = b.params
    a, u, scratch = (b.load("ptr", b.element(frame, "ptr", k)) for k in range(3))
    first = b.mul(index, tasks.grain)
    with b.loop(first, b.min_(b.add(first, tasks.grain), count), 1, "matrix") as i:
        factor(b, a, u, worker_fields(b, schedule.scratch, scratch, worker)["work"], i, i64(1))
    b.ret()
    low.run_tasks(low.share("cholesky", task), pointers, tasks)


def triangular_solve(low: Services, step: OpStep, schedule: SolveSchedule) -> None:
    op, s = step.op, schedule
    n, m, size = s.n, s.m, op.result.tensor.storage.itemsize

    def write(b: Builder, pointers: list[V], first: V, last: V) -> None:
        a, right, x = pointers
        with b.loop(first, last, 1, "strip") as unit:
            matrix, column = b.udiv(unit, s.strips), b.mul(b.urem(unit, s.strips), s.width)
            columns = b.min_(b.sub(i64(m), column), s.width)
            at = b.add(b.mul(matrix, n * m), column)
            with b.loop(0, n, 1, "row") as i:
                where = b.mul(b.add(at, b.mul(i, m)), size)
                b.memcpy(b.offset(x, where), b.offset(right, where), b.mul(columns, size))
            a_at = b.offset(a, b.mul(b.add(b.mul(matrix, n * n), s.a_start), size))
            x_at = b.offset(x, b.mul(b.add(at, s.x_start), size))
            args = [a_at, i64(s.a_row), i64(s.a_col), x_at, i64(s.x_row), i64(0), i64(n), columns]
            b.call("void", s.symbol, args)

    pointers = [low.pointer(v) for v in (*op.operands, op.result)]
    run_units(low, "triangular_solve", pointers, write, s.tasks)
