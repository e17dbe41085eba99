"""Reductions along dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.ir.dtypes import DType
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.values import (
    BOOL,
    I32,
    I64,
    at_least_1d,
    cast,
    dimension,
    dimensions,
    expanded,
    filled,
    highest,
    iota,
    is_nan,
    keep,
    lowest,
    number,
    sizes,
    wide,
)


def total(x: Value, dims: tuple[int, ...], dtype: DType) -> Value:
    """The sum along dimensions, added up in f32 for floats of 16 bits."""
    return b.reduce_sum(cast(x, wide(dtype)), dims)


@aten("sum", "sum.dim_IntList")
def sum_(call: Call, x: Value, dims: Any = None, keepdim: bool = False, **_: object) -> Value:
    """The sum along dimensions."""
    where = dimensions(dims, x.ndim)
    found = total(x, where, call.dtype)
    return cast(keep(found, where, x.ndim) if keepdim else found, call.dtype)


@aten("mean", "mean.dim")
def mean(call: Call, x: Value, dims: Any = None, keepdim: bool = False, **_: object) -> Value:
    """The mean along dimensions."""
    where = dimensions(dims, x.ndim)
    count = math.prod(sizes(x)[d] for d in where)
    found = total(x, where, call.dtype)
    found = found / number(count, found.element_type)
    return cast(keep(found, where, x.ndim) if keepdim else found, call.dtype)


@aten("prod", "prod.dim_int")
def prod(call: Call, x: Value, dim: Any = None, keepdim: bool = False, **_: object) -> Value:
    """The product along a dimension, or of all elements."""
    where = dimensions(dim, x.ndim)
    found = b.reduce_prod(cast(x, wide(call.dtype)), where)
    return cast(keep(found, where, x.ndim) if keepdim else found, call.dtype)


def _extreme(x: Value, where: tuple[int, ...], greatest: bool) -> Value:
    if x.element_type == BOOL:
        return (b.reduce_or if greatest else b.reduce_and)(x, where)
    return (b.reduce_max if greatest else b.reduce_min)(x, where)


@aten("amax")
def amax(call: Call, x: Value, dims: Any = (), keepdim: bool = False) -> Value:
    """The greatest element along dimensions; NaN if one is NaN."""
    where = dimensions(dims, x.ndim)
    found = _extreme(x, where, True)
    return keep(found, where, x.ndim) if keepdim else found


@aten("amin")
def amin(call: Call, x: Value, dims: Any = (), keepdim: bool = False) -> Value:
    """The least element along dimensions; NaN if one is NaN."""
    where = dimensions(dims, x.ndim)
    found = _extreme(x, where, False)
    return keep(found, where, x.ndim) if keepdim else found


@aten("max")
def max_of_all(call: Call, x: Value) -> Value:
    """The greatest of all elements."""
    return _extreme(x, dimensions(None, x.ndim), True)


@aten("min")
def min_of_all(call: Call, x: Value) -> Value:
    """The least of all elements."""
    return _extreme(x, dimensions(None, x.ndim), False)


@aten("any", "any.dim", "any.dims")
def any_(call: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    """Whether any element along dimensions is not 0."""
    return _logical(call, x, dims, keepdim, b.reduce_or)


@aten("all", "all.dim", "all.dims")
def all_(call: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    """Whether no element along dimensions is 0."""
    return _logical(call, x, dims, keepdim, b.reduce_and)


def _logical(call: Call, x: Value, dims: Any, keepdim: bool, function: Callable[..., Value]) -> Value:
    is_empty = isinstance(dims, list | tuple) and not dims
    where = () if is_empty else dimensions(dims, x.ndim)
    found = function(cast(x, BOOL), where)
    return cast(keep(found, where, x.ndim) if keepdim else found, call.dtype)


# ---------------------------------------------------------------------------- places of elements
def best_and_place(x: Value, d: int, greatest: bool, places: Value | None = None) -> tuple[Value, Value]:
    """The greatest (or least) element along a dimension, and its first index; NaN if one is NaN. `places`: numbers of
    the elements instead of their indices along the dimension, of which the least counts as the first."""
    if 0 in sizes(x):
        shape = [n for i, n in enumerate(sizes(x)) if i != d]
        return filled(shape, 0, x.element_type), filled(shape, 0, I64)
    keys = cast(x, I32) if x.element_type == BOOL else x
    dtype = keys.element_type
    is_float = dtype.kind == "f"

    def better(p: Value, i: Value, q: Value, j: Value) -> tuple[Value, Value]:
        wins = (p > q) if greatest else (p < q)
        ties = p == q
        if is_float:
            wins = wins | (is_nan(p) & ~is_nan(q))
            ties = ties | (is_nan(p) & is_nan(q))
        first = wins | (ties & (i < j))
        return b.select(first, p, q), b.select(first, i, j)

    start = number(lowest(dtype) if greatest else highest(dtype), dtype)
    numbers = iota(sizes(x), d, I64) if places is None else places
    value, place = b.reduce([keys, numbers], [start, number(2**62, I64)], better, (d,))
    return cast(value, x.element_type), place


@aten("max.dim")
def max_dim(call: Call, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The greatest element along a dimension, and its index."""
    return _with_place(x, dim, keepdim, True)


