"""Elementwise ops: result element i depends on element i of the operands (specification, "Ops").

Constraint C1 of nearly all of them is `baseline_type(operands...) = baseline_type(result)`, which inference states.
"""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import I1, DType, QuantizedType, TensorType, Type
from shlo_jit.ops import complex_math as cm
from shlo_jit.ops import neutral
from shlo_jit.ops.numeric import (
    Array,
    Meaning,
    convert,
    divide_int,
    dtype_of,
    in_float,
    make_complex,
    meaning,
    power_int,
    remainder_int,
    result_dtype,
    total_order_key,
    unsigned,
    wrap,
)
from shlo_jit.ops.record import KINDS, Neutral, Violation, define, optional, required
from shlo_jit.ops.result_accuracy import check_result_accuracy
from shlo_jit.ops.shapes import (
    compatible_elements,
    compatible_shapes,
    merge,
    operand_type,
    operand_types,
    same_type,
    shape_text,
    stated_result,
    type_text,
    with_element,
)

ACCURACY = {"result_accuracy": optional("struct result_accuracy")}


def unary(name: str, kinds: str, reference: Meaning, *, exact: str = "", cost: int = 1, accuracy: bool = False) -> None:
    """An op of one operand whose result has the operand's type."""
    define(
        f"stablehlo.{name}",
        section=name,
        operands=(f"operand: {kinds}",),
        results=(f"result: {kinds}",),
        attributes=ACCURACY if accuracy else None,
        traits={"elementwise"},
        exact=exact,
        cost=cost,
        infer=same_type,
        verify=check_result_accuracy if accuracy else None,
        reference=reference,
    )


def binary(
    name: str,
    kinds: str,
    reference: Meaning,
    *,
    traits: tuple[str, ...] = (),
    exact: str = "",
    neutral: Neutral | None = None,
    cost: int = 1,
) -> None:
    """An op of two operands of one type, which is the result's too."""
    define(
        f"stablehlo.{name}",
        section=name,
        operands=(f"lhs: {kinds}", f"rhs: {kinds}"),
        results=(f"result: {kinds}",),
        traits={"elementwise", *traits},
        exact=exact,
        neutral=neutral,
        cost=cost,
        infer=same_type,
        reference=reference,
    )


# Arithmetic


def _sign_float(x: Array) -> Array:
    return np.where(x == 0, x, np.sign(x))


def _round_afz(x: Array) -> Array:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole).astype(x.dtype)


def _logistic(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x.astype(np.longdouble))


def _maximum(x: Array, y: Array) -> Array:
    """IEEE-754 maximum: NaN wins, and +0 is above -0."""
    larger = np.maximum(x, y)
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), y, x), larger)


def _minimum(x: Array, y: Array) -> Array:
    smaller = np.minimum(x, y)
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), x, y), smaller)


NUMBER = "int|float|complex|quant"
FLOAT = "float|complex|quant"

unary("negate", NUMBER, meaning(i=lambda x: -x, f=np.negative), exact="ifc")
unary("sign", "sint|float|complex|quant", meaning(i=np.sign, f=_sign_float, c=cm.sign), exact="if")
unary("ceil", "float|quant", meaning(f=np.ceil), exact="f")
unary("floor", "float|quant", meaning(f=np.floor), exact="f")
unary("round_nearest_afz", "float|quant", meaning(f=_round_afz), exact="f")
unary("round_nearest_even", "float|quant", meaning(f=np.rint), exact="f")

binary("subtract", NUMBER, meaning(i=np.subtract, f=np.subtract), exact="ifc")
binary(
    "multiply", "tensor", meaning(b=np.logical_and, i=np.multiply, f=np.multiply, c=cm.multiply),
    traits=("commutative",), exact="bifc", neutral=neutral.of_product,
)  # fmt: skip
binary("divide", NUMBER, meaning(i=divide_int, f=np.divide, c=cm.divide), exact="if", cost=4)
binary("remainder", NUMBER, meaning(i=remainder_int, f=np.fmod), exact="if", cost=8)
binary("power", NUMBER, meaning(i=power_int, f=np.power, c=cm.power, exact=False), exact="i", cost=40)
binary(
    "maximum", "tensor", meaning(b=np.logical_or, i=np.maximum, f=_maximum, c=cm.maximum),
    traits=("commutative", "idempotent"), exact="bifc", neutral=neutral.of_maximum,
)  # fmt: skip
binary(
    "minimum", "tensor", meaning(b=np.logical_and, i=np.minimum, f=_minimum, c=cm.minimum),
    traits=("commutative", "idempotent"), exact="bifc", neutral=neutral.of_minimum,
)  # fmt: skip
binary("atan2", FLOAT, meaning(f=np.arctan2, c=cm.atan2, exact=False), cost=24)


