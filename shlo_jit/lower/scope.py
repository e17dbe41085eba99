"""The function that is being written: its builder, its parameters, and the addresses it has at hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from shlo_jit.kernels.builder import Builder, V

PARAMETERS = [("ptr", "args"), ("ptr", "results"), ("ptr", "arena"), ("ptr", "context")]
"""Of every function that runs steps; see `codegen/program.py`."""


@dataclass(eq=False)
class Scope:
    """A function that runs steps: the program's entry, a function it calls, or a part of one."""

    b: Builder
    moved: dict[int, V] = field(default_factory=dict)
    """Addresses of storages (by id) that loops around the place being written exchange."""
    addresses: dict[int, V] = field(default_factory=dict)
    """Addresses of storages (by id) that do not change, loaded at the function's entry."""
    budget: V | None = None
    """Of work between looks at signals in its loops; see `pauses.py`."""
    may_fail: bool = False
    """It may return another status than 0."""

    @property
    def args(self) -> V:
        return self.b.params[0]

    @property
    def results(self) -> V:
        return self.b.params[1]

    @property
    def arena(self) -> V:
        return self.b.params[2]

    @property
    def context(self) -> V:
        return self.b.params[3]
