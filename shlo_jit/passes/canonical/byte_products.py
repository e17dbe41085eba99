"""Rewrite products of integers that are converted bytes as products of these bytes.

Needs: static shapes. Guarantees: nothing; a product of bytes uses the byte dot-product instructions.

    dot_general(convert(x : ui8) : i32, convert(y : i8) : i32)     ->   dot_general(x : ui8, y : i8) : i32
    dot_general(convert(x : ui8) - z, y : i8) : i32                ->   dot_general(x, y) - z * sums of y
    dot_general(constant : i32 in [0, 255], y : i8) : i32          ->   dot_general(constant : ui8, y) : i32

Frontends write quantized models in this form. An operand is a byte less a zero point (`byte_operands.py`), which
becomes a correction by sums (`zero_points.py`); everything is exact modulo 2^32. Sums of 64 bits are computed in 32
bits if they fit. Convolutions are rewritten in the same form if they become products (`byte_convolutions.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import I32, DType, storage_range
from shlo_jit.ops.runs import roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.byte_convolutions import pays
from shlo_jit.passes.canonical.byte_operands import ByteOperand, byte_operand
from shlo_jit.passes.canonical.canonical_dots import is_small
from shlo_jit.passes.canonical.zero_points import integer_convolution, integer_product
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite

PRODUCTS = {"stablehlo.dot_general", "stablehlo.convolution"}


def byte_products(function: Op, _: Context) -> Op:
    """The function with products of converted bytes replaced by products of the bytes."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name not in PRODUCTS or not all(map(mk.is_static, (*operands, op.result))):
            return None
        result = op.result.tensor.storage
        if not all(t.is_integer for t in (result, *(v.tensor.storage for v in operands))):
            return None
        if all(v.tensor.storage.bits <= 8 for v in operands) and result.bits <= 32:
            return None
        return (_dot if op.name == "stablehlo.dot_general" else _convolution)(rw, op, operands, result)

    found = any(op.name in PRODUCTS for op in walk(function.block()))
    return rewrite(function, visit) if found else function


def _dot(rw: Rewriter, op: Op, operands: list[Value], result: DType) -> Sequence[Value] | None:
    r = roles_of(op)
    if is_small(operands[0], r, list(op.result.tensor.extents)):
        return None
    kept = (*r.lhs_batch, *r.lhs_free), (*r.rhs_batch, *r.rhs_free)
    sides = [byte_operand(v, _bits_of(result), k) for v, k in zip(operands, kept, strict=True)]
    depth = math.prod(operands[0].tensor.extents[d] for d in r.lhs_contracting)
    acc = _sums_type(depth, sides, result)
    if acc is None:
        return None
    lhs, rhs = (side.emit(rw) for side in sides if side is not None)
    roles = [r.lhs_batch, r.rhs_batch, r.lhs_contracting, r.rhs_contracting]
    return [mk.convert(rw, integer_product(rw, lhs, rhs, roles, acc)[0], result)]


def _convolution(rw: Rewriter, op: Op, operands: list[Value], result: DType) -> Sequence[Value] | None:
    """Rewrites a convolution only if it becomes a product."""
    numbers = op.attributes["dimension_numbers"]
    assert isinstance(numbers, ConvDims)
    sides = [byte_operand(v, _bits_of(result), ()) for v in operands]
    shape, extents = operands[1].tensor.extents, op.result.tensor.extents
    depth = math.prod(shape) // max(shape[numbers.kernel_output_feature_dimension], 1)
    acc = _sums_type(depth, sides, result)
    if acc is None or not pays(shape, acc, extents, op.attributes):
        return None
    x, y = (side for side in sides if side is not None)
    least, most = storage_range(x.dtype)
    if not isinstance(x.zero.value, int) or not least <= x.zero.value <= most:
        return None  # the input is padded with it
    lhs, rhs = x.emit(rw), y.emit(rw)
    return [mk.convert(rw, integer_convolution(rw, lhs, rhs, op.attributes, extents, acc), result)]


def _bits_of(result: DType) -> int:
    """Returns the width of the sums; narrower results are truncated sums."""
    return max(result.bits, 32)


def _sums_type(depth: int, sides: Sequence[ByteOperand | None], result: DType) -> DType | None:
    """Returns the 32-bit type of the sums, or None if an operand is not bytes, or if sums might not fit."""
    if any(side is None for side in sides):
        return None
    if result.bits <= 32:
        return result if result.bits == 32 else I32
    bounds = [side.bound for side in sides if side is not None]
    if None in bounds:
        return None
    return I32 if depth * math.prod(b for b in bounds if b is not None) < 1 << 31 else None
