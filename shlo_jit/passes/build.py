"""Builders to write expansions with: each appends one op (or a few) to the block that a Rewriter builds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense, DenseArray, EnumAttr, IntegerAttr, StructAttr
from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import I1, I32, DType, TensorType, tensor
from shlo_jit.ops.known_calls import SIZE
from shlo_jit.passes.rewriter import Rewriter
from shlo_jit.sizes import Size, equal

Ints = Sequence[int]


def dims(values: Ints) -> DenseArray:
    return DenseArray("i64", tuple(values))


def shape_of(value: Value) -> tuple[int, ...]:
    return value.tensor.extents


def is_static(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.is_static


def with_dtype(value: Value, dtype: DType) -> TensorType:
    return tensor(shape_of(value), dtype)


# ---------------------------------------------------------------------------- leaves
def constant(rw: Rewriter, type: TensorType, array: Any) -> Value:
    """Returns a constant; `array` is broadcast to the type's shape. If extents are known only at the call, it is a
    broadcast of the single element of `array`."""
    if not type.is_fixed:
        return broadcast(rw, constant(rw, tensor((), type.dtype), np.asarray(array).reshape(())), type.extents, ())
    data = np.broadcast_to(np.asarray(array).astype(type.storage.numpy), type.extents)
    return rw.emit1("stablehlo.constant", [], type, {"value": Dense(type, data)})


def splat_like(rw: Rewriter, value: Value, number: Any) -> Value:
    """Returns a tensor of the value's type filled with a number."""
    return constant(rw, value.tensor, number)


def iota(rw: Rewriter, type: TensorType, dimension: int) -> Value:
    return rw.emit1("stablehlo.iota", [], type, {"iota_dimension": IntegerAttr(dimension)})


def size(rw: Rewriter, extent: int) -> Value:
    """Returns an extent as an i32: a constant, or a custom call if it is known only at the call."""
    t = tensor((), I32)
    if not isinstance(extent, Size):
        return constant(rw, t, extent)
    found = rw.emit1("stablehlo.custom_call", [], t, {"call_target_name": SIZE, "size": extent})
    found.sizes = np.asarray(extent, object)
    return found


# ---------------------------------------------------------------------------- elementwise
def apply(rw: Rewriter, name: str, *operands: Value) -> Value:
    """Emits an elementwise op whose result has the last operand's type."""
    return rw.emit1("stablehlo." + name, operands, operands[-1].type)


def compare(rw: Rewriter, direction: str, x: Value, y: Value) -> Value:
    attributes = {"comparison_direction": EnumAttr("stablehlo", "comparison_direction", direction)}
    return rw.emit1("stablehlo.compare", [x, y], with_dtype(x, I1), attributes)


def convert(rw: Rewriter, value: Value, dtype: DType) -> Value:
    if value.tensor.dtype == dtype:
        return value
    return rw.emit1("stablehlo.convert", [value], with_dtype(value, dtype))


# ---------------------------------------------------------------------------- data movement
def reshape(rw: Rewriter, value: Value, shape: Ints) -> Value:
    if equal(shape_of(value), tuple(shape)):
        return value
    return rw.emit1("stablehlo.reshape", [value], tensor(tuple(shape), value.tensor.dtype))


def broadcast(rw: Rewriter, value: Value, shape: Ints, where: Ints) -> Value:
    """broadcast_in_dim; `where` has the result's dimension of each dimension of the operand."""
    if equal(shape_of(value), tuple(shape)) and tuple(where) == tuple(range(len(where))):
        return value
    t = tensor(tuple(shape), value.tensor.dtype)
    return rw.emit1("stablehlo.broadcast_in_dim", [value], t, {"broadcast_dimensions": dims(where)})


def transpose(rw: Rewriter, value: Value, order: Ints) -> Value:
    if list(order) == sorted(order):
        return value
    t = tensor(tuple(shape_of(value)[d] for d in order), value.tensor.dtype)
    return rw.emit1("stablehlo.transpose", [value], t, {"permutation": dims(order)})


def slice_dim(rw: Rewriter, value: Value, dimension: int, start: int, limit: int) -> Value:
    """Slices the indices [start, limit) of one dimension."""
    shape = list(shape_of(value))
    starts, limits = [0] * len(shape), list(shape)
    starts[dimension], limits[dimension] = start, limit
    shape[dimension] = limit - start
    attributes = {
        "start_indices": dims(starts),
        "limit_indices": dims(limits),
        "strides": dims([1] * len(shape)),
    }
    return rw.emit1("stablehlo.slice", [value], tensor(tuple(shape), value.tensor.dtype), attributes)


def window(rw: Rewriter, value: Value, corner: Sequence[Value], sizes: Ints) -> Value:
    """Slices a window of the given sizes at a corner that is known at run time."""
    t = tensor(tuple(sizes), value.tensor.storage)
    return rw.emit1("stablehlo.dynamic_slice", [value, *corner], t, {"slice_sizes": dims(sizes)})


