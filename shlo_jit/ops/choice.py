"""Comparison and choice (specification, sections of the same names)."""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.attributes import EnumAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import I1, QuantizedType, Type
from shlo_jit.ops import complex_math as cm
from shlo_jit.ops.elementwise import fmax, fmin
from shlo_jit.ops.machine import Machine, Register, by_kind
from shlo_jit.ops.numeric import Array, dtype_of, in_float, total_order_key
from shlo_jit.ops.record import KINDS, Violation, define, optional, required
from shlo_jit.ops.type_algebra import (
    compatible_elements,
    compatible_shapes,
    merge,
    operand_type,
    operand_types,
    shape_text,
    type_text,
    with_element,
)


def _to_pred(op: Op) -> list[Type]:
    return [with_element(operand_type(op, 0), I1)]


def _infer_compare(op: Op) -> list[Type]:
    lhs, rhs = operand_types(op)
    if not compatible_elements(lhs.dtype, rhs.dtype):
        raise Violation(
            "C1", f"requires compatible element types for all operands, got '{type_text(lhs)}' and '{type_text(rhs)}'"
        )
    return [with_element(merge([lhs, rhs], "C2"), I1)]


def _verify_compare(op: Op) -> None:
    attr = op.attributes.get("compare_type")
    dtype = operand_type(op, 0).dtype
    if attr is None or attr.value == "NOTYPE" or isinstance(dtype, QuantizedType):
        return
    allowed = {
        "i": ("SIGNED",), "u": ("UNSIGNED",), "b": ("UNSIGNED",), "x": ("SIGNED", "UNSIGNED"),
        "f": ("FLOAT", "TOTALORDER"), "c": ("FLOAT",),
    }[dtype.kind]  # fmt: skip
    if attr.value not in allowed:
        raise Violation("C3", f"compare_type {attr.value} does not fit elements of type {dtype}")


_COMPARISONS = {
    "EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal,
    "GT": np.greater, "LE": np.less_equal, "LT": np.less,
}  # fmt: skip


def _compare(op: Op, x: Array, y: Array) -> Array:
    direction = op.attributes["comparison_direction"].value
    attr = op.attributes.get("compare_type")
    kind = dtype_of(x).kind
    if kind == "c":
        return cm.compare(direction, x, y)
    if kind == "f" and attr is not None and attr.value == "TOTALORDER":
        x, y = total_order_key(x), total_order_key(y)
    return np.asarray(_COMPARISONS[direction](x, y)).astype(np.bool_)


def _compare_registers(m: Machine, x: Register, y: Register) -> Register:
    kind = m.op.attributes.get("compare_type")
    total = isinstance(kind, EnumAttr) and kind.value == "TOTALORDER"
    return m.compare(m.op.attributes["comparison_direction"].value, x, y, total_order=total)


define(
    "stablehlo.compare", section="compare",
    operands=("lhs: tensor", "rhs: tensor"), results=("result: pred",),
    attributes={
        "comparison_direction": required("enum comparison_direction"),
        "compare_type": optional("enum comparison_type"),
    },
    traits={"elementwise"}, exact=KINDS, infer=_infer_compare, verify=_verify_compare,
    machine=_compare_registers, reference=_compare,
)  # fmt: skip
define(
    "stablehlo.is_finite", section="is_finite",
    operands=("x: float|quant",), results=("y: pred",),
    traits={"elementwise"}, exact=KINDS, infer=_to_pred,
    machine=by_kind(f=lambda m, x: m.fcmp("olt", m.fabs(x), m.number(float("inf")))),
    reference=lambda op, x: np.asarray(np.isfinite(x.astype(np.float64))),
)  # fmt: skip


def _infer_select(op: Op) -> list[Type]:
    pred, on_true, on_false = operand_types(op)
    if not compatible_elements(on_true.dtype, on_false.dtype) or not compatible_shapes(on_true.shape, on_false.shape):
        raise Violation(
            "C2",
            "requires compatible types for non-predicate operands, "
            f"got '{type_text(on_true)}' and '{type_text(on_false)}'",
        )
    if pred.shape != () and not compatible_shapes(pred.shape, on_true.shape):
        raise Violation(
            "C1", f"requires the same shape for all operands, got '{type_text(pred)}' and '{type_text(on_true)}'"
        )
    return [merge([on_true, on_false], "C2")]


def _infer_clamp(op: Op) -> list[Type]:
    low, operand, high = operand_types(op)
    for label, what, t in (("C1", "min", low), ("C2", "max", high)):
        if not compatible_elements(t.dtype, operand.dtype):
            raise Violation("C3", f"requires the same element type for all operands, got {what} '{type_text(t)}'")
        if t.shape != () and not compatible_shapes(t.shape, operand.shape):
            raise Violation(
                label,
                f"{what} shape {shape_text(t.shape or ())} is not scalar and is not compatible to operand shape "
                f"{shape_text(operand.shape or ())}",
            )
    return [operand]


def _clamp(op: Op, low: Array, x: Array, high: Array) -> Array:
    kind = dtype_of(x).kind
    if kind == "c":
        return cm.minimum(cm.maximum(x, low), high)
    if kind == "f":
        return in_float(lambda a, b, c: fmin(fmax(b, a), c), low, x, high)
    return np.asarray(np.minimum(np.maximum(x, low), high)).astype(x.dtype)


_CLAMPING = by_kind(
    f=lambda m, low, x, high: m.fmin(m.fmax(x, low), high),
    i=lambda m, low, x, high: m.imin(m.imax(x, low), high),
    b=lambda m, low, x, high: m.imin(m.imax(x, low), high),
    c=lambda m, low, x, high: m.cmin(m.cmax(x, low), high),
)
define(
    "stablehlo.select", section="select",
    operands=("pred: pred", "on_true: tensor", "on_false: tensor"),
    traits={"elementwise"}, exact=KINDS, infer=_infer_select,
    machine=lambda m, pred, on_true, on_false: m.select(pred, on_true, on_false),
    reference=lambda op, pred, on_true, on_false: np.where(pred, on_true, on_false),
)  # fmt: skip
define(
    "stablehlo.clamp", section="clamp",
    operands=("min: tensor", "operand: tensor", "max: tensor"),
    traits={"elementwise"}, exact=KINDS, infer=_infer_clamp, machine=_CLAMPING, reference=_clamp,
)  # fmt: skip
