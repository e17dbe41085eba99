"""Ops that address elements by index values: gather, dynamic_slice and similar ones (specification, "gather")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shlo_jit.ir import index as ix
from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import ORIGIN, ZERO, At, Expr, Places, Sym
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.contract import dims_of
from shlo_jit.ops.numeric import Array
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.type_algebra import (
    Shape,
    bounds_of,
    check_disjoint,
    compatible_elements,
    constant_ints,
    operand_type,
    operand_types,
    same_dim,
    shape_text,
    types_text,
    with_bounds,
)
from shlo_jit.sizes import surely

# dynamic_slice, dynamic_update_slice


def _check_starts(op: Op, first: int, rank: int, label: str, same_label: str) -> None:
    starts = operand_types(op, first)
    if len(starts) != rank:
        raise Violation(
            label, f"has mismatched number of slice sizes ({rank}) and number of start indices ({len(starts)})"
        )
    if len({t.dtype for t in starts}) > 1:
        raise Violation(same_label, "start indices must have same element type")


def _infer_dynamic_slice(op: Op) -> list[Type]:
    t, sizes = operand_type(op, 0), op.ints("slice_sizes")
    _check_starts(op, 1, len(sizes), "C2", "C3")
    if t.shape is not None and len(sizes) != t.rank:
        raise Violation(
            "C2", f"has mismatched number of start indices ({len(sizes)}) and the rank of operand ({t.rank})"
        )
    for d, n in enumerate(sizes):
        extent = t.shape[d] if t.shape is not None else None
        if n < 0:
            raise Violation("C4", f"has negative size index to dynamic slice: {n}")
        if extent is not None and n > extent:
            raise Violation(
                "C4", f"has slice size {n} greater than dimension size {extent} in dimension {d} of operand"
            )
    return [with_bounds(sizes, t.dtype, None)]


def _clamped_slices(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Array]) -> tuple[slice, ...]:
    """Returns the slice of `sizes` nearest to `starts` that is inside `shape`."""
    at = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(a, a + k) for a, k in zip(at, sizes, strict=True))


def _dynamic_slice(op: Op, x: Array, *starts: Array) -> Array:
    return x[_clamped_slices(x.shape, op.ints("slice_sizes"), starts)]


def _clamped(value: Value, at: At, limit: int) -> Expr:
    """Returns a start index: the value at an index, clamped to [0, limit]."""
    return ZERO if surely(lambda: limit <= 0) else Expr(0, (), (Sym(1, value, at, limit),))


def _dynamic_slice_places(op: Op, at: At, extents: list[int]) -> Places:
    operand, *starts = op.operands
    shape, sizes = operand.tensor.extents, op.ints("slice_sizes")
    index = tuple(
        ix.add(e, _clamped(s, ORIGIN, n - k)) for e, s, n, k in zip(at.index, starts, shape, sizes, strict=True)
    )
    return [(operand, At(index, at.conditions)), *((s, ORIGIN) for s in starts)]


def _infer_dynamic_update_slice(op: Op) -> list[Type]:
    t, update = operand_types(op, 0, 2)
    if t.shape is None or update.shape is None:
        return [t]
    if update.rank != t.rank:
        raise Violation("C3", f"update rank does not match operand rank: {update.rank} vs {t.rank}.")
    starts = operand_types(op, 2)
    if len(starts) != t.rank:
        raise Violation("C4", f"expects number of start_indices to match operand rank: {len(starts)} vs {t.rank}.")
    if not compatible_elements(update.dtype, t.dtype):
        raise Violation("C2", f"requires the same element type, got {types_text([t, update])}")
    if len({s.dtype for s in starts}) > 1:
        raise Violation("C5", "start indices must have same element type")
    for d, (n, m) in enumerate(zip(update.shape, t.shape, strict=True)):
        if n is not None and m is not None and n > m:
            raise Violation("C6", f"expects size at dimension {d} of update to be in range [0, {m}]. Got: {n}.")
    return [t]


def _dynamic_update_slice(op: Op, x: Array, update: Array, *starts: Array) -> Array:
    out = x.copy()
    out[_clamped_slices(x.shape, update.shape, starts)] = update
    return out


define(
    "stablehlo.dynamic_slice", section="dynamic_slice",
    operands=("operand: tensor", "start_indices*: 0d int"), attributes={"slice_sizes": required("ints")},
    traits={"moves_data"}, infer=_infer_dynamic_slice, index_map=_dynamic_slice_places, reference=_dynamic_slice,
)  # fmt: skip
define(
    "stablehlo.dynamic_update_slice", section="dynamic_update_slice",
    operands=("operand: tensor", "update: tensor", "start_indices*: 0d int"),
    traits={"moves_data"}, infer=_infer_dynamic_update_slice, cost=0, reference=_dynamic_update_slice,
)  # fmt: skip

# gather, dynamic_gather


class DimLabels(NamedTuple):
    """Labels of the constraints that dimensions are unique, sorted (empty: not required) and in range."""

    unique: str
    ordered: str
    inside: str


def check_index_dims(labels: DimLabels, name: str, dims: Sequence[int], rank: int, of: str) -> None:
    """Checks that a list of dimensions is unique, sorted and in range."""
    if len(set(dims)) != len(dims):
        raise Violation(labels.unique, f"Expects {name} to not repeat; got: {list(dims)}.")
    if labels.ordered and list(dims) != sorted(dims):
        raise Violation(labels.ordered, f"expects {name} to be sorted, got: {list(dims)}")
    for d in dims:
        if not 0 <= d < rank:
            raise Violation(
                labels.inside, f"Expects each element of {name} to be in range [0, {of}) i.e. [0, {rank}). got: {d}."
            )


def index_depth(label: str, numbers: StructAttr, indices: TensorType, name: str) -> tuple[int, int | None]:
    """Returns index_vector_dim and the number of components of an index (None if unknown)."""
    assert indices.shape is not None
    at = int(numbers.get("index_vector_dim", 0))
    if not 0 <= at <= indices.rank:
        raise Violation(
            label,
            f"Expects index_vector_dim to be in range [0, rank-of('{name}')] i.e. [0, {indices.rank}]. got: {at}.",
        )
    return at, indices.shape[at] if at < indices.rank else 1


def check_gather(op: Op, sizes: tuple[int, ...] | None) -> None:
    """Checks C1 to C21 of gather. `sizes` is None if slice sizes are unknown."""
    t, indices = operand_types(op, 0, 2)
    numbers = op.attributes["dimension_numbers"]
    assert t.shape is not None and indices.shape is not None
    offsets, collapsed = dims_of(numbers, "offset_dims"), dims_of(numbers, "collapsed_slice_dims")
    batching = dims_of(numbers, "operand_batching_dims")
    indices_batching = dims_of(numbers, "start_indices_batching_dims")
    start_map = dims_of(numbers, "start_index_map")
    if t.rank != len(offsets) + len(collapsed) + len(batching):
        raise Violation(
            "C1",
            f"offset_dims size ({len(offsets)}) plus collapse_slice_dims size ({len(collapsed)}) plus "
            f"operand_batching_dims size ({len(batching)}) is not equal to operand rank ({t.rank})",
        )
    at, depth = index_depth("C2", numbers, indices, "start_indices")
    if depth is not None and len(start_map) != depth:
        raise Violation(
            "C3",
            f"start_index_map size ({len(start_map)}) is not equal to size of index dimension ({at}) "
            f"of start_indices ({depth})",
        )
    result_rank = indices.rank - (1 if at < indices.rank else 0) + len(offsets)
    of_operand, of_indices = "rank-of('operand')", "rank-of('start_indices')"
    check_index_dims(DimLabels("C4", "C4", "C5"), "offset_dims", offsets, result_rank, "implied-result-rank")
    check_disjoint("C6", "collapsed_slice_dims", collapsed, "operand_batching_dims", batching)
    check_index_dims(DimLabels("C6", "C7", "C8"), "collapsed_slice_dims", collapsed, t.rank, of_operand)
    check_index_dims(DimLabels("C6", "C10", "C11"), "operand_batching_dims", batching, t.rank, of_operand)
    check_index_dims(
        DimLabels("C13", "", "C14"), "start_indices_batching_dims", indices_batching, indices.rank, of_indices
    )
    own, other = ("operand_batching_dims", batching), ("start_indices_batching_dims", indices_batching)
    check_batching(t.shape, indices.shape, own, other, at, ("C15", "C16", "C17"))
    check_index_dims(DimLabels("C18", "", "C19"), "start_index_map", start_map, t.rank, of_operand)
    check_disjoint("C18", "start_index_map", start_map, "operand_batching_dims", batching)
    if sizes is not None:
        _check_slice_sizes(t.shape, sizes, collapsed, batching)


def check_batching(
    shape: Shape,
    index_shape: Shape,
    own: tuple[str, tuple[int, ...]],
    other: tuple[str, tuple[int, ...]],
    at: int,
    labels: tuple[str, str, str],
) -> None:
    """Checks that batching dimensions of operand and indices (name and numbers) correspond: C15 to C17 of gather, C16
    to C18 of scatter."""
    if len(own[1]) != len(other[1]):
        raise Violation(labels[1], f"{own[0]} and {other[0]} should have the same size")
    if at in other[1]:
        raise Violation(labels[0], f"expects {other[0]} not to include index_vector_dim {at}.")
    for i, (d, e) in enumerate(zip(own[1], other[1], strict=True)):
        if not same_dim(shape[d], index_shape[e]):
            raise Violation(
                labels[2],
                f"{own[0]}[{i}] and {other[0]}[{i}] must have compatible sizes, but got {shape[d]} and "
                f"{index_shape[e]}.",
            )


def _check_slice_sizes(
    shape: Shape, sizes: tuple[int, ...], collapsed: tuple[int, ...], batching: tuple[int, ...]
) -> None:
    if len(sizes) != len(shape):
        raise Violation("C20", f"slice_sizes size ({len(sizes)}) not equal to (implied) operand rank ({len(shape)})")
    for d, (n, extent) in enumerate(zip(sizes, shape, strict=True)):
        if n < 0 or (extent is not None and n > extent):
            raise Violation("C21", f"slice size ({n}) is out of bounds for operand dimension ({extent}) at index {d}")
    for label, name, dims in (("C9", "collapsed_slice_dims", collapsed), ("C12", "operand_batching_dims", batching)):
        for d in dims:
            if sizes[d] > 1:
                raise Violation(
                    label, f"Expects that for each dim in {name}, slice_sizes[dim] should be <= 1, but got {sizes[d]}"
                )


def gather_shape(op: Op, sizes: Sequence[int | None]) -> tuple[Shape, list[int | None]]:
    """Returns the result shape and bounds by C22: extents of the indices at batch dimensions, of slices at
    `offset_dims`."""
    indices = operand_type(op, 1)
    numbers = op.attributes["dimension_numbers"]
    offsets = dims_of(numbers, "offset_dims")
    gone = dims_of(numbers, "collapsed_slice_dims") + dims_of(numbers, "operand_batching_dims")
    at = int(numbers.get("index_vector_dim", 0))
    assert indices.shape is not None
    limits = bounds_of(indices)
    batch = iter([(n, limits[d]) for d, n in enumerate(indices.shape) if d != at])
    window = iter([n for d, n in enumerate(sizes) if d not in gone])
    rank = len(offsets) + indices.rank - (1 if at < indices.rank else 0)
    pairs = [(next(window), None) if d in offsets else next(batch) for d in range(rank)]
    return tuple(n for n, _ in pairs), [b for _, b in pairs]


def _infer_gather(op: Op) -> list[Type]:
    sizes = op.ints("slice_sizes")
    check_gather(op, sizes)
    shape, bounds = gather_shape(op, sizes)
    return [with_bounds(shape, operand_type(op, 0).dtype, bounds)]


def _infer_dynamic_gather(op: Op) -> list[Type]:
    known = constant_ints(op.operands[2])
    t, sizes = operand_type(op, 0), operand_type(op, 2)
    if t.shape is not None and sizes.shape is not None and not same_dim(sizes.shape[0], t.rank):
        raise Violation("C20", f"slice_sizes size ({sizes.shape[0]}) not equal to operand rank ({t.rank})")
    check_gather(op, known)
    shape, bounds = gather_shape(op, known if known is not None else [None] * t.rank)
    return [with_bounds(shape, t.dtype, bounds)]


def as_index(numbers: Array) -> Array:
    """Converts to i64. Larger numbers saturate, since the largest i64 is outside every tensor as well."""
    if numbers.dtype == np.uint64:
        numbers = np.minimum(numbers, np.uint64(2**63 - 1))
    return numbers.astype(np.int64)


def gather(x: Array, indices: Array, numbers: StructAttr, sizes: Sequence[int]) -> Array:
    """Reference of gather: result[i] = operand[clamped start + offset], with one index array per operand dimension."""
    offsets = dims_of(numbers, "offset_dims")
    batching, indices_batching = (
        dims_of(numbers, "operand_batching_dims"),
        dims_of(numbers, "start_indices_batching_dims"),
    )
    gone = dims_of(numbers, "collapsed_slice_dims") + batching
    at = int(numbers.get("index_vector_dim", 0))
    starts = indices if at < indices.ndim else indices[..., None]
    starts = np.moveaxis(as_index(starts), min(at, starts.ndim - 1), -1)
    batch_shape = starts.shape[:-1]
    rank = len(batch_shape) + len(offsets)
    batch_dims = [d for d in range(rank) if d not in offsets]
    window_dims = [d for d in range(x.ndim) if d not in gone]
    shape = [0] * rank
    for d, n in zip(batch_dims, batch_shape, strict=True):
        shape[d] = n
    for d, w in zip(offsets, window_dims, strict=True):
        shape[d] = sizes[w]
    grid = np.indices(shape, sparse=True)

    def of_batch(a: Array) -> Array:
        """Reshapes an array over the batch dimensions to broadcast over the result's dimensions."""
        extents = [1] * rank
        for d, n in zip(batch_dims, batch_shape, strict=True):
            extents[d] = n
        return a.reshape(extents)

    index: list[Array] = [np.zeros([1] * rank, np.int64) for _ in range(x.ndim)]
    for k, d in enumerate(dims_of(numbers, "start_index_map")):
        index[d] = index[d] + of_batch(np.clip(starts[..., k], 0, x.shape[d] - sizes[d]))
    for d, e in zip(batching, indices_batching, strict=True):
        axis = e - (1 if at < e else 0)
        line = np.arange(batch_shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(batch_shape))])
        index[d] = index[d] + of_batch(np.broadcast_to(line, batch_shape))
    for d, w in zip(offsets, window_dims, strict=True):
        index[w] = index[w] + grid[d]
    if 0 in shape:
        return np.empty(shape, x.dtype)
    return np.broadcast_to(x[tuple(index)], shape)


