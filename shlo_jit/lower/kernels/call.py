"""A call of a function of the program that was not written out where it is called.

The callee is an LLVM function with the parameters of the program's entry; its arena is scratch memory of the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import V
from shlo_jit.lower.control import call_steps
from shlo_jit.schedule.kernel import KernelSchedule

if TYPE_CHECKING:
    from shlo_jit.lower.program import Callee, ProgramLowering


def callee_of(low: ProgramLowering, step: OpStep) -> Callee:
    return low.callees[step.op.attributes["callee"].name]


def lower(low: ProgramLowering, step: OpStep, schedule: KernelSchedule) -> None:
    """Call it with tables of addresses."""
    callee = callee_of(low, step)
    arena = low.scratch(step) if any(callee.arena) else low.scope.arena
    args, results = _table(low, step.op.operands), _table(low, step.op.results)
    call_steps(low, callee.name, [args, results, low.scope.dims, arena, low.scope.instance], callee.may_fail)
    low.pauses.spend(callee.work)


def _table(low: ProgramLowering, values: list[Value]) -> V:
    b = low.b
    table = b.alloca("ptr", max(1, len(values)), align=8)
    for i, value in enumerate(values):
        b.store(low.pointer(value), b.element(table, "ptr", i))
    return table
