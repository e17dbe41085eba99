"""Lowers custom_call, as `schedule/custom_call.py` has decided: to registered implementations, LAPACK or built-in
ones."""

from __future__ import annotations

from shlo_jit.codegen.program import Callback, Port
from shlo_jit.fuse.plan import OpStep, lines_of
from shlo_jit.ir.attributes import as_ints
from shlo_jit.ir.core import Op, Value
from shlo_jit.lower.kernels import draw, machine_code, size
from shlo_jit.lower.services import Services
from shlo_jit.ops.call_attributes import api_version, attributes_of, types_of
from shlo_jit.ops.grouped import GROUPED
from shlo_jit.ops.known_calls import SORT
from shlo_jit.schedule.collective import CollectiveSchedule
from shlo_jit.schedule.custom_call import CallbackSchedule, CodeSchedule, DrawSchedule, SizeSchedule, StartSchedule
from shlo_jit.schedule.kernel import KernelSchedule


def _port(value: Value) -> Port:
    t = value.tensor
    return Port(value.name, t.extents, t.storage)


def lower(low: Services, step: OpStep, schedule: KernelSchedule) -> None:
    if isinstance(schedule, CallbackSchedule):
        _call_back(low, step.op, schedule)
    elif isinstance(schedule, CodeSchedule):
        machine_code.lower(low, step, schedule)
    elif isinstance(schedule, DrawSchedule):
        draw.lower(low, step)
    elif isinstance(schedule, SizeSchedule):
        size.lower(low, step, schedule)
    elif isinstance(schedule, StartSchedule | CollectiveSchedule):
        _collective(low, step, schedule)
    elif step.op.attributes["call_target_name"] == SORT:
        _sort_by_function(low, step, schedule)
    elif step.op.attributes["call_target_name"] == GROUPED:
        _grouped(low, step, schedule)
    else:
        _call_lapack(low, step, schedule)


def _sort_by_function(low: Services, step: OpStep, schedule: KernelSchedule) -> None:
    from shlo_jit.lower.kernels.sort import called
    from shlo_jit.schedule.sort import CalledSortSchedule

    assert isinstance(schedule, CalledSortSchedule)
    called.lower(low, step, schedule)


def _grouped(low: Services, step: OpStep, schedule: KernelSchedule) -> None:
    from shlo_jit.lower.kernels import grouped
    from shlo_jit.schedule.grouped import GroupedSchedule

    assert isinstance(schedule, GroupedSchedule)
    grouped.lower(low, step, schedule)


def _collective(low: Services, step: OpStep, schedule: KernelSchedule) -> None:
    from shlo_jit.lower.kernels.collective import collective, transfer

    if isinstance(schedule, StartSchedule):
        transfer.start(low, schedule.number)
    else:
        collective.lower(low, step, schedule)


def _call_lapack(low: Services, step: OpStep, schedule: KernelSchedule) -> None:
    from shlo_jit.lower.kernels.lapack import factors
    from shlo_jit.schedule.lapack import LapackSchedule

    assert isinstance(schedule, LapackSchedule)
    factors.lower(low, step, schedule)


def _call_back(low: Services, op: Op, schedule: CallbackSchedule) -> None:
    pointers = [low.pointer(v) for v in schedule.operands]
    for result, operand in schedule.aliases.items():
        pointers[operand] = low.pointer(schedule.results[result])
    before, after = (
        tuple(as_ints(o) for o in op.attributes.get(f"{side}_orders", ())) for side in ("operand", "result")
    )
    callback = Callback(
        schedule.target,
        tuple(_port(v) for v in schedule.operands),
        tuple(_port(v) for v in schedule.results),
        attributes_of(op),
        before,
        after,
        schedule.aliases,
        lines_of([op]),
        api_version(op),
        types_of(op),
        as_ints(op.attributes.get("operand_tokens", ())),
        as_ints(op.attributes.get("result_tokens", ())),
    )
    low.callback(callback, pointers, [low.pointer(v) for v in schedule.results])