def pad(rw: Rewriter, value: Value, number: Any, low: Ints, high: Ints, interior: Ints) -> Value:
    """Pads the value with a number around and between its elements; negative padding removes elements."""
    if not any((*low, *high, *interior)):
        return value
    sizes = zip(shape_of(value), low, high, interior, strict=True)
    t = tensor(tuple(a + n + b + max(n - 1, 0) * i for n, a, b, i in sizes), value.tensor.storage)
    attributes = {"edge_padding_low": dims(low), "edge_padding_high": dims(high), "interior_padding": dims(interior)}
    return rw.emit1("stablehlo.pad", [value, constant(rw, tensor((), t.storage), number)], t, attributes)


def concatenate(rw: Rewriter, values: Sequence[Value], dimension: int) -> Value:
    shape = list(shape_of(values[0]))
    shape[dimension] = sum(shape_of(v)[dimension] for v in values)
    t = tensor(tuple(shape), values[0].tensor.dtype)
    return rw.emit1("stablehlo.concatenate", values, t, {"dimension": IntegerAttr(dimension)})


def drop_dim(shape: Ints, dimension: int) -> tuple[int, ...]:
    return (*shape[:dimension], *shape[dimension + 1 :])


# ---------------------------------------------------------------------------- loops
def counted(
    rw: Rewriter, count: int, state: Sequence[Value], iteration: Callable[[Value, list[Value]], Sequence[Value]]
) -> list[Value]:
    """Returns the state after a loop of `count` iterations. `iteration` emits one, given its index and the state before
    it."""
    first = [constant(rw, tensor((), I32), 0), *state]
    types = [v.type for v in first]
    condition, body = (Block([Value(t) for t in types]) for _ in range(2))
    rw.blocks.append(condition)
    limit = constant(rw, tensor((), I32), count)
    rw.emit("stablehlo.return", [compare(rw, "LT", condition.arguments[0], limit)], [])
    rw.blocks[-1] = body
    number, *before = body.arguments
    after = iteration(number, before)
    one = constant(rw, tensor((), I32), 1)
    rw.emit("stablehlo.return", [apply(rw, "add", number, one), *after], [])
    rw.blocks.pop()
    return rw.emit("stablehlo.while", first, types, {}, [Region([condition]), Region([body])])[1:]


def choose(
    rw: Rewriter, condition: Value, then: Callable[[], Sequence[Value]], otherwise: Callable[[], Sequence[Value]]
) -> list[Value]:
    """Returns the results of an `if`. Each of the two functions emits a branch and returns its results."""
    regions, types = [], []
    for branch in (then, otherwise):
        rw.blocks.append(Block([]))
        results = branch()
        rw.emit("stablehlo.return", results, [])
        types = [v.type for v in results]
        regions.append(Region([rw.blocks.pop()]))
    return rw.emit("stablehlo.if", [condition], types, {}, regions)


# ---------------------------------------------------------------------------- sums
def reduce_sum(rw: Rewriter, value: Value, over: Ints) -> Value:
    """Sums over dimensions; i1 values are combined with `or`."""
    if not over:
        return value
    dtype = value.tensor.storage
    return reduce(rw, "or" if dtype.kind == "b" else "add", value, 0, over)


def reduce(rw: Rewriter, name: str, value: Value, initial: Any, over: Ints) -> Value:
    """Combines the elements along dimensions by an elementwise op of two operands."""
    dtype = value.tensor.storage
    scalar = tensor((), dtype)
    place = rw.place()
    arguments = [Value(scalar), Value(scalar)]
    combined = Op("stablehlo." + name, list(arguments), [scalar], None, None, *place)
    done = Op("stablehlo.return", list(combined.results), [], None, None, *place)
    kept = tuple(n for d, n in enumerate(shape_of(value)) if d not in over)
    start = constant(rw, scalar, initial)
    region = Region([Block(arguments, [combined, done])])
    return rw.emit("stablehlo.reduce", [value, start], [tensor(kept, dtype)], {"dimensions": dims(over)}, [region])[0]


def dot_numbers(
    lhs_batch: tuple[int, ...], rhs_batch: tuple[int, ...], lhs_sum: tuple[int, ...], rhs_sum: tuple[int, ...]
) -> StructAttr:
    """Returns the dimension numbers of a dot_general."""
    return StructAttr(
        "stablehlo.dot",
        (
            ("lhs_batching_dimensions", lhs_batch),
            ("rhs_batching_dimensions", rhs_batch),
            ("lhs_contracting_dimensions", lhs_sum),
            ("rhs_contracting_dimensions", rhs_sum),
        ),
    )


def dot(
    rw: Rewriter, sides: tuple[Value, Value], roles: Sequence[Ints], dtype: DType, extra: dict[str, Any] | None = None
) -> Value:
    """dot_general; `roles`: batching dimensions of lhs and rhs, contracting dimensions of lhs and rhs."""
    lhs_batch, rhs_batch, lhs_sum, rhs_sum = (tuple(r) for r in roles)
    shape = [shape_of(sides[0])[d] for d in lhs_batch]
    for value, used in zip(sides, (lhs_batch + lhs_sum, rhs_batch + rhs_sum), strict=True):
        shape += [n for d, n in enumerate(shape_of(value)) if d not in used]
    attributes = {"dot_dimension_numbers": dot_numbers(lhs_batch, rhs_batch, lhs_sum, rhs_sum), **(extra or {})}
    return rw.emit1("stablehlo.dot_general", sides, tensor(tuple(shape), dtype), attributes)
