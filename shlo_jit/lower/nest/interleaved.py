"""Stores of vectors whose elements are interleaved in memory: they wait for each other, and are stored as one run.

    lane 0, v=0 | lane 0, v=1 | lane 1, v=0 | lane 1, v=1 | ...        v: the interleaved variable

The vector of each iteration of v is kept until that of the last iteration has come, at the same place of all other
loops. The schedule guarantees that they follow each other there (`NestSchedule.batches_rows`). Vectors of other places
are nevertheless kept separately. A vector that still waits at the end of a row is an error of the compiler.
"""

from __future__ import annotations

from shlo_jit.fuse.nest import Store
from shlo_jit.kernels.llvm_values import V

Place = tuple[int, tuple[tuple[int, str], ...]]
"""A store, and the values of all variables except the interleaved one."""


class Waiting:
    """The vectors that wait. `variable` is the interleaved one, `count` its number of iterations."""

    def __init__(self, variable: int, count: int):
        self.variable = variable
        self.count = count
        self._vectors: dict[Place, list[V]] = {}

    def add(self, store: Store, variables: dict[int, V], x: V) -> list[V] | None:
        """Keeps a vector. Returns all of them, in order, if it was the last that its place lacked; otherwise None."""
        others = sorted((v, at.text) for v, at in variables.items() if v != self.variable)
        place = (id(store), tuple(others))
        waiting = self._vectors.setdefault(place, [])
        assert variables[self.variable].literal == len(waiting), "iterations of the interleaved variable out of order"
        waiting.append(x)
        return self._vectors.pop(place) if len(waiting) == self.count else None

    def check_done(self) -> None:
        """Asserts that no vectors are left. Called after each row."""
        assert not self._vectors, "interleaved vectors were never stored"
