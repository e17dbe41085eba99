"""The custom call `shlo_jit.size` of `passes/build.py`: a size, known only at the call, as data."""

from __future__ import annotations

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.llvm_values import i64
from shlo_jit.lower.services import Services
from shlo_jit.schedule.custom_call import SizeSchedule


def lower(low: Services, step: OpStep, schedule: SizeSchedule) -> None:
    b = low.b
    b.store(b.cast("trunc", i64(schedule.size), "i32"), low.pointer(step.op.result))
