"""The op scatter (specification, "scatter")."""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.contract import dims_of
from shlo_jit.ops.index import DimLabels, as_index, check_batching, check_index_dims, index_depth
from shlo_jit.ops.numeric import Array
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.reduce import check_same_shapes, update_in_order
from shlo_jit.ops.reducer import RegionRunner, block_of, body_dtypes, check_reducer, converted
from shlo_jit.ops.type_algebra import (
    Shape,
    check_disjoint,
    compatible_elements,
    operand_types,
    same_dim,
    types_text,
    with_bounds,
    with_element,
)


def scatter_operands(op: Op) -> tuple[list[TensorType], TensorType, list[TensorType]]:
    """Returns the types of inputs, scatter_indices and updates."""
    types = operand_types(op)
    n = len(types) // 2
    if len(types) < 3 or len(types) % 2 == 0:
        raise Violation("C5", f"expects as many updates as inputs, got {len(types)} operands")
    return types[:n], types[n], types[n + 1 :]


def _infer_scatter(op: Op) -> list[Type]:
    inputs, indices, updates = scatter_operands(op)
    whole, update = check_same_shapes(inputs, "C1"), check_same_shapes(updates, "C3")
    block = block_of(op, 0, "C23")
    results = check_reducer(block, inputs, [with_bounds((), t.dtype, None) for t in updates], (), "C23")
    for i, (t, u) in enumerate(zip(inputs, updates, strict=True)):
        if not compatible_elements(t.dtype, u.dtype):
            both = types_text([t, u])
            raise Violation("C6", f"expects input {i} and its update to have the same element type, got {both}")
    if whole.shape is not None and indices.shape is not None and update.shape is not None:
        _check_dimensions(op, whole.shape, indices, update.shape)
    return [with_element(t, r.dtype) for t, r in zip(inputs, results, strict=True)]


def _check_dimensions(op: Op, shape: Shape, indices: TensorType, update: Shape) -> None:
    """Checks C2, C4, C7 to C22."""
    numbers = op.attributes["scatter_dimension_numbers"]
    windows, inserted = dims_of(numbers, "update_window_dims"), dims_of(numbers, "inserted_window_dims")
    batching = dims_of(numbers, "input_batching_dims")
    indices_batching = dims_of(numbers, "scatter_indices_batching_dims")
    to_operand = dims_of(numbers, "scatter_dims_to_operand_dims")
    assert indices.shape is not None
    at, depth = index_depth("C22", numbers, indices, "scatter_indices")
    expected_rank = indices.rank - (1 if at < indices.rank else 0) + len(windows)
    if len(update) != expected_rank:
        raise Violation(
            "C4",
            f"expects updates tensor must be of rank {expected_rank} ( == rank-of('scatter_indices') - 1 + "
            "size-of('update_window_dims'), where 'scatter_indices' is expanded by a trailing 1 dimension if "
            f"'index_vector_dim' == rank-of('scatter_indices')), but got {len(update)}.",
        )
    rank, of_operand, of_indices = len(shape), "rank-of('operand')", "rank-of('scatter_indices')"
    for label, name, dims in (
        ("C7", "update_window_dims", windows), ("C10", "inserted_window_dims", inserted),
        ("C12", "input_batching_dims", batching),
    ):  # fmt: skip
        if list(dims) != sorted(dims):
            raise Violation(label, f"Expects {name} to be sorted; got: {list(dims)}.")
    check_index_dims(DimLabels("C7", "", "C8"), "update_window_dims", windows, len(update), "rank-of('updates')")
    check_disjoint("C9", "inserted_window_dims", inserted, "input_batching_dims", batching)
    check_index_dims(DimLabels("C9", "", "C11"), "inserted_window_dims", inserted, rank, of_operand)
    check_index_dims(DimLabels("C9", "", "C13"), "input_batching_dims", batching, rank, of_operand)
    check_index_dims(
        DimLabels("C14", "", "C15"), "scatter_indices_batching_dims", indices_batching, indices.rank, of_indices
    )
    if len(shape) != len(windows) + len(inserted) + len(batching):
        raise Violation(
            "C2",
            "Expects rank-of operand to match size-of('update_window_dims') + size-of('inserted_window_dims') + "
            f"size-of('input_batching_dims') i.e. {len(windows) + len(inserted) + len(batching)} but got {len(shape)}.",
        )
    own, other = ("input_batching_dims", batching), ("scatter_indices_batching_dims", indices_batching)
    check_batching(shape, indices.shape, own, other, at, ("C16", "C17", "C18"))
    if depth is not None and len(to_operand) != depth:
        raise Violation(
            "C19",
            f"Scatter op has {len(to_operand)} elements in scatter_dims_to_operand_dims and the bound of dimension "
            f"index_vector_dim={at} of scatter_indices is {depth}. These two numbers must be equal.",
        )
    check_index_dims(DimLabels("C20", "", "C21"), "scatter_dims_to_operand_dims", to_operand, rank, of_operand)
    check_disjoint("C20", "scatter_dims_to_operand_dims", to_operand, "input_batching_dims", batching)
    _check_update_shape(op, shape, indices.shape, update, at)


