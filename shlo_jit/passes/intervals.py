"""Masks that are intervals: comparisons of positions along one dimension with values that do not depend on it.

mask[g, m] = starts[g] <= m and m < ends[g]        for any way to write, broadcast and combine the comparisons
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.equality import equal_regions
from shlo_jit.ir.types import I64, DType, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter

BROADCAST, TRANSPOSE, RESHAPE = (f"stablehlo.{n}" for n in ("broadcast_in_dim", "transpose", "reshape"))
DEPTH = 24
"""Most ops that are looked through from a value on."""
MOST_BOUNDS = 16
"""Maximum comparisons of a mask."""
MOST_OFFSET = 1 << 62
"""Positions that start at smaller numbers can be computed as i64, and so can their bounds."""
STARTS = {"GE": 0, "GT": 1}
"""Comparison `position DIRECTION bound` -> what is added to the bound to get the first position."""
ENDS = {"LT": 0, "LE": 1}
FLIPPED = {"GE": "LE", "GT": "LT", "LE": "GE", "LT": "GT"}


class Place(NamedTuple):
    """A dimension of a value as a dimension of the mask: `dims[i]` is the mask's dimension of the value's i-th one, or
    -1 if the mask has no such dimension (its extent is 1)."""

    value: Value
    dims: tuple[int, ...]


class Bound(NamedTuple):
    """A bound of the positions for which a mask is true."""

    place: Place
    is_start: bool
    added: int
    """The first position is the value and this number, or the last position plus 1 is."""


def varying(value: Value) -> frozenset[int]:
    """The dimensions along which the elements of a value may differ."""
    return _varying(value, DEPTH, {})


def _varying(value: Value, depth: int, known: dict[Value, frozenset[int]]) -> frozenset[int]:
    """`known`: the dimensions of values that have been looked at. Without it, operands that ops share would be looked
    at once for each path to them."""
    if value not in known:
        known[value] = _dims_of_op(value, depth, known)
    return known[value]


def _dims_of_op(value: Value, depth: int, known: dict[Value, frozenset[int]]) -> frozenset[int]:
    wide = frozenset(d for d, n in enumerate(value.tensor.extents) if n != 1)
    op = value.op
    if op is None or not depth or not wide:
        return wide
    if op.name == "stablehlo.iota":
        return wide & {op.int("iota_dimension")}
    if op.name == "stablehlo.constant":
        return _varying_constant(op, wide)
    if op.name == BROADCAST:
        dims, inner = op.ints("broadcast_dimensions"), _varying(op.operands[0], depth - 1, known)
        return frozenset(dims[d] for d in inner)
    if op.name == TRANSPOSE:
        inner = _varying(op.operands[0], depth - 1, known)
        return frozenset(i for i, d in enumerate(op.ints("permutation")) if d in inner)
    if op.name == RESHAPE:
        kept = kept_dims(op.operands[0].tensor.extents, value.tensor.extents)
        inner = _varying(op.operands[0], depth - 1, known) if kept is not None else frozenset()
        return wide if kept is None else frozenset(kept[d] for d in inner)
    if is_elementwise(op):
        same = [_varying(v, depth - 1, known) for v in op.operands if v.tensor.rank == value.tensor.rank]
        return frozenset().union(*same) & wide
    return wide


def _varying_constant(op: Op, wide: frozenset[int]) -> frozenset[int]:
    found = op.constant
    if found.is_splat:
        return frozenset()
    if found.type.size > 1 << 16:
        return wide
    array = found.array
    return frozenset(d for d in wide if not np.array_equal(array, np.broadcast_to(array.take([0], d), array.shape)))


def kept_dims(before: tuple[int, ...], after: tuple[int, ...]) -> dict[int, int] | None:
    """Maps the dimensions before a reshape that only adds or removes dimensions of extent 1 to those after it; None
    for other reshapes."""
    one = [d for d, n in enumerate(before) if n != 1]
    two = [d for d, n in enumerate(after) if n != 1]
    if [before[d] for d in one] != [after[d] for d in two]:
        return None
    return dict(zip(one, two, strict=True))


def position(value: Value, dim: int, depth: int = DEPTH) -> int | None:
    """The number c if the elements of a value are their index along a dimension plus c, else None."""
    op = value.op
    if op is None or not depth or not value.tensor.storage.is_integer:
        return None
    if op.name == "stablehlo.iota":
        is_along = op.int("iota_dimension") == dim
        return 0 if is_along and _fits(0, value, dim) else None
    if op.name in (BROADCAST, TRANSPOSE, RESHAPE):
        inner = inner_dim(op, dim)
        return None if inner is None else position(op.operands[0], inner, depth - 1)
    if op.name == "stablehlo.convert":
        first = position(op.operands[0], dim, depth - 1)
        return first if first is not None and _fits(first, value, dim) else None
    if op.name in ("stablehlo.add", "stablehlo.subtract"):
        return _moved_position(op, dim, depth)
    if op.name == "stablehlo.constant" and value.tensor.size <= 1 << 20:
        return _position_of_constant(op, dim)
    return None


def _fits(first: int, value: Value, dim: int) -> bool:
    """Whether a value's type holds all positions along a dimension if they start at a number: none wraps around."""
    t = value.tensor.storage
    low, high = (-(1 << (t.bits - 1)), 1 << (t.bits - 1)) if t.kind == "i" else (0, 1 << t.bits)
    return low <= first and first + value.tensor.extents[dim] <= high


