"""The custom call `shlo_jit.size` of `passes/build.py`: a size, known only at the call, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.llvm_values import i64
from shlo_jit.schedule.custom_call import SizeSchedule

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def lower(low: ProgramLowering, step: OpStep, schedule: SizeSchedule) -> None:
    b = low.b
    b.store(b.cast("trunc", i64(schedule.size), "i32"), low.pointer(step.op.result))
