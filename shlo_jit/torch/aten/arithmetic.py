"""Arithmetic of two and three tensors, with ATen's promotion of element types."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.elementwise import truncated
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.values import (
    BOOL,
    I16,
    Operand,
    cast,
    category,
    filled,
    is_nan,
    number,
    pair,
    sizes,
    together,
    wide,
)


def scaled(x: Operand, alpha: float, dtype: object) -> Operand:
    """x times the factor of `add` and `sub`."""
    if alpha == 1:
        return x
    if not isinstance(x, Value):
        return x * alpha
    y = cast(x, dtype)  # type: ignore[arg-type]  an element type
    return y & number(alpha, BOOL) if y.element_type == BOOL else y * number(alpha, y.element_type)


@aten("add.Tensor", "add.Scalar")
def add(call: Call, x: Operand, y: Operand, alpha: float = 1) -> Value:
    """x + alpha * y."""
    dtype = wide(call.dtype)
    left, right = pair(dtype, x, scaled(y, alpha, dtype))
    return cast(left | right if dtype == BOOL else left + right, call.dtype)


@aten("sub.Tensor", "sub.Scalar")
def sub(call: Call, x: Operand, y: Operand, alpha: float = 1) -> Value:
    """x - alpha * y."""
    dtype = wide(call.dtype)
    left, right = pair(dtype, x, scaled(y, alpha, dtype))
    return cast(left - right, call.dtype)


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(call: Call, x: Operand, y: Operand, alpha: float = 1) -> Value:
    """y - alpha * x."""
    return sub(call, y, x, alpha)


@aten("mul.Tensor", "mul.Scalar")
def mul(call: Call, x: Operand, y: Operand) -> Value:
    """x * y."""
    left, right = pair(wide(call.dtype), x, y)
    return cast(left & right if call.dtype == BOOL else left * right, call.dtype)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(call: Call, x: Operand, y: Operand) -> Value:
    """x / y in floats."""
    left, right = pair(wide(call.dtype), x, y)
    return cast(b.div(left, right), call.dtype)


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(call: Call, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    """x / y, rounded as the mode says: None, floor or trunc."""
    if rounding_mode is None:
        return div(call, x, y)
    if rounding_mode == "floor":
        return floor_divide(call, x, y)
    left, right = pair(wide(call.dtype), x, y)
    return cast(b.div(left, right) if call.dtype.kind in "iu" else truncated(b.div(left, right)), call.dtype)


@aten("floor_divide", "floor_divide.Scalar")
def floor_divide(call: Call, x: Operand, y: Operand) -> Value:
    """The greatest integer that is not above x / y."""
    left, right = pair(wide(call.dtype), x, y)
    if call.dtype.kind == "u":
        return b.div(left, right)
    if call.dtype.kind == "i":
        quotient = b.div(left, right)
        zero = number(0, call.dtype)
        is_off = ((left < zero) != (right < zero)) & (quotient * right != left)
        return b.select(is_off, quotient - number(1, call.dtype), quotient)
    return cast(_floor_of_quotient(left, right), call.dtype)


def _floor_of_quotient(x: Value, y: Value) -> Value:
    """The floor of x / y, computed from the exact remainder as ATen does."""
    zero, one = number(0, x.element_type), number(1, x.element_type)
    remainder = b.rem(x, y)
    exact = (x - remainder) / y
    is_off = (remainder != zero) & ((y < zero) != (remainder < zero))
    exact = b.select(is_off, exact - one, exact)
    down = b.floor(exact)
    rounded = b.select(exact - down > number(0.5, x.element_type), down + one, down)
    signed_zero = b.select(b.div(x, y) < zero, number_like(-0.0, x), number_like(0.0, x))
    found = b.select(exact != zero, rounded, signed_zero)
    return b.select(y == zero, x / y, found)


def number_like(n: float, x: Value) -> Value:
    """A tensor of the shape and element type of x with one number."""
    return filled(sizes(x), n, x.element_type)


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(call: Call, x: Operand, y: Operand) -> Value:
    """The remainder of x / y, with the sign of y."""
    left, right = pair(wide(call.dtype), x, y)
    zero = number(0, left.element_type)
    rest = b.rem(left, right)
    if call.dtype.kind != "u":
        rest = b.select((rest != zero) & ((rest < zero) != (right < zero)), rest + right, rest)
    return cast(rest, call.dtype)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(call: Call, x: Operand, y: Operand) -> Value:
    """The remainder of x / y, with the sign of x."""
    left, right = pair(wide(call.dtype), x, y)
    return cast(b.rem(left, right), call.dtype)


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(call: Call, x: Operand, y: Operand) -> Value:
    """x to the power of y."""
    dtype = wide(call.dtype)
    if isinstance(x, Value) and isinstance(y, int | float) and not isinstance(y, bool):
        found = _simple_power(cast(x, dtype), y)
        if found is not None:
            return cast(found, call.dtype)
    left, right = pair(dtype, x, y)
    if dtype == BOOL:
        return left | ~right
    if dtype.kind in "iu":
        return _integer_power(left, right)
    return cast(b.pow(left, right), call.dtype)


def _simple_power(x: Value, y: float) -> Value | None:
    """Powers that ATen computes by products and roots."""
    if x.element_type == BOOL:
        return None
    if y == 2:
        return x * x
    if y == 3:
        return x * x * x
    if y == 1:
        return x
    if category(x.element_type) < 2:
        return None
    one = number(1, x.element_type)
    roots: dict[float, Callable[[], Value]] = {
        0.5: lambda: b.sqrt(x), -0.5: lambda: one / b.sqrt(x), -1: lambda: one / x, -2: lambda: one / (x * x),
    }  # fmt: skip
    return roots[y]() if y in roots and x.element_type.kind == "f" else None


def _integer_power(x: Value, y: Value) -> Value:
    """Integer powers, which wrap; of negative exponents only those of 1 and -1 differ from 0."""
    dtype = x.element_type
    one, zero = number_like(1, x), number_like(0, x)
    found = b.pow(x, b.max(y, zero))
    if dtype.kind == "u":
        return found
    is_odd = (y & one) == one
    of_minus_one = b.select(is_odd, number_like(-1, x), one)
    negative = b.select(x == one, one, b.select(x == number_like(-1, x), of_minus_one, zero))
    return b.select(y < zero, negative, found)


@aten("atan2", "arctan2")
def atan2(call: Call, x: Operand, y: Operand) -> Value:
    """The angle of the point (y, x)."""
    left, right = pair(wide(call.dtype), x, y)
    return cast(b.atan2(left, right), call.dtype)


@aten("maximum")
def maximum(call: Call, x: Operand, y: Operand) -> Value:
    """The greater of two elements; NaN if one is NaN."""
    return b.max(*pair(call.dtype, x, y))


@aten("minimum")
def minimum(call: Call, x: Operand, y: Operand) -> Value:
    """The lesser of two elements; NaN if one is NaN."""
    return b.min(*pair(call.dtype, x, y))


@aten("fmax")
def fmax(call: Call, x: Operand, y: Operand) -> Value:
    """The greater of two elements, one of which may be NaN."""
    left, right = pair(call.dtype, x, y)
    return b.select(is_nan(left), right, b.select(is_nan(right), left, b.max(left, right)))


@aten("fmin")
def fmin(call: Call, x: Operand, y: Operand) -> Value:
    """The lesser of two elements, one of which may be NaN."""
    left, right = pair(call.dtype, x, y)
    return b.select(is_nan(left), right, b.select(is_nan(right), left, b.min(left, right)))


@aten("clamp", "clamp.Tensor")
def clamp(call: Call, x: Value, min: Operand | None = None, max: Operand | None = None) -> Value:
    """Every element, limited to [min, max]; NaN stays."""
    (found,) = together(call.dtype, x)
    if min is not None:
        found = b.max(*pair(call.dtype, found, min))
    if max is not None:
        found = b.min(*pair(call.dtype, found, max))
    return found


@aten("clamp_min", "clamp_min.Tensor")
def clamp_min(call: Call, x: Value, min: Operand) -> Value:
    """The greater of every element and a limit."""
    return clamp(call, x, min)


@aten("clamp_max", "clamp_max.Tensor")
def clamp_max(call: Call, x: Value, max: Operand) -> Value:
    """The lesser of every element and a limit."""
    return clamp(call, x, None, max)


@aten("copysign.Tensor", "copysign.Scalar")
def copysign(call: Call, x: Operand, y: Operand) -> Value:
    """The magnitude of x with the sign of y."""
    left, right = pair(call.dtype, x, y)
    bits = f"i{call.dtype.bits}"
    is_negative = b.bitcast_convert_type(right, bits) < 0
    magnitude = b.abs(left)
    return b.select(is_negative, -magnitude, magnitude)


@aten("hypot")
def hypot(call: Call, x: Value, y: Value) -> Value:
    """The square root of x * x + y * y, without overflow."""
    left, right = (b.abs(v) for v in together(wide(call.dtype), x, y))
    big, small = b.max(left, right), b.min(left, right)
    zero = number(0, big.element_type)
    ratio = b.select(big == small, number_like(1, big), small / big)
    found = b.select(big == zero, big, big * b.sqrt(ratio * ratio + number(1, big.element_type)))
    infinite = b.is_inf(left) | b.is_inf(right)
    return cast(b.select(infinite, number_like(np.inf, big), found), call.dtype)


@aten("nextafter")
def nextafter(call: Call, x: Value, y: Value) -> Value:
    """The next float after x in the direction of y."""
    left, right = pair(call.dtype, x, y)
    return b.next_after(left, right) if call.dtype.bits >= 32 else _next_of_16_bits(left, right)


def _next_of_16_bits(x: Value, y: Value) -> Value:
    """As `next_after`, by the bits: those of a float count upward away from zero."""
    bits = b.bitcast_convert_type(x, I16)
    one = number_like(1, bits)
    outward = (x < y) == (x > number_like(0, x))
    least = b.select(y > number_like(0, y), one, number_like(-(2**15) + 1, bits))
    stepped = b.select(x == number_like(0, x), least, b.select(outward, bits + one, bits - one))
    found = b.select(x == y, y, b.bitcast_convert_type(stepped, x.element_type))
    return b.select(is_nan(x) | is_nan(y), x + y, found)


@aten("prims::div")
def primitive_div(call: Call, x: Value, y: Value) -> Value:
    """x / y of equal element types; of integers without the fraction."""
    return div_mode(call, x, y, rounding_mode="trunc") if call.dtype.kind in "iu" else div(call, x, y)


@aten("gcd")
def gcd(call: Call, x: Value, y: Value) -> Value:
    """The greatest common divisor, which is not negative."""
    left, right = pair(call.dtype, x, y)
    zero = number_like(0, left)
    if call.dtype.kind == "i":
        left, right = b.abs(left), b.abs(right)

    def step(state: tuple[Value, Value]) -> tuple[Value, Value]:
        p, q = state
        is_open = q != zero
        rest = b.rem(p, b.select(is_open, q, number_like(1, q)))
        return b.select(is_open, q, p), b.select(is_open, rest, q)

    found = b.while_(lambda state: (state[1] != zero).any(), step, (left, right))
    return found[0]


@aten("addcmul")
def addcmul(call: Call, x: Value, y: Value, z: Value, *, value: float = 1) -> Value:
    """x + value * y * z."""
    dtype = wide(call.dtype)
    left, first, second = together(dtype, x, y, z)
    product = first * second if value == 1 else number(value, dtype) * first * second
    return cast(left + product, call.dtype)


@aten("addcdiv")
def addcdiv(call: Call, x: Value, y: Value, z: Value, *, value: float = 1) -> Value:
    """x + value * y / z."""
    dtype = wide(call.dtype)
    left, first, second = together(dtype, x, y, z)
    return cast(left + number(value, dtype) * first / second, call.dtype)


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(call: Call, x: Value, y: Value, weight: Operand) -> Value:
    """x + weight * (y - x), from the nearer end."""
    dtype = wide(call.dtype)
    left, right, part = together(dtype, x, y, weight)
    one, half = number(1, dtype), number(0.5, dtype)
    size = b.abs(part)
    near = left + part * (right - left)
    return cast(b.select(size < half, near, right - (right - left) * (one - part)), call.dtype)


@aten("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
def xlogy(call: Call, x: Operand, y: Operand) -> Value:
    """x * log(y), 0 where x is 0, NaN where y is NaN."""
    left, right = pair(wide(call.dtype), x, y)
    zero = number_like(0, left)
    found = b.select(left == zero, zero, left * b.log(right))
    return cast(b.select(is_nan(right), right, found), call.dtype)


@aten("logaddexp")
def logaddexp(call: Call, x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y))."""
    left, right = pair(wide(call.dtype), x, y)
    if left.element_type.kind == "c":
        raise Unsupported("complex numbers are not supported")
    big = b.max(left, right)
    found = big + b.log1p(b.exp(-b.abs(left - right)))
    return cast(b.select(b.is_inf(left) & (left == right), left, found), call.dtype)
