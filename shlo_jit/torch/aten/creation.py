"""Tensors that are created from numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import BOOL, C128, F64, I64, broadcast_to, cast, filled, iota, number, sizes, wide


@aten("full", "new_full", "full_like", "fill.Scalar", "fill.Tensor")
def full(call: Call, *arguments: Any, **_: object) -> Value:
    """A tensor with all elements of one number."""
    value = arguments[-1] if not isinstance(arguments[-1], list) else 0
    if isinstance(value, Value):
        value = b.reshape(value, ())
    return filled(call.shape, value, call.dtype)


@aten("zeros", "zeros_like", "new_zeros", "empty.memory_format", "empty_like", "empty_strided", "new_empty",
      "new_empty_strided", "zero", "empty_permuted", "prims::empty_strided")  # fmt: skip
def zeros(call: Call, *_: object, **__: object) -> Value:
    """A tensor of zeros. A tensor whose elements are undefined in PyTorch has zeros, too."""
    return filled(call.shape, 0, call.dtype)


@aten("ones", "ones_like", "new_ones")
def ones(call: Call, *_: object, **__: object) -> Value:
    """A tensor of ones."""
    return filled(call.shape, 1, call.dtype)


@aten("scalar_tensor")
def scalar_tensor(call: Call, x: Any, **_: object) -> Value:
    """A tensor of rank 0."""
    return cast(x, call.dtype)


@aten("arange", "arange.start", "arange.start_step")
def arange(call: Call, *numbers: float, **_: object) -> Value:
    """The numbers from a start with a step, up to a limit."""
    start = numbers[0] if len(numbers) > 1 else 0
    step = numbers[2] if len(numbers) > 2 else 1
    dtype = call.dtype if call.dtype.kind in "iu" else F64
    counted = iota(call.shape, 0, dtype)
    if step != 1:
        counted = counted * number(step, dtype)
    if start != 0:
        counted = counted + number(start, dtype)
    return cast(counted, call.dtype)


@aten("prims::iota")
def prims_iota(call: Call, length: int, *, start: int = 0, step: int = 1, **_: object) -> Value:
    """`length` integers from a start with a step."""
    return arange(call, start, start + length * step, step)


@aten("linspace")
def linspace(call: Call, start: Any, end: Any, steps: int, **_: object) -> Value:
    """`steps` numbers at equal distances, from the start to the end."""
    dtype = F64 if call.dtype.kind in "iu" else wide(call.dtype)
    exact = call.dtype if call.dtype.kind in "iu" else C128 if dtype.kind == "c" else F64  # PyTorch truncates ends
    first, last = cast(cast(start, exact), dtype), cast(cast(end, exact), dtype)
    counted = iota(call.shape, 0, F64)
    places = cast(counted, dtype)
    if steps <= 1:
        return cast(b.broadcast_in_dim(first, call.shape, ()), call.dtype)
    step = (last - first) / number(steps - 1, dtype)
    half = number(math.floor(steps / 2), F64)
    low, high = first + step * places, last - step * (number(steps - 1, dtype) - places)
    return cast(b.select(counted < half, low, high), call.dtype)


@aten("eye", "eye.m")
def eye(call: Call, *_: object, **__: object) -> Value:
    """The identity matrix."""
    shape = call.shape
    return cast(iota(shape, 0) == iota(shape, 1), call.dtype)


def triangle(shape: Sequence[int], diagonal: int, lower: bool) -> Value:
    """Whether elements of the last two dimensions belong to a triangle."""
    rows, columns = (iota(shape[-2:], d) for d in (0, 1))
    distance = columns - rows
    limit = number(diagonal, I64)
    return distance <= limit if lower else distance >= limit


def _part(x: Value, diagonal: int, lower: bool) -> Value:
    shape = sizes(x)
    inside = b.broadcast_in_dim(triangle(shape, diagonal, lower), shape, (len(shape) - 2, len(shape) - 1))
    return x & inside if x.element_type == BOOL else b.select(inside, x, filled(shape, 0, x.element_type))


@aten("tril")
def tril(call: Call, x: Value, diagonal: int = 0) -> Value:
    """The lower triangle of matrices, with zeros above."""
    return _part(x, diagonal, True)


@aten("triu")
def triu(call: Call, x: Value, diagonal: int = 0) -> Value:
    """The upper triangle of matrices, with zeros below."""
    return _part(x, diagonal, False)


@aten("copy")
def copy(call: Call, x: Value, source: Value, non_blocking: bool = False) -> Value:
    """The elements of another tensor, in the shape and the element type of this one."""
    return broadcast_to(cast(source, x.element_type), sizes(x))