def _infer_add(op: Op) -> list[Type]:
    types = [*operand_types(op), stated_result(op)]
    if not any(isinstance(t.dtype, QuantizedType) for t in types):
        return same_type(op)
    if len({isinstance(t.dtype, QuantizedType) for t in types}) > 1:
        raise Violation("C2", "expects all operands and results to be either quantized or non-quantized")
    quantized = [t.dtype for t in types if isinstance(t.dtype, QuantizedType)]
    if len({q.storage.bits for q in quantized}) > 1:  # signed or not is a matter of C1
        raise Violation("C3", "mismatched operands and result quantization storage types")
    if len({q.expressed for q in quantized}) > 1:
        raise Violation("C4", "mismatched operands and result quantization expressed types")
    return same_type(op)


def _verify_add(op: Op) -> None:
    """C5 to C7: the only arithmetic that takes operands quantized per axis."""
    if not isinstance(operand_type(op, 0).dtype, QuantizedType):
        return
    lhs, rhs, result = (t.dtype for t in (*operand_types(op), stated_result(op)))
    assert isinstance(lhs, QuantizedType) and isinstance(rhs, QuantizedType) and isinstance(result, QuantizedType)
    if (lhs.axis is not None or rhs.axis is not None) != (result.axis is not None):
        raise Violation(
            "C5",
            "result is not per_axis quantized but lhs or rhs are"
            if result.axis is None
            else "result is per_axis quantized but lhs and rhs are not",
        )
    for label, name, q in (("C6", "lhs", lhs), ("C7", "rhs", rhs)):
        if q.axis is not None and q.axis != result.axis:
            raise Violation(label, f"quantization_dimension of {name} and result are not same")


define(
    "stablehlo.add", section="add",
    operands=("lhs: any_tensor", "rhs: any_tensor"), results=("result: any_tensor",),
    traits={"elementwise", "commutative"}, exact="bifc", neutral=neutral.of_sum, infer=_infer_add, verify=_verify_add,
    reference=meaning(b=np.logical_or, i=np.add, f=np.add),
)  # fmt: skip

# Functions

unary("sqrt", FLOAT, meaning(f=np.sqrt, c=cm.sqrt), exact="f", cost=4, accuracy=True)
unary("rsqrt", FLOAT, meaning(f=_rsqrt, c=cm.rsqrt, exact=False), cost=5, accuracy=True)
unary("cbrt", FLOAT, meaning(f=np.cbrt, c=cm.cbrt, exact=False), cost=16, accuracy=True)
unary("exponential", FLOAT, meaning(f=np.exp, c=cm.exp, exact=False), cost=12, accuracy=True)
unary("exponential_minus_one", FLOAT, meaning(f=np.expm1, c=cm.expm1, exact=False), cost=12, accuracy=True)
unary("log", FLOAT, meaning(f=np.log, c=cm.log, exact=False), cost=12, accuracy=True)
unary("log_plus_one", FLOAT, meaning(f=np.log1p, c=cm.log1p, exact=False), cost=12, accuracy=True)
unary("logistic", FLOAT, meaning(f=_logistic, c=cm.logistic, exact=False), cost=16, accuracy=True)
unary("sine", FLOAT, meaning(f=np.sin, c=cm.sin, exact=False), cost=20, accuracy=True)
unary("cosine", FLOAT, meaning(f=np.cos, c=cm.cos, exact=False), cost=20, accuracy=True)
unary("tan", FLOAT, meaning(f=np.tan, c=cm.tan, exact=False), cost=24, accuracy=True)
unary("tanh", FLOAT, meaning(f=np.tanh, c=cm.tanh, exact=False), cost=16, accuracy=True)

# Bits


def _popcnt(op: Op, x: Array) -> Array:
    return wrap(np.bitwise_count(unsigned(x)), x.dtype)


def _count_leading_zeros(op: Op, x: Array) -> Array:
    left, zeros = unsigned(x), np.full(x.shape, dtype_of(x).bits, np.int64)
    while left.any():
        zeros = zeros - (left != 0)
        left = left >> left.dtype.type(1)
    return wrap(zeros, x.dtype)


def _shift(kind: str) -> Meaning:
    """Shifts; an amount of the width or more (or negative) leaves nothing but zeros or copies of the sign."""

    def reference(op: Op, x: Array, amount: Array) -> Array:
        bits = dtype_of(x).bits
        n = unsigned(amount).astype(np.uint64)
        inside = n < bits
        n = np.where(inside, n, 0).astype(np.int64)
        if kind == "arithmetic":
            signed = wrap(x, np.dtype(f"i{x.dtype.itemsize}")) if bits >= 8 else _signed(x, bits)
            moved = np.where(inside, signed >> n.astype(signed.dtype), np.where(signed < 0, -1, 0))
        else:
            raw = unsigned(x)
            moved = raw << n.astype(raw.dtype) if kind == "left" else raw >> n.astype(raw.dtype)
            moved = np.where(inside, moved, 0)
        return wrap(moved, x.dtype)

    return reference


def _signed(x: Array, bits: int) -> Array:
    raw = unsigned(x).astype(np.int64)
    return np.where(raw >> (bits - 1), raw - (1 << bits), raw)