def _gather_places(op: Op, at: At, extents: list[int]) -> Places:
    operand, indices = op.operands[:2]
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, StructAttr)
    offset_dims, collapsed = d.get("offset_dims", ()), d.get("collapsed_slice_dims", ())
    batching, batching_of = d.get("operand_batching_dims", ()), d.get("start_indices_batching_dims", ())
    start_map, vector_dim = d.get("start_index_map", ()), d.get("index_vector_dim", 0)
    sizes, shape = op.ints("slice_sizes"), operand.tensor.extents
    ishape = indices.tensor.extents
    batch = [e for i, e in enumerate(at.index) if i not in offset_dims]
    window = iter([at.index[i] for i in offset_dims])

    def place(component: int) -> At:
        rest = list(batch)
        if vector_dim < len(ishape):
            rest.insert(vector_dim, Expr(component))
        return At(tuple(rest), at.conditions)

    components = {dim: place(k) for k, dim in enumerate(start_map)}
    index: list[Expr] = []
    for dim in range(len(shape)):
        if dim in batching:
            position = batching_of[tuple(batching).index(dim)]
            e = batch[position - (1 if vector_dim < position else 0)]
        elif dim in collapsed:
            e = ZERO
        else:
            e = next(window)
        if dim in components:
            e = ix.add(e, _clamped(indices, components[dim], shape[dim] - sizes[dim]))
        index.append(e)
    reads = [(indices, p) for dim, p in components.items() if shape[dim] > sizes[dim]]
    return [(operand, At(tuple(index), at.conditions)), *reads]


