"""Rules of ops that move elements of padded tensors: `RULES`, by name.

A rule takes the operands and returns the results; the op is `w.op`. It refuses what cannot be computed correctly along
a bounded dimension. Elements within the sizes are called valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shlo_jit.ir.core import Value
from shlo_jit.ir.types import tensor
from shlo_jit.ops.contract import dims_of
from shlo_jit.ops.type_algebra import bounds_of, constant_ints
from shlo_jit.passes import build as mk
from shlo_jit.passes.refine.padded import BOUND_HELPS, TOO_MANY, Padded, Writer, whole

Rule = Callable[[Writer, list[Padded]], "list[Padded]"]
TAKEN = "it takes {{0}} elements of dimension {}, which has {{1}}"
UNEVEN = "this regrouping of a dimension whose size is only known at run time is not supported"


# ---------------------------------------------------------------------------- sizes
def get_dimension_size(w: Writer, given: list[Padded]) -> list[Padded]:
    return [whole(w.size(given[0], w.op.int("dimension")))]


def set_dimension_size(w: Writer, given: list[Padded]) -> list[Padded]:
    """Sets the valid size of a dimension; the tensor stays the same."""
    x, d = given[0], w.op.int("dimension")
    n = w.as_i32(given[1].value)
    w.check_size(n, w.size(x, d), f"{{0}} is not a size of dimension {d}, which has {{1}}")
    return [Padded(x.value, (*x.sizes[:d], n, *x.sizes[d + 1 :]))]


def _computed(w: Writer, numbers: Sequence[Value]) -> Padded:
    """Returns a placeholder for the result with the shape that the given i32 specify: extents from the result's type,
    and sizes."""
    t = w.op.result.tensor
    sizes: list[Value | None] = []
    extents: list[int] = []
    for d, (number, n, bound) in enumerate(zip(numbers, t.shape or (), bounds_of(t), strict=True)):
        if n is None and bound is None:
            raise w.refuse(f"dimension {d} of its result has a size that is only known at run time: {BOUND_HELPS}")
        if n is None:
            w.check_size(number, w.number(bound or 0), TOO_MANY.format(d))
        else:
            w.check_equal(number, w.number(n))
        extents.append(n if n is not None else bound or 0)
        sizes.append(number if n is None else None)
    return Padded(mk.constant(w.rw, tensor(tuple(extents), t.dtype), 0), tuple(sizes))


def _elements(w: Writer, vector: Padded) -> list[Value]:
    if not vector.is_whole or vector.value.tensor.storage.kind not in ("i", "u"):
        raise w.refuse("expected the shape to be a vector of integers of known length")
    return [w.element(vector.value, i) for i in range(vector.extents[0])]


def dynamic_iota(w: Writer, given: list[Padded]) -> list[Padded]:
    shape = _computed(w, _elements(w, given[0]))
    return [Padded(mk.iota(w.rw, shape.value.tensor, w.op.int("iota_dimension")), shape.sizes)]


def dynamic_broadcast_in_dim(w: Writer, given: list[Padded]) -> list[Padded]:
    x, shape = given[0], _computed(w, _elements(w, given[1]))
    where, fixed = w.op.ints("broadcast_dimensions"), w.op.ints("known_nonexpanding_dimensions", ())
    for i, d in enumerate(where):
        if x.sizes[i] is not None and i not in fixed:
            x = _repeated(w, x, i, shape.extents[d], w.size(shape, d))
        elif x.sizes[i] is not None or x.extents[i] != 1:
            w.check_equal(w.size(x, i), w.size(shape, d))
            x = Padded(w.cut(x, [shape.extents[d] if j == i else n for j, n in enumerate(x.extents)]), x.sizes)
    return [Padded(mk.broadcast(w.rw, x.value, shape.extents, where), shape.sizes)]


def _repeated(w: Writer, x: Padded, d: int, extent: int, size: Value) -> Padded:
    """Returns the tensor with a given extent in dimension d. A single valid element is repeated; otherwise there must
    be `size` valid elements."""
    rw, n = w.rw, w.size(x, d)
    is_one = mk.compare(rw, "EQ", n, w.number(1))
    differs = mk.compare(rw, "NE", n, size)
    w.check(
        mk.apply(rw, "and", mk.apply(rw, "not", is_one), differs), "a dimension of {0} is no dimension of {1}", n, size
    )
    shape = [extent if i == d else m for i, m in enumerate(x.extents)]
    value = w.cut(x, shape)
    if x.extents[d] > 0:
        first = mk.broadcast(rw, mk.slice_dim(rw, x.value, d, 0, 1), shape, range(x.rank))
        value = rw.emit1("stablehlo.select", [is_one, first, value], value.type)
    return Padded(value, x.sizes)


def real_dynamic_slice(w: Writer, given: list[Padded]) -> list[Padded]:
    """A window as large as the result's bounds, from the start indices. The tensor is padded so that the window
    fits."""
    x, (starts, limits, strides) = given[0], given[1:]
    if any(k != 1 for k in constant_ints(strides.value) or (0,)):
        raise w.refuse("the strides must be 1 if the size of the result is only known at run time")
    first, last = _elements(w, starts), _elements(w, limits)
    for d, (a, b) in enumerate(zip(first, last, strict=True)):
        w.check_size(b, w.size(x, d), f"the limit {{0}} is beyond dimension {d}, which has {{1}}")
        w.check_size(a, b, f"it starts at {{0}} and ends at {{1}} in dimension {d}")
    shape = _computed(w, [w.subtract(b, a) for a, b in zip(first, last, strict=True)])
    return [Padded(_window(w, x.value, first, shape), shape.sizes)]


def _window(w: Writer, x: Value, starts: Sequence[Value], like: Padded) -> Value:
    """Returns the elements from `starts` on, with arbitrary values beyond the tensor; starts are within the tensor."""
    extents, zeros = like.extents, [0] * like.rank
    more = [max(0, n - m) if size is None else n
            for n, m, size in zip(extents, x.tensor.extents, like.sizes, strict=True)]  # fmt: skip
    padded = mk.pad(w.rw, x, 0, zeros, more, zeros)
    t = tensor(extents, x.tensor.dtype)
    return w.rw.emit1("stablehlo.dynamic_slice", [padded, *starts], t, {"slice_sizes": mk.dims(extents)})


def _along(w: Writer, rank: int, d: int, start: Value) -> list[Value]:
    """Returns the corner that is `start` in one dimension, and 0 in the others."""
    return [start if i == d else w.number(0) for i in range(rank)]


# ---------------------------------------------------------------------------- index maps
def transpose(w: Writer, given: list[Padded]) -> list[Padded]:
    order = w.op.ints("permutation")
    return [Padded(mk.transpose(w.rw, given[0].value, order), tuple(given[0].sizes[d] for d in order))]


def broadcast_in_dim(w: Writer, given: list[Padded]) -> list[Padded]:
    x, where, t = given[0], w.op.ints("broadcast_dimensions"), w.op.result.tensor
    extents: list[int | None] = list(t.shape or ())
    sizes: list[Value | None] = [None] * t.rank
    for i, d in enumerate(where):
        n = extents[d]
        if n is None:
            extents[d], sizes[d] = x.extents[i], x.sizes[i]
        elif x.sizes[i] is not None:
            x = _repeated(w, x, i, n, w.number(n))
    if None in extents:
        raise w.refuse(f"dimension {extents.index(None)} of its result has a size that no operand has")
    return [Padded(mk.broadcast(w.rw, x.value, [n or 0 for n in extents], where), tuple(sizes))]


def reshape(w: Writer, given: list[Padded]) -> list[Padded]:
    """Maps each bounded dimension to one of the result, with the dimensions after it multiplied in or divided out. If
    the result is static, a single bounded dimension becomes static, too."""
    x, t = given[0], w.op.result.tensor
    bounded = [d for d, n in enumerate(x.sizes) if n is not None]
    if t.is_static and len(bounded) == 1:
        return [whole(mk.reshape(w.rw, _counted(w, x, bounded[0], t.size), t.extents))]
    before = _runs(x.extents, [n is not None for n in x.sizes])
    after = _runs([n or 0 for n in t.shape or ()], [n is None for n in t.shape or ()])
    if len(before) != len(after) or before[0] != after[0]:
        raise w.refuse(UNEVEN)
    parts = [_regrouped(w, x, d, a, b) for d, a, b in zip(bounded, before[1:], after[1:], strict=True)]
    extents = list(x.extents)
    for d, (padded, _, _) in zip(bounded, parts, strict=True):
        extents[d] = padded
    largest, sizes = iter([n for _, n, _ in parts]), iter([n for _, _, n in parts])
    shape = [next(largest) if n is None else n for n in t.shape or ()]
    value = mk.reshape(w.rw, w.cut(x, extents), shape)
    return [Padded(value, tuple(next(sizes) if n is None else None for n in t.shape or ()))]


def _counted(w: Writer, x: Padded, d: int, size: int) -> Value:
    """Returns the tensor cut to the extent of dimension d at which it has `size` elements."""
    rest = math.prod(mk.drop_dim(x.extents, d))
    if not rest or size % rest:
        raise w.refuse(UNEVEN)
    extents = [size // rest if i == d else n for i, n in enumerate(x.extents)]
    return w.fitted(x, extents, extents).value


def _regrouped(w: Writer, x: Padded, d: int, a: int, b: int) -> tuple[int, int, Value]:
    """Regroups a dimension that has `a` known elements after it before the reshape, and `b` after. Returns its extent
    before the reshape, and its extent and size after."""
    n, extent = w.size(x, d), x.extents[d]
    if a == b:
        return extent, extent, n
    if b and a % b == 0:
        return extent, extent * (a // b), mk.apply(w.rw, "multiply", n, w.number(a // b))
    if not a or b % a:
        raise w.refuse(UNEVEN)
    parts = w.number(b // a)
    left = mk.compare(w.rw, "NE", mk.apply(w.rw, "remainder", n, parts), w.number(0))
    w.check(left, f"dimension {d} has {{0}}, which is no multiple of {{1}}", n, parts)
    extent = -(-extent // (b // a))
    return extent * (b // a), extent, mk.apply(w.rw, "divide", n, parts)


def _runs(extents: Sequence[int], is_bounded: Sequence[bool]) -> list[int]:
    """Returns the products of the known extents before the first bounded dimension, and after each."""
    found = [1]
    for n, bounded in zip(extents, is_bounded, strict=True):
        if bounded:
            found.append(1)
        else:
            found[-1] = math.prod((found[-1], n))
    return found


def dynamic_reshape(w: Writer, given: list[Padded]) -> list[Padded]:
    """Like `reshape`, but the shape operand must match the resulting sizes."""
    (result,) = reshape(w, given[:1])
    for d, n in enumerate(_elements(w, given[1])):
        w.check_equal(n, w.size(result, d))
    return [result]


def reverse(w: Writer, given: list[Padded]) -> list[Padded]:
    """Reverses; the valid elements, which are last then, are moved to the front."""
    (x,) = given
    value = w.again([x.value])[0]
    for d in w.op.ints("dimensions"):
        n = x.sizes[d]
        if n is not None:
            start = w.subtract(w.number(x.extents[d]), n)
            value = _window(w, value, _along(w, x.rank, d, start), x)
    return [Padded(value, x.sizes)]


def slice_(w: Writer, given: list[Padded]) -> list[Padded]:
    (x,) = given
    for d, limit in enumerate(w.op.ints("limit_indices")):
        if x.sizes[d] is not None:
            message = f"the limit {{0}} is beyond dimension {d}, which has {{1}}"
            w.check_most(w.number(limit), w.size(x, d), message)
    return [whole(v) for v in w.again([x.value])]


def pad(w: Writer, given: list[Padded]) -> list[Padded]:
    """Pads; invalid elements become padding, too."""
    x, number = given
    value = w.again([w.filled(x, range(x.rank), number.value), number.value])[0]
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    sizes: list[Value | None] = []
    for d, (low, high, interior) in enumerate(zip(*(w.op.ints(name) for name in names), strict=True)):
        n = x.sizes[d]
        if n is not None:
            between = w.subtract(n, mk.apply(w.rw, "minimum", n, w.number(1)))
            spread = mk.apply(w.rw, "multiply", between, w.number(interior))
            n = w.add(w.add(n, spread), w.number(low + high))
            w.check_most(w.number(0), n, f"padding leaves dimension {d} {{1}} elements")
        sizes.append(n)
    return [Padded(value, tuple(sizes))]


# ---------------------------------------------------------------------------- parts
def concatenate(w: Writer, given: list[Padded]) -> list[Padded]:
    """Writes each operand where the previous one ends."""
    axis = w.op.int("dimension")
    equal = {d: w.same([(x, d) for x in given]) for d in range(given[0].rank) if d != axis}
    parts = [w.cut(x, [equal[d][0] if d in equal else n for d, n in enumerate(x.extents)]) for x in given]
    sizes = [equal[d][1] if d in equal else None for d in range(given[0].rank)]
    value, end = parts[0], w.size(given[0], axis)
    if all(x.sizes[axis] is None for x in given):
        return [Padded(w.again(parts)[0], tuple(sizes))]
    more = [0] * len(sizes)
    more[axis] = sum(x.extents[axis] for x in given[1:])
    value = mk.pad(w.rw, value, 0, [0] * len(sizes), more, [0] * len(sizes))
    for x, part in zip(given[1:], parts[1:], strict=True):
        corner = _along(w, x.rank, axis, end)
        value = w.rw.emit1("stablehlo.dynamic_update_slice", [value, part, *corner], value.type)
        end = w.add(end, w.size(x, axis))
    sizes[axis] = end
    return [Padded(value, tuple(sizes))]


def _corner(w: Writer, x: Padded, part: Padded, starts: Sequence[Padded]) -> list[Value]:
    """Returns the start of a part within the valid elements of x."""
    corner = []
    for d, start in enumerate(starts):
        n, m = w.size(x, d), w.size(part, d)
        if x.sizes[d] is not None or part.sizes[d] is not None:
            w.check_most(m, n, TAKEN.format(d))
        corner.append(w.clamp(w.number(0), w.as_i32(start.value), w.subtract(n, m)))
    return corner


def dynamic_slice(w: Writer, given: list[Padded]) -> list[Padded]:
    x, starts = given[0], given[1:]
    part = Padded(mk.constant(w.rw, w.op.result.tensor, 0), (None,) * x.rank)
    return [whole(v) for v in w.again([x.value, *_corner(w, x, part, starts)])]


def dynamic_update_slice(w: Writer, given: list[Padded]) -> list[Padded]:
    """Updates the valid part; elsewhere the old elements are written again. The operand is padded so that the update
    fits."""
    x, part, starts = given[0], given[1], given[2:]
    corner = _corner(w, x, part, starts)
    if part.is_whole:
        return [Padded(w.again([x.value, part.value, *corner])[0], x.sizes)]
    more = [0 if size is None else m for m, size in zip(part.extents, part.sizes, strict=True)]
    larger = w.cut(x, [n + m for n, m in zip(x.extents, more, strict=True)])
    attributes = {"slice_sizes": mk.dims(part.extents)}
    there = w.rw.emit1("stablehlo.dynamic_slice", [larger, *corner], part.value.type, attributes)
    inside = w.inside(part, range(part.rank))
    assert inside is not None
    update = mk.apply(w.rw, "select", inside, part.value, there)
    new = w.rw.emit1("stablehlo.dynamic_update_slice", [larger, update, *corner], larger.type)
    return [Padded(w.cut(Padded(new, x.sizes), x.extents), x.sizes)]


def gather(w: Writer, given: list[Padded]) -> list[Padded]:
    """Gathers a slice for every index; slices of invalid indices are arbitrary. If not all of the tensor is valid,
    indices are clamped to its valid part."""
    x, indices = given
    numbers, slices = w.op.attributes["dimension_numbers"], w.op.ints("slice_sizes")
    vector = int(numbers.get("index_vector_dim", 0))
    if dims_of(numbers, "operand_batching_dims"):
        raise w.refuse("with batching dimensions, sizes that are only known at run time are not compiled")
    if vector < indices.rank and indices.sizes[vector] is not None:
        raise w.refuse("the length of an index must be known, but is only known at run time")
    for d in (d for d, n in enumerate(x.sizes) if n is not None):
        w.check_most(w.number(slices[d]), w.size(x, d), TAKEN.format(d))
    places = indices.value
    lasts = [w.subtract(w.size(x, d), w.number(slices[d])) for d in dims_of(numbers, "start_index_map")]
    if lasts and not x.is_whole:
        last = mk.concatenate(w.rw, [mk.reshape(w.rw, n, (1,)) for n in lasts], 0)
        if vector == indices.rank:
            last = mk.reshape(w.rw, last, ())
        limits = mk.broadcast(w.rw, last, indices.extents, (vector,) if vector < indices.rank else ())
        places = w.as_i32(places)
        places = w.clamp(mk.splat_like(w.rw, places, 0), places, limits)
    (value,) = w.again([x.value, places])
    batch = iter([n for d, n in enumerate(indices.sizes) if d != vector])
    offsets = dims_of(numbers, "offset_dims")
    return [Padded(value, tuple(None if d in offsets else next(batch) for d in range(value.tensor.rank)))]


def optimization_barrier(w: Writer, given: list[Padded]) -> list[Padded]:
    """Emits the barrier for the tensors only, not for their sizes."""
    return [Padded(v, x.sizes) for v, x in zip(w.again([x.value for x in given]), given, strict=True)]


RULES: dict[str, Rule] = {
    "stablehlo.get_dimension_size": get_dimension_size,
    "stablehlo.set_dimension_size": set_dimension_size,
    "stablehlo.dynamic_iota": dynamic_iota,
    "stablehlo.dynamic_broadcast_in_dim": dynamic_broadcast_in_dim,
    "stablehlo.dynamic_reshape": dynamic_reshape,
    "stablehlo.real_dynamic_slice": real_dynamic_slice,
    "stablehlo.transpose": transpose,
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.reshape": reshape,
    "stablehlo.reverse": reverse,
    "stablehlo.slice": slice_,
    "stablehlo.pad": pad,
    "stablehlo.concatenate": concatenate,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.gather": gather,
    "stablehlo.optimization_barrier": optimization_barrier,
}