@aten("min.dim")
def min_dim(call: Call, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The least element along a dimension, and its index."""
    return _with_place(x, dim, keepdim, False)


def _with_place(x: Value, dim: int, keepdim: bool, greatest: bool) -> tuple[Value, Value]:
    if not x.ndim:
        return x, number(0, I64)
    d = dimension(dim, x.ndim)
    value, place = best_and_place(x, d, greatest)
    return (keep(value, (d,), x.ndim), keep(place, (d,), x.ndim)) if keepdim else (value, place)


@aten("argmax")
def argmax(call: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The index of the greatest element along a dimension, or of all."""
    return _place(x, dim, keepdim, True)


@aten("argmin")
def argmin(call: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The index of the least element along a dimension, or of all."""
    return _place(x, dim, keepdim, False)


def _place(x: Value, dim: int | None, keepdim: bool, greatest: bool) -> Value:
    if dim is None:
        place = best_and_place(b.reshape(x, (-1,)) if x.ndim else at_least_1d(x), 0, greatest)[1]
        return b.reshape(place, (1,) * x.ndim) if keepdim else place
    return _with_place(x, dim, keepdim, greatest)[1]


# ---------------------------------------------------------------------------- variances
def variance(x: Value, where: tuple[int, ...], correction: float) -> tuple[Value, Value]:
    """The variance and the mean along dimensions, in the wide element type."""
    y = cast(x, wide(x.element_type))
    if y.element_type.kind == "c":
        raise Unsupported("complex numbers are not supported")
    count = math.prod(sizes(x)[d] for d in where)
    middle = b.reduce_sum(y, where) / number(count, y.element_type)
    distance = y - expanded(middle, where, sizes(y))
    squares = b.reduce_sum(distance * distance, where)
    return squares / number(max(count - correction, 0), y.element_type), middle


@aten("var.correction", "var.dim", "var")
def var(call: Call, x: Value, dims: Any = None, unbiased: Any = True, keepdim: bool = False, *,
        correction: float | None = None) -> Value:  # fmt: skip
    """The variance along dimensions."""
    return _spread(call, x, dims, unbiased, keepdim, correction)[0]


@aten("var_mean.correction")
def var_mean(call: Call, x: Value, dims: Any = None, *, correction: float | None = None,
             keepdim: bool = False) -> tuple[Value, Value]:  # fmt: skip
    """The variance and the mean along dimensions."""
    return _spread(call, x, dims, True, keepdim, correction)


def _spread(
    call: Call, x: Value, dims: Any, unbiased: Any, keepdim: bool, correction: float | None
) -> tuple[Value, Value]:
    if isinstance(dims, bool):
        dims, unbiased = None, dims
    where = dimensions(dims, x.ndim)
    found = variance(x, where, float(unbiased) if correction is None else correction)
    kept = (keep(v, where, x.ndim) if keepdim else v for v in found)
    first, second = (cast(v, call.dtype) for v in kept)
    return first, second
