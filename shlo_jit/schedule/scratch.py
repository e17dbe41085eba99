"""Memory that steps work in, in a file of its own: whoever loads a program needs it, and nothing else of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

ALIGN = 64
"""Of everything in the arena."""


class Scratch(NamedTuple):
    """Bytes of memory that a step works in."""

    fixed: int = 0
    per_thread: int = 0
    """More for each thread that a call may use, which is not known before a program is loaded."""

    @classmethod
    def of(cls, nbytes: Callable[[int], int]) -> Scratch:
        """Of a count of bytes that grows evenly with the number of threads."""
        one, two = nbytes(1), nbytes(2)
        return cls(2 * one - two, two - one)

    def nbytes(self, threads: int) -> int:
        return self.fixed + threads * self.per_thread