def _moved_position(op: Op, dim: int, depth: int) -> int | None:
    sign = 1 if op.name == "stablehlo.add" else -1
    left, right = op.operands
    for x, y in ((left, right), (right, left)) if sign == 1 else ((left, right),):
        number = splat(y)
        first = position(x, dim, depth - 1) if isinstance(number, int) else None
        if isinstance(number, int) and first is not None:
            moved = first + sign * number
            return moved if _fits(moved, op.result, dim) else None
    return None


def _position_of_constant(op: Op, dim: int) -> int | None:
    array = op.constant.array
    if not array.size:
        return None
    first, shape = int(array.reshape(-1)[0]), [1] * array.ndim
    if abs(first) >= MOST_OFFSET:
        return None
    shape[dim] = -1
    line = first + np.arange(array.shape[dim]).reshape(shape)
    return first if np.array_equal(array.astype(np.int64), np.broadcast_to(line, array.shape)) else None


def splat(value: Value, depth: int = DEPTH) -> float | int | complex | None:
    """The number that all elements of a value are, if it is known."""
    while value.op is not None and value.op.name in (BROADCAST, RESHAPE) and depth:
        value, depth = value.op.operands[0], depth - 1
    op = value.op
    if op is None or op.name != "stablehlo.constant" or not op.constant.type.size:
        return None
    if not op.constant.is_splat and op.constant.type.size != 1:
        return None
    return op.constant.array.reshape(-1)[0].item()


def inner_dim(op: Op, dim: int) -> int | None:
    """The operand's dimension that a broadcast, transpose or reshape has as a dimension of its result; None if it has
    none of the same extent."""
    before, after = op.operands[0].tensor.extents, op.result.tensor.extents
    if op.name == TRANSPOSE:
        return op.ints("permutation")[dim]
    if op.name == BROADCAST:
        dims = op.ints("broadcast_dimensions")
        inner = dims.index(dim) if dim in dims else None
        return inner if inner is not None and before[inner] == after[dim] else None
    kept = kept_dims(before, after)
    return None if kept is None else next((d for d, e in kept.items() if e == dim), None)


def bounds_of(mask: Value, dim: int) -> list[Bound] | None:
    """The bounds whose conjunction a mask is; None if it is not an interval of positions along a dimension."""
    whole = Place(mask, tuple(range(mask.tensor.rank)))
    if mask.tensor.extents[dim] == 1:
        return [Bound(whole, is_start=False, added=0)]  # of one position, the end is 1 or 0 as the mask says
    return _bounds(whole, dim, DEPTH)


def _bounds(place: Place, dim: int, depth: int) -> list[Bound] | None:
    op = place.value.op
    if op is None or not depth:
        return None
    if op.name == "stablehlo.and":
        found: list[Bound] = []
        for v in op.operands:
            part = _bounds(Place(v, place.dims), dim, depth - 1)
            if part is None or len(found) + len(part) > MOST_BOUNDS:
                return None
            found += part
        return found
    if op.name in (BROADCAST, TRANSPOSE, RESHAPE):
        inner = through(op, place)
        own = None if inner is None else place.dims.index(dim)
        if inner is None or own is None or inner_dim(op, own) is None:
            return None
        return _bounds(inner, dim, depth - 1)
    if op.name == "stablehlo.select" and (splat(op.operands[1]), splat(op.operands[2])) == (True, False):
        return _bounds(Place(op.operands[0], place.dims), dim, depth - 1) if op.operands[0].tensor.rank else None
    return _compared(op, place, dim) if op.name == "stablehlo.compare" else None


