"""Elementwise ops: result element i depends on element i of the operands (specification, "Ops").

Constraint C1 of nearly all of them is `baseline_type(operands...) = baseline_type(result)`, which inference implies.
"""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import QuantizedType, Type
from shlo_jit.ops import complex_math as cm
from shlo_jit.ops import neutral
from shlo_jit.ops.machine import ByKind, by_kind, call, elementary
from shlo_jit.ops.numeric import (
    Array,
    Meaning,
    divide_int,
    dtype_of,
    function,
    meaning,
    power_float,
    power_int,
    remainder_int,
    unsigned,
    wrap,
)
from shlo_jit.ops.record import Neutral, Violation, define, optional
from shlo_jit.ops.result_accuracy import check_result_accuracy
from shlo_jit.ops.type_algebra import (
    operand_type,
    operand_types,
    same_type,
    stated_result,
)

ACCURACY = {"result_accuracy": optional("struct result_accuracy")}


def unary(
    name: str,
    kinds: str,
    reference: Meaning,
    machine: ByKind,
    *,
    exact: str = "",
    cost: int = 1,
    accuracy: bool = False,
) -> None:
    """Defines an op of one operand whose result has the operand's type. With `accuracy`, it has the attribute
    `result_accuracy`."""
    define(
        f"stablehlo.{name}",
        section=name,
        operands=(f"operand: {kinds}",),
        results=(f"result: {kinds}",),
        attributes=ACCURACY if accuracy else None,
        traits={"elementwise", "transcendental"} if accuracy else {"elementwise"},
        exact=exact,
        cost=cost,
        machine=machine,
        infer=same_type,
        verify=check_result_accuracy if accuracy else None,
        rules=("unary", "accurate") if accuracy else ("unary",),
        reference=reference,
    )


def binary(
    name: str,
    kinds: str,
    reference: Meaning,
    machine: ByKind,
    *,
    traits: tuple[str, ...] = (),
    exact: str = "",
    neutral: Neutral | None = None,
    cost: int = 1,
) -> None:
    """Defines an op whose two operands and result have one type."""
    define(
        f"stablehlo.{name}",
        section=name,
        operands=(f"lhs: {kinds}", f"rhs: {kinds}"),
        results=(f"result: {kinds}",),
        traits={"elementwise", *traits},
        exact=exact,
        neutral=neutral,
        cost=cost,
        machine=machine,
        infer=same_type,
        rules=("binary",),
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


def _cbrt(x: np.ndarray) -> np.ndarray:
    """Rounds from long doubles, since NumPy's function for f64 is off by several ULPs on some machines."""
    return np.cbrt(x.astype(np.longdouble)).astype(x.dtype)


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x.astype(np.longdouble))


def fmax(x: Array, y: Array) -> Array:
    """IEEE-754 maximum: NaN propagates, and +0 is greater than -0."""
    larger = np.maximum(x, y)
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), y, x), larger)


def fmin(x: Array, y: Array) -> Array:
    smaller = np.minimum(x, y)
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), x, y), smaller)


NUMBER = "int|float|complex|quant"
FLOAT = "float|complex|quant"

unary(
    "negate", NUMBER, meaning(i=lambda x: -x, f=np.negative),
    by_kind(f="fneg", i=lambda m, x: m.sub(m.number(0), x), c="cneg"), exact="ifc",
)  # fmt: skip
unary(
    "sign", "sint|float|complex|quant", meaning(i=np.sign, f=_sign_float, c=cm.sign),
    by_kind(f="fsign", i="isign", c=call("sign")), exact="if",
)  # fmt: skip
unary("ceil", "float|quant", meaning(f=np.ceil), by_kind(f=call("ceil")), exact="f")
unary("floor", "float|quant", meaning(f=np.floor), by_kind(f=call("floor")), exact="f")
unary("round_nearest_afz", "float|quant", meaning(f=_round_afz), by_kind(f=call("round_nearest_afz")), exact="f")
unary("round_nearest_even", "float|quant", meaning(f=np.rint), by_kind(f=call("round_nearest_even")), exact="f")

binary(
    "subtract", NUMBER, meaning(i=np.subtract, f=np.subtract),
    by_kind(f="fsub", i="sub", c="csub"), exact="ifc",
)  # fmt: skip
binary(
    "multiply", "tensor", meaning(b=np.logical_and, i=np.multiply, f=np.multiply, c=cm.multiply),
    by_kind(f="fmul", i="mul", b="and_", c="cmul"),
    traits=("commutative",), exact="bifc", neutral=neutral.of_product,
)  # fmt: skip
binary(
    "divide", NUMBER, meaning(i=divide_int, f=np.divide, c=cm.divide),
    by_kind(f="fdiv", i="idiv", c=call("divide")), exact="if", cost=4,
)  # fmt: skip
binary(
    "remainder", NUMBER, meaning(i=remainder_int, f=np.fmod),
    by_kind(f=call("remainder"), i="irem"), exact="if", cost=8,
)  # fmt: skip
binary(
    "power", NUMBER, meaning(i=power_int, f=power_float, c=cm.power, exact=False),
    by_kind(f=call("pow"), i="ipow", c=call("power")),
    traits=("transcendental",), exact="i", cost=40,
)  # fmt: skip
binary(
    "maximum", "tensor", meaning(b=np.logical_or, i=np.maximum, f=fmax, c=cm.maximum),
    by_kind(f="fmax", i="imax", b="or_", c="cmax"),
    traits=("commutative", "idempotent"), exact="bifc", neutral=neutral.of_maximum,
)  # fmt: skip
binary(
    "minimum", "tensor", meaning(b=np.logical_and, i=np.minimum, f=fmin, c=cm.minimum),
    by_kind(f="fmin", i="imin", b="and_", c="cmin"),
    traits=("commutative", "idempotent"), exact="bifc", neutral=neutral.of_minimum,
)  # fmt: skip
binary("atan2", FLOAT, function(np.arctan2, cm.atan2), elementary("atan2"), traits=("transcendental",), cost=24)


