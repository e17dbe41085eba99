"""custom_call: what the user has registered, LAPACK's or our own, as `schedule/custom_call.py` has decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shlo_jit.codegen.program import Callback, Port
from shlo_jit.fuse.plan import OpStep, lines_of
from shlo_jit.ir.attributes import (
    UNIT,
    Dense,
    DenseArray,
    DictAttr,
    EnumAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    StructAttr,
    SymbolRef,
    TypeAttr,
    as_ints,
)
from shlo_jit.ir.core import Op, Value
from shlo_jit.lower.kernels import draw, machine_code, size
from shlo_jit.ops.attribute_kinds import short_text
from shlo_jit.ops.shapes import type_text
from shlo_jit.schedule.collective import CollectiveSchedule
from shlo_jit.schedule.custom_call import CallbackSchedule, CodeSchedule, DrawSchedule, SizeSchedule, StartSchedule
from shlo_jit.schedule.kernel import KernelSchedule

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def python_value(attr: Any) -> Any:
    """An attribute as the Python value a callable gets."""
    if isinstance(attr, (IntegerAttr, FloatAttr)):
        return attr.value
    if isinstance(attr, DenseArray):
        return tuple(attr.values)
    if isinstance(attr, Dense):
        return attr.array
    if isinstance(attr, DictAttr):
        return {k: python_value(v) for k, v in attr.items}
    if isinstance(attr, tuple):
        return tuple(python_value(v) for v in attr)
    if isinstance(attr, OpaqueAttr):
        return attr.text
    if isinstance(attr, SymbolRef):
        return attr.name
    if isinstance(attr, EnumAttr):
        return attr.value
    if isinstance(attr, StructAttr):
        return {k: python_value(v) for k, v in attr.fields}
    if isinstance(attr, TypeAttr):
        return type_text(attr.type)
    return True if attr is UNIT else attr


def attributes_of(op: Op) -> dict[str, Any]:
    """Keyword arguments: the entries of a dictionary backend_config, or `backend_config` itself when it is text; names
    of `called_computations`, when there are any."""
    config = _configuration(op)
    if isinstance(config, DictAttr):
        found = {k: python_value(v) for k, v in config.items}
    else:
        found = {} if config is None else {"backend_config": python_value(config)}
    called = op.attributes.get("called_computations", ())
    return found | {"called_computations": tuple(python_value(c) for c in called)} if called else found


def types_of(op: Op) -> dict[str, Any]:
    """`Callback.attribute_types` of a call."""
    config = _configuration(op)
    return _type_of(config) if isinstance(config, DictAttr) else {}


def api_version(op: Op) -> int:
    """How a call wants to be called. JAX writes those of version 4 with a dictionary under MHLO's name, and says 1."""
    if isinstance(op.attributes.get("mhlo.backend_config"), DictAttr):
        return 4
    return op.int("api_version", 1)


def _configuration(op: Op) -> Any:
    return op.attributes.get("mhlo.backend_config", op.attributes.get("backend_config"))


def _type_of(attr: Any) -> Any:
    if isinstance(attr, bool):
        return "i1"
    if isinstance(attr, str):
        return "string"
    if isinstance(attr, (IntegerAttr, FloatAttr)):
        return attr.type
    if isinstance(attr, DenseArray):
        return f"array<{attr.dtype}>"
    if isinstance(attr, Dense):
        return f"array<{attr.type.dtype}>"
    if isinstance(attr, DictAttr):
        return {k: _type_of(v) for k, v in attr.items}
    return f"= {short_text(attr)}"


def _port(value: Value) -> Port:
    t = value.tensor
    return Port(value.name, t.extents, t.storage)


def lower(low: ProgramLowering, step: OpStep, schedule: KernelSchedule) -> None:
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
    else:
        _call_lapack(low, step, schedule)


def _collective(low: ProgramLowering, step: OpStep, schedule: KernelSchedule) -> None:
    from shlo_jit.lower.kernels.collective import collective, transfer

    if isinstance(schedule, StartSchedule):
        transfer.start(low, schedule.number)
    else:
        collective.lower(low, step, schedule)


def _call_lapack(low: ProgramLowering, step: OpStep, schedule: KernelSchedule) -> None:
    from shlo_jit.lower.kernels.lapack import factors
    from shlo_jit.schedule.lapack import LapackSchedule

    assert isinstance(schedule, LapackSchedule)
    factors.lower(low, step, schedule)


def _call_back(low: ProgramLowering, op: Op, schedule: CallbackSchedule) -> None:
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
