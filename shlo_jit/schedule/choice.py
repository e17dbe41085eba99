"""Decisions with their reasons: every choice of a scheduler says why it was made, and the schedule prints that."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from shlo_jit.reasons import Reason
from shlo_jit.sizes import equal

T = TypeVar("T")


class Choice(NamedTuple, Generic[T]):
    """A value that was chosen, and why."""

    value: T
    why: Reason


class Note(NamedTuple):
    """A line of the printed schedule: what was decided, what it is, and why."""

    what: str
    """A short fixed word, the label of the line."""
    value: str
    why: Reason | None = None

    def __str__(self) -> str:
        text = f"{self.what:<15} {self.value}"
        return f"{text}   ({self.why})" if self.why is not None else text


def count(n: int, word: str) -> str:
    """`1 task`, `1,200 tasks`, `2 blocks of 64 columns`, `3 matrices`."""
    one, of, rest = word.partition(" of ")
    many = f"{one[:-2]}ices" if one.endswith("ix") else f"{one}s"
    return f"{n:,} {one if equal(n, 1) else many}{of}{rest}"
