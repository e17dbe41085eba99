"""Which elements of the weights of attention a mask makes exactly zero.

    s' = select(mask, s, -inf); e = exponential(s' - max(s')); w = e / sum(e)    ->   w is 0 where `mask` is false

A row of w is the last dimension. Reductions over rows give the same values without the elements that are masked: these
are neutral for them. So a row program that computes w may leave out ranges of masked elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from shlo_jit.ir.core import Op, Value
from shlo_jit.ops import is_elementwise
from shlo_jit.passes.intervals import DEPTH, splat, varying

LOW = -1e9
"""Mask values up to this one are taken for large negative numbers; likewise for `f16`, which has no such numbers."""
LOW_F16 = -(2.0**14)
VERY_LOW = -1e30
"""Exponentials of this number or less are 0 beside that of any number above it times SCORES."""
SCORES = 0.1
TRANSPOSE, BROADCAST = "stablehlo.transpose", "stablehlo.broadcast_in_dim"


MOVES = ("stablehlo.reshape", TRANSPOSE, BROADCAST)


class Kind(Enum):
    """What the masked elements of a value are."""

    ZERO = "zero"
    LOW = "-inf, or a number so low that its exponential beside that of any other score is 0"


@dataclass
class Masked:
    """A value whose elements are of a kind where one of some masks is false."""

    kind: Kind
    masks: tuple[Mask, ...]
    is_exact: bool
    """Whether that holds whatever the numbers are that are not masked."""
    discards: bool = True
    """Whether the elements that are masked may be computed from any numbers, even NaN."""
    scores: Value | None = None
    """The scores before they are masked, if masks choose between them and numbers of VERY_LOW or less."""


@dataclass(frozen=True)
class Mask:
    """A mask of the elements of a value: truth values, or numbers that are added to scores and leave those out to which
    they add LOW or less. The ops in `path`, from the innermost, lead from the value with the mask's
    shape to the value asked for. They reshape, transpose or broadcast dimensions before the last one."""

    value: Value
    path: tuple[Op, ...] = ()


Known = dict[Value, "Masked | None"]
"""What masks do to values that have been looked at: operands that ops share are looked at once."""


def masked_of(value: Value) -> Masked | None:
    """Returns what masks do to the elements of a value, if they make all masked elements zero or low."""
    return _masked(value, DEPTH, {})


def _masked(value: Value, depth: int, known: Known) -> Masked | None:
    if value not in known:
        known[value] = _masked_by_op(value, depth, known)
    return known[value]


def _masked_by_op(value: Value, depth: int, known: Known) -> Masked | None:
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
        if found is None or (name == "exponential" and found.kind is not Kind.LOW):
            return None
        return replace(found, kind=Kind.ZERO if name == "exponential" else found.kind)
    if name in ("subtract", "divide", "multiply", "add"):
        return _combined(op, name, depth, known)
    return None


def _moved(op: Op, depth: int, known: Known) -> Masked | None:
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


def _selected(op: Op, depth: int, known: Known) -> Masked | None:
    predicate, chosen, other = op.operands
    inner = _masked(chosen, depth - 1, known)
    number = splat(other)
    number = None if isinstance(number, complex) else number
    kind = None if number is None else _kind_of(number, other)
    if inner is not None and kind is not None and kind is inner.kind:
        own = _own_mask(predicate, op)
        is_exact = inner.is_exact and (kind is Kind.ZERO or number == -math.inf)
        scores = inner.scores if number is not None and number <= VERY_LOW else None
        return Masked(kind, (*inner.masks, *own), is_exact, inner.discards, scores)
    if kind is not None and predicate.tensor.rank == op.result.tensor.rank:
        own = _own_mask(predicate, op)
        scores = chosen if number is not None and number <= VERY_LOW else None
        is_exact = kind is Kind.ZERO or number == -math.inf
        return Masked(kind, own, is_exact, scores=scores) if own else None
    first = splat(chosen)
    if first is not None and _kind_of(first, chosen) is Kind.ZERO:
        found = _masked(other, depth - 1, known)
        return found if found is not None and found.kind is Kind.ZERO else None
    return None


def _own_mask(predicate: Value, op: Op) -> tuple[Mask, ...]:
    last = op.result.tensor.rank - 1
    is_mask = predicate.tensor.rank == last + 1 and last in varying(predicate)
    return (Mask(predicate),) if is_mask else ()


def _kind_of(number: float | complex, value: Value) -> Kind | None:
    """The kind of a constant that stands for masked elements."""
    t = value.tensor.storage
    if not t.is_float or isinstance(number, complex):
        return None
    if number == 0:
        return Kind.ZERO
    return Kind.LOW if number <= (LOW_F16 if t.name == "f16" else LOW) else None


def _combined(op: Op, name: str, depth: int, known: Known) -> Masked | None:
    left, right = op.operands
    last = op.result.tensor.rank - 1
    one = _masked(left, depth - 1, known)
    if name in ("multiply", "add") and one is None:
        left, right = right, left
        one = _masked(left, depth - 1, known)
    if one is None and name == "add":
        biases = [v for v in op.operands if _adds_low_numbers(v)]
        return Masked(Kind.LOW, (Mask(biases[0]),), is_exact=False, discards=False) if len(biases) == 1 else None
    if one is None:
        return None
    by_row = last not in varying(right)
    if one.kind is Kind.ZERO:
        is_finite = by_row or _is_truth(right)
        return one if (name == "multiply" and is_finite) or (name == "divide" and by_row) else None
    factor = splat(right)
    if name in ("multiply", "divide"):
        return one if isinstance(factor, float) and 0 < factor < math.inf and one.is_exact else None
    if name == "subtract" and by_row:
        return one
    # a sum is low if the other number is neither NaN nor infinite, which only a caller may know
    return replace(one, is_exact=False, discards=False, scores=None) if name == "add" else None


def _adds_low_numbers(value: Value, depth: int = 6) -> bool:
    """Whether a few elementwise ops compute a value from a large negative number, and from no products."""
    last = value.tensor.rank - 1
    if last < 0 or last not in varying(value) or value.tensor.storage.name == "f16":
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
    return found


def _is_truth(value: Value, depth: int = DEPTH) -> bool:
    """Whether the elements of a value are converted from truth values."""
    op = value.op
    while op is not None and op.name in MOVES and depth:
        op, depth = op.operands[0].op, depth - 1
    return op is not None and op.name == "stablehlo.convert" and op.operands[0].tensor.storage.kind == "b"


def weights_of(value: Value) -> Masked | None:
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
    if op.name != "stablehlo.reduce" or len(op.results) != 1 or len(op.block().ops) != 2:
        return False
    found = masked_of(op.operands[0])
    if found is None or (discards and not found.discards):
        return False
    reducer = op.block().ops[0].name
    fits = {"stablehlo.maximum": Kind.LOW, "stablehlo.add": Kind.ZERO}.get(reducer)
    known = {m.value for m in found.masks}
    return found.kind is fits and all(m.value in known for m in masks)
