"""Ops that create, move or copy elements without computing on them (specification, "Ops")."""

from __future__ import annotations

import math

import numpy as np

from shlo_jit.ir import index as ix
from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import ZERO, At, Condition, Places
from shlo_jit.ir.types import QuantizedType, TensorType, Type
from shlo_jit.ops.numeric import Array, convert, result_dtype, result_type
from shlo_jit.ops.record import KINDS, Violation, define, required
from shlo_jit.ops.type_algebra import (
    Shape,
    bounds_of,
    check_bounds,
    compatible_elements,
    operand_type,
    operand_types,
    per_axis,
    same_dim,
    stated_result,
    types_text,
    with_bounds,
    with_element,
)
from shlo_jit.sizes import equal

MOVES = {"moves_data"}


def no_operand_places(op: Op, at: At, extents: list[int]) -> Places:
    """Index map of an op without operands."""
    return []


def same_elements(op: Op, *, spreads: bool = False) -> None:
    """Checks C1: the result has the operand's element type.

    If quantized per axis, the axis may differ. Scales and zero points may differ if they are broadcast to more slices
    (`spreads`).
    """
    a, b, label = operand_type(op, 0), stated_result(op), "C1"
    if a.dtype == b.dtype:
        return
    if isinstance(a.dtype, QuantizedType) and isinstance(b.dtype, QuantizedType):
        x, y = a.dtype, b.dtype
        same_base = (x.storage, x.expressed, x.storage_min, x.storage_max) == (
            y.storage, y.expressed, y.storage_min, y.storage_max,
        )  # fmt: skip
        if not same_base or (x.axis is None) != (y.axis is None):
            raise Violation(label, f"requires the same element type for operand and result, got {types_text([a, b])}")
        if (x.scales, x.zero_points) != (y.scales, y.zero_points) and (x.axis is None or not spreads):
            what = "scale and zero_point" if x.axis is None else "scales and zero_points"
            raise Violation(label, f"expect same quantization {what}, got {types_text([a, b])}")
        return
    raise Violation(label, f"requires the same element type for operand and result, got {types_text([a, b])}")


def check_known_shape(result: TensorType) -> None:
    """Checks the result of an op whose shape is the stated one: at most one dimension is unknown, and it is bounded."""
    if result.is_static or result.shape is None:
        return
    unknown = result.shape.count(None)
    if unknown > 1 or bounds_of(result)[result.shape.index(None)] is None:
        raise Violation("type", "result #0 must be statically shaped or single bounded dimension tensor")


# constant, iota


def _infer_constant(op: Op) -> list[Type]:
    value = op.attributes.get("value")
    if not isinstance(value, Dense):
        raise Violation("attribute", "requires attribute 'value'")
    stated = op.results[0].type
    if isinstance(stated, TensorType) and isinstance(stated.dtype, QuantizedType):
        if value.type.dtype == stated.dtype.storage:  # the literal has the storage type
            return [with_element(value.type, stated.dtype)]
        return [value.type]
    return [value.type]


def _constant(op: Op) -> Array:
    return op.constant.array


def _verify_iota(op: Op) -> None:
    t = stated_result(op)
    if t.shape is None:
        return
    if t.rank == 0:
        raise Violation("C1", "does not support scalars")
    check_known_shape(t)
    if op.int("iota_dimension") >= t.rank:
        raise Violation(
            "C1",
            "iota dimension cannot go beyond the output rank or be negative. "
            f"Got {op.int('iota_dimension')} of {t.rank}.",
        )


def iota(shape: tuple[int, ...], dimension: int, dtype: np.dtype) -> Array:
    """Returns the numbers 0, 1, ... along a dimension; complex ones have imaginary part 0."""
    line = np.arange(shape[dimension], dtype=np.int64)
    column = line.reshape([-1 if d == dimension else 1 for d in range(len(shape))])
    return convert(np.broadcast_to(column, shape).copy(), dtype)


define(
    "stablehlo.constant", section="constant",
    results=("output: any_tensor",), attributes={"value": required("dense")},
    infer=_infer_constant, reference=_constant, traits=MOVES, index_map=no_operand_places,
)  # fmt: skip
define(
    "stablehlo.iota", section="iota",
    results=("output: int|float|complex|quant",), attributes={"iota_dimension": required("i64 >= 0", "C1")},
    traits={"chooses_result"}, exact=KINDS, verify=_verify_iota, index_map=no_operand_places,
    reference=lambda op: iota(result_type(op).extents, op.int("iota_dimension"), result_dtype(op)),
)  # fmt: skip

# reshape, transpose, reverse


def _elements(shape: Shape | None) -> int | None:
    return None if shape is None or None in shape else math.prod(shape)  # type: ignore[arg-type]


