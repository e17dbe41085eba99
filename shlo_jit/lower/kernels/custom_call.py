"""custom_call: a Python callable or C function the user has registered, called with the operands' memory."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from shlo_jit.codegen.program import Callback, Port
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep, updates
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
from shlo_jit.ir.types import TensorType
from shlo_jit.lower.kernels import Kernel, draw
from shlo_jit.memory.scratch import Scratch
from shlo_jit.ops.known_calls import DRAW, SHAPE_ASSERTION
from shlo_jit.ops.shapes import constant_value, type_text

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
    config = op.attributes.get("mhlo.backend_config", op.attributes.get("backend_config"))
    if isinstance(config, DictAttr):
        found = {k: python_value(v) for k, v in config.items}
    else:
        found = {} if config is None else {"backend_config": python_value(config)}
    called = op.attributes.get("called_computations", ())
    return found | {"called_computations": tuple(python_value(c) for c in called)} if called else found


def tensors(values: list[Value]) -> list[Value]:
    return [v for v in values if isinstance(v.type, TensorType)]


def is_lapack(target: str) -> bool:
    """Whether LAPACK answers a call of this name, unless the user does."""
    return target.startswith(("lapack_", "blas_", "tridiagonal_")) and lapack().is_lapack(target)


def lapack() -> ModuleType:
    from shlo_jit.lower.kernels.lapack import factors as lapack

    return lapack


def _port(value: Value) -> Port:
    t = value.tensor
    return Port(value.name, t.extents, t.storage)


def lower(low: ProgramLowering, step: OpStep) -> None:
    op = step.op
    target = op.attributes["call_target_name"]
    if target == DRAW:
        draw.lower(low, step)
        return
    if not low.is_known_call(target) and is_lapack(target):
        lapack().lower(low, step)
        return
    if not low.is_known_call(target):
        raise UnsupportedError(diagnose(f"custom_call: no callable is registered for target @{target}", op.span))
    if target == SHAPE_ASSERTION and _holds(op.operands[0]):
        return
    operands, results = tensors(op.operands), tensors(op.results)
    aliases = {list(op.results).index(r): list(op.operands).index(o) for o, r in updates(op)}
    pointers = [low.pointer(v) for v in operands]
    for result, operand in aliases.items():
        pointers[operand] = low.pointer(results[result])
    before, after = (
        tuple(as_ints(o) for o in op.attributes.get(f"{side}_orders", ())) for side in ("operand", "result")
    )
    callback = Callback(
        target,
        tuple(_port(v) for v in operands),
        tuple(_port(v) for v in results),
        attributes_of(op),
        before,
        after,
        aliases,
    )
    low.callback(callback, pointers, [low.pointer(v) for v in results])


def _holds(condition: Value) -> bool:
    """Known at compile time to be true."""
    known = constant_value(condition)
    return known is not None and bool(known)


def scratch(low: ProgramLowering, step: OpStep) -> Scratch:
    target = step.op.attributes["call_target_name"]
    nbytes = lapack().scratch(low, step) if not low.is_known_call(target) and is_lapack(target) else 0
    return Scratch(nbytes)


KERNEL = Kernel(lower, scratch)