unary("not", "pred|int", meaning(b=np.logical_not, i=np.invert), exact="bi")
unary("popcnt", "int", _popcnt, exact="i")
unary("count_leading_zeros", "int", _count_leading_zeros, exact="i")
binary(
    "and", "pred|int", meaning(b=np.logical_and, i=np.bitwise_and),
    traits=("commutative", "idempotent"), exact="bi", neutral=neutral.all_bits,
)  # fmt: skip
binary(
    "or", "pred|int", meaning(b=np.logical_or, i=np.bitwise_or),
    traits=("commutative", "idempotent"), exact="bi", neutral=neutral.no_bits,
)  # fmt: skip
binary(
    "xor", "pred|int", meaning(b=np.logical_xor, i=np.bitwise_xor),
    traits=("commutative",), exact="bi", neutral=neutral.no_bits,
)  # fmt: skip
binary("shift_left", "int", _shift("left"), exact="i")
binary("shift_right_arithmetic", "int", _shift("arithmetic"), exact="i")
binary("shift_right_logical", "int", _shift("logical"), exact="i")

# Complex parts


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
    traits={"elementwise"}, exact="if", infer=_part_type, reference=_abs,
)  # fmt: skip
define(
    "stablehlo.real", section="real",
    operands=("operand: float|complex",), results=("result: float",),
    traits={"elementwise"}, exact=KINDS, infer=_part_type,
    reference=lambda op, x: np.real(x) if dtype_of(x).kind == "c" else x,
)  # fmt: skip
define(
    "stablehlo.imag", section="imag",
    operands=("operand: float|complex",), results=("result: float",),
    traits={"elementwise"}, exact=KINDS, infer=_part_type, reference=_imag,
)  # fmt: skip
define(
    "stablehlo.complex", section="complex",
    operands=("lhs: f32|f64", "rhs: f32|f64"), results=("result: complex",),
    traits={"elementwise"}, exact=KINDS, infer=_infer_complex,
    reference=lambda op, x, y: make_complex(x, y, result_dtype(op)),
)  # fmt: skip

# Comparison and choice


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
        raise Violation("C3", f"compare_type {attr.value} does not go with elements of type {dtype}")


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


define(
    "stablehlo.compare", section="compare",
    operands=("lhs: tensor", "rhs: tensor"), results=("result: pred",),
    attributes={
        "comparison_direction": required("enum comparison_direction"),
        "compare_type": optional("enum comparison_type"),
    },
    traits={"elementwise"}, exact=KINDS, infer=_infer_compare, verify=_verify_compare, reference=_compare,
)  # fmt: skip
define(
    "stablehlo.is_finite", section="is_finite",
    operands=("x: float|quant",), results=("y: pred",),
    traits={"elementwise"}, exact=KINDS, infer=_to_pred,
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
        return in_float(lambda a, b, c: _minimum(_maximum(b, a), c), low, x, high)
    return np.asarray(np.minimum(np.maximum(x, low), high)).astype(x.dtype)


define(
    "stablehlo.select", section="select",
    operands=("pred: pred", "on_true: tensor", "on_false: tensor"),
    traits={"elementwise"}, exact=KINDS, infer=_infer_select,
    reference=lambda op, pred, on_true, on_false: np.where(pred, on_true, on_false),
)  # fmt: skip
define(
    "stablehlo.clamp", section="clamp",
    operands=("min: tensor", "operand: tensor", "max: tensor"),
    traits={"elementwise"}, exact=KINDS, infer=_infer_clamp, reference=_clamp,
)  # fmt: skip

# Conversion


def _infer_convert(op: Op) -> list[Type]:
    """The shape is the operand's; the element type cannot be inferred and is taken from the stated result."""
    stated = op.results[0].type
    assert isinstance(stated, TensorType)
    return [with_element(operand_type(op, 0), stated.dtype)]


def _reduce_precision(op: Op, x: Array) -> Array:
    return in_float(lambda y: reduce_precision(y, op.int("exponent_bits"), op.int("mantissa_bits")), x)


def reduce_precision(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round to a float format with so many bits. What is below its normal numbers becomes a zero of the same sign. A
    NaN becomes an infinity where no bit is left to tell the two apart."""
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


define(
    "stablehlo.convert", section="convert",
    operands=("operand: pred|int|float|complex|index",), results=("result: pred|int|float|complex|index",),
    traits={"elementwise", "chooses_result"}, exact=KINDS, infer=_infer_convert,
    reference=lambda op, x: convert(x, result_dtype(op)),
)  # fmt: skip
define(
    "stablehlo.reduce_precision", section="reduce_precision",
    operands=("operand: float|quant",), results=("output: float|quant",),
    attributes={"exponent_bits": required("i32 > 0", "C2"), "mantissa_bits": required("i32 >= 0", "C3")},
    traits={"elementwise"}, exact=KINDS, infer=same_type, reference=_reduce_precision,
)  # fmt: skip
