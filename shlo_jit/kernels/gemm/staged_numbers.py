"""Arithmetic that is done at compile time or by the machine code: a policy is written once over `Numbers`.

They are Python ints (`Ints`), for users and the memory planner, or registers (`Registers`) of a routine that serves all
shapes.
"""

from __future__ import annotations

from typing import Any, Protocol

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.reasons import Reason

N = Any
"""A number or a truth value: an int or a bool, or a register."""


class Numbers(Protocol):
    """Arithmetic on extents. Comparisons are signed."""

    def number(self, value: int) -> N: ...
    def compare(self, predicate: str, x: N, y: N | int) -> N: ...
    def both(self, x: N, y: N) -> N: ...
    def either(self, x: N, y: N) -> N: ...
    def bits(self, x: N, mask: int) -> N: ...
    def select(self, condition: N, x: N, y: N) -> N: ...
    def mul(self, x: N, y: N | int) -> N: ...
    def div(self, x: N, y: N | int) -> N: ...
    def rem(self, x: N, y: N | int) -> N: ...
    def ceil_div(self, x: N, y: N | int) -> N: ...
    def least(self, x: N, y: N | int) -> N: ...
    def most(self, x: N, y: N | int) -> N: ...
    def decided(self, value: int, why: Reason) -> N:
        """Returns a decision with its reason, which holds unless it is overridden."""
        ...

    def because(self, *cases: tuple[N, Reason]) -> Reason | None:
        """Returns the reason of the first case that holds."""
        ...

    def override(self, before: N, condition: N, value: N, why: Reason | None) -> N:
        """Returns `value` if the condition holds, else the previous decision."""
        ...


class Registers:
    """Numbers that are registers of a function being emitted."""

    def __init__(self, b: Builder):
        self.b = b

    def number(self, value: int) -> V:
        return i64(value)

    def compare(self, predicate: str, x: V, y: V | int) -> V:
        return self.b.icmp(predicate if predicate in ("eq", "ne") else "s" + predicate, x, y)

    def both(self, x: V, y: V) -> V:
        return self.b.and_(x, y)

    def either(self, x: V, y: V) -> V:
        return self.b.or_(x, y)

    def bits(self, x: V, mask: int) -> V:
        return self.b.and_(x, i64(mask))

    def select(self, condition: V, x: V, y: V) -> V:
        return self.b.select(condition, x, y)

    def mul(self, x: V, y: V | int) -> V:
        return self.b.mul(x, y)

    def div(self, x: V, y: V | int) -> V:
        return self.b.udiv(x, y)

    def rem(self, x: V, y: V | int) -> V:
        return self.b.urem(x, y)

    def ceil_div(self, x: V, y: V | int) -> V:
        return self.b.udiv(self.b.add(x, self.b.sub(y, 1)), y)

    def least(self, x: V, y: V | int) -> V:
        return self.b.min_(x, y)

    def most(self, x: V, y: V | int) -> V:
        return self.b.max_(x, y)

    def decided(self, value: int, why: Reason) -> V:
        return i64(value)

    def because(self, *cases: tuple[V, Reason]) -> Reason | None:
        return None  # registers have no reasons

    def override(self, before: V, condition: V, value: V, why: Reason | None) -> V:
        return self.b.select(condition, value, before)


class Reasoned(int):
    """A decided number, with its reason."""

    why: Reason | None = None

    @classmethod
    def of(cls, value: int, why: Reason | None) -> Reasoned:
        made = cls(value)
        made.why = why
        return made


class Ints:
    """Numbers known at compile time."""

    def number(self, value: int) -> int:
        return value

    def compare(self, predicate: str, x: int, y: int) -> bool:
        return {"eq": x == y, "ne": x != y, "le": x <= y, "lt": x < y, "ge": x >= y, "gt": x > y}[predicate]

    def both(self, x: bool, y: bool) -> bool:
        return x and y

    def either(self, x: bool, y: bool) -> bool:
        return x or y

    def bits(self, x: int, mask: int) -> int:
        return x & mask

    def select(self, condition: bool, x: int, y: int) -> int:
        return x if condition else y

    def mul(self, x: int, y: int) -> int:
        return x * y

    def div(self, x: int, y: int) -> int:
        return x // y

    def rem(self, x: int, y: int) -> int:
        return x % y

    def ceil_div(self, x: int, y: int) -> int:
        return -(-x // y)

    def least(self, x: int, y: int) -> int:
        return min(x, y)

    def most(self, x: int, y: int) -> int:
        return max(x, y)

    def decided(self, value: int, why: Reason) -> int:
        return Reasoned.of(value, why)

    def because(self, *cases: tuple[bool, Reason]) -> Reason | None:
        return next((why for holds, why in cases if holds), None)

    def override(self, before: int, condition: bool, value: int, why: Reason | None) -> int:
        return Reasoned.of(value, why) if condition else before
