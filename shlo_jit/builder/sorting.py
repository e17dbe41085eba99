"""Sorting, and the largest or smallest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from shlo_jit.builder import data
from shlo_jit.builder.arguments import (
    TensorLike,
    axis,
    element,
    flag,
    integer,
    one_or_all,
    shape_of,
    static_shape,
    tensor_of,
    tensors_of,
)
from shlo_jit.builder.comparisons import lt_total_order
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.reductions import Tensors
from shlo_jit.builder.regions import Computation, scalar_region
from shlo_jit.builder.scope import emit
from shlo_jit.builder.shapes import shape_text
from shlo_jit.ir.types import I1, I32, tensor

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


def ascending(first: Value, second: Value, *_: Value) -> Value:
    """Comparator that sorts by the first operand in ascending order; floats in their total order."""
    return lt_total_order(first, second)


@overload
def sort(
    operands: TensorLike, comparator: Computation | None = ..., dimension: int = ..., is_stable: bool = ...
) -> Value: ...
@overload
def sort(
    operands: Sequence[TensorLike], comparator: Computation | None = ..., dimension: int = ..., is_stable: bool = ...
) -> tuple[Value, ...]: ...
def sort(
    operands: Tensors, comparator: Computation | None = None, dimension: int = -1, is_stable: bool = False
) -> Value | tuple[Value, ...]:
    """Sorts the elements along a dimension, by default the last. Several operands of one shape are permuted together.

    comparator: for two elements of each operand, (a0, b0, a1, b1, ...), whether a comes before b; by default whether a0
    is less than b0. is_stable: equivalent elements keep their order (document: Sort).
    """
    xs = tensors_of(operands, "operands")
    attributes: dict[str, Any] = {
        "dimension": axis(dimension, len(shape_of(xs[0])), "dimension"),
        "is_stable": flag(is_stable, "is_stable"),
    }
    elements = [dtype for x in xs for dtype in (element(x),) * 2]
    body = scalar_region("comparator", ascending if comparator is None else comparator, elements, [I1])
    names = {"inputs": "operands"}
    return one_or_all(operands, emit("stablehlo.sort", xs, attributes, regions=[body], names=names))


def top_k(operand: TensorLike, k: int, largest: bool = True) -> tuple[Value, Value]:
    """The k largest (or smallest) elements of the last dimension, in order, and their indices as s32.

    Of equal elements the one with the lesser index is first (document: TopK).
    """
    x = tensor_of(operand, "operand")
    count = integer(k, "k")
    if flag(largest, "largest"):
        values, indices = emit("chlo.top_k", [x], {"k": count})
        return values, indices
    shape = static_shape(x, "operand")
    if not shape or not 0 <= count <= shape[-1]:
        raise wrong("k", f"the last dimension of {shape_text(x.type)} has fewer than {count} elements")
    places = data.iota(tensor(shape, I32), len(shape) - 1)
    found = sort([x, places], ascending, -1, is_stable=True)
    limit = (*shape[:-1], count)
    values, indices = (data.slice(v, [0] * len(shape), limit) for v in found)  # type: ignore[union-attr]  two
    return values, indices
