"""The op bitcast_convert (specification, section of the same name)."""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DType, Type
from shlo_jit.ops.numeric import Array, result_type, storage_dtype
from shlo_jit.ops.record import Violation, define
from shlo_jit.ops.shape import MOVES
from shlo_jit.ops.type_algebra import bounds_of, operand_type, same_dim, stated_result, type_text, with_bounds

_SHAPES = (
    "operand and result shapes must match except for the innermost dimension of the shape with the smaller "
    "element type."
)


def _check_bitcast(op: Op) -> None:
    a, b = operand_type(op, 0), stated_result(op)
    if isinstance(a.dtype, DType) and isinstance(b.dtype, DType) and a.dtype.is_complex != b.dtype.is_complex:
        raise Violation("C2", "cannot convert between real and complex types")
    if a.shape is None or b.shape is None:
        return
    m, n = a.storage.bits, b.storage.bits
    small, large = (a, b) if m < n else (b, a)
    if m == n:
        if len(a.shape) != len(b.shape) or not all(map(same_dim, a.shape, b.shape)):
            raise Violation("C1", f"{_SHAPES} Got: '{type_text(a)}' and '{type_text(b)}'.")
        return
    if small.rank != large.rank + 1:
        raise Violation(
            "C1",
            f"rank of smaller element type ({small.rank}) should be 1 more than rank of larger element type"
            f" ({large.rank}), but {small.rank} != {large.rank} + 1.",
        )
    assert small.shape is not None and large.shape is not None
    if not all(map(same_dim, small.shape[:-1], large.shape)):
        raise Violation("C1", f"{_SHAPES} Got: '{type_text(a)}' and '{type_text(b)}'.")
    extent, low, high = small.shape[-1], min(m, n), max(m, n)
    if extent is not None and extent * low != high:
        raise Violation(
            "C1",
            f"requires compatible bit widths. Got: '{type_text(a)}' and '{type_text(b)}', "
            f"but {low} * {extent} != {high}.",
        )


def _infer_bitcast(op: Op) -> list[Type]:
    """Infers the stated element type and the operand's shape. If widths differ, the innermost dimension is added or
    removed."""
    _check_bitcast(op)
    a, b = operand_type(op, 0), stated_result(op)
    if a.shape is None:
        return [b]
    m, n = a.storage.bits, b.storage.bits
    shape = a.shape if m == n else (*a.shape, m // n) if m > n else a.shape[:-1]
    return [with_bounds(shape, b.dtype, (*bounds_of(a), None)[: len(shape)])]


def bit_matrix(x: Array, bits: int) -> Array:
    """Expands each element to its bits, least significant first, along a new innermost dimension."""
    raw = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, x.dtype.itemsize)
    return np.unpackbits(raw, axis=-1, bitorder="little")[..., :bits]


def from_bit_matrix(matrix: Array, dtype: np.dtype, signed_bits: int = 0) -> Array:
    """Inverse of `bit_matrix`. `signed_bits` > 0 extends the sign of a narrow signed integer."""
    missing = 8 * dtype.itemsize - matrix.shape[-1]
    if missing:
        fill = matrix[..., -1:] if signed_bits else np.zeros_like(matrix[..., -1:])
        matrix = np.concatenate([matrix, np.repeat(fill, missing, axis=-1)], axis=-1)
    packed = np.packbits(matrix, axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view(dtype).reshape(matrix.shape[:-1])


def _bitcast(op: Op, x: Array) -> Array:
    """Reference of bitcast_convert. Little-endian: element 0 of the narrower type has the lowest bits."""
    source, target = operand_type(op, 0).storage, result_type(op).storage
    matrix = bit_matrix(x, source.bits)
    if target.bits < source.bits:
        matrix = matrix.reshape(*x.shape, source.bits // target.bits, target.bits)
    elif target.bits > source.bits:
        matrix = matrix.reshape(*x.shape[:-1], target.bits)
    narrow_signed = target.bits if target.kind == "i" and target.bits < 8 else 0
    return from_bit_matrix(matrix, storage_dtype(op), narrow_signed)


define(
    "stablehlo.bitcast_convert", section="bitcast_convert",
    operands=("operand: any_tensor",), results=("result: any_tensor",), traits={*MOVES, "chooses_result"},
    infer=_infer_bitcast, machine=lambda m, x: m.bitcast(x, m.op.result.tensor.storage), reference=_bitcast,
)  # fmt: skip
