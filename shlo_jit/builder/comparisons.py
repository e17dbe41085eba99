"""Elementwise comparisons of two tensors; the results are pred.

The operands have one element type, and are broadcast like those of `binary.py`. Floats compare as in IEEE 754. The
functions whose names end in `total_order` use the order
-NaN < -Inf < -Finite < -0 < +0 < +Finite < +Inf < +NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shlo_jit.builder.arguments import TensorLike, element, enum, same_elements, word
from shlo_jit.builder.broadcasting import binary
from shlo_jit.builder.records import CompareType, Direction

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

Dimensions = Sequence[int] | None


def compare(
    lhs: TensorLike,
    rhs: TensorLike,
    comparison_direction: Direction,
    compare_type: CompareType | None = None,
    broadcast_dimensions: Dimensions = None,
) -> Value:
    """Compares lhs and rhs: EQ, NE, GE, GT, LE or LT.

    `compare_type`: FLOAT, TOTALORDER, SIGNED or UNSIGNED, by default that of the elements (document: Compare).
    """
    x, y = same_elements({"lhs": lhs, "rhs": rhs})
    direction = word(comparison_direction, Direction, "comparison_direction")
    if compare_type is None:
        kind = {"f": "FLOAT", "c": "FLOAT", "i": "SIGNED"}.get(element(x).kind, "UNSIGNED")
    else:
        kind = word(compare_type, CompareType, "compare_type")
    attributes = {
        "comparison_direction": enum("comparison_direction", direction),
        "compare_type": enum("comparison_type", kind),
    }
    return binary("compare", x, y, broadcast_dimensions, attributes)


def _total_order(lhs: TensorLike, rhs: TensorLike, direction: Direction, dimensions: Dimensions) -> Value:
    """Compares floats in their total order, and other elements in their usual order."""
    x, y = same_elements({"lhs": lhs, "rhs": rhs})
    kind: CompareType | None = "TOTALORDER" if element(x).kind == "f" else None
    return compare(x, y, direction, kind, dimensions)


def eq(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs and rhs are equal (document: Eq)."""
    return compare(lhs, rhs, "EQ", None, broadcast_dimensions)


def ne(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs and rhs are not equal (document: Ne)."""
    return compare(lhs, rhs, "NE", None, broadcast_dimensions)


def ge(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs is greater than or equal to rhs (document: Ge)."""
    return compare(lhs, rhs, "GE", None, broadcast_dimensions)


def gt(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs is greater than rhs (document: Gt)."""
    return compare(lhs, rhs, "GT", None, broadcast_dimensions)


def le(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs is less than or equal to rhs (document: Le)."""
    return compare(lhs, rhs, "LE", None, broadcast_dimensions)


def lt(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs is less than rhs (document: Lt)."""
    return compare(lhs, rhs, "LT", None, broadcast_dimensions)


def eq_total_order(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs and rhs are equal in the total order (document: EqTotalOrder)."""
    return _total_order(lhs, rhs, "EQ", broadcast_dimensions)


def ne_total_order(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs and rhs are not equal in the total order (document: NeTotalOrder)."""
    return _total_order(lhs, rhs, "NE", broadcast_dimensions)


def ge_total_order(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs is greater than or equal to rhs in the total order (document: GeTotalOrder)."""
    return _total_order(lhs, rhs, "GE", broadcast_dimensions)


def gt_total_order(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs is greater than rhs in the total order (document: GtTotalOrder)."""
    return _total_order(lhs, rhs, "GT", broadcast_dimensions)


def le_total_order(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs is less than or equal to rhs in the total order (document: LeTotalOrder)."""
    return _total_order(lhs, rhs, "LE", broadcast_dimensions)


def lt_total_order(lhs: TensorLike, rhs: TensorLike, broadcast_dimensions: Dimensions = None) -> Value:
    """Whether lhs is less than rhs in the total order (document: LtTotalOrder)."""
    return _total_order(lhs, rhs, "LT", broadcast_dimensions)
