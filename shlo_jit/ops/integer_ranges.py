"""Ranges of integers that follow from how they are computed, also of floats that are whole numbers."""

from __future__ import annotations

from shlo_jit.ir.core import Value
from shlo_jit.ir.types import storage_range

WHOLE = {"f16": 1 << 11, "bf16": 1 << 8}
"""For types that are computed in f32 and rounded: the number up to which they hold all whole numbers."""
DEPTH = 8
"""Maximum ops in a row that such a range follows from."""
NARROW = 8
"""Maximum bits of types whose range is known without looking further."""


def range_of(value: Value, left: int) -> tuple[int, int] | None:
    """Returns the least and the greatest number that elements of an integer value may be; None if none but those of a
    wide type are known. `left`: maximum ops that are searched in a row."""
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
    if name == "constant":
        number = splat_of(value)
        return None if number is None else (int(number), int(number))
    if name in ("shift_right_arithmetic", "shift_right_logical"):
        return _shifted(name, value, left)
    if name in ("add", "subtract"):
        x, y = (range_of(v, left - 1) for v in operands)
        if x is None or y is None:
            return None
        return (x[0] - y[1], x[1] - y[0]) if name == "subtract" else (x[0] + y[0], x[1] + y[1])
    return None


def is_whole(value: Value) -> bool:
    """Whether elements of a value of floats are known to be whole numbers that its type holds, however they are
    computed: converted integers of few bits, and their sums, differences and products."""
    return _whole_range(value, DEPTH) is not None


def _whole_range(value: Value, left: int) -> tuple[int, int] | None:
    """The least and the greatest whole number that elements of a value of floats may be."""
    most = WHOLE.get(value.tensor.storage.name)
    if value.op is None or most is None or not left:
        return None
    name, operands = value.op.name.partition(".")[2], value.op.operands
    number = splat_of(value)
    found = None
    if number is not None:
        found = (int(number), int(number)) if float(number).is_integer() else None
    elif name == "convert" and operands[0].tensor.storage.is_integer:
        found = range_of(operands[0], left - 1)
    elif name in ("reshape", "transpose", "broadcast_in_dim", "slice"):
        found = _whole_range(operands[0], left - 1)
    elif name in ("add", "subtract", "multiply"):
        x, y = (_whole_range(v, left - 1) for v in operands)
        found = None if x is None or y is None else _combined(name, x, y)
    return found if found is not None and -most <= found[0] and found[1] <= most else None


def _combined(name: str, x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
    if name == "add":
        return x[0] + y[0], x[1] + y[1]
    if name == "subtract":
        return x[0] - y[1], x[1] - y[0]
    products = [a * c for a in x for c in y]
    return min(products), max(products)


def _shifted(name: str, value: Value, left: int) -> tuple[int, int] | None:
    """The range of a value that is shifted right by a constant."""
    assert value.op is not None
    bits, (shifted, by) = value.tensor.storage.bits, value.op.operands
    x, amount = range_of(shifted, left - 1), splat_of(by)
    if x is None or amount is None or not 0 <= amount < bits:
        return None
    is_plain = x[0] >= 0 and x[1] < 1 << (bits - 1)  # no first bit is set: both kinds of shifts divide
    if is_plain or (name == "shift_right_arithmetic" and value.tensor.storage.kind == "i"):
        return x[0] >> int(amount), x[1] >> int(amount)
    if name == "shift_right_arithmetic" or not amount:
        return None
    return 0, (1 << (bits - int(amount))) - 1


def splat_of(value: Value) -> float | int | None:
    """Returns the number that all elements of a value are, if it is a constant."""
    op = value.op
    while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        value = op.operands[0]
        op = value.op
    if op is None or op.name != "stablehlo.constant" or not op.result.tensor.size or not op.constant.is_splat:
        return None
    element, storage = op.constant.array.reshape(-1)[0], op.result.tensor.storage
    return None if storage.is_complex else int(element) if storage.is_integer else float(element)
