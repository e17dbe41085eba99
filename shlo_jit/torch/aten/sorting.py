"""Sorting, and the largest elements. NaN counts as the greatest number."""

from __future__ import annotations

import math

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.indexing import gathered, rows_at
from shlo_jit.torch.aten.reductions import best_and_place
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.scans import running
from shlo_jit.torch.aten.values import (
    BOOL,
    I32,
    I64,
    cast,
    dimension,
    filled,
    iota,
    is_nan,
    keep,
    number,
    promoted,
    sizes,
    slice_along,
)
from shlo_jit.torch.aten.views import swapped


def sorted_with_places(x: Value, d: int, descending: bool, stable: bool = True) -> tuple[Value, Value]:
    """The elements in order along a dimension, and their indices."""
    keys = cast(x, I32) if x.element_type == BOOL else x
    is_float = keys.element_type.kind == "f"

    def before(p: Value, q: Value, *_: Value) -> Value:
        if descending:
            return (p > q) | (is_nan(p) & ~is_nan(q)) if is_float else p > q
        return (p < q) | (is_nan(q) & ~is_nan(p)) if is_float else p < q

    values, places = b.sort([keys, iota(sizes(x), d)], before, d, stable)
    return cast(values, x.element_type), places


@aten("sort", "sort.stable")
def sort(
    call: Call, x: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = True
) -> tuple[Value, Value]:
    """The elements in order along a dimension, and their indices; equal ones keep their order."""
    if not x.ndim:
        return x, number(0, I64)
    return sorted_with_places(x, dimension(dim, x.ndim), descending)


@aten("argsort", "argsort.stable")
def argsort(call: Call, x: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = True) -> Value:
    """The indices that sort the elements along a dimension."""
    return sort(call, x, dim, descending)[1]


@aten("topk")
def topk(call: Call, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, Value]:
    """The k greatest (or least) elements along a dimension in order, and their indices."""
    if not x.ndim:
        return x, number(0, I64)
    d = dimension(dim, x.ndim)
    if not largest or not k:
        first, second = (slice_along(v, d, 0, k) for v in sorted_with_places(x, d, largest))
        return first, second
    keys = cast(x, I32) if x.element_type == BOOL else x
    if keys.element_type.kind == "f":  # a NaN with a sign would be the least in the total order
        keys = b.select(is_nan(keys), filled(sizes(keys), math.nan, keys.element_type), keys)
    values, places = (swapped(v, d, x.ndim - 1) for v in b.top_k(swapped(keys, d, x.ndim - 1), k))
    return cast(values, x.element_type), cast(places, I64)


