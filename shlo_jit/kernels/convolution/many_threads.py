"""Divides the tasks of a convolution further if a call has many threads. The sums, and so the bits, stay the same."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.convolution.input import FRAME, Arguments
from shlo_jit.kernels.convolution.shape import FIELDS
from shlo_jit.kernels.gemm.blocks import ceil_div
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.llvm_values import V, i64


def divide_tasks(b: Builder, plan: GemmPlan, frame: V, copy: V, threads: V, work: V, *, gathers: bool) -> None:
    """Makes the frame of a convolution whose rows are pixels refer to a copy of its table, with smaller tasks, if there
    are fewer than TASKS_OF_THREAD for each of more than MANY_THREADS threads. `copy`: memory for it, as long as the
    frame's. `work`: the multiply-adds of all tasks.

    Columns are divided first, as all tasks of some pixels read the same pixels. Gathered pixels are divided first,
    because tasks with other columns gather them again."""
    g = Arguments(b, frame)
    tasks, wanted = g.get("main_tasks"), b.mul(threads, tuning.TASKS_OF_THREAD)
    most = b.udiv(work, b.mul(b.max_(tasks, 1), tuning.LEAST_TASK_OF_MANY))
    parts = b.min_(ceil_div(b, wanted, b.max_(tasks, 1)), most)
    with b.if_(b.and_(b.icmp("sgt", threads, tuning.MANY_THREADS), b.icmp("sgt", parts, 1))):
        b.memcpy(copy, g.table, i64(8 * len(FIELDS)))
        columns, rows = _Columns(b, plan, g), _Rows(b, plan, g, gathers)
        first, second = (rows, columns) if gathers else (columns, rows)
        left = ceil_div(b, parts, first.divide(parts))
        second.divide(left)
        values = {"row_chunk": rows.each, "row_chunks": rows.chunks}
        values |= {"nc": columns.each, "column_chunks": columns.chunks}
        values["main_tasks"] = b.mul(b.mul(rows.chunks, columns.chunks), g.get("groups"))
        for name, value in values.items():
            b.store(value, b.offset(copy, 8 * FIELDS.index(name)), align=8)
        b.store(copy, b.offset(frame, 8 * FRAME.index("table")), align=8)


class _Columns:
    """The features of a task: whole panels."""

    def __init__(self, b: Builder, plan: GemmPlan, g: Arguments):
        self.b, self.extent, self.unit = b, g.get("co"), i64(plan.nr)
        self.each, self.chunks = b.min_(g.get("nc"), self.extent), g.get("column_chunks")

    def divide(self, parts: V) -> V:
        """Divides each chunk into at most so many; returns the factor by which there are more, at least 1."""
        b, before = self.b, self.chunks
        units = ceil_div(b, self.each, self.unit)
        self.each = b.mul(ceil_div(b, units, b.max_(b.min_(parts, units), 1)), self.unit)
        self.chunks = ceil_div(b, self.extent, self.each)
        return b.max_(b.udiv(self.chunks, before), 1)


class _Rows(_Columns):
    """The rows of a task: lines, or gathered pixels in whole tiles."""

    def __init__(self, b: Builder, plan: GemmPlan, g: Arguments, gathers: bool):
        rows, self.b = g.get("rows"), b
        self.extent = rows if gathers else ceil_div(b, rows, g.get("ow"))
        self.unit = i64(plan.mr if gathers else 1)
        self.each, self.chunks = b.min_(g.get("row_chunk"), self.extent), g.get("row_chunks")
