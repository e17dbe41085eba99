"""Comparisons, logic, bits, and the choice between tensors."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.values import BOOL, Operand, broadcast_to, cast, common_shape, number, pair, promoted, sizes

COMPARISONS: dict[str, Callable[..., Value]] = {
    "eq": b.eq, "ne": b.ne, "lt": b.lt, "le": b.le, "gt": b.gt, "ge": b.ge,
}  # fmt: skip
"""Comparisons of the builder by the name of the operator."""
BITS: dict[str, Callable[..., Value]] = {"bitwise_and": b.and_, "bitwise_or": b.or_, "bitwise_xor": b.xor}
"""Bitwise functions of the builder by the name of the operator."""
LOGIC: dict[str, Callable[..., Value]] = {"logical_and": b.and_, "logical_or": b.or_, "logical_xor": b.xor}
"""Functions of truth values by the name of the operator."""


def _comparison(function: Callable[..., Value], name: str) -> Callable[..., Value]:
    def record(call: Call, x: Operand, y: Operand) -> Value:
        dtype = promoted(x, y)
        outside = _outside(x, y, name)
        if outside is not None:
            return b.broadcast_in_dim(number(outside, BOOL), sizes(x), ())  # type: ignore[arg-type]  a tensor
        return function(*pair(dtype, x, y))

    record.__doc__ = f"Whether x {name} y, for every element."
    return record


def _outside(x: Operand, y: Operand, name: str) -> bool | None:
    """The result for a number that is out of the range of a tensor of integers; None for another one."""
    if not isinstance(x, Value) or isinstance(y, Value | bool) or not isinstance(y, int):
        return None
    dtype = x.element_type
    if dtype.kind not in "iu":
        return None
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    high = low + (1 << dtype.bits) - 1
    if low <= y <= high:
        return None
    return name == "ne" or (name in ("lt", "le") and y > high) or (name in ("gt", "ge") and y < low)


for _name, _function in COMPARISONS.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_function, _name))


def _bits(function: Callable[..., Value], name: str) -> Callable[..., Value]:
    def record(call: Call, x: Operand, y: Operand) -> Value:
        return function(*pair(call.dtype, x, y))

    record.__doc__ = f"{name} of the bits of two tensors of integers or truth values."
    return record


for _name, _function in BITS.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar", f"{_name}.Scalar_Tensor")(_bits(_function, _name))


def _logic(function: Callable[..., Value], name: str) -> Callable[..., Value]:
    def record(call: Call, x: Operand, y: Operand) -> Value:
        left, right = pair(BOOL, cast(x, BOOL), cast(y, BOOL))
        return function(left, right)

    record.__doc__ = f"{name}: every number but 0 is true."
    return record


for _name, _function in LOGIC.items():
    aten(_name)(_logic(_function, _name))


@aten("logical_not")
def logical_not(call: Call, x: Value) -> Value:
    """Whether every element is 0."""
    return ~cast(x, BOOL)


@aten("bitwise_not")
def bitwise_not(call: Call, x: Value) -> Value:
    """The inverted bits of every element."""
    return ~x


def _shift(call: Call, x: Operand, y: Operand, left: bool) -> Value:
    number_, count = pair(call.dtype, x, y)
    if call.dtype == BOOL:
        raise Unsupported("truth values are not shifted")
    if left:
        return b.shift_left(number_, count)
    return b.shift_right_logical(number_, count) if call.dtype.kind == "u" else b.shift_right_arithmetic(number_, count)


@aten("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "__lshift__.Tensor", "__lshift__.Scalar")
def shift_left(call: Call, x: Operand, y: Operand) -> Value:
    """x shifted left by y bits."""
    return _shift(call, x, y, True)


@aten("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "__rshift__.Tensor", "__rshift__.Scalar")
def shift_right(call: Call, x: Operand, y: Operand) -> Value:
    """x shifted right by y bits, with its sign."""
    return _shift(call, x, y, False)


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(call: Call, condition: Value, x: Operand, y: Operand) -> Value:
    """x where the condition is true, y elsewhere."""
    left, right = cast(x, call.dtype), cast(y, call.dtype)
    return select(cast(condition, BOOL), left, right)


def select(condition: Value, x: Value, y: Value) -> Value:
    """x where the condition is true, y elsewhere, broadcast to a common shape."""
    shape = common_shape(sizes(condition), sizes(x), sizes(y))
    return b.select(broadcast_to(condition, shape), broadcast_to(x, shape), broadcast_to(y, shape))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(call: Call, x: Value, mask: Value, value: Operand) -> Value:
    """x, with a number where the mask is true."""
    return select(cast(mask, BOOL), cast(value, call.dtype), x)
