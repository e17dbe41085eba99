"""Parts of complex numbers, and conversion (specification, sections of the same names)."""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DType, TensorType, Type
from shlo_jit.ops import complex_math as cm
from shlo_jit.ops.machine import Machine, Register, by_kind, call
from shlo_jit.ops.numeric import Array, convert, dtype_of, in_float, make_complex, result_dtype, wrap
from shlo_jit.ops.record import KINDS, Violation, define, required
from shlo_jit.ops.type_algebra import merge, operand_type, operand_types, same_type, type_text, with_element


def _part_type(op: Op) -> list[Type]:
    t = operand_type(op, 0)
    return [with_element(t, t.dtype.part) if isinstance(t.dtype, DType) else t]


def _infer_complex(op: Op) -> list[Type]:
    lhs, rhs = operand_types(op)
    if lhs.dtype != rhs.dtype:
        both = f"'{type_text(lhs)}' and '{type_text(rhs)}'"
        raise Violation("C1", f"requires the same element type for all operands, got {both}")
    from shlo_jit.ir.types import C64, C128

    return [with_element(merge([lhs, rhs]), C64 if lhs.dtype.name == "f32" else C128)]  # type: ignore[union-attr]


def _abs(op: Op, x: Array) -> Array:
    kind = dtype_of(x).kind
    if kind == "c":
        return cm.absolute(x)
    if kind == "f":
        return in_float(np.abs, x)
    return wrap(np.abs(x.astype(np.int64)), x.dtype)


def _imag(op: Op, x: Array) -> Array:
    return np.imag(x) if dtype_of(x).kind == "c" else np.zeros_like(x)


define(
    "stablehlo.abs", section="abs",
    operands=("operand: sint|float|complex|quant",), results=("result: sint|float|quant",),
    traits={"elementwise"}, exact="if", infer=_part_type,
    machine=by_kind(f="fabs", i="iabs", c=call("abs")), reference=_abs,
)  # fmt: skip
define(
    "stablehlo.real", section="real",
    operands=("operand: float|complex",), results=("result: float",),
    traits={"elementwise"}, exact=KINDS, infer=_part_type,
    machine=lambda m, x: m.real(x), reference=lambda op, x: np.real(x) if dtype_of(x).kind == "c" else x,
)  # fmt: skip
define(
    "stablehlo.imag", section="imag",
    operands=("operand: float|complex",), results=("result: float",),
    traits={"elementwise"}, exact=KINDS, infer=_part_type,
    machine=lambda m, x: m.imag(x), reference=_imag,
)  # fmt: skip
define(
    "stablehlo.complex", section="complex",
    operands=("lhs: f32|f64", "rhs: f32|f64"), results=("result: complex",),
    traits={"elementwise"}, exact=KINDS, infer=_infer_complex,
    machine=lambda m, lhs, rhs: m.pair(lhs, rhs),
    reference=lambda op, x, y: make_complex(x, y, result_dtype(op)),
)  # fmt: skip

# Conversion


def _infer_convert(op: Op) -> list[Type]:
    """Infers the operand's shape. The element type cannot be inferred and is taken from the stated result."""
    stated = op.results[0].type
    assert isinstance(stated, TensorType)
    return [with_element(operand_type(op, 0), stated.dtype)]


def _reduce_precision(op: Op, x: Array) -> Array:
    return in_float(lambda y: reduce_precision(y, op.int("exponent_bits"), op.int("mantissa_bits")), x)


def reduce_precision(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Rounds to a float format with `exponent_bits` and `mantissa_bits`.

    Numbers below its normal range become zeros of the same sign. A NaN becomes an infinity if no mantissa bit is left
    to distinguish the two.
    """
    width, fraction = (32, 23) if x.dtype == np.float32 else (64, 52)
    unsigned_type = np.dtype(f"u{width // 8}").type
    bits = np.ascontiguousarray(x).view(unsigned_type).reshape(x.shape)
    sign = bits & unsigned_type(1 << (width - 1))
    size = bits ^ sign
    special = ~np.isfinite(x)
    if mantissa_bits < fraction:
        drop = fraction - mantissa_bits
        last = (size >> unsigned_type(drop)) & unsigned_type(1)
        size = size + unsigned_type((1 << (drop - 1)) - 1) + last
        size = size & unsigned_type(~((1 << drop) - 1) & ((1 << width) - 1))
    own_bias = (1 << (width - fraction - 2)) - 1
    if exponent_bits < width - fraction - 1:
        bias = (1 << (exponent_bits - 1)) - 1
        exponent = (size >> unsigned_type(fraction)).astype(np.int64) - own_bias
        infinity = unsigned_type(((1 << (width - fraction - 1)) - 1) << fraction)
        size = np.where(exponent > bias, infinity, np.where(exponent <= -bias, unsigned_type(0), size))
    rounded = (sign | size.astype(unsigned_type)).view(x.dtype).reshape(x.shape)
    kept = x if mantissa_bits else np.copysign(x.dtype.type(np.inf), x)
    return np.where(special, kept, rounded)


def _reduce_precision_of_register(m: Machine, x: Register) -> Register:
    return m.reduce_precision(x, m.op.int("exponent_bits"), m.op.int("mantissa_bits"))


define(
    "stablehlo.convert", section="convert",
    operands=("operand: pred|int|float|complex|index",), results=("result: pred|int|float|complex|index",),
    traits={"elementwise", "chooses_result"}, exact=KINDS, infer=_infer_convert,
    machine=lambda m, x: m.convert(x, m.op.result.tensor.storage),
    reference=lambda op, x: convert(x, result_dtype(op)),
)  # fmt: skip
define(
    "stablehlo.reduce_precision", section="reduce_precision",
    operands=("operand: float|quant",), results=("output: float|quant",),
    attributes={"exponent_bits": required("i32 > 0", "C2"), "mantissa_bits": required("i32 >= 0", "C3")},
    traits={"elementwise"}, exact=KINDS, infer=same_type,
    machine=by_kind(f=_reduce_precision_of_register), reference=_reduce_precision,
)  # fmt: skip
