"""A call of a function of the program that was not inlined.

The callee is an LLVM function with the parameters of the program's entry; its arena is scratch memory of the call.
"""

from __future__ import annotations

from shlo_jit.fuse.plan import OpStep
from shlo_jit.lower import interrupts
from shlo_jit.lower.addresses import address_table
from shlo_jit.lower.services import Services
from shlo_jit.schedule.kernel import KernelSchedule


def lower(low: Services, step: OpStep, schedule: KernelSchedule) -> None:
    """Calls the function with tables of addresses."""
    callee = low.callees[step.op.attributes["callee"].name]
    arena = low.scratch(step) if any(callee.arena) else low.scope.arena
    args, results = (address_table(low.b, [*map(low.pointer, vs)]) for vs in (step.op.operands, step.op.results))
    low.scope.call_steps(callee.name, [args, results, low.scope.dims, arena, low.scope.instance], callee.may_fail)
    interrupts.spend(low.scope, callee.work)
