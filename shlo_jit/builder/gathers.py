"""Gather and scatter: many slices of a tensor, at indices that are in a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from shlo_jit.builder.arguments import (
    TensorLike,
    element,
    flag,
    integer,
    integers,
    one_or_all,
    struct,
    tensor_of,
    tensors_of,
)
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.records import GatherDimensionNumbers, ScatterDimensionNumbers, record_of
from shlo_jit.builder.reductions import Tensors
from shlo_jit.builder.regions import Computation, scalar_region
from shlo_jit.builder.scope import emit, emit1
from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.structs import STRUCTS

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

Record = Mapping[str, Any]


def gather(
    operand: TensorLike,
    start_indices: TensorLike,
    dimension_numbers: GatherDimensionNumbers | Record,
    slice_sizes: Sequence[int],
    indices_are_sorted: bool = False,
) -> Value:
    """Slices of the operand, of `slice_sizes`, that begin at the index vectors in `start_indices`.

    Index vectors are along dimension `index_vector_dim`. `start_index_map` maps their elements to dimensions of the
    operand; slices begin at 0 in the others. Indices are clamped so that slices are within the operand. Collapsed
    dimensions of a slice are removed, the others are the `offset_dims` of the result (document: Gather).
    """
    numbers = record_of(dimension_numbers, GatherDimensionNumbers, "dimension_numbers")
    attributes = {
        "dimension_numbers": _struct("stablehlo.gather", numbers),
        "slice_sizes": list(integers(slice_sizes, "slice_sizes")),
        "indices_are_sorted": flag(indices_are_sorted, "indices_are_sorted"),
    }
    operands = [tensor_of(operand, "operand"), tensor_of(start_indices, "start_indices")]
    return emit1("stablehlo.gather", operands, attributes, names=_names("stablehlo.gather"))


@overload
def scatter(
    operands: TensorLike,
    scatter_indices: TensorLike,
    updates: TensorLike,
    update_computation: Computation,
    dimension_numbers: ScatterDimensionNumbers | Record,
    indices_are_sorted: bool = ...,
    unique_indices: bool = ...,
) -> Value: ...
@overload
def scatter(
    operands: Sequence[TensorLike],
    scatter_indices: TensorLike,
    updates: Sequence[TensorLike],
    update_computation: Computation,
    dimension_numbers: ScatterDimensionNumbers | Record,
    indices_are_sorted: bool = ...,
    unique_indices: bool = ...,
) -> tuple[Value, ...]: ...
def scatter(
    operands: Tensors,
    scatter_indices: TensorLike,
    updates: Tensors,
    update_computation: Computation,
    dimension_numbers: ScatterDimensionNumbers | Record,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Value | tuple[Value, ...]:
    """Updates slices of the operand.

    `update_computation` computes a new element from the present one and the one in `updates`. Slices begin at the index
    vectors in `scatter_indices`; slices that are not within the operand change nothing. For N operands (and updates)
    the function takes N present elements and N updates, and returns N (document: Scatter).
    """
    xs, ys = tensors_of(operands, "operands"), tensors_of(updates, "updates")
    if len(xs) != len(ys):
        raise wrong("updates", f"expected {len(xs)}, one for each operand, got {len(ys)}")
    numbers = record_of(dimension_numbers, ScatterDimensionNumbers, "dimension_numbers")
    elements = [element(x) for x in xs]
    body = scalar_region("update_computation", update_computation, elements * 2, elements)
    attributes = {
        "scatter_dimension_numbers": _struct("stablehlo.scatter", numbers),
        "indices_are_sorted": flag(indices_are_sorted, "indices_are_sorted"),
        "unique_indices": flag(unique_indices, "unique_indices"),
    }
    names = {"inputs": "operands", "scatter_dimension_numbers": "dimension_numbers", **_names("stablehlo.scatter")}
    values = [*xs, tensor_of(scatter_indices, "scatter_indices"), *ys]
    return one_or_all(operands, emit("stablehlo.scatter", values, attributes, regions=[body], names=names))


def _struct(name: str, numbers: GatherDimensionNumbers | ScatterDimensionNumbers) -> StructAttr:
    fields = {
        key: integer(value, "dimension_numbers") if key == "index_vector_dim" else integers(value, "dimension_numbers")
        for key, value in vars(numbers).items()
    }
    return struct(name, **fields)


def _names(name: str) -> dict[str, str]:
    return {field: "dimension_numbers" for field, _, _ in STRUCTS[name]}
