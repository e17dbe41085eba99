"""Lowers grouped products to calls of the shared GEMM routine, as `schedule/grouped.py` has decided."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.gemm import GemmStrategy, gemm_symbol
from shlo_jit.kernels.gemm.precision import itemsize
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.epilogue import NULL
from shlo_jit.lower.scratch import worker_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.grouped import GroupedSchedule, Strides


def lower(low: Services, step: OpStep, schedule: GroupedSchedule) -> None:
    """Writes the task, and runs the tasks."""
    name = low.new_name(step.title)
    pointers = [low.scratch(step), *map(low.pointer, step.op.operands), low.pointer(step.op.result)]
    _Task(low.task(name, len(pointers)), schedule).write(len(pointers))
    low.run_tasks(low.share(step.title, name), pointers, schedule.tasks)


class Arrays(NamedTuple):
    """Addresses in lhs, rhs, starts, ends and the result."""

    lhs: V
    rhs: V
    starts: V
    ends: V
    result: V


class _Task:
    """Writes `void task(ptr frame, i64 index, i64 worker)`: a block of rows and columns of the result."""

    def __init__(self, b: Builder, s: GroupedSchedule):
        self.b, self.s = b, s
        self.size_a, self.size_b, self.size_c = (itemsize(t) for t in (s.types.a, s.types.b, s.types.acc))

    def write(self, count: int) -> None:
        b, s = self.b, self.s
        frame, index, worker = b.params
        scratch, *found = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(count))
        self.work = worker_fields(b, s.scratch, scratch, worker)["work"]
        at = Arrays(*found)
        columns, index = b.urem(index, s.column_blocks), b.udiv(index, s.column_blocks)
        rows, index = b.urem(index, s.row_blocks), b.udiv(index, s.row_blocks)
        group = index
        if s.sums:
            group, index = b.urem(index, s.groups.extent), b.udiv(index, s.groups.extent)
        for dim in reversed(s.outer):
            at, index = self.moved(at, dim, b.urem(index, dim.extent)), b.udiv(index, dim.extent)
        r0, j0 = b.mul(rows, s.rows), b.mul(columns, s.columns)
        r1, j1 = b.min_(b.add(r0, s.rows), s.m), b.min_(b.add(j0, s.columns), s.n)
        right, out = b.mul(j0, s.b[1] * self.size_b), b.mul(j0, self.size_c)
        at = at._replace(rhs=b.offset(at.rhs, right), result=b.offset(at.result, out))
        width = b.sub(j1, j0)
        if s.sums:
            at = self.moved(at, s.groups, group)
            self.clear(at.result, (r0, r1), width)
            self.sum(at, (r0, r1), width)
        else:
            self.clear(at.result, (r0, r1), width)
            with b.loop(0, s.groups.extent, 1, "group") as i:
                self.rows(self.moved(at, s.groups, i), (r0, r1), width)
        b.ret()

    def moved(self, at: Arrays, by: Strides, index: V) -> Arrays:
        """The addresses at an index of a dimension."""
        b = self.b
        steps = (by.lhs * self.size_a, by.rhs * self.size_b, by.bounds * 8, by.bounds * 8, by.result * self.size_c)
        return Arrays(*(b.offset(p, b.mul(index, step)) if step else p for p, step in zip(at, steps, strict=True)))

    def clear(self, result: V, rows: tuple[V, V], width: V) -> None:
        """Sets the columns of some rows to zero: groups add to them, and rows of no group stay zero."""
        b = self.b
        with b.loop(*rows, 1, "clear") as i:
            b.memset(b.offset(result, b.mul(i, self.s.c * self.size_c)), 0, b.mul(width, self.size_c))

    def range(self, at: Arrays, low: V, high: V) -> tuple[V, V]:
        """The part of a group's range between two bounds: its beginning and length."""
        b = self.b
        start, end = (b.max_(b.min_(b.load("i64", p), high), low) for p in (at.starts, at.ends))
        return start, b.sub(end, start)

    def rows(self, at: Arrays, rows: tuple[V, V], width: V) -> None:
        """Multiplies the rows of a group by its matrix."""
        b, s = self.b, self.s
        start, m = self.range(at, *rows)
        with b.if_(b.icmp("sgt", m, 0), "rows"):
            a = b.offset(at.lhs, b.mul(start, s.ragged.lhs * self.size_a))
            c = b.offset(at.result, b.mul(start, s.c * self.size_c))

            def call(way: GemmStrategy) -> list[V]:
                self.call(way, (a, at.rhs, c), (m, width, i64(s.k)))
                return []

            if s.skinny:
                few = b.and_(b.icmp("sgt", m, 1), b.icmp("sle", m, tuning.GEMM_SKINNY_ROWS))
                b.if_else(few, lambda: call(GemmStrategy.FEW), lambda: call(GemmStrategy.ANY))
            else:
                call(GemmStrategy.ANY)

    def sum(self, at: Arrays, rows: tuple[V, V], width: V) -> None:
        """Sums the products of the terms of a group."""
        b, s = self.b, self.s
        start, k = self.range(at, i64(0), i64(s.k))
        with b.if_(b.icmp("sgt", k, 0), "terms"):
            a = b.offset(at.lhs, b.mul(start, s.ragged.lhs * self.size_a))
            a = b.offset(a, b.mul(rows[0], s.a[0] * self.size_a))
            right = b.offset(at.rhs, b.mul(start, s.ragged.rhs * self.size_b))
            c = b.offset(at.result, b.mul(rows[0], s.c * self.size_c))
            self.call(GemmStrategy.ANY, (a, right, c), (b.sub(rows[1], rows[0]), width, k))

    def call(self, way: GemmStrategy, at: tuple[V, V, V], extents: tuple[V, V, V]) -> None:
        """Adds the product of m rows, n columns and k terms to C, on this thread."""
        s, zero, one = self.s, i64(0), i64(1)
        a, right, c = at
        args = [a, i64(s.a[0]), i64(s.a[1]), zero, right, i64(s.b[0]), i64(s.b[1]), zero, zero, c, i64(s.c), zero]
        # C holds the sums so far: those of a term before the first, as the routine sees it
        args += [one, *extents, one, self.work, NULL, NULL, NULL, zero, one]
        self.b.call("void", gemm_symbol(s.types, way), args)
