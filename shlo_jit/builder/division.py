"""Python's `/`, `//`, `%` and `divmod` of tensors, which differ from XLA's Div and Rem.

`//` is the greatest integer that is not above the quotient, and `%` the remainder, with the sign of the divisor. Floats
are computed as in NumPy, including the sign of zeros. An integer division by 0 gives the result of `div`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.builder.arguments import TensorLike, same_elements
from shlo_jit.builder.binary import add, and_, div, mul, rem, select, sub
from shlo_jit.builder.comparisons import eq, gt, lt, ne
from shlo_jit.builder.data import convert_element_type
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.unary import floor, sign

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


def true_divide(lhs: TensorLike, rhs: TensorLike) -> Value:
    """lhs / rhs of floats and complex numbers."""
    x, y = same_elements({"lhs": lhs, "rhs": rhs})
    if x.element_type.kind not in "fc":
        hint = "write //, builder.div or .astype('f32')"
        raise wrong("lhs", f"/ of {x.element_type} is no {x.element_type}", hint=hint)
    return div(x, y)


def floor_divide(lhs: TensorLike, rhs: TensorLike) -> Value:
    """lhs // rhs of integers and floats."""
    x, y = _numbers(lhs, rhs, "//")
    return div(x, y) if x.element_type.kind == "u" else _quotient(x, y, *_rest(x, y))


def modulo(lhs: TensorLike, rhs: TensorLike) -> Value:
    """lhs % rhs of integers and floats."""
    x, y = _numbers(lhs, rhs, "%")
    return rem(x, y) if x.element_type.kind == "u" else _remainder(y, *_rest(x, y))


def divmod_of(lhs: TensorLike, rhs: TensorLike) -> tuple[Value, Value]:
    """lhs // rhs and lhs % rhs."""
    x, y = _numbers(lhs, rhs, "divmod")
    if x.element_type.kind == "u":
        return div(x, y), rem(x, y)
    rest, is_other_sign = _rest(x, y)
    return _quotient(x, y, rest, is_other_sign), _remainder(y, rest, is_other_sign)


def _numbers(lhs: TensorLike, rhs: TensorLike, name: str) -> tuple[Value, Value]:
    x, y = same_elements({"lhs": lhs, "rhs": rhs})
    if x.element_type.kind not in "iuf":
        raise wrong("lhs", f"{name}: expected integers or floats, got {x.element_type}")
    return x, y


def _rest(x: Value, y: Value) -> tuple[Value, Value]:
    """Returns the remainder of Rem, with the sign of x, and whether the sign must change to that of y."""
    zero = 0 if x.element_type.kind == "i" else 0.0
    rest = rem(x, y)
    return rest, and_(ne(rest, zero), ne(lt(rest, zero), lt(y, zero)))


def _remainder(y: Value, rest: Value, is_other_sign: Value) -> Value:
    if y.element_type.kind == "f":
        rest = select(eq(rest, 0.0), mul(sign(y), 0.0), rest)
    return select(is_other_sign, add(rest, y), rest)


def _quotient(x: Value, y: Value, rest: Value, is_other_sign: Value) -> Value:
    one_less = convert_element_type(is_other_sign, x.element_type)
    if x.element_type.kind == "i":
        return sub(div(x, y), one_less)
    # x - rest is divisible by y: its quotient is an integer except for rounding. The quotient of x may be rounded up to
    # one.
    ratio, near = div(x, y), sub(div(sub(x, rest), y), one_less)
    low = floor(near)
    whole = select(gt(sub(near, low), 0.5), add(low, 1.0), low)
    whole = select(eq(near, 0.0), mul(sign(ratio), 0.0), whole)
    return select(eq(y, 0.0), ratio, whole)
