"""Lowers grouped products to calls of the shared GEMM routine, as `schedule/grouped.py` has decided."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.plan import ComputedOperandStep, OpStep
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm.gemm import GemmStrategy, gemm_symbol
from shlo_jit.kernels.gemm.precision import itemsize
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.epilogue import NULL
from shlo_jit.lower.kernels.operand_in_panels import box_function
from shlo_jit.lower.scratch import worker_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.grouped import Boxes, GroupedSchedule, Strides


def lower(low: Services, step: OpStep, schedule: GroupedSchedule) -> None:
    """Writes the task, and runs the tasks."""
    _run(low, step, [low.scratch(step), *map(low.pointer, step.op.operands), low.pointer(step.op.result)], schedule)


def lower_computing(low: Services, step: ComputedOperandStep, schedule: GroupedSchedule) -> None:
    """Writes the task and the function that computes boxes of the matrices, and runs the tasks."""
    assert schedule.boxes is not None
    function, values = box_function(low, step, schedule.boxes)
    op = step.product.op
    own = [NULL if i == step.operand.side else low.pointer(v) for i, v in enumerate(op.operands)]
    read = [*map(low.pointer, values), *([low.scope.dims] if low.is_symbolic else [])]
    _run(low, step.product, [low.scratch(step), *own, low.pointer(op.result), *read], schedule, function)


def _run(low: Services, step: OpStep, pointers: list[V], schedule: GroupedSchedule, compute: V | None = None) -> None:
    """Runs the tasks. `pointers`: the scratch, the arrays in the order of `Arrays`, and what `compute` takes, the
    function that computes boxes."""
    name = low.new_name(step.title)
    _Task(low.task(name, len(pointers)), schedule, compute).write()
    low.run_tasks(low.share(step.title, name), pointers, schedule.tasks)


class Arrays(NamedTuple):
    """Addresses in lhs, rhs, starts, ends and the result."""

    lhs: V
    rhs: V
    """The number of the matrix instead, as the loop that computes it counts, if matrices are computed."""
    starts: V
    ends: V
    result: V


class _Task:
    """Writes `void task(ptr frame, i64 index, i64 worker)`: a block of rows and columns of the result."""

    def __init__(self, b: Builder, s: GroupedSchedule, compute: V | None):
        self.b, self.s, self.compute = b, s, compute
        self.size_a, self.size_b, self.size_c = (itemsize(t) for t in (s.types.a, s.types.b, s.types.acc))

    def write(self) -> None:
        b, s = self.b, self.s
        frame, index, worker = b.params
        count = 1 + len(Arrays._fields)
        scratch, *found = (b.load("ptr", b.element(frame, "ptr", i)) for i in range(count))
        self.fields = worker_fields(b, s.scratch, scratch, worker)
        self.computing = b.element(frame, "ptr", count)
        at = Arrays(*found)
        if s.boxes is not None:
            at = at._replace(rhs=i64(0))
        columns, index = b.urem(index, s.column_blocks), b.udiv(index, s.column_blocks)
        rows, index = b.urem(index, s.row_blocks), b.udiv(index, s.row_blocks)
        group = index
        if s.sums:
            group, index = b.urem(index, s.groups.extent), b.udiv(index, s.groups.extent)
        for dim in reversed(s.outer):
            at, index = self.moved(at, dim, b.urem(index, dim.extent)), b.udiv(index, dim.extent)
        r0, j0 = b.mul(rows, s.rows), b.mul(columns, s.columns)
        r1, j1 = b.min_(b.add(r0, s.rows), s.m), b.min_(b.add(j0, s.columns), s.n)
        self.first = j0
        if s.boxes is None:
            at = at._replace(rhs=b.offset(at.rhs, b.mul(j0, s.b[1] * self.size_b)))
        at = at._replace(result=b.offset(at.result, b.mul(j0, self.size_c)))
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
        matrix = by.rhs * (self.size_b if self.s.boxes is None else 1)
        steps = (by.lhs * self.size_a, matrix, by.bounds * 8, by.bounds * 8, by.result * self.size_c)
        return Arrays(*(self.added(p, b.mul(index, step)) if step else p for p, step in zip(at, steps, strict=True)))

    def added(self, place: V, by: V) -> V:
        """Moves an address by bytes, or the number of a matrix by matrices."""
        return self.b.offset(place, by) if place.type == "ptr" else self.b.add(place, by)

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
            if s.boxes is None:
                self.multiply((a, at.rhs, c), (m, width, i64(s.k)))
            else:
                self.multiply_by_boxes(s.boxes, (a, at.rhs, c), (m, width))

    def multiply_by_boxes(self, boxes: Boxes, at: tuple[V, V, V], extents: tuple[V, V]) -> None:
        """Multiplies the rows of a group by its matrix, whose terms are computed box by box."""
        b, s, (a, number, c), (m, width) = self.b, self.s, at, extents
        assert self.compute is not None
        box = self.fields["box"]
        with b.loop(0, s.k, boxes.terms, "terms") as k:
            end = b.min_(b.add(k, boxes.terms), i64(s.k))
            sides = [self.first, b.add(self.first, width), k, end]
            b.call_pointer("void", self.compute, [self.computing, number, *sides, box])
            self.multiply((b.offset(a, b.mul(k, s.a[1] * self.size_a)), box, c), (m, width, b.sub(end, k)))

    def multiply(self, at: tuple[V, V, V], extents: tuple[V, V, V]) -> None:
        """Adds the product of the rows of a group and some terms of its matrix."""
        b, m = self.b, extents[0]

        def call(strategy: GemmStrategy) -> list[V]:
            self.call(strategy, at, extents)
            return []

        if self.s.skinny:
            is_skinny = b.and_(b.icmp("sgt", m, 1), b.icmp("sle", m, tuning.GEMM_SKINNY_ROWS))
            b.if_else(is_skinny, lambda: call(GemmStrategy.FEW), lambda: call(GemmStrategy.ANY))
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
        args += [one, *extents, one, self.fields["work"], NULL, NULL, NULL, zero, NULL, one]
        self.b.call("void", gemm_symbol(s.types, way), args)
