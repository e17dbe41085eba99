"""Hints for a value that is used with a different type than it has: either its definition or its use is wrong."""

from __future__ import annotations

from shlo_jit.errors import Diagnostic
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.type_text import type_text
from shlo_jit.ir.types import ScalarType, TensorType, Type
from shlo_jit.ops import OPS, Violation


def definition_of(value: Value | None) -> Diagnostic | None:
    """Returns the error in the op that defines a value; None if the op is valid or the value is not defined by one."""
    from shlo_jit.verify.check_op import check_op
    from shlo_jit.verify.verifier import diagnostic_of

    op = value.owner if value is not None else None
    if not isinstance(op, Op) or (record := OPS.get(op.name)) is None:
        return None
    try:
        check_op(op, record)
    except Violation as violation:
        return diagnostic_of(op, violation)
    return None


def type_mismatch_hint(name: str, has: Type, wanted: Type, value: Value | None) -> str:
    """Suggests how to make the types agree."""
    if isinstance(wanted, ScalarType) and isinstance(has, TensorType):
        return f"types of values are tensors: write {type_text(has)}, the type of {name}"
    op = value.owner if value is not None else None
    where = ""
    if isinstance(op, Op) and op.span is not None:
        where = f" in line {op.span.source.line_column(op.span.start)[0]}"
    said = f"{name} is defined{where} with the type {type_text(has)}: write that here"
    if not isinstance(has, TensorType) or not isinstance(wanted, TensorType):
        return said
    both = f"({type_text(has)}) -> {type_text(wanted)}"
    if has.shape == wanted.shape:
        return f"{said}, or convert it: stablehlo.convert {name} : {both}"
    if has.dtype == wanted.dtype and has.shape == ():
        return f"{said}, or repeat it: stablehlo.broadcast_in_dim {name}, dims = [] : {both}"
    return said
