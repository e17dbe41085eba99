"""A sort by a function of the program: a merge sort of indices that calls the function for every comparison.

The function takes the addresses of the elements in place, and writes its result to the stack. It may call the host and
check for signals, so all lines are sorted on the thread that called the program.
"""

from __future__ import annotations

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels import sort as records_sort
from shlo_jit.kernels.llvm_values import V, const
from shlo_jit.lower import interrupts
from shlo_jit.lower.addresses import address_table
from shlo_jit.lower.kernels.access import Buffer
from shlo_jit.lower.kernels.sort.records import move, start_of
from shlo_jit.lower.scratch import shared_fields
from shlo_jit.lower.services import Services
from shlo_jit.schedule.sort import CalledSortSchedule


def lower(low: Services, step: OpStep, schedule: CalledSortSchedule) -> None:
    b, lines, n = low.b, schedule.lines, len(step.op.results)
    fields = shared_fields(b, schedule.scratch, low.scratch(step))
    values = (*step.op.operands[:n], *step.op.results)
    buffers = [Buffer(b, v.tensor.storage, low.pointer(v)) for v in values]
    comparator = _Comparator(low, step, schedule, buffers[:n])
    with b.loop(0, lines.count, 1, "line") as line:
        start = start_of(b, lines, line)

        def less(i: V, j: V, start: V = start) -> V:
            return comparator.call(*(b.add(start, b.mul(k, lines.stride)) for k in (i, j)))

        done = records_sort.merge_indices(b, fields["first"], fields["second"], lines.n, less, is_expensive=True)
        with b.loop(0, lines.n, 1, "place") as i:
            move(b, buffers, start, lines.stride, i, b.load("i64", b.element(done, "i64", i)), schedule.kept)


class _Comparator:
    """Writes calls of the function. Its tables of addresses are on the stack, shared by all calls."""

    def __init__(self, low: Services, step: OpStep, schedule: CalledSortSchedule, inputs: list[Buffer]):
        self.low, self.inputs = low, inputs
        self.callee = low.callees[schedule.function]
        self.arena = low.scope.arena
        if any(self.callee.arena):
            self.arena = low.b.offset(low.scratch(step), schedule.scratch.fixed)
        pairs = [x.pointer for x in inputs for _ in range(2)]
        captured = [low.pointer(v) for v in step.op.operands[len(inputs) :]]
        self.arguments = address_table(low.b, [*pairs, *captured])
        self.found = low.b.alloca("i8")
        self.results = address_table(low.b, [self.found])

    def call(self, i: V, j: V) -> V:
        """Whether element i comes before element j."""
        low, b = self.low, self.low.b
        for k, x in enumerate(self.inputs):
            b.store(x.address(i), b.element(self.arguments, "ptr", 2 * k))
            b.store(x.address(j), b.element(self.arguments, "ptr", 2 * k + 1))
        scope, work = low.scope, low.scope.work
        scope.work = self.callee.work
        arguments = [self.arguments, self.results, scope.dims, self.arena, scope.instance]
        scope.call_steps(self.callee.name, arguments, self.callee.may_fail)
        interrupts.end_iteration(scope)
        scope.work = work
        return b.icmp("ne", b.load("i8", self.found), const("i8", 0))
