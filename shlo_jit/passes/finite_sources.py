"""Tests at run time whether all elements of a value are finite, by the smaller arrays that it is computed from.

    convert(w : i8) * s        is finite if s * 256 is

Weights of few bits are the products of bounded integers and scales, so the scales are read and not the weights. The
test may fail for finite values next to the largest number of the type, never succeed for others.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.ir.core import Value
from shlo_jit.ir.finite import LARGE, MOVES, is_known_finite
from shlo_jit.ops.integer_ranges import range_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter

DEPTH = 16
"""Ops in a row that are looked through."""
ROUNDING = 2.0
"""More than what rounding adds to the product of a few numbers."""
MOST_FACTOR = 2.0**64
"""Larger bounds are not used: scales times them may overflow f32 although the weights are finite."""


class Bounded(NamedTuple):
    """A value none of whose elements is larger in magnitude than `factor` times the largest one of `source`."""

    factor: float
    source: Value | None
    """None: the largest magnitude is `factor`."""


def are_zeros(rw: Rewriter, value: Value) -> Value:
    """Emits an array of zeros and, if an element of a value is not finite, of other numbers too. It is smaller than the
    value if the value is computed from smaller arrays."""
    found = _bounded(value, DEPTH, {})
    dtype = value.tensor.storage
    if found.source is None or mk.shape_of(found.source) == mk.shape_of(value) or not _is_useful(found, value):
        source = rw.get(value)
    else:
        source = mk.convert(rw, rw.get(found.source), dtype)
        source = mk.apply(rw, "multiply", source, mk.splat_like(rw, source, found.factor * ROUNDING))
    return mk.apply(rw, "multiply", source, mk.splat_like(rw, source, 0))


def is_bounded(value: Value) -> bool:
    """Whether all elements of a value are finite, because it is computed from constants and bounded integers only."""
    found = _bounded(value, DEPTH, {})
    return found.source is None and _is_useful(found, value)


def _is_useful(found: Bounded, value: Value) -> bool:
    """Whether a value is finite if a bound of its elements is."""
    return value.tensor.storage.bits >= 32 and found.factor * ROUNDING < MOST_FACTOR


Known = dict[Value, Bounded]
"""Bounds found so far: operands that several ops share are looked at once."""


def _bounded(value: Value, left: int, known: Known) -> Bounded:
    """Returns a bound of a value's elements. `left`: maximum ops that are looked through."""
    if value not in known:
        known[value] = _bounded_by_op(value, left, known)
    return known[value]


def _bounded_by_op(value: Value, left: int, known: Known) -> Bounded:
    op, dtype, whole = value.op, value.tensor.storage, Bounded(1.0, value)
    if is_known_finite(value):
        return Bounded(LARGE, None)
    if op is None or not left or not dtype.is_float:
        return whole
    name = op.name.partition(".")[2]
    if op.name in MOVES or name == "negate":
        return _bounded(op.operands[0], left - 1, known)
    if name == "convert":
        return _converted(op.operands[0], value, left)
    if name in ("multiply", "add", "subtract"):
        x, y = (_bounded(v, left - 1, known) for v in op.operands)
        if name == "multiply" and (x.source is None or y.source is None):
            return Bounded(x.factor * y.factor, y.source if x.source is None else x.source)
        if name != "multiply" and x.source is None and y.source is None:
            return Bounded(x.factor + y.factor, None)
    return whole


def _converted(operand: Value, value: Value, left: int) -> Bounded:
    """The bound of a conversion, if it is exact or its operand is an integer of known range."""
    source, dtype = operand.tensor.storage, value.tensor.storage
    if source.is_integer:
        ends = range_of(operand, left)
        if ends is None or dtype.bits < 32:
            return Bounded(1.0, value)
        return Bounded(float(max(abs(ends[0]), abs(ends[1]), 1)), None)
    is_wider = source.is_float and dtype.bits >= 32 and source.bits < dtype.bits
    if not is_wider:
        return Bounded(1.0, value)
    while operand.op is not None and operand.op.name in MOVES:  # arithmetic of a narrower type may overflow
        operand = operand.op.operands[0]
    return Bounded(1.0, operand)
