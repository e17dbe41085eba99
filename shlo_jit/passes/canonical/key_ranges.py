"""Find the range of keys that a mask leaves to each row of attention, so that no others are read or multiplied.

Needs: canonical products. Guarantees: nothing; such products are products in a range (`ops/ranged.py`).

    w = softmax(select(mask, s, -inf)); dot_general(w : [b, m, k], v : [b, k, n])
      ->   product_in_range(w, v, starts : [b, m], ends : [b, m])      where `mask` is false outside of [starts, ends)

Left out are products of zeros with rows of `v`, which matters if these are NaN or infinite. So `v` must be finite:
known at compile time, promised (`assume_finite`), or found so at run time, where many rows share it. A few rows that
read `v` from memory add these zeros: that reads the rest of `v`, but not the keys. Scores that are
not masked must be far from the mask's value, which is known if it is -inf. Otherwise it is promised as well, or follows
from the largest numbers of the product that the scores are (docs/accuracy.md).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.finite import is_known_finite
from shlo_jit.ir.types import F32, I64, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.ops.ranged import attributes_of
from shlo_jit.ops.runs import Roles, extents_of, is_split, roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.intervals import DEPTH, bounds_of, range_of, splat, varying
from shlo_jit.passes.masked_weights import LOW, MOVES, SCORES, VERY_LOW, Mask, MaskedWeights, weights_of
from shlo_jit.passes.rewriter import Rewriter, rewrite

PRODUCT = "stablehlo.dot_general"
SLICES = ("stablehlo.slice", "stablehlo.dynamic_slice")
UPDATES = ("stablehlo.dynamic_update_slice", "stablehlo.scatter")


def key_ranges(function: Op, context: Context) -> Op:
    """The function with products of masked weights replaced by products in a range."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != PRODUCT or not all(v.tensor.is_fixed and v.tensor.size for v in (*op.operands, op.result)):
            return None
        return _in_range(rw, op, operands, roles_of(op), context)

    return rewrite(function, visit)


def _in_range(rw: Rewriter, op: Op, operands: list[Value], r: Roles, context: Context) -> Sequence[Value] | None:
    weights, values = op.operands
    rank, order = weights.tensor.rank, (*r.lhs_batch, *r.lhs_free, *r.lhs_contracting)
    if is_split(op) or r.lhs_contracting != (rank - 1,):
        return None
    if mk.shape_of(weights)[-1] < tuning.RANGED_LEAST_KEYS or _is_concatenated(values):
        return None
    found = weights_of(weights)
    if found is None or not (found.is_exact or _finds_empty_rows(found)):
        return None
    tests = _tests(rw, op, r, found, context)
    if tests is None:
        return None
    starts, ends = (mk.transpose(rw, v, order[:-1]) for v in _range(rw, found, mk.shape_of(weights)))
    for test in () if isinstance(tests, Zeros) else tests:
        starts, ends = _only_if(rw, test(r), (starts, ends), mk.shape_of(weights)[-1])
    # the weights are written row by row, in the order of the product's rows
    rows = mk.transpose(rw, operands[0], order)
    batch = tuple(range(len(r.lhs_batch)))
    whole = mk.dot_numbers(batch, r.rhs_batch, (rank - 1,), r.rhs_contracting)
    ranged = [rows, operands[1], starts, ends]
    attributes = attributes_of(whole, adds_zeros=isinstance(tests, Zeros))
    return [rw.emit1("stablehlo.custom_call", ranged, op.result.type, attributes)]


def _is_concatenated(value: Value) -> bool:
    """Whether a value is put together from segments, which a product reads one after the other."""
    while value.op is not None and value.op.name in ("stablehlo.reshape", "stablehlo.transpose"):
        value = value.op.operands[0]
    return value.op is not None and value.op.name == "stablehlo.concatenate"


def _finds_empty_rows(found: MaskedWeights) -> bool:
    """Whether the range of a row that no key is left to is empty. Ranges of several masks may overlap although the
    masks have no key in common, unless they are intervals."""
    return len(found.masks) == 1 or all(bounds_of(m.value, m.value.tensor.rank - 1) for m in found.masks)


