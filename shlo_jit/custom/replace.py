"""Replaces a custom call whose target is code by ops, or by a call of machine code.

custom_call @wave(%x, %y)   ->   multiply, sine, add ...                          if it can be lifted
custom_call @wave(%x, %y)   ->   custom_call @shlo_jit.machine_code(%x, %y)       a loop over elements, or arrays
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shlo_jit.custom import numba_text, user_llvm_text
from shlo_jit.custom.code_routine import routine_of, scalar_loop
from shlo_jit.custom.defined import defined, divisions_defined
from shlo_jit.custom.functions import ArrayFunction, CustomCode, Elementwise, LLVMFunction
from shlo_jit.custom.lift.lift import lift
from shlo_jit.custom.lift.read import read
from shlo_jit.custom.llvm_text import Refused
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.dtypes import DType
from shlo_jit.ir.types import QuantizedType, TensorType
from shlo_jit.kernels.target import Target
from shlo_jit.ops.call_attributes import attributes_of
from shlo_jit.ops.known_calls import CODE
from shlo_jit.ops.machine_code import MachineCode
from shlo_jit.passes.frontend.inline import COMPOSITE
from shlo_jit.passes.rewriter import Rewriter
from shlo_jit.reasons import Reason
from shlo_jit.sizes import NotSymbolic, equal

LAYOUTS = ("operand_layouts", "result_layouts")
ALIASES = "output_operand_aliases"


def replace(code: CustomCode, target: Target, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """Returns the values that replace a call's results. Raises UnsupportedError for code that cannot be compiled."""
    outside = rw.current
    rw.current = _within(op, code)
    try:
        _check_types(op, operands)
        if isinstance(code, ArrayFunction):
            return _arrays(code, target, rw, op, operands)
        if isinstance(code, LLVMFunction) and not code.is_elementwise:
            _require_fixed(code, op, operands)
            text = user_llvm_text.kernel_text(code, target)
            return _call(rw, op, operands, _machine_code(code, target, op, text, by_elements=False))
        return _by_elements(code, target, rw, op, operands)
    except Refused as refusal:
        reason = refusal.reason
    finally:
        rw.current = outside
    # Raised outside of the handler, so that the error does not keep the frames of the refusal alive. These hold LLVM
    # objects, which have to be freed in order. The garbage collector guarantees no order.
    name = op.attributes["call_target_name"].removeprefix(COMPOSITE)
    raise UnsupportedError(diagnose(f"custom call @{name}: {code.name}: {reason.text}", op.span, label=reason.code))


def _check_types(op: Op, operands: Sequence[Value]) -> None:
    for value in (*operands, *op.results):
        if not isinstance(value.type, TensorType) or isinstance(value.type.dtype, QuantizedType):
            raise Refused("not-tensors", "custom code takes and returns tensors of numbers")
    if not op.results:
        raise Refused("no-results", "code without results would do nothing")
    if op.attributes.get(ALIASES):
        raise Refused("aliased-results", "custom code cannot write results into the memory of operands")


# ---------------------------------------------------------------------- elements
class _Scalars(NamedTuple):
    """Code of a function of scalars."""

    text: str
    errors: tuple[str, ...] = ()


