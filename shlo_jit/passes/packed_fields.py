"""Read fields of 2 or 4 bits of integers as elements that share bytes: what shifts and masks take out of words is an
array of small integers as it lies in memory. Programs that keep several weights in an integer write such ops.

Needs: few passes after it, since it introduces packed types, which other passes do not know; no common subexpressions.
Guarantees: nothing. A `bitcast_convert` to a packed type is a view (`fuse/fuse.py`), which a `convert` reads.

    and(shift_right_logical(broadcast(%words : 64x8xui32), [0, 4, ..., 28]), 15) : 64x8x8xui32
      ->   convert(bitcast_convert(%words) : 64x8x8xui4, packed)
    concatenate(and(%bytes, 15), shift_right_logical(%bytes, 4))   ->   the same, transposed

Words must be in memory: arguments, constants, and slices of these. All fields of a word are taken, in any order that
reshapes, transposes and `reverse` give. Loops interleave the operands of a concatenation when they pack them, so one
stays as it is if a product has many rows and is not one of bytes in groups, or if its fields are in reverse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.core import Block, Op, Value, walk
from shlo_jit.ir.types import DTYPES, I32, DType, tensor
from shlo_jit.ops.bit_fields import MASK, SHIFTS
from shlo_jit.ops.integer_ranges import splat_of
from shlo_jit.ops.runs import extents_of, multiplies_bytes
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.affine_weights import Axis, Dim, axes_before, leaves_of
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.simplify import simplify

CONCATENATE, CONVERT, CONSTANT = "stablehlo.concatenate", "stablehlo.convert", "stablehlo.constant"
PARTS = ("stablehlo.slice", "stablehlo.dynamic_slice", "stablehlo.reshape")
"""Ops on words whose results are seen as fields by taking the same part of the operand's fields."""
SUMS = {"stablehlo.multiply": np.multiply, "stablehlo.add": np.add, "stablehlo.subtract": np.subtract}
PRODUCT = "stablehlo.dot_general"
ROOTS = {MASK, CONVERT, CONCATENATE, SHIFTS[1]}


class _Place(NamedTuple):
    """Where a field begins in its word, for each element: `first + numbers[axis]`."""

    first: int
    axis: Dim
    numbers: np.ndarray


class _Field(NamedTuple):
    """A field of each word. `dims`: the axes of the words' dimensions."""

    words: Value
    dims: list[Dim]
    place: _Place
    bits: int
    is_signed: bool


class _Fields(NamedTuple):
    """All fields of words, in some order."""

    words: Value
    axes: list[Axis]
    """The axes of the words, without those of extent 1."""
    dtype: DType
    order: list[int]
    """The numbers of the fields, along `along`."""
    along: list[Axis]
    dims: list[Dim]
    """The axes of the result's dimensions."""


def packed_fields(function: Op, context: Context) -> Op:
    """The function with fields of words read as elements of packed types."""
    if not any(op.name in SHIFTS for op in walk(function.block())):
        return function
    views: dict[tuple[Block, Value, DType], Value] = {}
    changed, roots = False, ROOTS if _has_few_rows(function) else ROOTS - {CONCATENATE}

    def visit(rw: Rewriter, op: Op, _operands: list[Value]) -> Sequence[Value] | None:
        nonlocal changed
        found = _fields_of(op) if op.name in roots else None
        if found is None:
            return None
        changed = True
        return [_emit(rw, found, op.result, views)]

    rewritten = rewrite(function, visit)
    return simplify(rewritten, context) if changed else function  # merges reshapes


def _has_few_rows(function: Op) -> bool:
    """Whether all products have few rows or columns, so that their operands are not packed. Nor are those of bytes in
    groups (`schedule/groups_in_registers.py`)."""
    products = [op for op in walk(function.block()) if op.name == PRODUCT and not _is_of_byte_groups(op)]
    extents = [extents_of(op) for op in products if all(map(mk.is_static, (*op.operands, op.result)))]
    most = tuning.COMPUTED_OPERAND_ROWS * tuning.COMPUTED_OPERAND_PASSES
    return len(extents) == len(products) and all(min(m, n) <= most for _, m, n, _ in extents)