def _range(rw: Rewriter, found: MaskedWeights, shape: tuple[int, ...]) -> tuple[Value, Value]:
    """Emits the first key and the end of the keys that all masks may leave, for each row."""
    rows, keys = shape[:-1], shape[-1]
    starts = ends = None
    for mask in found.masks:
        low, high = (_along_path(rw, v, mask) for v in _range_of(rw, mask.value))
        starts = low if starts is None else mk.apply(rw, "maximum", starts, low)
        ends = high if ends is None else mk.apply(rw, "minimum", ends, high)
    assert starts is not None and ends is not None and mk.shape_of(starts) == rows
    if found.is_exact:
        return starts, ends
    # the scores of a row without keys are all the mask's value, so their weights are equal
    is_empty = mk.compare(rw, "GE", starts, ends)
    none, all_keys = mk.splat_like(rw, starts, 0), mk.splat_like(rw, ends, keys)
    return mk.apply(rw, "select", is_empty, none, starts), mk.apply(rw, "select", is_empty, all_keys, ends)


def _range_of(rw: Rewriter, mask: Value) -> tuple[Value, Value]:
    """Emits the range of a mask's last dimension outside of which it is false, for each index of the others."""
    shape, last = mk.shape_of(mask), mask.tensor.rank - 1
    dims = tuple(sorted(varying(mask) - {last}))
    small = tuple(shape[d] for d in dims)
    bounds = bounds_of(mask, last)
    if bounds:
        found = range_of(rw, bounds, dims, small, shape[last])
    else:
        value = rw.get(mask)
        if mask.tensor.storage.kind != "b":
            value = mk.compare(rw, "GT", value, mk.splat_like(rw, value, LOW))
        for d in range(last):
            value = value if d in dims else mk.slice_dim(rw, value, d, 0, 1)
        value = mk.reshape(rw, value, (*small, shape[last]))
        place = mk.iota(rw, tensor(mk.shape_of(value), I64), len(small))
        after = mk.apply(rw, "add", place, mk.splat_like(rw, place, 1))
        low = rw.emit1("stablehlo.select", [value, place, mk.splat_like(rw, place, shape[last])], place.type)
        high = rw.emit1("stablehlo.select", [value, after, mk.splat_like(rw, place, 0)], place.type)
        over = [len(small)]
        found = (mk.reduce(rw, "minimum", low, shape[last], over), mk.reduce(rw, "maximum", high, 0, over))
    return mk.broadcast(rw, found[0], shape[:-1], dims), mk.broadcast(rw, found[1], shape[:-1], dims)


def _along_path(rw: Rewriter, value: Value, mask: Mask) -> Value:
    """Applies the ops between the mask and the weights, without their last dimension."""
    for op in mask.path:
        if op.name == "stablehlo.reshape":
            value = mk.reshape(rw, value, mk.shape_of(op.result)[:-1])
        elif op.name == "stablehlo.broadcast_in_dim":
            value = mk.broadcast(rw, value, mk.shape_of(op.result)[:-1], op.ints("broadcast_dimensions")[:-1])
        else:
            value = mk.transpose(rw, value, op.ints("permutation")[:-1])
    return value


# ---------------------------------------------------------------------------- tests at run time
Test = Callable[[Roles], Value]
"""Emits a truth value for each batch of a product: whether keys may be left out."""


class Zeros(NamedTuple):
    """Instead of a test: products of 0 and the values that are left out are added."""


def _tests(rw: Rewriter, op: Op, r: Roles, found: MaskedWeights, context: Context) -> list[Test] | Zeros | None:
    """Returns the tests that are needed; None if they are impossible, or cost too much for few rows."""
    if context.assume_finite:
        return []
    tests: list[Test] = []
    is_few = extents_of(op)[1] < tuning.RANGED_LEAST_ROWS
    if not is_known_finite(op.operands[1]):
        if is_few and found.is_exact and _reads_cache(op, r, found):
            return Zeros()
        tests.append(lambda r: _are_finite(rw, op.operands[1], r))
    if not found.is_exact:
        product = None if found.scores is None else _product_of(found.scores)
        if product is None:
            return None
        tests.append(lambda r: _are_far(rw, *product))
    return None if tests and is_few else tests


def _reads_cache(op: Op, r: Roles, found: MaskedWeights) -> bool:
    """Whether a product of few rows reads its values, and that of the scores its keys, from memory: several products
    of values whose rows are read in registers."""
    weights, values = op.operands
    batch, m, *_ = extents_of(op)
    types = {v.tensor.storage.name for v in (weights, values, op.result)}
    product = None if found.scores is None else _product_under(found.scores)
    if product is None or len(types) > 1 or not types <= {"f32", "f64"}:
        return False
    is_enough = batch > 1 and m <= tuning.COMPUTED_OPERAND_ROWS
    is_enough = is_enough and mk.shape_of(weights)[-1] >= tuning.RANGED_ZEROS_KEYS
    are_rows = values.tensor.rank - 1 in r.rhs_free
    return is_enough and are_rows and _is_in_memory(values) and all(map(_is_in_memory, product.operands[1:]))


