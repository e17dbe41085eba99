"""Shapes, parts, repetitions and concatenations. Views of PyTorch are tensors of their own in a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.values import (
    I64,
    broadcast_to,
    cast,
    dimension,
    filled,
    iota,
    number,
    sizes,
    slice_along,
)
from shlo_jit.torch.layouts import dense_order


@aten("view", "_unsafe_view", "reshape", "_reshape_copy", "view_copy")
def view(call: Call, x: Value, shape: Sequence[int]) -> Value:
    """The elements in another shape."""
    return reshaped(x, shape)


def reshaped(x: Value, shape: Sequence[int]) -> Value:
    """The elements in another shape, of which one extent may be -1."""
    wanted = list(shape)
    if -1 in wanted:
        rest = math.prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = math.prod(sizes(x)) // rest if rest else 0
    return b.reshape(x, wanted)


@aten("view.dtype", "prims::view_of_dtype")
def view_dtype(call: Call, x: Value, dtype: Any) -> Value:
    """The bits as another element type."""
    if dtype == x.element_type:
        return x
    if dtype.bits == x.element_type.bits and dtype.kind != "b":
        return b.bitcast_convert_type(x, dtype)
    if dtype.bits < x.element_type.bits:
        parts = b.bitcast_convert_type(x, dtype)
        return b.reshape(parts, call.shape)
    ratio = dtype.bits // x.element_type.bits
    shape = sizes(x)
    return b.bitcast_convert_type(b.reshape(x, (*shape[:-1], shape[-1] // ratio, ratio)), dtype)


@aten("permute", "prims::transpose", "permute_copy")
def permute(call: Call, x: Value, dims: Sequence[int]) -> Value:
    """The dimensions in another order."""
    return b.transpose(x, [dimension(d, x.ndim) for d in dims])


@aten("t", "numpy_T", "matrix_H", "t_copy")
def transposed_matrix(call: Call, x: Value) -> Value:
    """The transposed matrix."""
    return b.transpose(x)


@aten("transpose.int", "swapaxes", "transpose_copy.int")
def transpose(call: Call, x: Value, first: int, second: int) -> Value:
    """Two dimensions exchanged."""
    return swapped(x, first, second)


def swapped(x: Value, first: int, second: int) -> Value:
    """Two dimensions exchanged."""
    order = list(range(x.ndim))
    if not order:
        return x
    i, j = dimension(first, x.ndim), dimension(second, x.ndim)
    order[i], order[j] = j, i
    return b.transpose(x, order)


@aten("expand", "expand_copy")
def expand(call: Call, x: Value, shape: Sequence[int], **_: object) -> Value:
    """The tensor broadcast to a shape, in which -1 keeps an extent."""
    offset = len(shape) - x.ndim
    wanted = [sizes(x)[d - offset] if n == -1 else n for d, n in enumerate(shape)]
    return broadcast_to(x, wanted)


@aten("squeeze", "squeeze.dim", "squeeze.dims", "squeeze_copy", "squeeze_copy.dim")
def squeeze(call: Call, x: Value, dims: Any = None) -> Value:
    """The tensor without dimensions of extent 1."""
    shape = sizes(x)
    if dims is None:
        where: Sequence[int] = range(len(shape))
    else:
        where = [dimension(d, x.ndim) for d in (dims if isinstance(dims, list | tuple) else (dims,))]
    return b.reshape(x, [n for d, n in enumerate(shape) if d not in where or n != 1])


@aten("unsqueeze", "unsqueeze_copy")
def unsqueeze(call: Call, x: Value, dim: int) -> Value:
    """The tensor with another dimension of extent 1."""
    return new_dimension(x, dim % (x.ndim + 1))


def new_dimension(x: Value, d: int) -> Value:
    """The tensor with another dimension of extent 1 at this index."""
    shape = sizes(x)
    return b.reshape(x, (*shape[:d], 1, *shape[d:]))


def clipped(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Start and end of a slice as in Python, within the extent."""
    start = 0 if start is None else start
    end = size if end is None else end
    low = min(max(start + size if start < 0 else start, 0), size)
    high = min(max(end + size if end < 0 else end, low), size)
    return low, high