def _infer_add(op: Op) -> list[Type]:
    types = [*operand_types(op), stated_result(op)]
    if not any(isinstance(t.dtype, QuantizedType) for t in types):
        return same_type(op)
    if len({isinstance(t.dtype, QuantizedType) for t in types}) > 1:
        raise Violation("C2", "expects all operands and results to be either quantized or non-quantized")
    quantized = [t.dtype for t in types if isinstance(t.dtype, QuantizedType)]
    if len({q.storage.bits for q in quantized}) > 1:  # signedness is covered by C1
        raise Violation("C3", "mismatched operands and result quantization storage types")
    if len({q.expressed for q in quantized}) > 1:
        raise Violation("C4", "mismatched operands and result quantization expressed types")
    return same_type(op)


def _verify_add(op: Op) -> None:
    """Checks C5 to C7. `add` is the only arithmetic op with operands quantized per axis."""
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
    machine=by_kind(f="fadd", i="add", b="or_", c="cadd"),
    reference=meaning(b=np.logical_or, i=np.add, f=np.add),
)  # fmt: skip

# Functions

unary("sqrt", FLOAT, meaning(f=np.sqrt, c=cm.sqrt), elementary("sqrt"), exact="f", cost=4, accuracy=True)
unary("rsqrt", FLOAT, function(_rsqrt, cm.rsqrt), elementary("rsqrt"), cost=5, accuracy=True)
unary("cbrt", FLOAT, function(_cbrt, cm.cbrt), elementary("cbrt"), cost=16, accuracy=True)
unary("exponential", FLOAT, function(np.exp, cm.exp), elementary("exp"), cost=12, accuracy=True)
unary("exponential_minus_one", FLOAT, function(np.expm1, cm.expm1), elementary("expm1"), cost=12, accuracy=True)
unary("log", FLOAT, function(np.log, cm.log), elementary("log"), cost=12, accuracy=True)
unary("log_plus_one", FLOAT, function(np.log1p, cm.log1p), elementary("log1p"), cost=12, accuracy=True)
unary("logistic", FLOAT, function(_logistic, cm.logistic), elementary("logistic"), cost=16, accuracy=True)
unary("sine", FLOAT, function(np.sin, cm.sin), elementary("sin"), cost=20, accuracy=True)
unary("cosine", FLOAT, function(np.cos, cm.cos), elementary("cos"), cost=20, accuracy=True)
unary("tan", FLOAT, function(np.tan, cm.tan), elementary("tan"), cost=24, accuracy=True)
unary("tanh", FLOAT, function(np.tanh, cm.tanh), elementary("tanh"), cost=16, accuracy=True)

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
    """Returns the reference of a shift. A negative amount, or one of at least the width, gives zeros or copies of the
    sign."""

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


unary("not", "pred|int", meaning(b=np.logical_not, i=np.invert), by_kind(b="not_", i="not_"), exact="bi")
unary("popcnt", "int", _popcnt, by_kind(i="popcount"), exact="i")
unary("count_leading_zeros", "int", _count_leading_zeros, by_kind(i="leading_zeros"), exact="i")
binary(
    "and", "pred|int", meaning(b=np.logical_and, i=np.bitwise_and), by_kind(b="and_", i="and_"),
    traits=("commutative", "idempotent"), exact="bi", neutral=neutral.all_bits,
)  # fmt: skip
binary(
    "or", "pred|int", meaning(b=np.logical_or, i=np.bitwise_or), by_kind(b="or_", i="or_"),
    traits=("commutative", "idempotent"), exact="bi", neutral=neutral.no_bits,
)  # fmt: skip
binary(
    "xor", "pred|int", meaning(b=np.logical_xor, i=np.bitwise_xor), by_kind(b="xor", i="xor"),
    traits=("commutative",), exact="bi", neutral=neutral.no_bits,
)  # fmt: skip
binary("shift_left", "int", _shift("left"), by_kind(i="shift_left"), exact="i")
binary("shift_right_arithmetic", "int", _shift("arithmetic"), by_kind(i="shift_sign"), exact="i")
binary("shift_right_logical", "int", _shift("logical"), by_kind(i="shift_right"), exact="i")
