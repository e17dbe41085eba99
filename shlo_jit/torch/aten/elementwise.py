"""Functions of one tensor: exponentials, roots, trigonometry, rounding, signs."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.ir.dtypes import DTYPES
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import BOOL, I32, cast, category, filled, is_nan, number, sizes, together, wide


def in_floats(function: Callable[[Value], Value]) -> Callable[[Call, Value], Value]:
    """A record that computes in floats: f32 for integers, truth values and floats of 16 bits."""

    def record(call: Call, x: Value) -> Value:
        return cast(function(cast(x, wide(call.dtype))), call.dtype)

    return record


def digamma(x: Value) -> Value:
    """The derivative of the logarithm of the gamma function, infinite at the zeros: with their opposite sign."""
    zero = number(0, x.element_type)
    return b.select(x == zero, -(number(1, x.element_type) / x), b.digamma(x))


FLOAT_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "exp": b.exp, "expm1": b.expm1, "log": b.log, "log1p": b.log1p, "sqrt": b.sqrt, "rsqrt": b.rsqrt,
    "sin": b.sin, "cos": b.cos, "tan": b.tan, "sinh": b.sinh, "cosh": b.cosh, "tanh": b.tanh,
    "asin": b.asin, "acos": b.acos, "atan": b.atan, "asinh": b.asinh, "acosh": b.acosh, "atanh": b.atanh,
    "erf": b.erf, "erfc": b.erfc, "erfinv": b.erf_inv, "lgamma": b.lgamma, "digamma": digamma,
    "sigmoid": b.logistic,
    "exp2": lambda x: b.exp(x * math.log(2)),
    "log2": lambda x: _log_to(x, math.log(2)),
    "log10": lambda x: _log_to(x, math.log(10)),
}  # fmt: skip
"""Functions that have an operation of the builder, by the name of the operator."""


def _log_to(x: Value, base: float) -> Value:
    return b.log(x) / number(base, x.element_type)


for _name, _function in FLOAT_FUNCTIONS.items():
    _record = in_floats(_function)
    _record.__doc__ = f"{_name} of every element."
    aten(_name)(_record)


@aten("reciprocal")
def reciprocal(call: Call, x: Value) -> Value:
    """1 / x of every element."""
    y = cast(x, wide(call.dtype))
    return cast(number(1, y.element_type) / y, call.dtype)


@aten("abs")
def absolute(call: Call, x: Value) -> Value:
    """The absolute value of every element."""
    return x if x.element_type == BOOL or x.element_type.kind == "u" else b.abs(x)


@aten("neg")
def negative(call: Call, x: Value) -> Value:
    """-x of every element."""
    return b.neg(x)


@aten("positive", "alias", "clone", "detach", "lift_fresh_copy", "lift_fresh", "lift", "contiguous", "prims::view_of")
def unchanged(call: Call, x: Value, **_: object) -> Value:
    """The tensor itself."""
    return x


@aten("sign", "sgn")
def sign(call: Call, x: Value) -> Value:
    """The sign of every element: -1, 0 or 1; for complex numbers the number of that direction."""
    if x.element_type == BOOL:
        return x
    if x.element_type.kind == "u":
        return cast(x != number(0, x.element_type), x.element_type)
    if x.element_type.kind == "f":  # NaN has sign 0
        zero = number(0, x.element_type)
        return cast(x > zero, x.element_type) - cast(x < zero, x.element_type)
    return b.sign(x)


@aten("signbit")
def signbit(call: Call, x: Value) -> Value:
    """Whether the sign bit of every element is set."""
    dtype = x.element_type
    if dtype.kind == "f":
        return b.bitcast_convert_type(x, f"i{dtype.bits}") < 0
    if dtype.kind == "i":
        return x < 0
    return is_nan(x)


@aten("floor")
def floor(call: Call, x: Value) -> Value:
    """The greatest integer that is not above every element."""
    return b.floor(x) if category(x.element_type) == 2 else x


@aten("ceil")
def ceil(call: Call, x: Value) -> Value:
    """The least integer that is not below every element."""
    return b.ceil(x) if category(x.element_type) == 2 else x


@aten("trunc")
def trunc(call: Call, x: Value) -> Value:
    """Every element without its fraction."""
    return truncated(x) if category(x.element_type) == 2 else x


def truncated(x: Value) -> Value:
    """Floats without their fractions; the sign of zero is that of the operand."""
    down = b.floor(b.abs(x))
    return b.select(x < number(0, x.element_type), -down, b.select(x == number(0, x.element_type), x, down))


@aten("frac")
def frac(call: Call, x: Value) -> Value:
    """The fraction of every element."""
    return x - truncated(x)


@aten("round", "round.decimals")
def round_(call: Call, x: Value, *, decimals: int = 0) -> Value:
    """Every element rounded to the nearest number with some decimals, halves to even."""
    if category(x.element_type) != 2:
        return x
    if decimals == 0:
        return b.round_nearest_even(x)
    y = cast(x, wide(x.element_type))
    scale = number(10.0 ** abs(decimals), y.element_type)
    found = b.round_nearest_even(y * scale) / scale if decimals > 0 else b.round_nearest_even(y / scale) * scale
    return cast(found, x.element_type)


@aten("isnan")
def isnan(call: Call, x: Value) -> Value:
    """Whether every element is NaN."""
    return is_nan(x)


@aten("isinf")
def isinf(call: Call, x: Value) -> Value:
    """Whether every element is an infinity."""
    if x.element_type.kind == "c":
        return b.is_inf(b.real(x)) | b.is_inf(b.imag(x))
    return b.is_inf(x) if x.element_type.kind == "f" else is_nan(x)


@aten("isfinite")
def isfinite(call: Call, x: Value) -> Value:
    """Whether every element is neither NaN nor an infinity."""
    if x.element_type.kind == "c":
        return b.is_finite(b.real(x)) & b.is_finite(b.imag(x))
    return b.is_finite(x) if x.element_type.kind == "f" else ~is_nan(x)


@aten("isposinf")
def isposinf(call: Call, x: Value) -> Value:
    """Whether every element is the positive infinity."""
    return x == number(math.inf, x.element_type) if x.element_type.kind == "f" else is_nan(x)


@aten("isneginf")
def isneginf(call: Call, x: Value) -> Value:
    """Whether every element is the negative infinity."""
    return x == number(-math.inf, x.element_type) if x.element_type.kind == "f" else is_nan(x)


@aten("_to_copy", "to.dtype", "prims::convert_element_type")
def to_copy(call: Call, x: Value, *_: object, **__: object) -> Value:
    """The elements in another element type."""
    return cast(x, call.dtype)


@aten("nan_to_num")
def nan_to_num(
    call: Call, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    """Every element, with numbers in place of NaN and the infinities."""
    if x.element_type.kind == "c":
        return b.complex(*(nan_to_num(call, part, nan, posinf, neginf) for part in (b.real(x), b.imag(x))))
    if x.element_type.kind != "f":
        return x
    dtype = x.element_type
    limits = ml_dtypes.finfo(dtype.numpy)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    found = x
    for test, y in ((is_nan(x), nan or 0.0), (isposinf(call, x), high), (isneginf(call, x), low)):
        found = b.select(test, together(dtype, y, x)[0], found)
    return found


@aten("prims::frexp", "frexp.Tensor")
def frexp(call: Call, x: Value) -> tuple[Value, Value]:
    """A fraction in [0.5, 1) and the power of two by which it is to be multiplied."""
    y = cast(x, wide(x.element_type))
    mantissa_bits, bias, dtype = (23, 126, "i32") if y.element_type.bits == 32 else (52, 1022, "i64")
    integer = DTYPES[dtype]
    tiny = number(2.0 ** (1 - bias), y.element_type)
    is_subnormal = b.abs(y) < tiny
    normal = b.select(is_subnormal, y * number(2.0**mantissa_bits, y.element_type), y)
    bits = b.bitcast_convert_type(normal, integer)
    mask = number(2 * bias + 3 << mantissa_bits, integer)
    field = b.shift_right_logical(bits & mask, b.broadcast_in_dim(number(mantissa_bits, integer), sizes(bits), ()))
    exponent = field - number(bias, integer)
    exponent = b.select(is_subnormal, exponent - number(mantissa_bits, integer), exponent)
    half = b.bitcast_convert_type(bits & ~mask | number(bias << mantissa_bits, integer), y.element_type)
    is_finite = b.is_finite(y) & (y != number(0, y.element_type))
    fraction = b.select(is_finite, half, y)
    return cast(fraction, x.element_type), cast(b.select(is_finite, exponent, filled(sizes(y), 0, integer)), I32)