def _is_of_byte_groups(product: Op) -> bool:
    is_static = all(map(mk.is_static, (*product.operands, product.result)))
    return is_static and multiplies_bytes(product) and extents_of(product)[0] > 1


# ---------------------------------------------------------------------------- which fields an op computes
def _fields_of(op: Op) -> _Fields | None:
    """The fields that are the result of an op, if they are all fields of words in memory."""
    value = op.result
    if not value.tensor.is_fixed or not value.tensor.storage.is_integer or not value.tensor.size:
        return None
    if op.name == CONCATENATE:
        return _concatenated(op)
    dims: list[Dim] = [[Axis(n)] for n in value.tensor.extents]
    field = _field(value, dims)
    if field is None or not field.place.axis:
        return None
    return _whole(field, field.place.axis, [field.place.first + int(n) for n in field.place.numbers], dims)


def _concatenated(op: Op) -> _Fields | None:
    """The fields that the operands of a concatenation are, one each."""
    over, extents = op.int("dimension"), [o.tensor.extents for o in op.operands]
    if len(op.operands) < 2 or len(set(extents)) > 1:
        return None
    shared: list[Dim] = [[Axis(n)] for n in extents[0]]
    found = [_field(operand, list(shared)) for operand in op.operands]
    fields = [f for f in found if f is not None and not f.place.axis]
    first = fields[0] if fields else None
    if first is None or len(fields) < len(found) or any(f.words is not first.words for f in fields):
        return None
    kinds = {(f.bits, f.is_signed, tuple(leaves_of(f.dims))) for f in fields}
    along = [Axis(len(fields))]
    dims = [[*along, *dim] if d == over else dim for d, dim in enumerate(shared)]
    found = None if len(kinds) > 1 else _whole(first, along, [f.place.first for f in fields], dims)
    return None if found is None or _reordering(found.order) == "reversed" else found  # loops interleave the operands


