"""Elements at indices that are in tensors. An index that is out of range is clamped; PyTorch raises an error."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_jit import builder as b
from shlo_jit.builder import GatherDimensionNumbers, Value
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.values import (
    BOOL,
    I64,
    at_least_1d,
    broadcast_to,
    cast,
    common_shape,
    dimension,
    filled,
    iota,
    number,
    sizes,
)


def wrapped(index: Value, size: int) -> Value:
    """Indices of which negative ones count from the end."""
    if index.element_type.kind == "u":
        return cast(index, I64)
    wide = cast(index, I64) if index.element_type.bits < 32 else index
    n = number(size, wide.element_type)
    return b.select(wide < number(0, wide.element_type), wide + n, wide)


def rows_at(x: Value, index: Value, d: int) -> Value:
    """The slices at indices along a dimension, which is replaced by the dimensions of the index."""
    shape, rank = sizes(x), index.ndim
    where = b.reshape(index, (*sizes(index), 1))
    offsets = (*range(d), *range(d + rank, len(shape) - 1 + rank))
    numbers = GatherDimensionNumbers(offsets, (d,), (d,), rank)
    return b.gather(x, where, numbers, [1 if i == d else n for i, n in enumerate(shape)])


@aten("index_select")
def index_select(call: Call, x: Value, dim: int, index: Value) -> Value:
    """The slices at indices along a dimension."""
    y = at_least_1d(x)
    found = rows_at(y, wrapped(at_least_1d(index), sizes(y)[dimension(dim, y.ndim)]), dimension(dim, y.ndim))
    return b.reshape(found, sizes(x)) if not x.ndim else found


@aten("embedding")
def embedding(call: Call, weight: Value, index: Value, *_: object) -> Value:
    """The rows of a matrix at indices."""
    return rows_at(weight, wrapped(index, sizes(weight)[0]), 0)


@aten("gather")
def gather(call: Call, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    """For every index, the element at that index of a dimension, and at the place of the index in the others."""
    return gathered(x, dim, index)


def gathered(x: Value, dim: int, index: Value) -> Value:
    """For every index, the element at that index of a dimension, and at the place of the index in the others."""
    if not x.ndim:
        return broadcast_to(x, sizes(index))
    if not index.ndim:
        return b.reshape(gathered(x, dim, b.reshape(index, (1,))), ())
    if 0 in sizes(index):
        return filled(sizes(index), 0, x.element_type)
    d = dimension(dim, x.ndim)
    places = places_along(wrapped(index, sizes(x)[d]), d)
    rank = x.ndim
    numbers = GatherDimensionNumbers((), tuple(range(rank)), tuple(range(rank)), rank)
    return b.gather(x, places, numbers, (1,) * rank)


def places_along(index: Value, d: int) -> Value:
    """Full index vectors: the index along a dimension, and its own place in the others."""
    shape = sizes(index)
    columns = [index if i == d else iota(shape, i, index.element_type) for i in range(len(shape))]
    return b.concatenate([b.reshape(c, (*shape, 1)) for c in columns], len(shape))


# ---------------------------------------------------------------------------- several indices
def as_integers(x: Value, indices: Sequence[Value | None]) -> list[Value | None]:
    """Indices without masks, whose number of true elements is unknown."""
    for index in indices:
        if index is not None and index.element_type == BOOL:
            raise Unsupported("the number of elements that a mask selects depends on data")
    return [None if index is None else wrapped(index, sizes(x)[d]) for d, index in enumerate(indices)]


def indexed_dimensions(indices: Sequence[Value | None]) -> tuple[list[int], bool]:
    """The dimensions that have indices, and whether they follow each other."""
    where = [d for d, index in enumerate(indices) if index is not None]
    return where, where == list(range(where[0], where[0] + len(where))) if where else True


def index_vectors(indices: Sequence[Value | None]) -> Value:
    """Index vectors, along a last dimension, of indices that are broadcast to a common shape."""
    used = [index for index in indices if index is not None]
    shape = common_shape(*(sizes(index) for index in used))
    columns = [b.reshape(broadcast_to(cast(index, I64), shape), (*shape, 1)) for index in used]
    return b.concatenate(columns, len(shape)) if len(columns) > 1 else columns[0]


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(call: Call, x: Value, indices: Sequence[Value | None]) -> Value:
    """The slices at indices in several dimensions, as in NumPy."""
    given = as_integers(x, indices)
    where, is_together = indexed_dimensions(given)
    if not where:
        return x
    vectors = index_vectors(given)
    rank = vectors.ndim - 1
    if math.prod(sizes(vectors)) == 0 or 0 in sizes(x):
        return filled(call.shape, 0, x.element_type)
    first = where[0] if is_together else 0
    rest = x.ndim - len(where)
    offsets = [*range(first), *range(first + rank, rest + rank)]
    numbers = GatherDimensionNumbers(tuple(offsets), tuple(where), tuple(where), rank)
    return b.gather(x, vectors, numbers, [1 if d in where else n for d, n in enumerate(sizes(x))])


@aten("take")
def take(call: Call, x: Value, index_: Value) -> Value:
    """The elements at indices into all elements in row-major order."""
    flat = b.reshape(x, (-1,)) if x.ndim else at_least_1d(x)
    places = at_least_1d(index_)
    if 0 in sizes(places):
        return filled(sizes(index_), 0, x.element_type)
    return b.reshape(rows_at(flat, wrapped(places, sizes(flat)[0]), 0), sizes(index_))