def _check_update_shape(op: Op, shape: Shape, index_shape: Shape, update: Shape, at: int) -> None:
    """Checks C4: windows fit into the operand, the other extents are those of the indices."""
    numbers = op.attributes["scatter_dimension_numbers"]
    windows = dims_of(numbers, "update_window_dims")
    gone = dims_of(numbers, "inserted_window_dims") + dims_of(numbers, "input_batching_dims")
    window_extents = [n for d, n in enumerate(shape) if d not in gone]
    for d, limit in zip(windows, window_extents, strict=True):
        n = update[d]
        if n is not None and limit is not None and n > limit:
            raise Violation(
                "C4",
                "expects bounds of the window dimensions of updates to not exceed the bounds of the corresponding "
                f"dimensions of operand. For dimension {d}, updates bound is {n}, operand bound is {limit}.",
            )
    scatter_dims = [d for d in range(len(update)) if d not in windows]
    index_extents = [n for d, n in enumerate(index_shape) if d != at]
    for k, (d, n) in enumerate(zip(scatter_dims, index_extents, strict=True)):
        if not same_dim(update[d], n):
            raise Violation(
                "C4",
                "expects bounds of the scatter dimensions of updates to be same as the bounds of the corresponding "
                f"dimensions of scatter indices. For scatter dimension {k}, updates bound is {update[d]} , "
                f"scatter_indices bound is {n}.",
            )


def scatter_places(op: Op, shape: tuple[int, ...], indices: Array, update_shape: tuple[int, ...]) -> Array:
    """Returns the flat position in the operand of each element of an update, or -1 outside the operand."""
    numbers = op.attributes["scatter_dimension_numbers"]
    windows = dims_of(numbers, "update_window_dims")
    batching, indices_batching = (
        dims_of(numbers, "input_batching_dims"),
        dims_of(numbers, "scatter_indices_batching_dims"),
    )
    gone = dims_of(numbers, "inserted_window_dims") + batching
    at = int(numbers.get("index_vector_dim", 0))
    starts = indices if at < indices.ndim else indices[..., None]
    starts = np.moveaxis(as_index(starts), min(at, starts.ndim - 1), -1)
    batch_shape = starts.shape[:-1]
    rank = len(update_shape)
    scatter_dims = [d for d in range(rank) if d not in windows]
    grid = np.indices(update_shape, sparse=True)
    extents = [1] * rank
    for d, n in zip(scatter_dims, batch_shape, strict=True):
        extents[d] = n
    index: list[Array] = [np.zeros([1] * rank, np.int64) for _ in shape]
    for k, d in enumerate(dims_of(numbers, "scatter_dims_to_operand_dims")):
        index[d] = index[d] + starts[..., k].reshape(extents)
    for d, e in zip(batching, indices_batching, strict=True):
        index[d] = index[d] + grid[scatter_dims[e - (1 if at < e else 0)]]
    window_dims = [d for d in range(len(shape)) if d not in gone]
    for d, w in zip(windows, window_dims, strict=True):
        index[w] = index[w] + grid[d]
    flat = np.zeros(update_shape, np.int64)
    inside = np.ones(update_shape, bool)
    for i, n in zip(index, shape, strict=True):
        flat = flat * n + i
        inside &= (i >= 0) & (i < n)
    return np.where(inside, flat, -1)


def _scatter(op: Op, *arrays: Array, run: RegionRunner) -> tuple[Array, ...]:
    n = len(arrays) // 2
    dtypes = body_dtypes(op.block(), n)
    inputs, updates = converted(arrays[:n], dtypes), converted(arrays[n + 1 :], dtypes)
    places = scatter_places(op, inputs[0].shape, arrays[n], updates[0].shape).reshape(-1)
    inside = places >= 0
    out = [x.reshape(-1).copy() for x in inputs]
    update_in_order(run, 0, out, places[inside], [u.reshape(-1)[inside] for u in updates])
    return tuple(o.reshape(x.shape) for o, x in zip(out, inputs, strict=True))


define(
    "stablehlo.scatter", section="scatter",
    operands=("inputs*: tensor", "scatter_indices: int|index", "updates*: tensor"), results=("results*: tensor",),
    attributes={
        "scatter_dimension_numbers": required("struct scatter"),
        "indices_are_sorted": optional("bool", False),
        "unique_indices": optional("bool", False),
    },
    regions=("update_computation",), infer=_infer_scatter, reference=_scatter,
)  # fmt: skip