_GATHER = {"dimension_numbers": required("struct gather"), "indices_are_sorted": optional("bool", False)}

define(
    "stablehlo.gather", section="gather",
    operands=("operand: tensor", "start_indices: int"), attributes={**_GATHER, "slice_sizes": required("ints")},
    traits={"moves_data"}, infer=_infer_gather, index_map=_gather_places,
    reference=lambda op, x, i: gather(x, i, op.attributes["dimension_numbers"], op.ints("slice_sizes")),
)  # fmt: skip
define(
    "stablehlo.dynamic_gather", section="gather",
    operands=("operand: tensor", "start_indices: int", "slice_sizes: 1d int"), attributes=_GATHER,
    traits={"moves_data", "looks_at_operands"}, infer=_infer_dynamic_gather,
    reference=lambda op, x, i, s: gather(x, i, op.attributes["dimension_numbers"], [int(n) for n in s]),
)  # fmt: skip

# torch_index_select


def _infer_torch_index_select(op: Op) -> list[Type]:
    t, index = operand_types(op)
    dim, batch = op.int("dim"), op.int("batch_dims")
    if t.shape is None or index.shape is None:
        return [op.results[0].type]
    if not -t.rank <= dim < t.rank:
        raise Violation("C1", f"dim {dim} is out of range for operand of rank {t.rank}")
    if not 0 <= batch <= min(dim % t.rank, index.rank):
        raise Violation("C2", f"batch_dims {batch} is out of range: dim is {dim}, rank of index {index.rank}")
    dim %= t.rank
    if not all(map(same_dim, t.shape[:batch], index.shape[:batch])):
        raise Violation("C4", f"the first {batch} extents of operand and index differ: "
                        f"{shape_text(t.shape[:batch])} and {shape_text(index.shape[:batch])}")  # fmt: skip
    if t.shape[dim] == 0 and 0 not in (*t.shape[:dim], *index.shape[batch:], *t.shape[dim + 1 :]):
        raise Violation("C5", f"dimension {dim} of the operand has no elements to select from")
    return [with_bounds(t.shape[:dim] + index.shape[batch:] + t.shape[dim + 1 :], t.dtype, None)]


def _torch_index_select(op: Op, x: Array, index: Array) -> Array:
    dim, batch = op.int("dim") % x.ndim, op.int("batch_dims")
    out = np.empty(x.shape[:dim] + index.shape[batch:] + x.shape[dim + 1 :], x.dtype)
    if not out.size:
        return out
    for b in np.ndindex(x.shape[:batch]):
        wanted = np.clip(as_index(index[b]), 0, x.shape[dim] - 1)
        out[b] = np.take(x[b], wanted, axis=dim - batch)
    return out


define(
    "stablehlo.torch_index_select", section="",
    operands=("operand: tensor", "index: int"),
    attributes={"dim": required("i64"), "batch_dims": required("i64")},
    traits={"moves_data"}, infer=_infer_torch_index_select, reference=_torch_index_select,
)  # fmt: skip
