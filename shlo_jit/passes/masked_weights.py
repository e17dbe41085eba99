"""Which elements of the weights of attention a mask makes exactly zero.

    s' = select(mask, s, -inf); e = exponential(s' - max(s')); w = e / sum(e)    ->   w is 0 where `mask` is false

A row of w is the last dimension. Reductions over rows give the same values without the elements that are masked: these
are neutral for them. So a row program that computes w may leave out ranges of masked elements.

A score that is NaN or infinite, or a row without any, may make a masked weight NaN. This is harmless if all weights of
the row are NaN then, as it is for the maximum and the sum of the row itself. So products with the weights that are left
are NaN, too, unless another mask hides these weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from shlo_jit.ir.core import Op, Value
from shlo_jit.ops import is_elementwise
from shlo_jit.passes.intervals import (
    BROADCAST,
    DEPTH,
    RESHAPE,
    TRANSPOSE,
    Place,
    bounds_of,
    same,
    splat,
    through,
    varying,
)

LOW = -1e9
"""Mask values up to this one are taken for large negative numbers."""
LOW_F16 = -(2.0**14)
"""The same for `f16`, which has no numbers below -65504."""
VERY_LOW = -1e30
"""Exponentials of this number or less are 0 beside that of any number above it times SCORES."""
SCORES = 0.1
MOVES = (RESHAPE, TRANSPOSE, BROADCAST)
HOLDS = {"f64": {"f64", "f32", "f16", "bf16"}, "f32": {"f32", "f16", "bf16"}, "f16": {"f16"}, "bf16": {"bf16"}}
"""Types of numbers with infinities -> types whose numbers they hold exactly."""


class Kind(Enum):
    """What the masked elements of a value are."""

    ZERO = "zero"
    LOW = "-inf, or a number so low that its exponential beside that of any other score is 0"


@dataclass
class MaskedWeights:
    """A value whose elements are of a kind where one of some masks is false."""

    kind: Kind
    masks: tuple[Mask, ...]
    is_exact: bool
    """Whether that holds whatever the numbers are that are not masked. If `may_be_nan`: or all numbers of the row are
    NaN."""
    discards: bool = True
    """Whether the elements that are masked may be computed from any numbers, even NaN."""
    scores: Value | None = None
    """The scores before they are masked, if masks choose between them and numbers of VERY_LOW or less."""
    may_be_nan: bool = False
    """Whether numbers of the row have been combined with it: the maximum or the sum of the row, or others."""
    has_one: bool = False
    """Whether the largest number of each row, or its exponential, is 1, or NaN."""


@dataclass(frozen=True)
class Mask:
    """A mask of the elements of a value: truth values, or numbers that are added to scores and leave those out to which
    they add LOW or less. The ops in `path`, from the innermost, lead from the value with the mask's
    shape to the value asked for. They reshape, transpose or broadcast dimensions before the last one."""

    value: Value
    path: tuple[Op, ...] = ()


Known = dict[Value, "MaskedWeights | None"]
"""What masks do to values that have been looked at: operands that ops share are looked at once."""


def masked_of(value: Value) -> MaskedWeights | None:
    """Returns what masks do to the elements of a value, if they make all masked elements zero or low."""
    return _masked(value, DEPTH, {})


def _masked(value: Value, depth: int, known: Known) -> MaskedWeights | None:
    if value not in known:
        known[value] = _masked_by_op(value, depth, known)
    return known[value]


def _masked_by_op(value: Value, depth: int, known: Known) -> MaskedWeights | None:
    op = value.op
    if op is None or not depth or not value.tensor.rank:
        return None
    name = op.name.removeprefix("stablehlo.")
    if name in ("reshape", "transpose", "broadcast_in_dim"):
        return _moved(op, depth, known)
    if name == "select":
        return _selected(op, depth, known)
    if not is_elementwise(op) or not op.operands:
        return None
    if name in ("convert", "exponential"):
        found = _masked(op.operands[0], depth - 1, known)
        if found is None:
            return None
        if name == "convert":
            return _converted(op, found)
        return replace(found, kind=Kind.ZERO) if found.kind is Kind.LOW else None
    if name in ("subtract", "divide", "multiply", "add"):
        return _combined(op, name, depth, known)
    return None


def _converted(op: Op, found: MaskedWeights) -> MaskedWeights | None:
    """Looks through a conversion to a type with infinities. A smaller type may make scores infinite."""
    before, after = (v.tensor.storage.name for v in (op.operands[0], op.result))
    if after not in HOLDS:
        return None
    keeps = found.kind is Kind.ZERO or before in HOLDS[after]
    return found if keeps else replace(found, scores=None)


def _moved(op: Op, depth: int, known: Known) -> MaskedWeights | None:
    """Looks through an op that keeps the last dimension."""
    before, after = op.operands[0].tensor.extents, op.result.tensor.extents
    if not before or before[-1] != after[-1]:
        return None
    if op.name == TRANSPOSE and op.ints("permutation")[-1] != len(before) - 1:
        return None
    if op.name == BROADCAST and op.ints("broadcast_dimensions")[-1] != len(after) - 1:
        return None
    found = _masked(op.operands[0], depth - 1, known)
    if found is None:
        return None
    masks = tuple(Mask(m.value, (*m.path, op)) for m in found.masks)
    return replace(found, masks=masks)


def _selected(op: Op, depth: int, known: Known) -> MaskedWeights | None:
    predicate, chosen, other = op.operands
    inner = _masked(chosen, depth - 1, known)
    number = splat(other)
    number = None if isinstance(number, complex) else number
    kind = None if number is None else _kind_of(number, other)
    if number is not None and kind is not None:
        if inner is not None and kind is inner.kind:
            return _selected_again(op, inner, number)
        own = _own_mask(predicate, op)
        scores = chosen if number <= VERY_LOW else None
        return MaskedWeights(kind, own, _is_exact(kind, number), scores=scores) if own else None
    first = splat(chosen)
    if first is not None and _kind_of(first, chosen) is Kind.ZERO:
        found = _masked(other, depth - 1, known)
        if found is None or found.kind is not Kind.ZERO or (found.may_be_nan and _varies_in_row(predicate, op)):
            return None
        return replace(found, has_one=False)
    return None


def _is_exact(kind: Kind, number: float) -> bool:
    """Whether weights of masked elements are exactly 0, whatever the other scores are."""
    return kind is Kind.ZERO or number == -math.inf


def _selected_again(op: Op, inner: MaskedWeights, number: float) -> MaskedWeights | None:
    """What is masked already and masked again by numbers of the same kind."""
    kind, predicate = inner.kind, op.operands[0]
    if not _varies_in_row(predicate, op):
        # whole rows are masked: without their masks, their weights would be equal
        scores = inner.scores if kind is Kind.ZERO else None
        return replace(inner, has_one=False, scores=scores) if _is_exact(kind, number) else None
    own = _own_mask(predicate, op)
    if not own:
        return None
    is_exact = _is_exact(kind, number)
    if not inner.may_be_nan:
        scores = inner.scores if number <= VERY_LOW else None
        return MaskedWeights(kind, (*inner.masks, *own), inner.is_exact and is_exact, inner.discards, scores)
    # rows of NaN only show where this mask leaves them, so only this one counts
    is_known = any(not m.path and same(m.value, predicate) for m in inner.masks)
    is_interval = bounds_of(predicate, predicate.tensor.rank - 1) is not None
    return MaskedWeights(kind, own, is_exact) if is_known or is_interval else None


def _varies_in_row(predicate: Value, op: Op) -> bool:
    last = op.result.tensor.rank - 1
    return predicate.tensor.rank == last + 1 and last in varying(predicate)


def _own_mask(predicate: Value, op: Op) -> tuple[Mask, ...]:
    return (Mask(predicate),) if _varies_in_row(predicate, op) else ()


def _kind_of(number: float | complex, value: Value) -> Kind | None:
    """The kind of a constant that stands for masked elements."""
    t = value.tensor.storage
    if not t.is_float or isinstance(number, complex):
        return None
    if number == 0:
        return Kind.ZERO
    return Kind.LOW if number <= (LOW_F16 if t.name == "f16" else LOW) else None


def _combined(op: Op, name: str, depth: int, known: Known) -> MaskedWeights | None:
    left, right = op.operands
    last = op.result.tensor.rank - 1
    one = _masked(left, depth - 1, known)
    if name in ("multiply", "add") and one is None:
        left, right = right, left
        one = _masked(left, depth - 1, known)
    if one is None and name == "add":
        biases = [v for v in op.operands if _adds_low_numbers(v)]
        return MaskedWeights(Kind.LOW, (Mask(biases[0]),), is_exact=False, discards=False) if len(biases) == 1 else None
    if one is None:
        return None
    by_row = last not in varying(right)
    if one.kind is Kind.ZERO:
        if name in ("multiply", "divide") and by_row:
            return _scaled(one, name, left, right)
        return replace(one, has_one=False) if name == "multiply" and is_truth(right) else None
    factor = splat(right)
    if name in ("multiply", "divide"):
        return one if isinstance(factor, float) and 0 < factor < math.inf and one.is_exact else None
    if name == "subtract" and by_row:
        return _shifted(one, left, right)
    # a sum is low if the other number is neither NaN nor infinite, which only a caller may know
    return replace(one, is_exact=False, discards=False, scores=None, has_one=False) if name == "add" else None


def _shifted(one: MaskedWeights, left: Value, right: Value) -> MaskedWeights:
    """Low numbers minus a number for each row. They stay low without a promise if it is a finite constant, or the
    maximum of the row: if that is infinite or NaN, so are other scores."""
    number = splat(right)
    if isinstance(number, float) and math.isfinite(number):
        return replace(one, scores=None, has_one=False)
    found = _reduction(left, right, "stablehlo.maximum")
    if found is not None and found.is_exact and not found.is_inverse:
        return replace(one, may_be_nan=True, has_one=all(x == -math.inf for x in found.limits))
    return _promised(one)


def _scaled(one: MaskedWeights, name: str, left: Value, right: Value) -> MaskedWeights:
    """Zeros times or over a number for each row. They stay zero without a promise if it is a constant, or the sum of
    the row: if that is 0, so are all weights."""
    number = splat(right)
    if isinstance(number, float) and (math.isfinite(number) if name == "multiply" else abs(number) > 0):
        return replace(one, has_one=False)
    found = _reduction(left, right, "stablehlo.add")
    if found is not None and found.is_inverse == (name == "multiply"):
        is_exact = found.is_same_type and not found.is_inverse and _is_positive(left)
        if one.has_one or is_exact:
            return replace(one, may_be_nan=True, has_one=False)
    return _promised(one)


def _promised(one: MaskedWeights) -> MaskedWeights:
    """Drops guarantees: masked elements are zero or low only if the number of each row is finite and, as a divisor, not
    0."""
    return replace(one, is_exact=False, scores=None, may_be_nan=True, has_one=False)


class Reduction(NamedTuple):
    """A number for each row that is computed from the row."""

    limits: tuple[float, ...]
    """For a maximum: constants that it is not below."""
    is_exact: bool
    """Whether all types on the way hold the numbers of the row."""
    is_same_type: bool
    """Whether all values on the way have the same type."""
    is_inverse: bool
    """Whether the number is 1 over the reduction."""


def _reduction(left: Value, right: Value, reducer: str) -> Reduction | None:
    """Returns the reduction that `right` holds for each row of `left`: of `left`, or of a value that `left` is only
    moved or converted from. None if it is something else."""
    if left.tensor.rank != right.tensor.rank:
        return None
    place, limits, is_inverse = Place(right, tuple(range(right.tensor.rank))), [], False
    types = {left.tensor.storage.name}
    for _ in range(DEPTH):
        op = place.value.op
        types.add(place.value.tensor.storage.name)
        if op is None:
            return None
        if op.name == "stablehlo.reduce":
            break
        inner = _before(place)
        if inner is None and op.name == reducer == "stablehlo.maximum":
            numbers = [splat(v) for v in op.operands]
            known = [i for i, x in enumerate(numbers) if isinstance(x, float)]
            if len(known) == 1:
                limits.append(numbers[known[0]])
                inner = Place(op.operands[1 - known[0]], place.dims)
        elif inner is None and op.name == "stablehlo.divide" and splat(op.operands[0]) == 1 and not is_inverse:
            inner, is_inverse = Place(op.operands[1], place.dims), True
        if inner is None or inner.value.tensor.rank != len(inner.dims):
            return None
        place = inner
    return _reduction_of_row(left, place, reducer, limits, types, is_inverse)


def _reduction_of_row(
    left: Value, place: Place, reducer: str, limits: list[float], types: set[str], is_inverse: bool
) -> Reduction | None:
    """The reduction that `place` is, if it reduces the rows of `left`."""
    op, last = place.value.op, left.tensor.rank - 1
    if op is None or _reducer(op) != reducer:
        return None
    reduced, initial = op.operands
    start = splat(initial)
    if op.ints("dimensions") != (reduced.tensor.rank - 1,):
        return None
    if not isinstance(start, float) or (reducer == "stablehlo.add" and start != 0) or last in place.dims:
        return None
    limits = [*limits, start] if reducer == "stablehlo.maximum" else []
    rows = _chain(Place(reduced, (*place.dims, last)))
    own = _chain(Place(left, tuple(range(last + 1))))
    for i, x in enumerate(own):
        for j, y in enumerate(rows):
            if _is_same_place(x, y):
                row = x.value.tensor.storage.name
                found = types | {p.value.tensor.storage.name for p in (*own[: i + 1], *rows[: j + 1])}
                is_exact = all(row in HOLDS.get(t, ()) for t in found)
                return Reduction(tuple(limits), is_exact, len(found) == 1, is_inverse) if found <= {*HOLDS} else None
    return None


def _reducer(op: Op) -> str | None:
    """The op that combines two elements, if a reduction of one tensor has no other."""
    if op.name != "stablehlo.reduce" or len(op.results) != 1 or len(op.block().ops) != 2:
        return None
    combined, end = op.block().ops
    is_plain = set(combined.operands) == set(op.block().arguments) and end.operands == combined.results
    return combined.name if is_plain else None


def _chain(place: Place) -> list[Place]:
    """A value, and what it is moved and converted from."""
    found: list[Place] = []
    inner: Place | None = place
    while inner is not None and len(found) < DEPTH:
        found.append(inner)
        inner = _before(inner)
    return found


def _before(place: Place) -> Place | None:
    """The operand of a conversion or a move."""
    op = place.value.op
    if op is not None and op.name == "stablehlo.convert":
        return Place(op.operands[0], place.dims)
    return through(op, place) if op is not None and op.name in MOVES else None


def _is_same_place(x: Place, y: Place) -> bool:
    extents = x.value.tensor.extents
    return same(x.value, y.value) and all(n == 1 or a == b for n, a, b in zip(extents, x.dims, y.dims, strict=True))


def _is_positive(value: Value, depth: int = DEPTH) -> bool:
    """Whether the elements of a value are exponentials or zeros, or NaN."""
    op = value.op
    if op is None or not depth:
        return False
    if op.name in MOVES or op.name == "stablehlo.convert":
        return _is_positive(op.operands[0], depth - 1)
    if op.name == "stablehlo.select":
        return all(splat(v) == 0 or _is_positive(v, depth - 1) for v in op.operands[1:])
    if op.name == "stablehlo.multiply":
        return any(is_truth(y) and _is_positive(x, depth - 1) for x, y in (op.operands, op.operands[::-1]))
    return op.name == "stablehlo.exponential"


def _adds_low_numbers(value: Value, depth: int = 6) -> bool:
    """Whether a few elementwise ops compute a value from a large negative number, and from no products."""
    whole, last = value, value.tensor.rank - 1
    if last < 0 or value.tensor.storage.name == "f16":
        return False
    todo, found = [(value, depth)], False
    while todo:
        value, depth = todo.pop()
        op, number = value.op, splat(value)
        if number is not None:
            found = found or _kind_of(number, value) is Kind.LOW
        elif op is not None and depth and (op.name in MOVES or is_elementwise(op)):
            todo += [(v, depth - 1) for v in op.operands]
        elif op is not None and op.name != "stablehlo.iota":
            return False
    return found and last in varying(whole)


def is_truth(value: Value, depth: int = DEPTH) -> bool:
    """Whether the elements of a value are converted from truth values."""
    op = value.op
    while op is not None and op.name in MOVES and depth:
        op, depth = op.operands[0].op, depth - 1
    return op is not None and op.name == "stablehlo.convert" and op.operands[0].tensor.storage.kind == "b"


def weights_of(value: Value) -> MaskedWeights | None:
    """Returns the masks of exponentials, or of what is computed from them, that are zero where the masks are false;
    None if there are none."""
    found = masked_of(value)
    is_zero = found is not None and found.kind is Kind.ZERO and found.masks
    return found if is_zero and _is_exponential(value) else None


def _is_exponential(value: Value) -> bool:
    """Whether a few elementwise ops compute a value from exponentials."""
    todo, seen = [(value, DEPTH)], set[Value]()
    while todo:
        value, depth = todo.pop()
        op = value.op
        if op is None or not depth or value in seen:
            continue
        seen.add(value)
        if op.name == "stablehlo.exponential":
            return True
        if op.name in MOVES or (is_elementwise(op) and len(op.operands) < 4):
            first = op.operands[1:] if op.name == "stablehlo.select" else op.operands[:1]
            todo += [(v, depth - 1) for v in first]
    return False


def is_neutral(op: Op, masks: tuple[Mask, ...], *, discards: bool = False) -> bool:
    """Whether elements of rows that one of the masks leaves out are neutral for a reduction over rows; with `discards`,
    whatever numbers they are computed from."""
    fits = {"stablehlo.maximum": Kind.LOW, "stablehlo.add": Kind.ZERO}.get(_reducer(op) or "")
    found = None if fits is None else masked_of(op.operands[0])
    if found is None or (discards and not found.discards):
        return False
    return found.kind is fits and all(any(_leads_to(k, m) for k in found.masks) for m in masks)


def _leads_to(mask: Mask, later: Mask) -> bool:
    """Whether a mask is the same as one of a value that is moved further."""
    return mask.value is later.value and later.path[: len(mask.path)] == mask.path
