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


class Bounded(NamedTuple):
    """A value none of whose elements is larger in magnitude than `factor` times the largest one of `source`."""

    factor: float
    source: Value | None
    """None: the largest magnitude is `factor`."""


def are_zeros(rw: Rewriter, value: Value) -> Value:
    """Emits an array of zeros and, if an element of a value is not finite, of other numbers too. It is smaller than the
    value if the value is computed from smaller arrays."""
    found = _bounded(value, DEPTH)
    dtype = value.tensor.storage
    is_known = found.source is None or found.source is value or mk.shape_of(found.source) == mk.shape_of(value)
    if is_known or dtype.bits < 32 or found.factor * ROUNDING >= 2.0**64:
        source = rw.get(value)
    else:
        assert found.source is not None
        source = mk.convert(rw, rw.get(found.source), dtype)
        source = mk.apply(rw, "multiply", source, mk.splat_like(rw, source, found.factor * ROUNDING))
    return mk.apply(rw, "multiply", source, mk.splat_like(rw, source, 0))


def _bounded(value: Value, left: int) -> Bounded:
    """Returns a bound of a value's elements. `left`: maximum ops that are looked through."""
    op, dtype, whole = value.op, value.tensor.storage, Bounded(1.0, value)
    if is_known_finite(value):
        return Bounded(LARGE, None)
    if op is None or not left or not dtype.is_float:
        return whole
    name = op.name.partition(".")[2]
    if op.name in MOVES or name == "negate":
        return _bounded(op.operands[0], left - 1)
    if name == "convert":
        return _converted(op.operands[0], value, left)
    if name in ("multiply", "add", "subtract"):
        x, y = (_bounded(v, left - 1) for v in op.operands)
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
        known = ends is not None and dtype.bits >= 32
        return Bounded(float(max(abs(ends[0]), abs(ends[1]), 1)), None) if ends and known else Bounded(1.0, value)
    is_wider = source.is_float and dtype.bits >= 32 and source.bits < dtype.bits
    if not is_wider:
        return Bounded(1.0, value)
    while operand.op is not None and operand.op.name in MOVES:  # arithmetic of a narrower type may overflow
        operand = operand.op.operands[0]
    return Bounded(1.0, operand)
