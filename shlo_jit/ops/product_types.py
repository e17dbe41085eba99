"""Element types in which dot_general and convolution are computed: accumulators and multiplied operands."""

from __future__ import annotations

from shlo_jit.ir.types import F32, I8, I32, UI8, DType

DIRECT = {"f32", "f64", "bf16", "f16", "complex<f32>", "complex<f64>"}
"""Floating-point and complex types that the routines support directly."""


def accumulator(operand: DType, result: DType) -> DType:
    """Returns the accumulator type of a product."""
    if result.is_complex:
        return result
    if result.is_float:
        return result if result.name == "f64" else F32
    return result if result.bits >= 32 and result.kind in "iu" else I32


def operand_type(lhs: DType, rhs: DType, acc: DType) -> DType:
    """Returns the type to which both operands are converted: their own if the routine supports it, otherwise that of
    the accumulator."""
    if lhs == rhs and acc.is_float and lhs.is_float and lhs.name in DIRECT and (acc.name == "f32" or lhs == acc):
        return lhs if lhs.name != "f64" else acc
    return acc


def operand_types(lhs: DType, rhs: DType, acc: DType) -> tuple[DType, DType]:
    """Returns the types to which the operands are converted: signed or unsigned bytes for integers that fit in one,
    otherwise `operand_type`."""
    if acc.is_integer and acc.bits == 32 and all(t.is_integer and t.bits <= 8 for t in (lhs, rhs)):
        return tuple(UI8 if t.kind == "u" else I8 for t in (lhs, rhs))  # type: ignore[return-value]
    kind = operand_type(lhs, rhs, acc)
    return kind, kind
