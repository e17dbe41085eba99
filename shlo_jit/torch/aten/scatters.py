"""Tensors with other elements at indices that are in tensors. An update at an index out of range is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from shlo_jit import builder as b
from shlo_jit.builder import ScatterDimensionNumbers, Value
from shlo_jit.torch.aten.indexing import (
    as_integers,
    index_vectors,
    indexed_dimensions,
    places_along,
    rows_at,
    wrapped,
)
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.scans import running
from shlo_jit.torch.aten.values import (
    BOOL,
    I64,
    Operand,
    at_least_1d,
    broadcast_to,
    cast,
    common_shape,
    dimension,
    filled,
    highest,
    iota,
    lowest,
    number,
    sizes,
    slice_along,
    wide,
)
from shlo_jit.torch.aten.views import memory_order, strided_places

Combine = Callable[[Value, Value], Value]


def _replace(present: Value, update: Value) -> Value:
    return update


def _add(present: Value, update: Value) -> Value:
    return present | update if present.element_type == BOOL else present + update


def scatter_flat(x: Value, places: Value, updates: Value, combine: Combine = _replace) -> Value:
    """A vector with other elements at some places."""
    if 0 in sizes(updates):
        return x
    numbers = ScatterDimensionNumbers((), (0,), (0,), 1)
    found = b.scatter(x, b.reshape(places, (sizes(places)[0], 1)), updates, combine, numbers)
    assert isinstance(found, Value)
    return found


def scattered_to_places(gradient: Value, x: Value, indices: Value, rank: int) -> Value:
    """Adds the gradients at the indices, within each plane of `rank` dimensions."""
    lead, extents = sizes(x)[: x.ndim - rank], sizes(x)[x.ndim - rank :]
    planes, inner = math.prod(lead), math.prod(extents)
    count = math.prod(sizes(gradient)[x.ndim - rank :])
    places = b.reshape(indices, (planes, count)) + iota((planes, count), 0) * number(inner, I64)
    dtype = wide(x.element_type)
    start = filled((planes * inner,), 0, dtype)
    found = scatter_flat(start, b.reshape(places, (-1,)), cast(b.reshape(gradient, (-1,)), dtype), b.add)
    return cast(b.reshape(found, sizes(x)), x.element_type)


def _at_elements(x: Value, d: int, index: Value, updates: Value, combine: Combine) -> Value:
    """Combines updates with the elements at an index along one dimension, and at their own places in the others."""
    if 0 in sizes(index):
        return x
    for i, n in enumerate(sizes(index)):
        updates = slice_along(updates, i, 0, n)
    places = places_along(wrapped(index, sizes(x)[d]), d)
    where = tuple(range(x.ndim))
    numbers = ScatterDimensionNumbers((), where, where, x.ndim)
    found = b.scatter(x, places, updates, combine, numbers)
    assert isinstance(found, Value)
    return found


def _scattered(x: Value, dim: int, index: Value, source: Operand, combine: Combine) -> Value:
    y, places = at_least_1d(x), at_least_1d(index)
    updates = at_least_1d(cast(source, x.element_type))
    if not isinstance(source, Value):
        updates = filled(sizes(places), updates if updates.ndim == 0 else b.reshape(updates, ()), x.element_type)
    return b.reshape(_at_elements(y, dimension(dim, y.ndim), places, updates, combine), sizes(x))


@aten("scatter.value", "scatter.src")
def scatter(call: Call, x: Value, dim: int, index: Value, source: Operand) -> Value:
    """The tensor with other elements at an index along a dimension; the last of several updates stays."""
    return _scattered(x, dim, index, source, _replace)


@aten("scatter_add")
def scatter_add(call: Call, x: Value, dim: int, index: Value, source: Value) -> Value:
    """The tensor with numbers added at an index along a dimension."""
    dtype = wide(x.element_type)
    return cast(_scattered(cast(x, dtype), dim, index, source, _add), x.element_type)


@aten("scatter.reduce", "scatter.value_reduce")
def scatter_with(call: Call, x: Value, dim: int, index: Value, source: Operand, *, reduce: str) -> Value:
    """The tensor with numbers added, or multiplied, at an index along a dimension."""
    dtype = wide(x.element_type)
    combine = _add if reduce == "add" else _multiply
    return cast(_scattered(cast(x, dtype), dim, index, source, combine), x.element_type)


def _multiply(x: Value, y: Value) -> Value:
    return x & y if x.element_type == BOOL else x * y


def _neutral(reduce: str, dtype: Any) -> Any:
    """The element with which a reduction begins if the present elements do not count."""
    if reduce in ("amax", "amin"):
        return lowest(dtype) if reduce == "amax" else highest(dtype)
    return 1 if reduce == "prod" else 0


_COMBINE: dict[str, Combine] = {
    "sum": _add, "mean": _add, "prod": _multiply,
    "amax": lambda x, y: x | y if x.element_type == BOOL else b.max(x, y),
    "amin": lambda x, y: x & y if x.element_type == BOOL else b.min(x, y),
}  # fmt: skip


@aten("scatter_reduce.two")
def scatter_reduce(
    call: Call, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """The tensor with updates combined at an index along a dimension."""
    y, places, updates = at_least_1d(x), at_least_1d(index), at_least_1d(source)
    found = _reduced(y, dimension(dim, y.ndim), places, updates, reduce, include_self, _at_elements)
    return b.reshape(found, sizes(x))


@aten("index_reduce")
def index_reduce(
    call: Call, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """The tensor with slices combined at indices along a dimension."""
    y, updates = at_least_1d(x), at_least_1d(source)
    d = dimension(dim, y.ndim)
    spread = b.broadcast_in_dim(at_least_1d(index), sizes(updates), (d,))
    found = _reduced(y, d, spread, updates, reduce, include_self, _at_elements)
    return b.reshape(found, sizes(x))


def _reduced(
    x: Value, d: int, places: Value, updates: Value, reduce: str, include_self: bool, at: Callable[..., Value]
) -> Value:
    name = {"mean": "mean", "add": "sum", "multiply": "prod"}.get(reduce, reduce)
    dtype = wide(x.element_type)
    y, source = cast(x, dtype), cast(updates, dtype)
    ones = filled(sizes(source), 1, I64)
    hits = at(filled(sizes(x), 0, I64), d, places, ones, _add)
    is_hit = hits > number(0, I64)
    start = y if include_self else b.select(is_hit, filled(sizes(x), _neutral(name, dtype), dtype), y)
    found = at(start, d, places, source, _COMBINE[name])
    if name == "mean":
        count = hits + number(1, I64) if include_self else b.max(hits, filled(sizes(x), 1, I64))
        if dtype.kind in "iu":
            quotient, rest = b.div(found, cast(count, dtype)), b.rem(found, cast(count, dtype))
            found = b.select(rest < number(0, dtype), quotient - number(1, dtype), quotient)
        else:
            found = found / cast(count, dtype)
    return cast(found, x.element_type)


@aten("index_add")
def index_add(call: Call, x: Value, dim: int, index: Value, source: Value, *, alpha: float = 1) -> Value:
    """The tensor with slices added at indices along a dimension."""
    dtype = wide(x.element_type)
    updates = cast(source, dtype)
    if alpha != 1:
        updates = updates & number(alpha, BOOL) if dtype == BOOL else updates * number(alpha, dtype)
    return cast(at_rows(cast(x, dtype), dim, index, updates, _add), x.element_type)


@aten("index_copy")
def index_copy(call: Call, x: Value, dim: int, index: Value, source: Value) -> Value:
    """The tensor with other slices at indices along a dimension."""
    return at_rows(x, dim, index, cast(source, x.element_type), _replace)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(call: Call, x: Value, dim: int, index: Value, value: Operand) -> Value:
    """The tensor with a number in the slices at indices along a dimension."""
    y, places = at_least_1d(x), at_least_1d(index)
    shape = list(sizes(y))
    shape[dimension(dim, y.ndim)] = sizes(places)[0]
    return at_rows(x, dim, index, filled(shape, cast(value, x.element_type), x.element_type), _replace)


def at_rows(x: Value, dim: int, index: Value, updates: Value, combine: Combine) -> Value:
    """Combines updates with the slices at indices along a dimension."""
    y, places, source = at_least_1d(x), at_least_1d(index), at_least_1d(updates)
    if 0 in sizes(source):
        return x
    d = dimension(dim, y.ndim)
    windows = tuple(i for i in range(y.ndim) if i != d)
    numbers = ScatterDimensionNumbers(windows, (d,), (d,), 1)
    where = b.reshape(wrapped(places, sizes(y)[d]), (sizes(places)[0], 1))
    found = b.scatter(y, where, source, combine, numbers)
    assert isinstance(found, Value)
    return b.reshape(found, sizes(x))


@aten("index_put", "_unsafe_index_put")
def index_put(call: Call, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    """The tensor with other elements at indices in several dimensions, as in NumPy."""
    used = [i for i in indices if i is not None]
    if len(used) == 1 and used[0].element_type == BOOL and indices[0] is not None:
        return _where_mask(x, used[0], values, accumulate)
    given = as_integers(x, indices)
    where, is_together = indexed_dimensions(given)
    vectors = index_vectors(given)
    rank = vectors.ndim - 1
    first = where[0] if is_together else 0
    rest = [n for d, n in enumerate(sizes(x)) if d not in where]
    shape = (*rest[:first], *sizes(vectors)[:-1], *rest[first:])
    if 0 in shape:
        return x
    dtype = wide(x.element_type) if accumulate else x.element_type
    updates = broadcast_to(cast(values, dtype), shape)
    windows = (*range(first), *range(first + rank, len(shape)))
    numbers = ScatterDimensionNumbers(windows, tuple(where), tuple(where), rank)
    found = b.scatter(cast(x, dtype), vectors, updates, _add if accumulate else _replace, numbers)
    assert isinstance(found, Value)
    return cast(found, x.element_type)


def _where_mask(x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    """The tensor with one number, one slice, or slices in order where a mask of the first dimensions is true."""
    rest = sizes(x)[mask.ndim :]
    if 0 in sizes(x) or 0 in sizes(values):
        return x
    updates = cast(values, x.element_type)
    if updates.ndim > len(rest) and sizes(updates)[0] != 1:
        shape = (sizes(updates)[0], *rest)
        updates = b.reshape(rows_at(broadcast_to(updates, shape), _places(mask), 0), sizes(x))
    else:
        if updates.ndim > len(rest):
            updates = b.reshape(updates, sizes(updates)[1:])
        updates = broadcast_to(updates, sizes(x))
    spread = b.broadcast_in_dim(mask, sizes(x), range(mask.ndim))
    return b.select(spread, _add(x, updates) if accumulate else updates, x)


def _places(mask: Value) -> Value:
    """For every element of a mask, in row-major order, the number of true elements before it."""
    flat = b.reshape(mask, (math.prod(sizes(mask)),))
    places = running(cast(flat, I64), 0, b.add, 0) - number(1, I64)
    return b.max(places, filled(sizes(places), 0, I64))


@aten("put")
def put(call: Call, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """The tensor with other elements at indices into all elements in row-major order."""
    flat = b.reshape(x, (-1,)) if x.ndim else at_least_1d(x)
    places = wrapped(b.reshape(index, (-1,)) if index.ndim else at_least_1d(index), sizes(flat)[0])
    updates = b.reshape(source, sizes(places))
    return b.reshape(scatter_flat(flat, places, updates, _add if accumulate else _replace), sizes(x))


@aten("masked_scatter")
def masked_scatter(call: Call, x: Value, mask: Value, source: Value) -> Value:
    """The tensor with the elements of a source, in order, where a mask is true."""
    shape = common_shape(sizes(x), sizes(mask))
    y = broadcast_to(x, shape)
    if 0 in shape or 0 in sizes(source):
        return y
    spread = broadcast_to(mask, shape)
    taken = rows_at(b.reshape(source, (math.prod(sizes(source)),)), _places(spread), 0)
    return b.select(spread, b.reshape(cast(taken, x.element_type), shape), y)


@aten("as_strided_scatter")
def as_strided_scatter(
    call: Call, x: Value, source: Value, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> Value:
    """The tensor with other elements at places in its memory."""
    order = memory_order(call)
    if list(order) != sorted(order):
        raise Unsupported("as_strided_scatter of a tensor in another order of dimensions is not supported")
    places = b.reshape(strided_places(call, shape, strides, offset), (-1,))
    found = scatter_flat(b.reshape(x, (-1,)), places, b.reshape(cast(source, x.element_type), (-1,)))
    return b.reshape(found, sizes(x))


@aten("nonzero_static")
def nonzero_static(call: Call, x: Value, *, size: int, fill_value: int = -1) -> Value:
    """The index vectors of the first elements that are not zero, in row-major order, and numbers in place of others."""
    if not x.ndim or not size or 0 in sizes(x):
        return filled((size, x.ndim), fill_value, I64)
    mask = cast(x, BOOL)
    flat = b.reshape(mask, (-1,))
    count = sizes(flat)[0]
    targets = b.select(flat, _places(mask), filled((count,), size, I64))  # those out of range are left out
    found = scatter_flat(filled((size,), -1, I64), targets, iota((count,), 0))
    columns, rest = [], b.max(found, filled((size,), 0, I64))
    for n in reversed(sizes(x)):
        extent = filled((size,), n, I64)
        columns.insert(0, b.select(found < number(0, I64), filled((size,), fill_value, I64), b.rem(rest, extent)))
        rest = b.div(rest, extent)
    return b.concatenate([b.reshape(c, (size, 1)) for c in columns], 1)
