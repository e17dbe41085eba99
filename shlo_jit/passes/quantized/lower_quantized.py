"""Replace quantized types by their storage types, and quantized ops by core ops.

Needs: inlined functions. Guarantees: no type is quantized. Shapes must be known: an op on a quantized tensor with
dynamic dimensions is refused. Data movement happens on storage values. Products of quantized tensors are computed in
integers (`products.py`); a reduction whose body is over another quantized type has its operands requantized; every
other op becomes dequantize, op, quantize (specification, "dequantize_op_quantize").

    %z = tanh(%x) : q          ->   %z = quantize(tanh(dequantize(%x))) : i8
    %z = maximum(%x, %y) : q   ->   %z = maximum(%x, %y) : i8      # where quantize(dequantize(x)) = x
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Op, Region, Value, walk
from shlo_jit.ir.types import QuantizedType
from shlo_jit.ops import OPS
from shlo_jit.ops.quantized import computes_on_quantized, quantization
from shlo_jit.passes.context import Context
from shlo_jit.passes.quantized.math import (
    dequantize,
    expressed_type,
    quantize,
    requantize,
    round_trips,
    storage_type,
)
from shlo_jit.passes.quantized.products import PRODUCTS
from shlo_jit.passes.require_static import require_known_shapes
from shlo_jit.passes.rewriter import Rewriter, rewrite

ORDER = {"stablehlo." + n for n in ("maximum", "minimum", "clamp", "select", "compare")}
"""Ops that order or select values: they may do so on storage values."""
REDUCTIONS = {
    "stablehlo." + n: region
    for n, region in (
        ("reduce", 0), ("reduce_window", 0), ("scatter", 0), ("select_and_scatter", 1), ("all_reduce", 0),
        ("reduce_scatter", 0), ("collective_reduce", 0),
    )
}  # fmt: skip
"""Ops that convert their operands to the type that their body computes with, and the index of that region."""


def lower_quantized(function: Op, _: Context) -> Op:
    """The function on storage types. Raises UnsupportedError for dynamic dimensions."""
    values = [*function.block().arguments, *(r for op in walk(function.block()) for r in op.results)]
    if not any(quantization(v) is not None for v in values):
        return function
    return rewrite(function, _visit, storage_type)


def _visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    if all(quantization(v) is None for v in (*op.operands, *op.results)):
        return None
    require_known_shapes(op)
    if op.name == "stablehlo.uniform_dequantize":
        (source,) = (quantization(v) for v in op.operands)
        assert source is not None
        return [dequantize(rw, operands[0], source)]
    if op.name == "stablehlo.uniform_quantize":
        return [_quantize(rw, op, operands[0])]
    if op.name == "stablehlo.constant":
        dense = Dense(storage_type(op.result.type), op.constant.array)  # type: ignore[arg-type]
        return rw.emit(op.name, [], [dense.type], {**op.attributes, "value": dense})
    if op.name in PRODUCTS:
        found = PRODUCTS[op.name](rw, op, operands)
        if found is not None:
            return found
    if op.name in REDUCTIONS:
        return _reduction(rw, op, operands)
    record = OPS.get(op.name)
    if record is None or not computes_on_quantized(op, record) or _keeps_order(op):
        return None
    return _compute(rw, op, operands)


def _quantize(rw: Rewriter, op: Op, x: Value) -> Value:
    source, target = quantization(op.operands[0]), quantization(op.result)
    assert target is not None
    return quantize(rw, x, target) if source is None else requantize(rw, x, source, target)


def _compute(rw: Rewriter, op: Op, operands: list[Value]) -> list[Value]:
    """Dequantizes, computes and quantizes again."""
    floats = []
    for old, new in zip(op.operands, operands, strict=True):
        q = quantization(old)
        floats.append(new if q is None else dequantize(rw, new, q))
    results = rw.emit(op.name, floats, [expressed_type(r.type) for r in op.results], op.attributes)
    out = []
    for old, new in zip(op.results, results, strict=True):
        q = quantization(old)
        out.append(new if q is None else quantize(rw, new, q))
    return out


def _keeps_order(op: Op) -> bool:
    """Whether an op orders or selects values of one quantized type whose storage values have the same order."""
    if op.name not in ORDER:
        return False
    types = {q for q in (quantization(v) for v in (*op.operands, *op.results)) if q is not None}
    return len(types) == 1 and all(map(round_trips, types))


def _reduction(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """Requantizes the operands whose type is not the body's (`to_destination_type`)."""
    region = REDUCTIONS[op.name]
    wanted = [quantization(a) for a in op.block(region).arguments]
    converted = []
    for i, (old, new) in enumerate(zip(op.operands, operands, strict=True)):
        source, target = quantization(old), _body_type(op, i, wanted)
        differs = source is not None and target is not None and source != target
        converted.append(requantize(rw, new, source, target) if differs else new)  # type: ignore[arg-type]
    regions = [Region([rw.sweep(b) for b in r.blocks]) for r in op.regions]
    return rw.emit(op.name, converted, [storage_type(r.type) for r in op.results], op.attributes, regions)


def _body_type(op: Op, operand: int, arguments: list[QuantizedType | None]) -> QuantizedType | None:
    """Returns the quantized type in which the body takes an operand, or None. Operands correspond to the body's
    arguments, except for the indices of a scatter."""
    n = len(op.results)
    if op.name == "stablehlo.scatter":
        if operand == n:
            return None
        operand -= operand > n
    elif op.name == "stablehlo.select_and_scatter":
        return arguments[0] if operand else None
    return arguments[operand % len(arguments)]