def _whole(field: _Field, axis: Dim, places: list[int], dims: list[Dim]) -> _Fields | None:
    """The fields at these places along an axis, if they are all of a word."""
    bits, words = field.bits, field.words
    axes, along = leaves_of(field.dims), leaves_of([axis])
    order = [place // bits for place in places]
    count = words.tensor.storage.bits // bits
    if sorted(places) != [bits * i for i in range(count)] or _reordering(order) is None:
        return None
    own, known = set(axes), set(leaves_of(dims))
    if own & set(along) or not own <= known or len(own) != len(axes) or not _is_in_memory(words):
        return None
    if math.prod(axis.extent for axis in axes) != words.tensor.size or words.tensor.nbytes < tuning.PACKED_FIELDS_BYTES:
        return None
    dtype = DTYPES[f"{'i' if field.is_signed else 'ui'}{bits}"]
    return _Fields(words, axes, dtype, order, along, dims)


def _field(value: Value, dims: list[Dim]) -> _Field | None:
    """The field of 2 or 4 bits that each element of a value is."""
    value, found = _before(value, dims)
    op = value.op
    if op is None or found is None:
        return None
    dims, name, bits = found, op.name, value.tensor.storage.bits
    if name == CONVERT and op.operands[0].tensor.storage.is_integer and op.operands[0].tensor.storage.bits > bits:
        return _shifted(op.operands[0], dims, bits, is_signed=value.tensor.storage.kind == "i")
    if name == MASK:
        for side in (0, 1):
            mask = splat_of(op.operands[1 - side])
            if mask in (3, 15):
                return _shifted(op.operands[side], dims, 2 if mask == 3 else 4, is_signed=False)
        return None
    if name not in SHIFTS[1:]:
        return None
    is_signed = name == SHIFTS[1]
    amount, (inner, before) = splat_of(op.operands[1]), _before(op.operands[0], dims)
    if amount is None or before is None or (is_signed and value.tensor.storage.kind != "i"):
        return None
    left = inner.op if inner.op is not None and inner.op.name == SHIFTS[0] else None
    if left is None:  # the last field
        return _taken(inner, before, _Place(int(amount), [], np.zeros(1)), bits - int(amount), is_signed)
    place = _place_of(left.operands[1], before)
    if not is_signed or place is None:
        return None
    first = int(amount) - place.first  # the field's last bit becomes the word's, and then its first the lowest
    words = _before(left.operands[0], before)
    return None if words[1] is None else _taken(
        words[0], words[1], _Place(first, place.axis, -place.numbers), bits - int(amount), is_signed, bits
    )


def _shifted(value: Value, dims: list[Dim], bits: int, *, is_signed: bool) -> _Field | None:
    """The lowest bits of a value, which may be shifted words."""
    value, found = _before(value, dims)
    if found is None:
        return None
    place, op = _Place(0, [], np.zeros(1)), value.op
    if op is not None and op.name in SHIFTS[1:]:
        amount = _place_of(op.operands[1], found)
        value, found = _before(op.operands[0], found)
        if amount is None or found is None:
            return None
        place = amount
    return _taken(value, found, place, bits, is_signed)


def _taken(
    words: Value, dims: list[Dim], place: _Place, bits: int, is_signed: bool, width: int | None = None
) -> _Field | None:
    """The bits at a place of words, before these are widened. `width`: the bits that words must have."""
    while (op := words.op) is not None and op.name == CONVERT and width is None:
        source = op.operands[0].tensor.storage
        if not source.is_integer or source.bits > words.tensor.storage.bits or source.bits < 8:
            break
        words, found = _before(op.operands[0], dims)
        if found is None:
            return None
        dims = found
    storage = words.tensor.storage
    if bits not in (2, 4) or not storage.is_integer or storage.bits not in (8, 16, 32, 64):
        return None
    return _Field(words, dims, place, bits, is_signed) if width in (None, storage.bits) else None


def _before(value: Value, dims: list[Dim]) -> tuple[Value, list[Dim] | None]:
    """The value before ops that only move elements, and its axes."""
    while value.op is not None and (before := axes_before(value.op, dims)) is not None:
        value, dims = value.op.operands[0], before
    return value, dims


def _place_of(amount: Value, dims: list[Dim]) -> _Place | None:
    """What words are shifted by: a number, or numbers along an axis."""
    number = splat_of(amount)
    if number is not None:
        return _Place(int(number), [], np.zeros(1, np.int64))
    amount, found = _before(amount, dims)
    op = amount.op
    if found is None or op is None:
        return None
    if op.name == CONSTANT:
        return _varying(op.constant.array, leaves_of(found))
    if op.name == "stablehlo.iota":
        axes = leaves_of([found[op.int("iota_dimension")]])
        return _Place(0, axes, np.arange(axes[0].extent)) if len(axes) == 1 else None
    if op.name == CONVERT:
        return _place_of(op.operands[0], found) if op.operands[0].tensor.storage.is_integer else None
    combine = SUMS.get(op.name)
    parts = [_place_of(operand, found) for operand in op.operands] if combine is not None else []
    if combine is None or any(part is None for part in parts) or amount.tensor.storage.bits < 8:
        return None
    x, y = (part for part in parts if part is not None)
    if x.axis and y.axis:
        return None
    return _Place(0, x.axis or y.axis, combine(x.first + x.numbers, y.first + y.numbers))


def _varying(array: np.ndarray, axes: list[Axis]) -> _Place | None:
    """The numbers of a constant that differ along a single axis. Small constants are folded to their full shape."""
    if array.size > tuning.FOLD_ELEMENTS:
        return None
    numbers = array.reshape([axis.extent for axis in axes]).astype(np.int64)
    varying = [d for d in range(numbers.ndim) if np.any(numbers != numbers.take([0], d))]
    if len(varying) != 1:
        return None
    places = [slice(None) if d == varying[0] else 0 for d in range(numbers.ndim)]
    return _Place(0, [axes[varying[0]]], numbers[tuple(places)])


def _is_in_memory(words: Value) -> bool:
    """Whether words, or what they are a part of, are in memory in any case."""
    op = words.op
    if op is None or op.name == CONSTANT or op.regions:
        return True
    if op.name == "stablehlo.slice" and any(n != 1 for n in op.ints("strides")):
        return False
    return op.name in PARTS and _is_in_memory(op.operands[0])


# ---------------------------------------------------------------------------- the fields as packed elements
def _emit(rw: Rewriter, found: _Fields, like: Value, views: dict[tuple[Block, Value, DType], Value]) -> Value:
    """The result of the op as elements of a packed type."""
    x, to = _view(rw, found.words, found.dtype, views), like.tensor.storage
    axes, wanted = [*found.axes, *found.along], leaves_of(found.dims)
    how = _reordering(found.order)
    if how == "same" and axes == wanted:
        return mk.reshape(rw, mk.convert(rw, x, to), mk.shape_of(like))
    extents = [axis.extent for axis in found.axes]
    rank, x = len(extents), mk.reshape(rw, x, [*extents, len(found.order)])
    if how == "reversed":
        x = rw.emit1("stablehlo.reverse", [x], x.type, {"dimensions": mk.dims([rank])})
    elif how is not None and how != "same":
        outer = len(found.order) // int(how)
        x = mk.transpose(rw, mk.reshape(rw, x, [*extents, outer, int(how)]), [*range(rank), rank + 1, rank])
    x = mk.reshape(rw, x, [axis.extent for axis in axes])
    x = mk.broadcast(rw, x, [axis.extent for axis in wanted], [wanted.index(axis) for axis in axes])
    return mk.convert(rw, mk.reshape(rw, x, mk.shape_of(like)), to)


def _reordering(order: list[int]) -> str | None:
    """How fields in their order become those in another: "same", "reversed", or the extent of the inner dimension of
    those that are transposed. None if in no such way."""
    numbers = np.arange(len(order))
    if order == list(numbers):
        return "same"
    if order == list(numbers[::-1]):
        return "reversed"
    for inner in (2, 4, 8):
        if inner < len(order) and order == list(numbers.reshape(-1, inner).T.reshape(-1)):
            return str(inner)
    return None


def _view(rw: Rewriter, words: Value, dtype: DType, views: dict[tuple[Block, Value, DType], Value]) -> Value:
    """The fields of words, a byte each: in a row if that is how they lie in memory, otherwise in a new last
    dimension."""
    key = rw.block, words, dtype
    if key in views:
        return views[key]
    op, count = words.op, words.tensor.storage.bits // dtype.bits
    shape = (*mk.shape_of(words), count)
    if op is None or op.name not in PARTS:
        packed = rw.emit1("stablehlo.bitcast_convert", [rw.get(words)], tensor(shape, dtype).packed)
        row = tensor((math.prod(shape),), dtype)
        found = rw.emit1(CONVERT, [rw.emit1("stablehlo.reshape", [packed], row.packed)], row)
    else:
        whole = mk.reshape(rw, _view(rw, op.operands[0], dtype, views), (*mk.shape_of(op.operands[0]), count))
        found = _part(rw, op, whole, shape)
    views[key] = found
    return found


def _part(rw: Rewriter, op: Op, x: Value, shape: tuple[int, ...]) -> Value:
    """The fields of a part of words. `x`: those of all words."""
    if op.name == "stablehlo.reshape":
        return mk.reshape(rw, x, shape)
    if op.name == "stablehlo.dynamic_slice":
        corner = [rw.get(v) for v in op.operands[1:]]
        zero = mk.constant(rw, corner[0].tensor if corner else tensor((), I32), 0)
        return mk.window(rw, x, [*corner, zero], shape)
    starts, limits = [*op.ints("start_indices"), 0], [*op.ints("limit_indices"), shape[-1]]
    strides = mk.dims([1] * len(shape))
    attributes = {"start_indices": mk.dims(starts), "limit_indices": mk.dims(limits), "strides": strides}
    return rw.emit1("stablehlo.slice", [x], tensor(shape, x.tensor.storage), attributes)
