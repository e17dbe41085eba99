"""Elementwise functions of two and of three tensors.

Both operands and the result have one element type; a Python number takes the type of the other operand. Shapes must be
equal or are broadcast as described in `broadcasting.py`. `broadcast_dimensions` maps each dimension of the tensor of
lower rank to a dimension of the other. Each function raises BuilderError for other operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from shlo_jit.builder.arguments import TensorLike, is_number, same_elements, shape_of, tensor_of
from shlo_jit.builder.broadcasting import binary, together
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.scope import emit1
from shlo_jit.builder.shapes import shape_text
from shlo_jit.builder.tuples import elements_of

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

Dimensions = Sequence[int] | None


def add(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """lhs + rhs; `or` of pred (document: Add)."""
    return binary("add", lhs, rhs, broadcast_dimensions)


def sub(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """lhs - rhs (document: Sub)."""
    return binary("subtract", lhs, rhs, broadcast_dimensions)


def mul(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """lhs * rhs; `and` of pred (document: Mul)."""
    return binary("multiply", lhs, rhs, broadcast_dimensions)


def div(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """lhs / rhs; integers are rounded towards 0 (document: Div)."""
    return binary("divide", lhs, rhs, broadcast_dimensions)


def rem(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """The remainder of the division of lhs by rhs, with the sign of lhs (document: Rem)."""
    return binary("remainder", lhs, rhs, broadcast_dimensions)


def max(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """The greater operand; NaN if one is NaN; `or` of pred (document: Max)."""
    return binary("maximum", lhs, rhs, broadcast_dimensions)


def min(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """The lesser operand; NaN if one is NaN; `and` of pred (document: Min)."""
    return binary("minimum", lhs, rhs, broadcast_dimensions)


def pow(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """lhs ** rhs (document: Pow)."""
    return binary("power", lhs, rhs, broadcast_dimensions)


def atan2(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """The angle of the point (rhs, lhs), between -pi and pi (document: Atan2)."""
    return binary("atan2", lhs, rhs, broadcast_dimensions)


def and_(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """`and` of pred, or bit by bit of integers (document: And)."""
    return binary("and", lhs, rhs, broadcast_dimensions)


def or_(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """`or` of pred, or bit by bit of integers (document: Or)."""
    return binary("or", lhs, rhs, broadcast_dimensions)


def xor(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Exclusive or of pred, or bit by bit of integers (document: Xor)."""
    return binary("xor", lhs, rhs, broadcast_dimensions)


def shift_left(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """lhs * 2 ** rhs of integers, without overflowing bits (document: ShiftLeft)."""
    return binary("shift_left", lhs, rhs, broadcast_dimensions)


def shift_right_arithmetic(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """The bits of lhs moved right, filled with copies of the sign (document: ShiftRightArithmetic)."""
    return binary("shift_right_arithmetic", lhs, rhs, broadcast_dimensions)


def shift_right_logical(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """The bits of lhs moved right, filled with 0 (document: ShiftRightLogical)."""
    return binary("shift_right_logical", lhs, rhs, broadcast_dimensions)


def complex(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Complex numbers from their real and imaginary parts, f32 or f64 (document: Complex)."""
    return binary("complex", lhs, rhs, broadcast_dimensions)


def logical_and(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """`and_` under the older document's name (LogicalAnd)."""
    return binary("and", lhs, rhs, broadcast_dimensions)


def logical_or(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """`or_` under the older document's name (LogicalOr)."""
    return binary("or", lhs, rhs, broadcast_dimensions)


def clamp(min: TensorLike, operand: TensorLike, max: TensorLike) -> Value:
    """The operand, limited to `min` below and `max` above.

    The limits have the operand's shape, or are scalars (document: Clamp).
    """
    low, x, high = same_elements({"min": min, "operand": operand, "max": max})
    if not shape_of(x) and (shape_of(low) or shape_of(high)):  # as in lax.clamp: a scalar between tensors
        low, x, high = together({"min": low, "operand": x, "max": high})
    return emit1("stablehlo.clamp", [low, x, high])


@overload
def select(pred: TensorLike, on_true: TensorLike, on_false: TensorLike) -> Value: ...
@overload
def select(pred: TensorLike, on_true: tuple[Any, ...], on_false: tuple[Any, ...]) -> tuple[Any, ...]: ...
def select(pred: TensorLike, on_true: Any, on_false: Any) -> Any:
    """Chooses between two tensors of one shape and element type.

    The result has the elements of `on_true` where `pred` is true, and of `on_false` elsewhere. `pred` has their shape
    or is a scalar, and one of the two may be a scalar. Of two tuples, Python's or the program's, a scalar `pred`
    chooses one, which is returned as a Python tuple (document: Select).
    """
    on_true, on_false = elements_of(on_true), elements_of(on_false)
    if isinstance(on_true, tuple) or isinstance(on_false, tuple):
        return _select_of_tuples(pred, on_true, on_false)
    if is_number(on_true) and is_number(on_false):
        raise wrong("on_true", "expected an operand with an element type, but on_true and on_false are numbers")
    p = tensor_of(pred, "pred")
    x, y = same_elements({"on_true": on_true, "on_false": on_false})
    if shape_of(x) == shape_of(y) and shape_of(p) in ((), shape_of(x)):
        return emit1("stablehlo.select", [p, x, y])
    if any(None in shape_of(v) for v in (p, x, y)):
        if len({len(shape_of(v)) for v in (p, x, y)} - {0}) > 1:
            raise wrong("pred", f"ranks differ: {', '.join(shape_text(v.type) for v in (p, x, y))}")
        return emit1("chlo.broadcast_select", [p, x, y])
    if not shape_of(p):
        return emit1("stablehlo.select", [p, *together({"on_true": x, "on_false": y})])
    return emit1("stablehlo.select", together({"pred": p, "on_true": x, "on_false": y}))


def _select_of_tuples(pred: TensorLike, on_true: Any, on_false: Any) -> tuple[Any, ...]:
    if not (isinstance(on_true, tuple) and isinstance(on_false, tuple) and len(on_true) == len(on_false)):
        raise wrong("on_false", "expected two tuples of the same length, or two tensors")
    p = tensor_of(pred, "pred")
    if shape_of(p):
        raise wrong("pred", f"expected a scalar to choose between tuples, got {shape_text(p.type)}")
    return tuple(select(p, x, y) for x, y in zip(on_true, on_false, strict=True))
