"""CHLO ops with structure: top_k, ragged_dot, scan, dynamic_reshape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import I32, TensorType, Type
from shlo_jit.ops.contract import PRECISION, check_precision, dims_of, dot_general
from shlo_jit.ops.dynamic import resolve_shape
from shlo_jit.ops.numeric import Array, dtype_of, result_dtype, total_order_key, widen_int
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.reducer import RegionRunner, block_of, returned_types
from shlo_jit.ops.type_algebra import (
    bounds_of,
    check_disjoint,
    check_range,
    check_unique,
    compatible,
    compatible_elements,
    operand_type,
    operand_types,
    same_dim,
    shape_text,
    stated_result,
    type_text,
    types_text,
    with_bounds,
)

# top_k


def _infer_top_k(op: Op) -> list[Type]:
    t, k = operand_type(op, 0), op.int("k")
    if t.shape is None:
        return [t, TensorType(None, I32)]
    if t.rank < 1:
        raise Violation("C1", "operand's rank must be at least 1")
    last = t.shape[-1]
    if last is not None and last < k:
        raise Violation("C2", f"operand's last dimension must be at least {k}")
    shape, bounds = (*t.shape[:-1], k), bounds_of(t)
    return [with_bounds(shape, t.dtype, bounds), with_bounds(shape, I32, bounds)]


def _top_k(op: Op, x: Array) -> tuple[Array, Array]:
    """Reference of top_k: largest first in the order of totalOrder; of equal elements the lower index comes first."""
    key = total_order_key(x) if dtype_of(x).is_float else widen_int(x)
    if key.dtype.kind == "u":
        order = np.argsort(np.invert(key), axis=-1, kind="stable")
    else:
        order = np.argsort(-1 - key, axis=-1, kind="stable")
    order = order[..., : op.int("k")]
    return np.take_along_axis(x, order, axis=-1), order.astype(np.int32)


define(
    "chlo.top_k", operands=("operand: pred|int|float|unranked",),
    results=("values: pred|int|float|unranked", "indices: i32|unranked"),
    attributes={"k": required("i64 >= 0", "C2")}, infer=_infer_top_k, reference=_top_k,
)  # fmt: skip

# ragged_dot

_LISTS = (
    "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions",
    "lhs_ragged_dimensions", "rhs_group_dimensions",
)  # fmt: skip


class RaggedDims:
    """The dimension numbers of a ragged_dot, which determine one of its three modes."""

    def __init__(self, attr: StructAttr):
        lists = [dims_of(attr, name) for name in _LISTS]
        self.lhs_batch, self.rhs_batch, self.lhs_sum, self.rhs_sum, self.ragged, self.groups = lists

    @property
    def mode(self) -> str:
        d = self.ragged[0]
        return "batch" if d in self.lhs_batch else "contracting" if d in self.lhs_sum else "non_contracting"

    def prefix(self, rank: int) -> list[int]:
        """Returns the dimensions of lhs that group sizes may depend on."""
        d = self.ragged[0]
        if self.mode == "batch":
            return list(self.lhs_batch[: self.lhs_batch.index(d)])
        if self.mode == "contracting":
            return [*self.lhs_batch, *self.lhs_sum[: self.lhs_sum.index(d)]]
        free = [i for i in range(rank) if i not in self.lhs_batch + self.lhs_sum]
        return [*self.lhs_batch, *free[: free.index(d)]]


def _check_ragged(dims: RaggedDims, lhs: TensorType, rhs: TensorType, sizes: TensorType) -> None:
    assert lhs.shape is not None and rhs.shape is not None and sizes.shape is not None
    if len(dims.ragged) != 1:
        raise Violation("C1", "There must be exactly one ragged dimension in the lhs")
    for name, values, rank in zip(
        _LISTS,
        (dims.lhs_batch, dims.rhs_batch, dims.lhs_sum, dims.rhs_sum, dims.ragged, dims.groups),
        (lhs.rank, rhs.rank, lhs.rank, rhs.rank, lhs.rank, rhs.rank),
        strict=True,
    ):
        check_unique("C2", name, values)
        check_range("C2", name, values, rank)
    check_disjoint("C2", "lhs_batching_dimensions", dims.lhs_batch, "lhs_contracting_dimensions", dims.lhs_sum)
    check_disjoint("C2", "rhs_batching_dimensions", dims.rhs_batch, "rhs_contracting_dimensions", dims.rhs_sum)
    check_disjoint("C3", "rhs_group_dimensions", dims.groups, "rhs_batching_dimensions", dims.rhs_batch)
    check_disjoint("C3", "rhs_group_dimensions", dims.groups, "rhs_contracting_dimensions", dims.rhs_sum)
    for what, a, b in (("batching", dims.lhs_batch, dims.rhs_batch), ("contracting", dims.lhs_sum, dims.rhs_sum)):
        if len(a) != len(b):
            raise Violation("C4", f"lhs and rhs should have the same number of {what} dimensions")
        if not all(same_dim(lhs.shape[i], rhs.shape[j]) for i, j in zip(a, b, strict=True)):
            raise Violation("C4", f"{what} dimension sizes must match for lhs and rhs")
    _check_group_sizes(dims, lhs, sizes)
    if dims.mode == "non_contracting":
        if len(dims.groups) != 1:
            raise Violation(
                "C5",
                "There must be exactly one group dimension in the rhs when the ragged dimension is non-contracting",
            )
        if not same_dim(rhs.shape[dims.groups[0]], sizes.shape[-1] if sizes.shape else None):
            raise Violation(
                "C5", f"rhs group dimension is expected to have size={sizes.shape[-1]}, got {rhs.shape[dims.groups[0]]}"
            )
    elif dims.groups:
        raise Violation(
            "C5", "There must be zero group dimensions in the rhs when the ragged dimension is batch or contracting"
        )


def _check_group_sizes(dims: RaggedDims, lhs: TensorType, sizes: TensorType) -> None:
    """Checks group sizes: one list for all, or one for each index of the prefix."""
    assert lhs.shape is not None and sizes.shape is not None
    prefix = [lhs.shape[d] for d in dims.prefix(lhs.rank)]
    if sizes.rank == 1:
        return
    if sizes.rank != len(prefix) + 1:
        raise Violation("C6", f"expected group_sizes to have rank {len(prefix) + 1}, got {sizes.rank}")
    wanted = [*prefix, sizes.shape[-1]]
    if not all(map(same_dim, wanted, sizes.shape)):
        raise Violation(
            "C6", f"group_sizes is expected to have shape {shape_text(wanted)}, got {shape_text(sizes.shape)}"
        )


def _infer_ragged_dot(op: Op) -> list[Type]:
    lhs, rhs, sizes = operand_types(op)
    dims = RaggedDims(op.attributes["ragged_dot_dimension_numbers"])
    _check_ragged(dims, lhs, rhs, sizes)
    check_precision(op, "C8")
    assert lhs.shape is not None and rhs.shape is not None and sizes.shape is not None
    shape = [lhs.shape[d] for d in dims.lhs_batch]
    shape += [n for d, n in enumerate(lhs.shape) if d not in dims.lhs_batch + dims.lhs_sum]
    shape += [n for d, n in enumerate(rhs.shape) if d not in dims.rhs_batch + dims.rhs_sum + dims.groups]
    if dims.mode == "contracting":
        shape.insert(0, sizes.shape[-1])
    return [with_bounds(tuple(shape), stated_result(op).dtype, None)]


def _group_masks(dims: RaggedDims, shape: Sequence[int], sizes: Array) -> Array:
    """Returns mask[g, ...lhs index...]: whether an element of lhs is in group g. Other dimensions have extent 1."""
    d, rank = dims.ragged[0], len(shape)
    ends = np.cumsum(sizes.astype(np.int64), axis=-1)
    starts = ends - sizes.astype(np.int64)
    extents = [1] * rank
    if sizes.ndim > 1:
        for axis in dims.prefix(rank):
            extents[axis] = shape[axis]
    line = np.arange(shape[d]).reshape([-1 if i == d else 1 for i in range(rank)])
    masks = []
    for g in range(sizes.shape[-1]):
        order = np.argsort(np.argsort(dims.prefix(rank))) if sizes.ndim > 1 else []
        low, high = (
            (np.transpose(a[..., g], np.argsort(order)) if sizes.ndim > 1 else a[..., g]).reshape(extents)
            for a in (starts, ends)
        )
        masks.append((line >= low) & (line < high))
    return np.stack(masks) if masks else np.zeros((0, *([1] * rank)), bool)


def _ragged_dot(op: Op, lhs: Array, rhs: Array, sizes: Array) -> Array:
    dims = RaggedDims(op.attributes["ragged_dot_dimension_numbers"])
    dtype = result_dtype(op)
    masks = _group_masks(dims, lhs.shape, sizes)
    zero = np.zeros((), lhs.dtype)
    numbers = (dims.lhs_batch, dims.rhs_batch, dims.lhs_sum, dims.rhs_sum)
    if dims.mode == "batch":
        return dot_general(np.where(masks.any(axis=0), lhs, zero), rhs, numbers, dtype)
    if dims.mode == "contracting":
        parts = [dot_general(np.where(mask, lhs, zero), rhs, numbers, dtype) for mask in masks]
        return np.stack(parts) if parts else np.zeros(op.results[0].type.extents, dtype)  # type: ignore[attr-defined]
    group = dims.groups[0]
    inner = (
        dims.lhs_batch, tuple(d - (d > group) for d in dims.rhs_batch),
        dims.lhs_sum, tuple(d - (d > group) for d in dims.rhs_sum),
    )  # fmt: skip
    free = [d for d in range(lhs.ndim) if d not in dims.lhs_batch + dims.lhs_sum]
    out = np.zeros(op.results[0].type.extents, dtype)  # type: ignore[attr-defined]
    for g, mask in enumerate(masks):
        product = dot_general(lhs, np.take(rhs, g, axis=group), inner, dtype)
        kept = mask.transpose([*dims.lhs_batch, *free, *dims.lhs_sum])
        kept = kept.reshape(kept.shape[: kept.ndim - len(dims.lhs_sum)])
        out = np.where(kept.reshape(*kept.shape, *[1] * (out.ndim - kept.ndim)), product, out)
    return out


define(
    "chlo.ragged_dot", operands=("lhs: tensor", "rhs: tensor", "group_sizes: int"),
    attributes={"ragged_dot_dimension_numbers": required("struct ragged_dot"), **PRECISION},
    traits={"chooses_result"}, infer=_infer_ragged_dot, reference=_ragged_dot,
)  # fmt: skip

# scan


def _scan_parts(op: Op) -> tuple[int, int]:
    """Returns the numbers of scanned inputs and of carries. Results of the op and of its body are outputs, then
    carries."""
    if op.attributes.get("resultSegmentSizes") is not None:
        _segments(op, "resultSegmentSizes", len(op.results))
    if op.attributes.get("operandSegmentSizes") is not None:
        return _segments(op, "operandSegmentSizes", len(op.operands))
    carries = sum(1 for v in op.operands if any(v.type == r.type for r in op.results[len(op.results) // 2 :]))
    return len(op.operands) - carries, carries


def _segments(op: Op, name: str, count: int) -> tuple[int, int]:
    sizes = op.ints(name)
    if len(sizes) != 2 or min(sizes) < 0 or sum(sizes) != count:
        raise Violation("attribute", f"{name} must be two sizes with sum {count}, got {list(sizes)}")
    return sizes[0], sizes[1]


def _infer_scan(op: Op) -> list[Type]:
    block = block_of(op, 0, "C1")
    n, carries = _scan_parts(op)
    types = operand_types(op)
    axis = op.int("dimension")
    if len(block.arguments) != len(types):
        raise Violation("C1", f"expects {len(types)} arguments in the body, but got {len(block.arguments)}")
    size: int | None = op.int("scan_dim_size") if op.attributes.get("scan_dim_size") is not None else None
    if size is not None and size < 0:
        size = None
    for i, t in enumerate(types[:n]):
        if t.shape is None or not 0 <= axis < t.rank:
            raise Violation("C2", f"scan dimension {axis} is out of range for operand {i}")
        if not same_dim(t.shape[axis], size):
            raise Violation("C3", f"invalid scan dimension size of operand {i}")
        size = t.shape[axis] if size is None else size
    for i, (t, a) in enumerate(zip(types, block.arguments, strict=True)):
        expected = _without(t, axis) if i < n else t
        if not compatible(expected, a.type):
            raise Violation("C4", f"operand and body argument {i} are incompatible")
    returned = returned_types(block)
    outputs = len(returned) - carries
    if outputs < 0:
        raise Violation("C5", f"body must return at least {carries} values, but returns {len(returned)}")
    for i, (a, r) in enumerate(zip(types[n:], returned[outputs:], strict=True)):
        if not compatible(a, r):
            raise Violation("C5", f"carry {i} of type '{type_text(a)}' is returned as '{type_text(r)}'")
    stacked: list[Type] = []
    for r in returned[:outputs]:
        assert isinstance(r, TensorType) and r.shape is not None
        stacked.append(with_bounds((*r.shape[:axis], size, *r.shape[axis:]), r.dtype, None))
    return [*stacked, *types[n:]]


def _without(t: TensorType, axis: int) -> TensorType:
    assert t.shape is not None
    limits = bounds_of(t)
    return with_bounds(t.shape[:axis] + t.shape[axis + 1 :], t.dtype, limits[:axis] + limits[axis + 1 :])


def _scan(op: Op, *arrays: Array, run: RegionRunner) -> tuple[Array, ...]:
    n, carries = _scan_parts(op)
    axis = op.int("dimension")
    inputs, state = arrays[:n], arrays[n:]
    count = inputs[0].shape[axis] if inputs else op.int("scan_dim_size")
    outputs = len(op.results) - carries
    rows: list[list[Array]] = [[] for _ in range(outputs)]
    reverse = bool(op.attributes.get("is_reverse", False))
    for i in range(count - 1, -1, -1) if reverse else range(count):
        results = run(0, *[np.take(x, i, axis=axis) for x in inputs], *state)
        for row, value in zip(rows, results[:outputs], strict=True):
            row.append(value)
        state = results[outputs:]
    stacked = []
    for k, row in enumerate(rows):
        row = row[::-1] if reverse else row
        stacked.append(np.stack(row, axis=axis) if row else np.zeros(op.results[k].type.extents, result_dtype(op, k)))  # type: ignore[attr-defined]
    return (*stacked, *state)


define(
    "chlo.scan", operands=("operands*: tensor",), results=("results*: tensor",),
    attributes={
        "dimension": required("i64 >= 0", "C2"),
        "is_reverse": optional("bool", False),
        "is_associative": optional("bool"),
        "scan_dim_size": optional("i64"),
        "operandSegmentSizes": optional("segments"),
        "resultSegmentSizes": optional("segments"),
    },
    regions=("body",), infer=_infer_scan, reference=_scan,
)  # fmt: skip

# shapes


def _verify_dynamic_reshape(op: Op) -> None:
    t, result = operand_type(op, 0), stated_result(op)
    if not compatible_elements(t.dtype, result.dtype):
        raise Violation("C1", f"requires the same element type for operand and result, got {types_text([t, result])}")
    rank = operand_type(op, 1).extents[0]
    if result.shape is not None and result.rank != rank:
        raise Violation("C2", f"length of shape operand ({rank}) is not equal to the rank of result ({result.rank})")


define(
    "chlo.dynamic_reshape", operands=("operand: tensor", "output_shape: shape"), verify=_verify_dynamic_reshape,
    reference=lambda op, x, s: x.reshape(resolve_shape(x.size, s)), traits={"moves_data", "chooses_result"},
)  # fmt: skip
