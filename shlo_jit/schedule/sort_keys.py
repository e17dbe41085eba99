"""Sort keys: the values that a comparator compares, found in its structure.

A comparator such as `compare LT, f(a), f(b)`, with one f for both sides, orders elements by f. So f(x) is computed once
per element and mapped to an unsigned integer with the same order. Lexicographic comparators over several keys,
`lt(f) or (eq(f) and ...)`, give several keys. f may be any elementwise expression, so JAX's comparators, which first
canonicalize NaN and zero, need no special case.
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit.ir.attributes import Dense, EnumAttr
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import DType

LESS = {"LT": False, "LE": False, "GT": True, "GE": True}
"""Direction of a comparison -> whether the larger comes first."""


@dataclass(frozen=True)
class Key:
    """A value of the comparator, computed from one side's arguments."""

    value: Value
    descending: bool
    total: bool
    """Whether floats are in IEEE's total order; otherwise zeros are equal, and NaNs are equal and last."""

    @property
    def dtype(self) -> DType:
        return self.value.tensor.storage

    @property
    def bits(self) -> int:
        if self.dtype.is_float:
            return max(16, 8 * self.dtype.itemsize) if self.dtype.bits >= 16 else 32
        return self.dtype.bits


def keys_of(body: Block) -> list[Key] | None:
    """The keys of a comparator, most significant first; None if it has another form."""
    (result,) = body.terminator.operands
    return _lexicographic(result, body)


def _lexicographic(value: Value, body: Block) -> list[Key] | None:
    op = value.op
    if op is None:
        return None
    if op.name == "stablehlo.compare":
        key = _comparison(op, LESS)
        return None if key is None else [key]
    if op.name == "stablehlo.or":
        for first, second in (op.operands, op.operands[::-1]):
            keys = _chain(first, second, body)
            if keys is not None:
                return keys
    return None


def _chain(less: Value, rest: Value, body: Block) -> list[Key] | None:
    """The keys of a comparator of the form less(k) or (equal(k) and rest)."""
    if less.op is None or less.op.name != "stablehlo.compare" or rest.op is None or rest.op.name != "stablehlo.and":
        return None
    head = _comparison(less.op, LESS)
    for equal, others in (rest.op.operands, rest.op.operands[::-1]):
        if head is None or equal.op is None or equal.op.name != "stablehlo.compare":
            continue
        same = _comparison(equal.op, {"EQ": head.descending})
        tail = _lexicographic(others, body)
        if tail is not None and same is not None and same.total == head.total and _equal(same.value, head.value):
            return [head, *tail]
    return None


def _comparison(op: Op, directions: dict[str, bool]) -> Key | None:
    """The key of compare(f(left), f(right)) or compare(f(right), f(left))."""
    direction = op.attributes["comparison_direction"].value
    kind = op.attributes.get("compare_type")
    total = isinstance(kind, EnumAttr) and kind.value == "TOTALORDER"
    left, right = op.operands
    if direction not in directions or left.tensor.storage.is_complex:
        return None
    if _mirrored(left, right):
        return Key(left, directions[direction], total)
    if _mirrored(right, left):
        return Key(right, not directions[direction] if direction != "EQ" else directions[direction], total)
    return None


def _mirrored(left: Value, right: Value) -> bool:
    """Whether `right` computes from the second argument of each pair what `left` computes from the first."""
    return _same(left, right, 1, {})


def _equal(left: Value, right: Value) -> bool:
    return _same(left, right, 0, {})


def _same(left: Value, right: Value, apart: int, known: dict[tuple[Value, Value], bool]) -> bool:
    """Whether both are the same expression, with arguments `apart` places from each other (the left ones first in their
    pairs). `known` caches comparisons, because expressions share parts."""
    if (left, right) not in known:
        known[left, right] = _compared(left, right, apart, known)
    return known[left, right]


def _compared(left: Value, right: Value, apart: int, known: dict[tuple[Value, Value], bool]) -> bool:
    a, b = left.op, right.op
    if a is None or b is None:
        first = left.index % 2 == 0
        return a is None and b is None and first and left.owner is right.owner and right.index == left.index + apart
    if a.name != b.name or len(a.operands) != len(b.operands) or left.type != right.type or a.regions or b.regions:
        return False
    if left.index != right.index or not _same_attributes(a, b):
        return False
    return all(_same(x, y, apart, known) for x, y in zip(a.operands, b.operands, strict=True))


def _same_attributes(a: Op, b: Op) -> bool:
    if a.attributes.keys() != b.attributes.keys():
        return False
    for name, x in a.attributes.items():
        y = b.attributes[name]
        if isinstance(x, Dense) and isinstance(y, Dense):
            if x.type != y.type or x.array.tobytes() != y.array.tobytes():
                return False
        elif x != y:
            return False
    return True