@aten("slice.Tensor", "slice_copy.Tensor")
def slice_(
    call: Call, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """A slice along a dimension."""
    d = dimension(dim, x.ndim)
    return slice_along(x, d, *clipped(start, end, sizes(x)[d]), step)


@aten("select.int", "select_copy.int")
def select(call: Call, x: Value, dim: int, index: int) -> Value:
    """The part at one index of a dimension, which is removed."""
    d = dimension(dim, x.ndim)
    shape = sizes(x)
    rest = (*shape[:d], *shape[d + 1 :])
    if isinstance(index, Value):
        start = b.select(index < 0, index + shape[d], index)
        starts = [start if i == d else number(0, index.element_type) for i in range(len(shape))]
        return b.reshape(b.dynamic_slice(x, starts, [1 if i == d else n for i, n in enumerate(shape)]), rest)
    i = index % shape[d] if shape[d] else 0
    return b.reshape(slice_along(x, d, i, i + 1), rest)


@aten("narrow", "narrow_copy")
def narrow(call: Call, x: Value, dim: int, start: int, length: int) -> Value:
    """A part of a dimension."""
    return slice_(call, x, dim, start, start + length)


@aten("cat")
def cat(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Tensors one after the other along a dimension. Empty vectors are left out."""
    used = [cast(x, call.dtype) for x in tensors if not (x.ndim == 1 and sizes(x) == (0,))]
    if not used:
        return cast(tensors[0], call.dtype)
    return b.concatenate(used, dimension(dim, used[0].ndim)) if len(used) > 1 else used[0]


@aten("stack")
def stack(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Tensors of one shape along a new dimension."""
    d = dim % (tensors[0].ndim + 1)
    return b.concatenate([new_dimension(cast(x, call.dtype), d) for x in tensors], d)


def split(x: Value, lengths: Sequence[int], dim: int) -> list[Value]:
    """Parts of certain lengths along a dimension."""
    d = dimension(dim, x.ndim)
    found, start = [], 0
    for n in lengths:
        found.append(slice_along(x, d, start, start + n))
        start += n
    return found


@aten("split_with_sizes", "split_with_sizes_copy")
def split_with_sizes(call: Call, x: Value, lengths: Sequence[int], dim: int = 0) -> list[Value]:
    """Parts of certain lengths along a dimension."""
    return split(x, lengths, dim)


@aten("split.Tensor", "split_copy.Tensor")
def split_tensor(call: Call, x: Value, size: int, dim: int = 0) -> list[Value]:
    """Parts of one length along a dimension; the last may be shorter."""
    n = sizes(x)[dimension(dim, x.ndim)]
    count = max(1, -(-n // size)) if size else 1
    return split(x, [min(size, n - i * size) for i in range(count)], dim)


@aten("unbind.int", "unbind_copy.int")
def unbind(call: Call, x: Value, dim: int = 0) -> list[Value]:
    """The parts at each index of a dimension, which is removed."""
    return [select(call, x, dim, i) for i in range(sizes(x)[dimension(dim, x.ndim)])]


@aten("flip")
def flip(call: Call, x: Value, dims: Sequence[int]) -> Value:
    """The elements in the opposite order along some dimensions."""
    return b.rev(x, [dimension(d, x.ndim) for d in dims]) if x.ndim and dims else x


@aten("roll")
def roll(call: Call, x: Value, shifts: Any, dims: Any = ()) -> Value:
    """The elements shifted along some dimensions; those beyond the end return at the start."""
    shifts = list(shifts) if isinstance(shifts, list | tuple) else [shifts]
    dims = list(dims) if isinstance(dims, list | tuple) else [dims]
    if not dims:
        return b.reshape(_rolled(b.reshape(x, (-1,)), 0, shifts[0]), sizes(x)) if math.prod(sizes(x)) else x
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(x, dimension(dim, x.ndim), shift)
    return x


def _rolled(x: Value, d: int, shift: int) -> Value:
    n = sizes(x)[d] if x.ndim else 0
    if not n or not shift % n:
        return x
    cut = n - shift % n
    return b.concatenate([slice_along(x, d, cut, n), slice_along(x, d, 0, cut)], d)


@aten("repeat")
def repeat(call: Call, x: Value, repeats: Sequence[int]) -> Value:
    """The tensor repeated along each dimension."""
    shape = (1,) * (len(repeats) - x.ndim) + sizes(x)
    if not shape:
        return x
    split_shape = [n for r, size in zip(repeats, shape, strict=True) for n in (r, size)]
    spread = b.broadcast_in_dim(b.reshape(x, shape), split_shape, range(1, 2 * len(shape), 2))
    return b.reshape(spread, [r * n for r, n in zip(repeats, shape, strict=True)])


@aten("constant_pad_nd")
def constant_pad_nd(call: Call, x: Value, pad: Sequence[int], value: Any = 0) -> Value:
    """The tensor with a number around it; `pad` begins with the last dimension, and may be negative."""
    amounts = [(0, 0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        amounts[x.ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1], 0)
    return b.pad(x, number(value, x.element_type), amounts)


@aten("diagonal", "diagonal_copy")
def diagonal(call: Call, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The diagonals of matrices, as the last dimension."""
    return diagonals(x, offset, dim1, dim2)


def diagonals(x: Value, offset: int, dim1: int, dim2: int) -> Value:
    """The diagonals of the matrices of two dimensions, as the last dimension."""
    i, j = dimension(dim1, x.ndim), dimension(dim2, x.ndim)
    others = [d for d in range(x.ndim) if d not in (i, j)]
    y = b.transpose(x, [*others, i, j])
    rows, columns = sizes(y)[-2:]
    low, skip = max(-offset, 0), max(offset, 0)
    count = max(0, min(rows - low, columns - skip))
    lead = sizes(y)[:-2]
    if not count:
        return filled((*lead, 0), 0, x.element_type)
    y = slice_along(slice_along(y, y.ndim - 2, low, low + count), y.ndim - 1, skip, skip + count)
    flat = b.reshape(y, (*lead, count * count))
    padded = b.pad(flat, number(0, x.element_type), [(0, 0, 0)] * len(lead) + [(0, count, 0)])
    squares = b.reshape(padded, (*lead, count, count + 1))
    return b.reshape(slice_along(squares, len(lead) + 1, 0, 1), (*lead, count))


@aten("diag_embed")
def diag_embed(call: Call, x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """Matrices with the last dimension as a diagonal, and zeros elsewhere."""
    n = sizes(x)[-1] + abs(offset)
    lead = sizes(x)[:-1]
    columns = b.pad(x, number(0, x.element_type), [(0, 0, 0)] * len(lead) + [(max(offset, 0), max(-offset, 0), 0)])
    shape = (*lead, n, n)
    spread = b.broadcast_in_dim(columns, shape, (*range(len(lead)), len(lead) + 1))
    places = [iota((n, n), d) for d in (0, 1)]
    on = b.broadcast_in_dim(places[1] - places[0] == offset, shape, (len(lead), len(lead) + 1))
    found = b.select(on, spread, filled(shape, 0, x.element_type))
    i, j = dim1 % found.ndim, dim2 % found.ndim
    order: list[int] = []
    rest = iter(range(len(lead)))
    for d in range(found.ndim):
        order.append(len(lead) if d == i else len(lead) + 1 if d == j else next(rest))
    return b.transpose(found, order)


@aten("as_strided", "as_strided_copy")
def as_strided(call: Call, x: Value, shape: Sequence[int], strides: Sequence[int], offset: int | None = None) -> Value:
    """Elements of the memory of a tensor, by strides."""
    flat = in_memory(call, x)
    places = strided_places(call, shape, strides, offset)
    return b.reshape(_taken(flat, b.reshape(places, (-1,)) if shape else b.reshape(places, (1,))), shape)


def in_memory(call: Call, x: Value) -> Value:
    """The elements of the first argument in the order of its memory. Raises Unsupported if it is not dense."""
    order = memory_order(call)
    ones = [d for d in range(x.ndim) if d not in order]
    return b.reshape(b.transpose(x, [*ones, *order]), (-1,)) if x.ndim else b.reshape(x, (1,))


def memory_order(call: Call) -> Sequence[int]:
    """The dimensions of the first argument in the order of its memory, without those of extent 1. Raises Unsupported
    if it is not dense."""
    shape, strides, _ = call.storage(0)
    order = dense_order(shape, strides)
    if order is None:
        raise Unsupported("strides of a tensor that is not dense in memory are not supported")
    return order


def strided_places(call: Call, shape: Sequence[int], strides: Sequence[int], offset: int | None) -> Value:
    """The places of elements in the memory of the first argument. Raises Unsupported if that has no such places: the
    argument may be a part of a tensor, whose other elements the program does not have."""
    own, _, start = call.storage(0)
    first = 0 if offset is None else offset - start
    last = first + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if 0 not in shape and not 0 <= first <= last < math.prod(own):
        raise Unsupported("elements of the memory before or after those of the tensor are not supported")
    places = filled(shape, first, I64)
    for d, step in enumerate(strides):
        places = places + iota(shape, d) * number(step, I64)
    return places


def _taken(flat: Value, places: Value) -> Value:
    numbers = b.GatherDimensionNumbers((), (0,), (0,), 1)
    return b.gather(flat, b.reshape(places, (sizes(places)[0], 1)), numbers, (1,))


@aten("resize")
def resize(call: Call, x: Value, shape: Sequence[int], *, memory_format: Any = None) -> Value:
    """The first elements in another shape. Elements that x does not have are zeros."""
    have, count = math.prod(sizes(x)), math.prod(shape)
    flat = slice_along(b.reshape(x, (have,)), 0, 0, min(count, have))
    if count > have:
        flat = b.concatenate([flat, filled((count - have,), 0, x.element_type)], 0)
    return b.reshape(flat, shape)


@aten("unfold", "unfold_copy")
def unfold(call: Call, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along a dimension, as another dimension at the end."""
    if not x.ndim:
        return b.reshape(slice_along(b.reshape(x, (1,)), 0, 0, size), (size,))
    d = dimension(dim, x.ndim)
    count = (sizes(x)[d] - size) // step + 1
    parts = [slice_along(x, d, k, k + (count - 1) * step + 1, step) for k in range(size)]
    return (
        b.concatenate([new_dimension(p, x.ndim) for p in parts], x.ndim) if parts else filled(call.shape, 0, call.dtype)
    )


@aten("select_scatter")
def select_scatter(call: Call, x: Value, source: Value, dim: int, index: int) -> Value:
    """The tensor with another part at one index of a dimension."""
    d = dimension(dim, x.ndim)
    i = index % sizes(x)[d]
    return _with_part(x, new_dimension(cast(source, x.element_type), d), d, i, i + 1, 1)


@aten("slice_scatter")
def slice_scatter(
    call: Call, x: Value, source: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """The tensor with another slice along a dimension."""
    d = dimension(dim, x.ndim)
    low, high = clipped(start, end, sizes(x)[d])
    part = slice_along(x, d, low, high, step)
    return _with_part(x, broadcast_to(cast(source, x.element_type), sizes(part)), d, low, high, step)


def _with_part(x: Value, part: Value, d: int, low: int, high: int, step: int) -> Value:
    """The tensor in which a slice along a dimension is replaced."""
    shape = sizes(x)
    count = sizes(part)[d]
    if not count:
        return x
    if step == 1:
        if count == shape[d]:
            return part
        return b.dynamic_update_slice(x, part, [number(low if i == d else 0, I64) for i in range(len(shape))])
    last = low + (count - 1) * step
    amounts = [(low, shape[d] - 1 - last, step - 1) if i == d else (0, 0, 0) for i in range(len(shape))]
    spread = b.pad(part, number(0, x.element_type), amounts)
    places = iota(shape, d) - number(low, I64)
    inside = (places >= 0) & (places <= last - low) & (b.rem(places, number(step, I64)) == 0)
    return b.select(inside, spread, x)


@aten("diagonal_scatter")
def diagonal_scatter(call: Call, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The tensor with another diagonal."""
    i, j = dimension(dim1, x.ndim), dimension(dim2, x.ndim)
    others = [d for d in range(x.ndim) if d not in (i, j)]
    order = [*others, i, j]
    y = b.transpose(x, order)
    rows, columns = sizes(y)[-2:]
    skip = max(offset, 0)
    placed = b.pad(
        cast(source, x.element_type), number(0, x.element_type),
        [(0, 0, 0)] * len(others) + [(skip, columns - skip - sizes(source)[-1], 0)],
    )  # fmt: skip
    spread = b.broadcast_in_dim(placed, sizes(y), (*range(len(others)), y.ndim - 1))
    is_on = iota((rows, columns), 1) - iota((rows, columns), 0) == offset
    on = b.broadcast_in_dim(is_on, sizes(y), (y.ndim - 2, y.ndim - 1))
    inverse = [order.index(d) for d in range(x.ndim)]
    return b.transpose(b.select(on, spread, y), inverse)
