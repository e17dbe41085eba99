"""Recognize values of wide integers that are bytes less a zero point.

The search looks through conversions, data movement, and additions and subtractions of values that are constant along
the contracting dimensions. Constants count as bytes if their elements fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import I8, I32, UI8, DType, storage_range, tensor
from shlo_jit.ops.type_algebra import constant_value
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.zero_points import Side
from shlo_jit.passes.rewriter import Rewriter
from shlo_jit.sizes import equal

MOVES = {"stablehlo." + n for n in ("transpose", "reshape", "broadcast_in_dim", "slice", "reverse")}
LARGEST_ZERO = 1 << 20
"""Largest magnitude of constant zero points: their products stay within 64 bits."""


@dataclass(frozen=True)
class Zero:
    """The subtracted zero point: a number, or a value times `sign`, whose dimensions correspond to some of the
    operand's."""

    value: int | Value | np.ndarray = 0
    along: tuple[int, ...] = ()
    """Dimensions of the operand that correspond to those dimensions of a value with more than one element, or to all
    dimensions of an array."""
    sign: int = 1

    def emit(self, rw: Rewriter) -> int | Value:
        value = self.value
        if isinstance(value, np.ndarray):
            return mk.constant(rw, tensor(value.shape, I32), value.astype(np.int32) * self.sign)
        if isinstance(value, int):
            return value * self.sign
        value = mk.reshape(rw, value, [n for n in mk.shape_of(value) if not equal(n, 1)])
        return value if self.sign == 1 else rw.emit1("stablehlo.negate", [value], value.type)


@dataclass(frozen=True)
class ByteOperand:
    """Bytes after some data movement, less a zero point. Elements are then within `low` to `high`, unless these are
    None."""

    source: Value | np.ndarray
    """A value of at most eight bits per element, or a constant whose elements fit `dtype`."""
    dtype: DType
    low: int | None
    high: int | None
    moves: tuple[Op, ...] = ()
    zero: Zero = Zero()

    @property
    def bound(self) -> int | None:
        """Largest magnitude of the elements, or None if it is not known."""
        return None if self.low is None or self.high is None else max(abs(self.low), abs(self.high))

    def holds(self, dtype: DType) -> bool:
        """Whether all elements are known to fit a type."""
        if self.low is None or self.high is None:
            return False
        least, most = storage_range(dtype)
        return least <= self.low and self.high <= most

    def emit(self, rw: Rewriter) -> Side:
        if isinstance(self.source, np.ndarray):
            value = mk.constant(rw, tensor(self.source.shape, self.dtype), self.source)
        else:
            value = mk.convert(rw, self.source, self.dtype)
        for op in self.moves:
            t = tensor(op.result.tensor.extents, self.dtype)
            value = rw.emit1(op.name, [value], t, op.attributes)
        return Side(value, self.zero.emit(rw), self.zero.along)


def byte_operand(value: Value, bits: int, kept: Sequence[int]) -> ByteOperand | None:
    """Returns the operand of a product as bytes less a zero point, which may differ along the dimensions `kept`, or
    None if it is not known to be that. The product's sums have `bits`: arithmetic of that width wraps like the sums."""
    return _Search(bits).operand(value, tuple(kept), tuning.BYTE_SEARCH)


class _Search:
    def __init__(self, bits: int) -> None:
        self.bits = bits

    def operand(self, value: Value, kept: tuple[int, ...], left: int) -> ByteOperand | None:
        dtype, op = value.tensor.storage, value.op
        if dtype.kind not in "iub":
            return None
        if dtype.bits <= 8:
            return _bytes(value, dtype)
        known = constant_value(value) if value.sizes is None else None
        if known is not None:
            return _constant(known, kept)
        if op is None or not left:
            return None
        found: ByteOperand | None = None
        if op.name == "stablehlo.convert":
            found = self.operand(op.operands[0], kept, left - 1)
        elif op.name in MOVES:
            found = self.operand(op.operands[0], (), left - 1)
            return None if found is None else replace(found, moves=(*found.moves, op))
        elif op.name in ("stablehlo.subtract", "stablehlo.add"):
            x, y = op.operands
            sign = 1 if op.name == "stablehlo.subtract" else -1
            found = self._shifted(x, y, kept, left, sign)
            if found is None and sign == -1:
                found = self._shifted(y, x, kept, left, sign)
        return found if found is not None and (dtype.bits == self.bits or found.holds(dtype)) else None

    def _shifted(self, x: Value, by: Value, kept: tuple[int, ...], left: int, sign: int) -> ByteOperand | None:
        """x - sign * by"""
        zero = _zero(by, kept, sign)
        found = None if zero is None else self.operand(x, (), left - 1)
        if found is None or zero is None:
            return None
        if not isinstance(zero.value, int):
            return replace(found, zero=zero, low=None, high=None) if found.zero == Zero() else None
        if not isinstance(found.zero.value, int):
            return None  # a zero point that is a value cannot be combined with a number
        shift = zero.value
        low, high = (None if end is None else end - shift for end in (found.low, found.high))
        return replace(found, zero=Zero(found.zero.value + shift), low=low, high=high)


def _bytes(value: Value, dtype: DType) -> ByteOperand:
    low, high = (0, 1) if dtype.kind == "b" else storage_range(dtype)
    return ByteOperand(value, I8 if dtype.kind == "i" else UI8, low, high)


def _constant(array: np.ndarray, kept: tuple[int, ...]) -> ByteOperand | None:
    """Returns a constant as bytes less a zero point, if its elements are close together, at least for each index of
    `kept`."""
    if not array.size:
        return None
    low, high = int(array.min()), int(array.max())
    for dtype in (I8, UI8):
        least, most = storage_range(dtype)
        if least <= low and high <= most:
            return ByteOperand(array, dtype, low, high)
    if max(abs(low), abs(high)) > LARGEST_ZERO:
        return None
    array = array.astype(np.int64)
    if high - low <= 255:
        return ByteOperand(array - (low + 128), I8, low, high, zero=Zero(-(low + 128)))
    summed = tuple(d for d in range(array.ndim) if d not in kept)
    lows, highs = array.min(summed), array.max(summed)
    if (highs - lows).max() > 255:
        return None
    shift = lows + 128
    return ByteOperand(array - np.expand_dims(shift, summed), I8, low, high, zero=Zero(-shift, kept))


def _zero(by: Value, kept: tuple[int, ...], sign: int) -> Zero | None:
    """Returns the subtracted zero point if it is constant along all dimensions except `kept`, else None."""
    known = constant_value(by) if by.sizes is None else None
    if known is not None and known.size:
        first = int(known.reshape(-1)[0])
        if (known == first).all():
            return Zero(first * sign) if abs(first) <= LARGEST_ZERO else None
        summed = tuple(d for d in range(known.ndim) if d not in kept)
        least = known.min(summed)
        return Zero(least, kept, sign) if (known == np.expand_dims(least, summed)).all() else None
    op = by.op
    if op is None or op.name != "stablehlo.broadcast_in_dim":
        return None
    extents = op.operands[0].tensor.extents
    along = tuple(d for d, n in zip(op.ints("broadcast_dimensions"), extents, strict=True) if not equal(n, 1))
    return Zero(op.operands[0], along, sign) if set(along) <= set(kept) else None
