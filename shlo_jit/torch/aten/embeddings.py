"""Sums of rows of a matrix, and gradients of rows."""

from __future__ import annotations

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.indexing import rows_at
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.scatters import at_rows
from shlo_jit.torch.aten.sorting import insertion_places
from shlo_jit.torch.aten.special import norms
from shlo_jit.torch.aten.values import BOOL, I64, at_least_1d, cast, filled, iota, number, sizes, slice_along, wide


@aten("embedding_dense_backward")
def embedding_dense_backward(
    call: Call, gradient: Value, index: Value, count: int, padding: int, scale_by_frequency: bool
) -> Value:
    """The gradient of a matrix by those of its rows at indices."""
    width = sizes(gradient)[-1]
    dtype = wide(gradient.element_type)
    places = at_least_1d(b.reshape(index, (-1,)) if index.ndim else index)
    rows = b.reshape(cast(gradient, dtype), (sizes(places)[0], width))
    where = cast(places, I64)
    if scale_by_frequency:
        ones = filled(sizes(places), 1, I64)
        counts = at_rows(filled((count,), 0, I64), 0, where, ones, b.add)
        rows = rows / b.broadcast_in_dim(cast(rows_at(counts, where, 0), dtype), sizes(rows), (0,))
    if padding >= 0:
        is_real = b.broadcast_in_dim(where != number(padding, I64), sizes(rows), (0,))
        rows = b.select(is_real, rows, filled(sizes(rows), 0, dtype))
    return cast(at_rows(filled((count, width), 0, dtype), 0, where, rows, b.add), gradient.element_type)


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    call: Call, weight: Value, index: Value, offsets: Value, scale_by_frequency: bool = False, mode: int = 0,
    sparse: bool = False, factors: Value | None = None, include_last_offset: bool = False, padding: int = -1,
) -> tuple[Value, Value, Value, Value]:  # fmt: skip
    """Sums (0), means (1) or maxima (2) of rows of a matrix at indices, in bags that begin at offsets."""
    width, dtype = sizes(weight)[1], wide(weight.element_type)
    starts = cast(offsets, I64)
    if include_last_offset:
        starts = slice_along(starts, 0, 0, sizes(starts)[0] - 1)
    bags, count = sizes(starts)[0], sizes(index)[0]
    own = insertion_places(starts, iota((count,), 0), True) - number(1, I64)
    used = cast(index, I64) != number(padding, I64)
    rows = cast(rows_at(weight, index, 0), dtype)
    if factors is not None:
        rows = rows * b.broadcast_in_dim(cast(factors, dtype), sizes(rows), (0,))
    spread = b.broadcast_in_dim(used, sizes(rows), (0,))
    lengths = at_rows(filled((bags,), 0, I64), 0, own, cast(used, I64), b.add)
    neutral = -float("inf") if mode == 2 else 0
    rows = b.select(spread, rows, filled(sizes(rows), neutral, dtype))
    start = filled((bags, width), neutral, dtype)
    found = at_rows(start, 0, own, rows, b.max if mode == 2 else b.add)
    if mode == 1:
        divisor = b.max(lengths, filled((bags,), 1, I64))
        found = found / b.broadcast_in_dim(cast(divisor, dtype), sizes(found), (0,))
    if mode == 2:
        is_empty = b.broadcast_in_dim(lengths == number(0, I64), sizes(found), (0,))
        found = b.select(is_empty, filled(sizes(found), 0, dtype), found)
    rest = [filled(shape or (), 0, t or I64) for shape, t in zip(call.shapes()[1:], call.dtypes[1:], strict=True)]
    return cast(found, weight.element_type), rest[0], rest[1], rest[2]


@aten("embedding_renorm")
def embedding_renorm(call: Call, weight: Value, index: Value, max_norm: float, norm_type: float) -> Value:
    """The matrix in which the rows at indices are scaled so that their norms are at most a number."""
    dtype = wide(weight.element_type)
    rows = cast(weight, dtype)
    length = cast(norms(b.abs(rows), norm_type, call), dtype)
    places = cast(b.reshape(index, (-1,)) if index.ndim else at_least_1d(index), I64)
    used = at_rows(filled(sizes(length), False, BOOL), 0, places, filled(sizes(places), True, BOOL), b.or_)
    limit = number(max_norm, dtype)
    factor = b.select(used & (length > limit), limit / (length + number(1e-7, dtype)), filled(sizes(length), 1, dtype))
    return cast(rows * b.broadcast_in_dim(factor, sizes(rows), (0,)), weight.element_type)
