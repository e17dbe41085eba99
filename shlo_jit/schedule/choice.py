"""Decisions with their reasons. Every choice of a scheduler states why it was made, and the schedule prints that."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from shlo_jit.reasons import Reason
from shlo_jit.sizes import equal

T = TypeVar("T")


class Choice(NamedTuple, Generic[T]):
    """A chosen value and the reason for it."""

    value: T
    why: Reason


class Note(NamedTuple):
    """A line of the printed schedule: the decision, its value, and the reason."""

    what: str
    """The label of the line: one or two fixed words."""
    value: str
    why: Reason | None = None

    def __str__(self) -> str:
        text = f"{self.what:<15} {self.value}"
        return f"{text}   ({self.why})" if self.why is not None else text


def count(n: int, word: str) -> str:
    """Formats a count with its noun: `1 task`, `1,200 tasks`, `2 blocks of 64 columns`, `3 matrices`."""
    one, of, rest = word.partition(" of ")
    many = f"{one[:-2]}ices" if one.endswith("ix") else f"{one}s"
    return f"{n:,} {one if equal(n, 1) else many}{of}{rest}"