def through(op: Op, place: Place) -> Place | None:
    """The operand of a broadcast, transpose or reshape, with its dimensions; None for reshapes of other kinds."""
    operand = op.operands[0]
    before, after = operand.tensor.extents, op.result.tensor.extents
    if op.name == TRANSPOSE:
        order = op.ints("permutation")
        return Place(operand, tuple(place.dims[order.index(d)] for d in range(len(before))))
    if op.name == BROADCAST:
        dims = op.ints("broadcast_dimensions")
        return Place(operand, tuple(place.dims[d] if before[i] != 1 else -1 for i, d in enumerate(dims)))
    kept = kept_dims(before, after)
    return (
        None
        if kept is None
        else Place(operand, tuple(place.dims[kept[d]] if d in kept else -1 for d in range(len(before))))
    )


def _compared(op: Op, place: Place, dim: int) -> list[Bound] | None:
    own = place.dims.index(dim)
    direction = op.attributes["comparison_direction"].value
    if direction not in FLIPPED:
        return None
    for x, y, way in ((*op.operands, direction), (*reversed(op.operands), FLIPPED[direction])):
        first = position(x, own)
        if first is None or abs(first) >= MOST_OFFSET or own in varying(y) or not is_i64(y):
            continue
        is_start = way in STARTS
        return [Bound(Place(y, place.dims), is_start, (STARTS if is_start else ENDS)[way] - first)]
    return None


def is_i64(value: Value) -> bool:
    """Whether i64 holds all elements that a value's type has."""
    t = value.tensor.storage
    return t.is_integer and not (t.kind == "u" and t.bits == 64)


def range_of(
    rw: Rewriter, bounds: list[Bound], dims: tuple[int, ...], shape: tuple[int, ...], n: int
) -> tuple[Value, Value]:
    """Emits the first position of an interval and its end, limited to [0, n], for each index of `dims`, which are
    dimensions of the mask with the extents `shape`. The bounds do not vary along others."""
    t = tensor(shape, I64)
    first, last = mk.constant(rw, t, 0), mk.constant(rw, t, n)
    for bound in bounds:
        value = picked(rw, bound.place, dims, shape, I64)
        limits = (mk.constant(rw, t, -bound.added), mk.constant(rw, t, n - bound.added))
        value = mk.apply(rw, "minimum", mk.apply(rw, "maximum", value, limits[0]), limits[1])
        value = mk.apply(rw, "add", value, mk.constant(rw, t, bound.added))
        if bound.is_start:
            first = mk.apply(rw, "maximum", first, value)
        else:
            last = mk.apply(rw, "minimum", last, value)
    return first, last


def picked(
    rw: Rewriter, place: Place, dims: tuple[int, ...], shape: tuple[int, ...], dtype: DType, summed: bool = False
) -> Value:
    """Emits the elements of a value at index 0 of all dimensions but these, or their sums over all others, converted
    to a type. `dims` are dimensions of the mask with the extents `shape`."""
    value, own = rw.get(place.value), place.dims
    others = [i for i, d in enumerate(own) if d not in dims and mk.shape_of(value)[i] != 1]
    if summed and others:
        value, own = mk.reduce_sum(rw, value, others), tuple(d for i, d in enumerate(own) if i not in others)
    else:
        for i in others:
            value = mk.slice_dim(rw, value, i, 0, 1)
    kept = [i for i, d in enumerate(own) if d in dims]
    value = mk.reshape(rw, value, [mk.shape_of(value)[i] for i in kept])
    value = mk.convert(rw, value, dtype)
    return mk.broadcast(rw, *_ascending(rw, value, [dims.index(own[i]) for i in kept], shape))


def _ascending(
    rw: Rewriter, value: Value, where: list[int], shape: tuple[int, ...]
) -> tuple[Value, tuple[int, ...], list[int]]:
    order = sorted(range(len(where)), key=lambda i: where[i])
    return mk.transpose(rw, value, order), shape, [where[i] for i in order]


def same(a: Value, b: Value) -> bool:
    """Whether two values are computed by the same ops from the same values."""
    return _same(a, b, DEPTH, set())


def _same(a: Value, b: Value, depth: int, known: set[tuple[Value, Value]]) -> bool:
    """`known`: pairs of values that are the same."""
    if a is b or (a, b) in known:
        return True
    x, y = a.op, b.op
    if x is None or y is None or not depth or x.name != y.name or len(x.operands) != len(y.operands):
        return False
    if a.type != b.type or x.attributes != y.attributes or x.results.index(a) != y.results.index(b):
        return False
    if len(x.regions) != len(y.regions) or not all(map(equal_regions, x.regions, y.regions)):
        return False
    if not all(_same(v, w, depth - 1, known) for v, w in zip(x.operands, y.operands, strict=True)):
        return False
    known.add((a, b))
    return True
