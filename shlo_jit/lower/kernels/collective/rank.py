"""replica_id in a one-dimensional grid: the number of the process, which the instance has."""

from __future__ import annotations

from shlo_jit.fuse.plan import OpStep
from shlo_jit.lower.services import Services
from shlo_jit.schedule.kernel import KernelSchedule


def lower(low: Services, step: OpStep, schedule: KernelSchedule) -> None:
    b = low.b
    b.store(b.cast("trunc", low.scope.field("rank"), "i32"), low.pointer(step.op.result))
