"""Ranges of integer values that follow from how they are computed."""

from __future__ import annotations

from shlo_jit.ir.core import Value
from shlo_jit.ir.types import storage_range
from shlo_jit.ops.type_algebra import constant_value

NARROW = 8
"""Maximum bits of types whose range is known without looking further."""


def range_of(value: Value, left: int) -> tuple[int, int] | None:
    """Returns ends between which all elements of an integer value are; None if no narrow ones are known. At most `left`
    ops in a row are looked at."""
    own = storage_range(value.tensor.storage)
    found = _computed(value, left) if value.op is not None and left else None
    if found is not None and own[0] <= found[0] and found[1] <= own[1]:
        return found
    return own if value.tensor.storage.bits <= NARROW else None


def _computed(value: Value, left: int) -> tuple[int, int] | None:
    """The ends that follow from the op that computes a value, before they are wrapped to its type."""
    assert value.op is not None
    name, operands = value.op.name.partition(".")[2], value.op.operands
    if name in ("reshape", "transpose", "broadcast_in_dim", "slice", "concatenate"):
        ends = [range_of(v, left - 1) for v in operands]
        known = [e for e in ends if e is not None]
        return (min(e[0] for e in known), max(e[1] for e in known)) if len(known) == len(ends) else None
    if name == "convert":
        return range_of(operands[0], left - 1) if operands[0].tensor.storage.is_integer else None
    if name == "and":
        masks = [splat_of(v) for v in operands]
        found = [m for m in masks if m is not None and 0 <= m < 1 << NARROW]
        return (0, int(min(found))) if found else None
    if name in ("add", "subtract"):
        x, y = (range_of(v, left - 1) for v in operands)
        if x is None or y is None:
            return None
        return (x[0] - y[1], x[1] - y[0]) if name == "subtract" else (x[0] + y[0], x[1] + y[1])
    return None


def splat_of(value: Value) -> float | None:
    """Returns the number that all elements of a value are, if it is a constant."""
    op = value.op
    while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        value = op.operands[0]
        op = value.op
    known = constant_value(value) if value.sizes is None else None
    if known is None or not known.size or known.dtype.kind == "V":
        return None
    first = known.reshape(-1)[0]
    return float(first) if bool((known == first).all()) else None
