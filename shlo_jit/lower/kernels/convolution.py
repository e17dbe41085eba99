"""Lowers convolution to a call of the shared routine, as `schedule/convolution.py` has decided."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.kernels.epilogue import NULL, write_epilogue
from shlo_jit.lower.kernels.viewed import operand_address
from shlo_jit.lower.nest.nest_step import lower_nest
from shlo_jit.lower.services import Services
from shlo_jit.schedule.convolution import ConvolutionSchedule


def lower(low: Services, step: OpStep, schedule: ConvolutionSchedule) -> None:
    lower_convolution(low, step, schedule, low.scratch(step))


def lower_convolution(
    low: Services, step: OpStep, schedule: ConvolutionSchedule, work: V, computed: Sequence[V] = ()
) -> None:
    """Writes the call. `work`: the scratch memory. `computed`: the function that computes the kernel, and its frame."""
    op, b, viewed = step.op, low.b, schedule.viewed
    table = low.table(list(schedule.table))
    epilogue, frame = write_epilogue(low, schedule.epilogue)
    x, y = operand_address(low, viewed, 0, op.operands[0]), low.pointer(op.result)
    panels = schedule.prepacked
    if schedule.computed is not None:
        w = NULL
    else:
        w = operand_address(low, viewed, 1, op.operands[1]) if panels is None else low.constant_array(panels)
    args = [table, x, w, y, work, epilogue, frame, *low.region(schedule.prefetched), low.taken_job()]
    args.append(i64(1) if schedule.decisions.is_alone else low.thread_count)
    if schedule.computed is not None:
        args += [*computed, *map(i64, schedule.computed.strides)]
    b.call("void", schedule.symbol, args)
    if schedule.epilogue is not None and schedule.epilogue.is_late:
        lower_nest(low, schedule.epilogue.step, schedule.epilogue.schedule)