def _verify_reshape(op: Op) -> None:
    a, b = operand_type(op, 0), stated_result(op)
    check_known_shape(b)
    same_elements(op)
    n, m = _elements(a.shape), _elements(b.shape)
    if n is not None and m is not None and n != m:
        raise Violation("C2", f"number of output elements ({m}) doesn't match expected number of elements ({n})")
    if per_axis(a) and a.is_static and b.is_static:
        check_reshape_axis(a, b)


def check_reshape_axis(a: TensorType, b: TensorType) -> None:
    """Checks C3: the quantized axis keeps its extent and the products of the extents before and after it."""
    x, y = a.dtype, b.dtype
    assert isinstance(x, QuantizedType) and isinstance(y, QuantizedType)
    assert x.axis is not None and y.axis is not None
    if a.extents[x.axis] != b.extents[y.axis]:
        raise Violation(
            "C3",
            "expect same quantization dimension size for operand and result "
            f"{a.extents[x.axis]} and {b.extents[y.axis]}",
        )
    for what, m, n in (
        ("before", math.prod(a.extents[: x.axis]), math.prod(b.extents[: y.axis])),
        ("after", math.prod(a.extents[x.axis + 1 :]), math.prod(b.extents[y.axis + 1 :])),
    ):
        if m != n:
            raise Violation(
                "C3",
                f"product of dimensions {what} quantization dimension must match between operand and result,"
                f" got {m} and {n}",
            )


def _reshape_places(op: Op, at: At, extents: list[int]) -> Places:
    (operand,) = op.operands
    source, target = operand.tensor.extents, op.result.tensor.extents
    kept = [e for e, n in zip(at.index, target, strict=True) if not equal(n, 1)]
    if equal(*(tuple(n for n in shape if not equal(n, 1)) for shape in (source, target))):
        it = iter(kept)
        index = tuple(ZERO if equal(n, 1) else next(it) for n in source)
    else:
        index = ix.delinearize(ix.linearize(at.index, target), source, extents)
    return [(operand, At(index, at.conditions))]


def _infer_transpose(op: Op) -> list[Type]:
    t, permutation = operand_type(op, 0), op.ints("permutation")
    assert t.shape is not None
    if sorted(permutation) != list(range(t.rank)):
        raise Violation(
            "C2",
            f"attribute permutation must be a permutation of {list(range(t.rank))} "
            f"but got {', '.join(map(str, permutation))}",
        )
    dtype = t.dtype
    if isinstance(dtype, QuantizedType):
        stated = stated_result(op)
        same_elements(op)
        axis = stated.dtype.axis if isinstance(stated.dtype, QuantizedType) else None
        if axis is not None and axis < t.rank and permutation[axis] != dtype.axis:
            raise Violation(
                "C4",
                f"operand quantization_dimension {dtype.axis} is not same as permutation[{axis}] = {permutation[axis]}",
            )
        dtype = stated.dtype
    shape, bounds = tuple(t.shape[p] for p in permutation), bounds_of(t)
    return [with_bounds(shape, dtype, [bounds[p] for p in permutation])]


def _transpose_places(op: Op, at: At, extents: list[int]) -> Places:
    index = [ZERO] * len(at.index)
    for i, p in enumerate(op.ints("permutation")):
        index[p] = at.index[i]
    return [(op.operands[0], At(tuple(index), at.conditions))]


def _infer_reverse(op: Op) -> list[Type]:
    t, dims = operand_type(op, 0), op.ints("dimensions")
    if len(set(dims)) != len(dims):
        raise Violation("C2", f"dimensions should be unique. Got: {', '.join(map(str, dims))}")
    for d in dims:
        if d < 0:
            raise Violation("C3", f"all dimensions should be non-negative. Got dimension: {d}.")
        if t.shape is not None and d >= t.rank:
            raise Violation("C3", f"all dimensions should be between [0, {t.rank}). Got dimension: {d}.")
    return [t]


def _reverse_places(op: Op, at: At, extents: list[int]) -> Places:
    shape = op.result.tensor.extents
    turned = {d for d in op.ints("dimensions") if not equal(shape[d], 1)}
    index = tuple(ix.shift(ix.scale(e, -1), shape[d] - 1) if d in turned else e for d, e in enumerate(at.index))
    return [(op.operands[0], At(index, at.conditions))]


