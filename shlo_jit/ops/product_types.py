"""Element types of dot_general and convolution as they are computed: what sums are kept in, what is multiplied."""

from __future__ import annotations

from shlo_jit.ir.types import F32, I8, I32, UI8, DType

DIRECT = {"f32", "f64", "bf16", "f16", "complex<f32>", "complex<f64>"}
"""Floats and complex numbers that the routines take as they are."""


def accumulator(operand: DType, result: DType) -> DType:
    """What sums are kept in."""
    if result.is_complex:
        return result
    if result.is_float:
        return result if result.name == "f64" else F32
    return result if result.bits >= 32 and result.kind in "iu" else I32


def operand_type(lhs: DType, rhs: DType, acc: DType) -> DType:
    """The type both operands are brought to: their own where the routine takes it, else the accumulator's."""
    if lhs == rhs and acc.is_float and lhs.is_float and lhs.name in DIRECT and (acc.name == "f32" or lhs == acc):
        return lhs if lhs.name != "f64" else acc
    return acc


def operand_types(lhs: DType, rhs: DType, acc: DType) -> tuple[DType, DType]:
    """The types the operands are brought to: bytes of either sign for integers that fit one, else `operand_type`."""
    if acc.is_integer and acc.bits == 32 and all(t.is_integer and t.bits <= 8 for t in (lhs, rhs)):
        return tuple(UI8 if t.kind == "u" else I8 for t in (lhs, rhs))  # type: ignore[return-value]
    kind = operand_type(lhs, rhs, acc)
    return kind, kind