@aten("kthvalue")
def kthvalue(call: Call, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The k-th least element along a dimension, and its index."""
    if not x.ndim:
        return x, number(0, I64)
    d = dimension(dim, x.ndim)
    first, second = (slice_along(v, d, k - 1, k) for v in sorted_with_places(x, d, False))
    if keepdim:
        return first, second
    shape = [n for i, n in enumerate(sizes(x)) if i != d]
    return b.reshape(first, shape), b.reshape(second, shape)


@aten("mode")
def mode(call: Call, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The most frequent element along a dimension, of several the least, and its last index."""
    if not x.ndim:
        return x, number(0, I64)
    d = dimension(dim, x.ndim)
    values, places = sorted_with_places(x, d, False)
    n, rest = sizes(x)[d], [m for i, m in enumerate(sizes(x)) if i != d]
    before, after = slice_along(values, d, 0, n - 1), slice_along(values, d, 1, n)
    own = iota(sizes(x), d)
    starts = b.pad(b.select(before != after, slice_along(own, d, 1, n), filled(sizes(after), 0, I64)),
                   number(0, I64), [(int(i == d), 0, 0) for i in range(x.ndim)])  # fmt: skip
    where = keep(best_and_place(own - running(starts, d, b.max, 0), d, True)[1], (d,), x.ndim)
    first, second = (gathered(v, d, where) for v in (values, places))
    return (first, second) if keepdim else (b.reshape(first, rest), b.reshape(second, rest))


@aten("median", "nanmedian")
def median(call: Call, x: Value) -> Value:
    """The lower median of all elements; NaN if one is NaN, or of those that are numbers."""
    flat = b.reshape(x, (-1,)) if x.ndim else b.reshape(x, (1,))
    return _median(flat, 0, call.target.startswith("aten.nan"))[0]


@aten("median.dim", "nanmedian.dim")
def median_dim(call: Call, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower median along a dimension, and its index."""
    if not x.ndim:
        return x, number(0, I64)
    d = dimension(dim, x.ndim)
    found = _median(x, d, call.target.startswith("aten.nan"))
    first, second = (keep(v, (d,), x.ndim) for v in found) if keepdim else found
    return first, second


def _median(x: Value, d: int, skip_nan: bool) -> tuple[Value, Value]:
    values, places = sorted_with_places(x, d, False)
    n = sizes(x)[d]
    shape = [m for i, m in enumerate(sizes(x)) if i != d]
    if x.element_type.kind != "f":
        return tuple(b.reshape(slice_along(v, d, (n - 1) // 2, (n - 1) // 2 + 1), shape) for v in (values, places))  # type: ignore[return-value]
    missing = b.reduce_sum(cast(is_nan(x), I64), (d,))
    count = number(n, I64) - missing
    middle = b.max(b.shift_right_arithmetic(count - number(1, I64), b.broadcast_in_dim(number(1, I64), shape, ())),
                   b.broadcast_in_dim(number(0, I64), shape, ()))  # fmt: skip
    if not skip_nan:
        middle = b.select(missing > number(0, I64), count, middle)
    where = keep(middle, (d,), x.ndim)
    first, second = (gathered(v, d, where) for v in (values, places))
    return b.reshape(first, shape), b.reshape(second, shape)


@aten("searchsorted.Tensor", "searchsorted.Scalar", "bucketize.Tensor", "bucketize.Scalar")
def searchsorted(call: Call, *given: Value, out_int32: bool = False, right: bool = False, side: str | None = None,
                 sorter: Value | None = None) -> Value:  # fmt: skip
    """The places at which numbers would be inserted into sorted rows."""
    bounds, x = given if call.target.startswith("aten.searchsorted") else given[::-1]
    if sorter is not None:
        bounds = gathered(bounds, -1, sorter)
    dtype = promoted(bounds, x)
    return cast(insertion_places(cast(bounds, dtype), cast(x, dtype), right or side == "right"), call.dtype)


def insertion_places(rows: Value, wanted: Value, right: bool) -> Value:
    """The places at which numbers would be inserted into sorted rows, after equal ones if `right`: by comparisons of
    all pairs for short rows, otherwise by binary search."""

    def is_before(p: Value, q: Value) -> Value:
        found = p <= q if right else p < q
        return found | (is_nan(q) & (~is_nan(p) | right)) if p.element_type.kind == "f" else found

    shape, n = sizes(wanted), sizes(rows)[-1]
    if n <= _SHORT:
        lead = () if rows.ndim == 1 else range(len(shape) - 1)
        left = b.broadcast_in_dim(rows, (*shape, n), (*lead, len(shape)))
        other = b.broadcast_in_dim(wanted, (*shape, n), range(len(shape)))
        return b.reduce_sum(cast(is_before(left, other), I64), (len(shape),))
    low, high = filled(shape, 0, I64), filled(shape, n, I64)
    one, last = filled(shape, 1, I64), filled(shape, n - 1, I64)
    for _ in range(n.bit_length()):
        middle = b.shift_right_arithmetic(low + high, one)
        place = b.min(middle, last)
        found = rows_at(rows, place, 0) if rows.ndim == 1 else gathered(rows, -1, place)
        is_open = low < high
        goes_right = is_before(found, wanted)
        low = b.select(is_open & goes_right, middle + one, low)
        high = b.select(is_open & ~goes_right, middle, high)
    return low


_SHORT = 64
"""The greatest length of rows of which all elements are compared."""