def _by_elements(code: CustomCode, target: Target, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """Lifts the code to ops; if that fails, emits a loop over elements."""
    shape = op.result.tensor.extents
    for value in (*operands, *op.results):
        number = value.tensor.rank == 0 and value in operands
        if not number and not equal(value.tensor.extents, shape):
            raise Refused("shape-mismatch", "elementwise code takes scalars and tensors of the result's shape")
    types = [v.tensor.storage for v in operands]
    results = [r.tensor.storage for r in op.results]
    made = _scalars(code, target, op, types, results)
    before, depth = len(rw.block.ops), len(rw.blocks)
    try:
        function = read(made.text)
        return lift(rw, function, [_parts(rw, v) for v in operands], shape, results)
    except Refused as refusal:
        del rw.blocks[depth:]  # the regions of loops that were being written
        del rw.block.ops[before:]
        why = refusal.reason
    numbers = [v.tensor.rank == 0 for v in operands]
    if op.result.tensor.rank == 0:
        numbers = [False] * len(operands)
    text = made.text + scalar_loop([*zip(types, numbers, strict=True)], results)
    return _call(rw, op, operands, _machine_code(code, target, op, text, True, why, made.errors))


def _within(op: Op, code: CustomCode) -> Op:
    """Returns the call as the location of the ops that are written for it. They name the function too."""
    source = op.source if op.span is None else op.source.within(code.name)
    return Op(op.name, [], [], op.attributes, None, source, op.start, op.end)


def _parts(rw: Rewriter, value: Value) -> Any:
    """Returns a complex value as its parts."""
    if not value.tensor.storage.is_complex:
        return value
    from shlo_jit.passes import build as mk

    t = mk.with_dtype(value, value.tensor.storage.part)
    return tuple(rw.emit1(f"stablehlo.{name}", [value], t) for name in ("real", "imag"))


def _scalars(code: CustomCode, target: Target, op: Op, types: Sequence[DType], results: Sequence[DType]) -> _Scalars:
    if isinstance(code, LLVMFunction):
        return _Scalars(defined(user_llvm_text.scalar_text(code, types, results, target)))
    assert isinstance(code, Elementwise)
    literals = _literals(code.function, op, len(types))
    key = code.digest, tuple(d.name for d in (*types, *results)), len(types), tuple(map(repr, literals))
    return _once(code, key, lambda: _from_numba(code.function, types, results, literals))


def _from_numba(function: Any, types: Sequence[DType], results: Sequence[DType], literals: Sequence[Any]) -> _Scalars:
    made = numba_text.scalar_text(function, types, results, literals)
    return _Scalars(defined(made.text), made.errors)


# ---------------------------------------------------------------------- arrays
def _arrays(code: ArrayFunction, target: Target, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    _require_fixed(code, op, operands)
    given, results = (
        [numba_text.Typed(v.tensor.storage, v.tensor.extents) for v in vs] for vs in (operands, op.results)
    )
    taken = len(operands) if numba_text.returns(code.function, len(operands)) else len(operands) + len(op.results)
    literals = _literals(code.function, op, taken)
    key = (
        code.digest,
        tuple((t.dtype.name, t.shape) for t in (*given, *results)),
        len(given),
        tuple(map(repr, literals)),
    )
    made = _once(code, key, lambda: numba_text.kernel_text(code.function, given, results, literals))
    plain = Op(
        op.name, op.operands, [r.type for r in op.results], _without(op, LAYOUTS), None, op.source, op.start, op.end
    )
    return _call(
        rw, plain, operands, _machine_code(code, target, op, divisions_defined(made.text), False, None, made.errors)
    )


def _require_fixed(code: CustomCode, op: Op, operands: Sequence[Value]) -> None:
    if not all(v.tensor.is_fixed for v in (*operands, *op.results)):
        raise NotSymbolic("fixed-shapes-only", f"{code.name} takes arrays of fixed shapes only")


def _without(op: Op, names: Sequence[str]) -> dict[str, Any]:
    return {k: v for k, v in op.attributes.items() if k not in names}


# ---------------------------------------------------------------------- both
def _literals(function: Any, op: Op, taken: int) -> list[Any]:
    """Returns the values of the parameters after the first `taken`: attributes of the call with their names, or
    defaults."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    if len(names) < taken:
        raise Refused("argument-mismatch", f"it takes {len(names)} arguments, and the call has {taken}")
    defaults = dict(zip(reversed(names), reversed(function.__defaults__ or ()), strict=False))
    attributes = attributes_of(op)
    found = []
    for name in names[taken:]:
        if name not in attributes and name not in defaults:
            raise Refused(
                "argument-mismatch",
                f"it takes {len(names)} arguments, and the call has {taken} and no attribute {name}",
            )
        value = attributes.get(name, defaults.get(name))
        if not isinstance(value, bool | int | float | complex):
            raise Refused("parameter-not-number", f"its parameter {name} is {value!r}, not a number")
        found.append(value)
    return found


def _once(code: Any, key: Any, make: Callable[[], Any]) -> Any:
    """Returns the result of `make`, cached by key. Nothing is cached for code that has no digest."""
    if not code.digest:
        return make()
    if key not in code.made:
        code.made[key] = make()
    return code.made[key]


def _machine_code(
    code: CustomCode,
    target: Target,
    op: Op,
    text: str,
    by_elements: bool,
    why: Reason | None = None,
    errors: tuple[str, ...] = (),
) -> MachineCode:
    name = op.attributes["call_target_name"].removeprefix(COMPOSITE)
    routine = routine_of(text, target)
    return MachineCode.of(
        name, code.name, routine, by_elements=by_elements, why=why, errors=errors, cost=text.count("\n")
    )


def _call(rw: Rewriter, op: Op, operands: list[Value], code: MachineCode) -> Sequence[Value]:
    """Emits the call of machine code. The layouts of its buffers are those of the original call."""
    kept = {k: op.attributes[k] for k in (*LAYOUTS, "has_side_effect") if k in op.attributes}
    attributes = {"call_target_name": CODE, "code": code, **kept}
    return rw.emit(op.name, operands, [r.type for r in op.results], attributes)
