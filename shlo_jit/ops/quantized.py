"""Quantized values: uniform_quantize, uniform_dequantize, and the semantics of other ops on quantized tensors
(specification, "Quantization computations")."""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import QuantizedType, TensorType, Type
from shlo_jit.ops.numeric import Array, convert, narrow, result_type
from shlo_jit.ops.record import OpDef, Violation, define
from shlo_jit.ops.type_algebra import element_text, expressed, operand_type, with_element


def parameters(q: QuantizedType, rank: int, dtype: np.dtype) -> tuple[Array, Array]:
    """Returns scales (of `dtype`) and zero points (int64), shaped to broadcast over a tensor of rank `rank`."""
    shape = [1] * rank
    if q.axis is not None:
        shape[q.axis] = -1
    scales = np.asarray(q.scales, np.float64).astype(dtype).reshape(shape)
    return scales, np.asarray(q.zero_points, np.int64).reshape(shape)


def dequantize(x: Array, q: QuantizedType) -> Array:
    """Returns (x - zero_point) * scale in the expressed type."""
    dtype = q.expressed.numpy
    wide = np.dtype(np.float64) if dtype == np.float64 else np.dtype(np.float32)
    scales, zeros = parameters(q, x.ndim, dtype)
    difference = convert(x.astype(np.int64) - zeros, dtype)
    return narrow(difference.astype(wide) * scales.astype(wide), dtype)


def quantize(x: Array, q: QuantizedType) -> Array:
    """Returns clamp(round(x / scale) + zero_point) in the storage type; NaN is stored as 0."""
    wide = np.dtype(np.float64) if x.dtype == np.float64 else np.dtype(np.float32)
    scales, zeros = parameters(q, x.ndim, q.expressed.numpy)
    ratio = np.asarray(x.astype(wide) / scales.astype(wide)).astype(np.float64)
    stored = np.rint(ratio) + zeros
    stored = np.where(np.isnan(stored), 0.0, stored)
    return np.clip(stored, q.storage_min, q.storage_max).astype(np.int64).astype(q.storage.numpy)


# Ops that dequantize, compute and quantize (specification, "dequantize_op_quantize")


def quantization(v: Value) -> QuantizedType | None:
    """Returns the quantized element type of a value, or None."""
    t = v.type
    return t.dtype if isinstance(t, TensorType) and isinstance(t.dtype, QuantizedType) else None


def computes_on_quantized(op: Op, record: OpDef) -> bool:
    """Whether an op itself computes on quantized tensors, rather than moving them or running regions."""
    if record.regions or any(map(record.has, ("moves_data", "on_storage", "terminator", "collective"))):
        return False
    return any(quantization(v) is not None for v in (*op.operands, *op.results))


# uniform_quantize, uniform_dequantize


def _infer_quantize(op: Op) -> list[Type]:
    """Infers the operand's shape. The quantized type is taken from the stated result."""
    t, stated = operand_type(op, 0), op.results[0].type
    assert isinstance(stated, TensorType) and isinstance(stated.dtype, QuantizedType)
    source = expressed(t.dtype)
    if source != stated.dtype.expressed:
        raise Violation("C2", f"Expressed type of result expected to be '{source}', but got '{stated.dtype.expressed}'")
    return [with_element(t, stated.dtype)]


def _infer_dequantize(op: Op) -> list[Type]:
    t = operand_type(op, 0)
    return [with_element(t, expressed(t.dtype))]


def _verify_dequantize(op: Op) -> None:
    t, stated = operand_type(op, 0), op.results[0].type
    assert isinstance(stated, TensorType)
    if stated.dtype != expressed(t.dtype):
        raise Violation("C2", f"result element type is {element_text(stated.dtype)}, expected {expressed(t.dtype)}")


def _quantize(op: Op, x: Array) -> Array:
    source, target = operand_type(op, 0).dtype, result_type(op).dtype
    assert isinstance(target, QuantizedType)
    return quantize(dequantize(x, source) if isinstance(source, QuantizedType) else x, target)


def _dequantize(op: Op, x: Array) -> Array:
    source = operand_type(op, 0).dtype
    assert isinstance(source, QuantizedType)
    return dequantize(x, source)


define(
    "stablehlo.uniform_quantize", section="uniform_quantize",
    operands=("operand: float|quant|quant_axis",), results=("result: quant|quant_axis",),
    traits={"on_storage", "elementwise", "chooses_result"}, infer=_infer_quantize, reference=_quantize,
)  # fmt: skip
define(
    "stablehlo.uniform_dequantize", section="uniform_dequantize",
    operands=("operand: quant|quant_axis",), results=("result: float",),
    traits={"on_storage", "elementwise"}, infer=_infer_dequantize, verify=_verify_dequantize, reference=_dequantize,
)  # fmt: skip