define(
    "stablehlo.reshape", section="reshape",
    operands=("operand: any_tensor",), results=("result: any_tensor",), traits={"moves_data", "chooses_result"},
    verify=_verify_reshape, index_map=_reshape_places, reference=lambda op, x: x.reshape(result_type(op).extents),
)  # fmt: skip
define(
    "stablehlo.transpose", section="transpose",
    operands=("operand: any_tensor",), results=("result: any_tensor",),
    attributes={"permutation": required("ints")}, traits=MOVES, infer=_infer_transpose,
    index_map=_transpose_places,
    reference=lambda op, x: x.transpose(op.ints("permutation")),
)  # fmt: skip
define(
    "stablehlo.reverse", section="reverse",
    operands=("operand: tensor",), attributes={"dimensions": required("ints")}, traits=MOVES, infer=_infer_reverse,
    index_map=_reverse_places,
    reference=lambda op, x: np.flip(x, op.ints("dimensions")),
)  # fmt: skip

# slice, pad, concatenate


def _infer_slice(op: Op) -> list[Type]:
    t = operand_type(op, 0)
    assert t.shape is not None
    starts, limits, strides = op.ints("start_indices"), op.ints("limit_indices"), op.ints("strides")
    for name, values in (("start_indices", starts), ("limit_indices", limits), ("strides", strides)):
        if len(values) != t.rank:
            raise Violation(
                "C2",
                f"the number of elements in {name} ({len(values)}) does not match the rank of the operand ({t.rank})",
            )
    shape, bounds = [], []
    for d, (start, limit, stride, n, bound) in enumerate(
        zip(starts, limits, strides, t.shape, bounds_of(t), strict=True)
    ):
        if start < 0:
            raise Violation("C3", f"negative start index {start} in dimension {d}")
        upper = n if n is not None else bound
        if upper is not None and limit > upper:
            kind = "dimension size" if n is not None else "dimension bound"
            raise Violation("C3", f"limit index {limit} is larger than {kind} {upper} in dimension {d}")
        if start > limit:
            raise Violation("C3", f"start index {start} is larger than limit index {limit} in dimension {d}")
        if stride <= 0:
            raise Violation("C4", f"stride must be positive but got {stride} in dimension {d}")
        shape.append(-(-(limit - start) // stride))
        bounds.append(None)
    return [with_bounds(tuple(shape), t.dtype, bounds)]


def _slice(op: Op, x: Array) -> Array:
    starts, limits, strides = op.ints("start_indices"), op.ints("limit_indices"), op.ints("strides")
    return x[tuple(slice(a, b, s) for a, b, s in zip(starts, limits, strides, strict=True))]


def _slice_places(op: Op, at: At, extents: list[int]) -> Places:
    starts, strides = op.ints("start_indices"), op.ints("strides", (1,) * len(at.index))
    index = tuple(ix.shift(ix.scale(e, k), s) for e, s, k in zip(at.index, starts, strides, strict=True))
    return [(op.operands[0], At(index, at.conditions))]


def _infer_pad(op: Op) -> list[Type]:
    t, value = operand_types(op)
    if t.dtype != value.dtype and not compatible_elements(t.dtype, value.dtype):
        both = types_text([t, value])
        raise Violation("C1", f"requires the same element type for all operands and results, got {both}")
    low, high, inner = op.ints("edge_padding_low"), op.ints("edge_padding_high"), op.ints("interior_padding")
    return [pad_type(t, low, high, inner)]


def pad_type(t: TensorType, low: tuple[int, ...], high: tuple[int, ...], inner: tuple[int, ...]) -> TensorType:
    """Checks C2 to C4 of pad. Returns the result type."""
    assert t.shape is not None
    for name, values in (("edge_padding_low", low), ("edge_padding_high", high), ("interior_padding", inner)):
        if len(values) != t.rank:
            raise Violation("C2", f"{name} length ({len(values)}) must match operand rank ({t.rank})")
    shape: list[int | None] = []
    bounds: list[int | None] = []
    for d, (n, bound, a, b, i) in enumerate(zip(t.shape, bounds_of(t), low, high, inner, strict=True)):
        if i < 0:
            raise Violation("C3", f"Interior padding cannot be negative: {i} in dimension {d}")
        shape.append(None if n is None else a + b + n + max(n - 1, 0) * i)
        bounds.append(None if bound is None else a + b + bound + max(bound - 1, 0) * i)
        for what, size in (("size", shape[-1]), ("bound", bounds[-1])):
            if size is not None and size < 0:
                raise Violation("C4", f"Padding result in negative {what} for dimension {d}")
    return with_bounds(tuple(shape), t.dtype, bounds)


def pad(x: Array, value: Array, low: tuple[int, ...], high: tuple[int, ...], inner: tuple[int, ...]) -> Array:
    """Reference of pad: interior padding first, then the edges, which may be negative."""
    spread = tuple(n + max(n - 1, 0) * i for n, i in zip(x.shape, inner, strict=True))
    y = np.full(spread, value, x.dtype)
    y[tuple(slice(None, None, i + 1) for i in inner)] = x
    shape = tuple(n + a + b for n, a, b in zip(spread, low, high, strict=True))
    out = np.full(shape, value, x.dtype)
    to = tuple(slice(max(a, 0), max(0, n - max(b, 0))) for n, a, b in zip(shape, low, high, strict=True))
    src = tuple(slice(max(-a, 0), max(0, n - max(-b, 0))) for n, a, b in zip(spread, low, high, strict=True))
    out[to] = y[src]
    return out


def _pad(op: Op, x: Array, value: Array) -> Array:
    return pad(x, value, op.ints("edge_padding_low"), op.ints("edge_padding_high"), op.ints("interior_padding"))


def _pad_places(op: Op, at: At, extents: list[int]) -> Places:
    """Index map of pad: the operand, on the condition that the element is not padding, then the padding value."""
    operand, value = op.operands
    low, interior = op.ints("edge_padding_low"), op.ints("interior_padding")
    assert not any(interior), "interior padding has its own loop nest"
    index, conditions = [], list(at.conditions)
    source, target = operand.tensor.extents, op.result.tensor.extents
    for d, e in enumerate(at.index):
        moved = ix.shift(e, -low[d])
        if low[d] > 0 or target[d] > source[d] + low[d]:
            conditions.append(Condition(moved, 0, source[d]))
        index.append(moved)
    return [(operand, At(tuple(index), tuple(conditions))), (value, At((), at.conditions))]


def _infer_concatenate(op: Op) -> list[Type]:
    types, d = operand_types(op), op.int("dimension")
    if not types:
        raise Violation("C3", "expected 1 or more operands, but found 0")
    first = types[0]
    for t in types[1:]:
        if not compatible_elements(t.dtype, first.dtype):
            both = types_text([first, t])
            raise Violation("C1", f"requires the same element type for all operands and results, got {both}")
    ranked = [t for t in types if t.shape is not None]
    if not ranked:
        return [first]
    rank = ranked[0].rank
    for i, t in enumerate(types):
        if t.shape is not None and t.rank != rank:
            raise Violation("C2", f"operands (0) and ({i}) do not match rank")
    if rank == 0:
        raise Violation("C4", "rank-0 values cannot be concatenated")
    if d >= rank:
        raise Violation("C4", f"dimension {d} is out-of-bounds for input rank {rank}")
    shape: list[int | None] = []
    bounds: list[int | None] = []
    for axis in range(rank):
        extents = [t.shape[axis] for t in ranked if t.shape is not None]
        limits = [bounds_of(t)[axis] for t in ranked]
        if axis != d:
            _check_concatenable(types, axis)
            shape.append(next((n for n in extents if n is not None), None))
            known = [b for b in limits if b is not None]
            bounds.append(min(known) if known else None)
        else:
            whole = None not in extents and len(ranked) == len(types)
            shape.append(sum(extents) if whole else None)  # type: ignore[arg-type]
            upper = [n if n is not None else b for n, b in zip(extents, limits, strict=True)]
            bounds.append(None if None in upper else sum(upper))  # type: ignore[arg-type]
    check_bounds("C2", shape, bounds)
    return [with_bounds(tuple(shape), first.dtype, bounds)]


def _check_concatenable(types: list[TensorType], axis: int) -> None:
    """Checks C2: extents agree in the other dimensions."""
    first = next(i for i, t in enumerate(types) if t.shape is not None)
    for i, t in enumerate(types):
        a, b = types[first].shape, t.shape
        if a is not None and b is not None and not same_dim(a[axis], b[axis]):
            texts = [", ".join("?" if n is None else str(n) for n in shape) for shape in (a, b)]
            raise Violation(
                "C2",
                f"shapes of operand ({first}) and ({i}) do not match at non-concat index: ({texts[0]}) != ({texts[1]}) "
                f"at non-concat index {axis}",
            )
        if a is not None and a[axis] is None and b is not None:
            first = i


define(
    "stablehlo.slice", section="slice",
    operands=("operand: tensor",),
    attributes={"start_indices": required("ints"), "limit_indices": required("ints"), "strides": required("ints")},
    traits=MOVES, infer=_infer_slice, index_map=_slice_places, reference=_slice,
)  # fmt: skip
define(
    "stablehlo.pad", section="pad",
    operands=("operand: tensor", "padding_value: 0d tensor"),
    attributes={
        "edge_padding_low": required("ints"),
        "edge_padding_high": required("ints"),
        "interior_padding": required("ints"),
    },
    traits=MOVES, infer=_infer_pad, index_map=_pad_places, reference=_pad,
)  # fmt: skip
define(
    "stablehlo.concatenate", section="concatenate",
    operands=("inputs*: tensor",), attributes={"dimension": required("i64 >= 0", "C4")},
    traits=MOVES, infer=_infer_concatenate, cost=0, reference=lambda op, *xs: np.concatenate(xs, op.int("dimension")),
)  # fmt: skip