def _product_under(scores: Value) -> Op | None:
    """Returns the product that scores are computed from, one by one: they may be scaled, capped and moved."""
    for _ in range(DEPTH):
        op = scores.op
        if op is None or op.name == PRODUCT:
            return op
        others = [v for v in op.operands if splat(v) is None]
        if len(others) != 1 or not (op.name in MOVES or is_elementwise(op)):
            return None
        scores = others[0]
    return None


def _is_in_memory(value: Value) -> bool:
    """Whether a value is an argument, a state, one that an update has changed in part, or a row in a stack of these."""
    while value.op is not None and value.op.name in ("stablehlo.reshape", *SLICES, *UPDATES):
        if value.op.name in UPDATES:
            return True
        if value.op.name in SLICES and not _is_contiguous(value.op):
            return False
        value = value.op.operands[0]
    return value.op is None or value.op.name in ("stablehlo.while", "stablehlo.case", "stablehlo.if")


def _is_contiguous(slice: Op) -> bool:
    """Whether the elements of a slice are adjacent in its operand."""
    sizes, shape = mk.shape_of(slice.result), mk.shape_of(slice.operands[0])
    cut = [d for d, (size, n) in enumerate(zip(sizes, shape, strict=True)) if size != n]
    return not cut or all(size == 1 for size in sizes[: cut[-1]])


def _are_finite(rw: Rewriter, values: Value, r: Roles) -> Value:
    """Emits whether all values of a batch are finite: their products with 0 add up to 0."""
    values = rw.get(values)
    zeros = mk.apply(rw, "multiply", values, mk.splat_like(rw, values, 0))
    total = mk.reduce_sum(rw, zeros, [d for d in range(values.tensor.rank) if d not in r.rhs_batch])
    kept = sorted(r.rhs_batch)
    total = mk.transpose(rw, total, [kept.index(d) for d in r.rhs_batch])
    return mk.compare(rw, "EQ", total, mk.splat_like(rw, total, 0))


def _product_of(scores: Value) -> tuple[Op, float] | None:
    """Returns the product that scores are, and the largest number that it is multiplied by on the way to them. No type
    on the way has fewer numbers than `bf16`, whose largest ones are as large as those of `f32`."""
    factors: list[float] = []
    for _ in range(DEPTH):
        op = scores.op
        if op is None or scores.tensor.storage.name not in ("bf16", "f32", "f64"):
            return None
        if op.name == PRODUCT:
            is_float = all(v.tensor.storage.is_float for v in op.operands)
            most = max(accumulate(reversed(factors), operator.mul, initial=1.0))
            return (op, most) if is_float and math.isfinite(most) else None
        if op.name in (*MOVES, "stablehlo.convert"):
            scores = op.operands[0]
            continue
        numbers = [splat(v) for v in op.operands]
        places = [i for i, x in enumerate(numbers) if isinstance(x, float) and x and math.isfinite(x)]
        if len(places) != 1 or op.name not in ("stablehlo.multiply", "stablehlo.divide"):
            return None
        number = numbers[places[0]]
        assert isinstance(number, float)
        if op.name == "stablehlo.divide" and places != [1]:
            return None
        factors.append(abs(1 / number if op.name == "stablehlo.divide" else number))
        if math.isinf(factors[-1]):
            return None
        scores = op.operands[1 - places[0]]
    return None


def _are_far(rw: Rewriter, product: Op, factor: float) -> Value:
    """Emits whether all scores are far from the mask's value, since the largest numbers of both operands are small."""
    largest = []
    for operand in product.operands:
        wide = mk.convert(rw, rw.get(operand), F32)
        size = mk.apply(rw, "abs", wide)
        largest.append(mk.reduce(rw, "maximum", size, 0, range(operand.tensor.rank)))
    most = -VERY_LOW * SCORES / (factor * extents_of(product)[3])
    bound = mk.apply(rw, "multiply", *largest)
    return mk.compare(rw, "LT", bound, mk.splat_like(rw, bound, min(most, 3e38)))


def _only_if(rw: Rewriter, test: Value, found: tuple[Value, Value], keys: int) -> tuple[Value, Value]:
    """Emits ranges of all keys for batches that fail a test."""
    rows = mk.shape_of(found[0])
    passed = mk.broadcast(rw, test, rows, range(test.tensor.rank)) if rows else test
    starts = rw.emit1("stablehlo.select", [passed, found[0], mk.splat_like(rw, found[0], 0)], found[0].type)
    ends = rw.emit1("stablehlo.select", [passed, found[1], mk.splat_like(rw, found[1], keys)], found[1].type)
    return starts, ends
