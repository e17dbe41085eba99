"""Running sums, products and extremes along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import (
    BOOL,
    I32,
    I64,
    cast,
    dimension,
    filled,
    highest,
    iota,
    is_nan,
    lowest,
    number,
    sizes,
    wide,
)


def running(x: Value, d: int, function: Callable[..., Value], start: Any) -> Value:
    """The results of a function over all elements up to each one."""
    n = sizes(x)[d]
    if 0 in sizes(x):
        return x
    window = [n if i == d else 1 for i in range(x.ndim)]
    pairs = [(n - 1, 0) if i == d else (0, 0) for i in range(x.ndim)]
    found = b.reduce_window(x, number(start, x.element_type), function, window, None, pairs)
    assert isinstance(found, Value)
    return found


@aten("cumsum")
def cumsum(call: Call, x: Value, dim: int, **_: object) -> Value:
    """The sums of all elements up to each one."""
    y = cast(x, wide(call.dtype))
    return cast(running(y, dimension(dim, x.ndim), b.add, 0) if x.ndim else y, call.dtype)


@aten("cumprod")
def cumprod(call: Call, x: Value, dim: int, **_: object) -> Value:
    """The products of all elements up to each one."""
    y = cast(x, wide(call.dtype))
    return cast(running(y, dimension(dim, x.ndim), b.mul, 1) if x.ndim else y, call.dtype)


@aten("logcumsumexp")
def logcumsumexp(call: Call, x: Value, dim: int) -> Value:
    """The logarithms of the sums of the exponentials up to each element."""
    y = cast(x, wide(call.dtype))
    if not x.ndim:
        return x
    return cast(running(y, dimension(dim, x.ndim), _log_of_sum, lowest(y.element_type)), call.dtype)


def _log_of_sum(p: Value, q: Value) -> Value:
    found = b.max(p, q) + b.log1p(b.exp(-b.abs(p - q)))
    return b.select(b.is_inf(p) & (p == q), p, found)


def _extreme(x: Value, dim: int, greatest: bool) -> tuple[Value, Value]:
    """The greatest (or least) element up to each one, and the last index of it."""
    if not x.ndim:
        return x, number(0, I64)
    if 0 in sizes(x):
        return x, filled(sizes(x), 0, I64)
    d = dimension(dim, x.ndim)
    keys = cast(x, I32) if x.element_type == BOOL else x
    dtype = keys.element_type
    n = sizes(x)[d]

    def better(p: Value, i: Value, q: Value, j: Value) -> tuple[Value, Value]:
        wins = (q > p) if greatest else (q < p)
        ties = p == q
        if dtype.kind == "f":
            wins = wins | (is_nan(q) & ~is_nan(p))
            ties = ties | (is_nan(p) & is_nan(q))
        second = wins | (ties & (j > i))
        return b.select(second, q, p), b.select(second, j, i)

    start = number(lowest(dtype) if greatest else highest(dtype), dtype)
    window = [n if i == d else 1 for i in range(x.ndim)]
    pairs = [(n - 1, 0) if i == d else (0, 0) for i in range(x.ndim)]
    values, places = b.reduce_window([keys, iota(sizes(x), d)], [start, number(-1, I64)], better, window, None, pairs)
    return cast(values, x.element_type), places


@aten("cummax")
def cummax(call: Call, x: Value, dim: int) -> tuple[Value, Value]:
    """The greatest element up to each one, and its index."""
    return _extreme(x, dim, True)


@aten("cummin")
def cummin(call: Call, x: Value, dim: int) -> tuple[Value, Value]:
    """The least element up to each one, and its index."""
    return _extreme(x, dim, False)
