"""A call of a function of the program that was not inlined.

The callee is an LLVM function with the parameters of the program's entry; its arena is scratch memory of the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.lower.addresses import address_table
from shlo_jit.lower.control import call_steps
from shlo_jit.schedule.kernel import KernelSchedule

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def lower(low: ProgramLowering, step: OpStep, schedule: KernelSchedule) -> None:
    """Calls the function with tables of addresses."""
    callee = low.callees[step.op.attributes["callee"].name]
    arena = low.scratch(step) if any(callee.arena) else low.scope.arena
    args, results = (address_table(low.b, [*map(low.pointer, vs)]) for vs in (step.op.operands, step.op.results))
    call_steps(low, callee.name, [args, results, low.scope.dims, arena, low.scope.instance], callee.may_fail)
    low.pauses.spend(callee.work)
