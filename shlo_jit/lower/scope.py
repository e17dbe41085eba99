"""The function that is being written: its builder, its parameters, and known addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

from shlo_jit.codegen import abi
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V


@dataclass(eq=False)
class Scope:
    """A function that runs steps: the program's entry, a function it calls, or a part of one. Its parameters begin with
    those of `codegen/abi.py`."""

    b: Builder
    moved: dict[int, V] = field(default_factory=dict)
    """Addresses of storages (by id) that loops around the current place swap."""
    addresses: dict[int, V] = field(default_factory=dict)
    """Addresses of storages (by id) that do not change, loaded at the function's entry."""
    budget: V | None = None
    """Stack slot with the budget of work between checks for signals in its loops; see `interrupts.py`."""
    may_fail: bool = False
    """Whether the function may return another status than 0."""

    @property
    def args(self) -> V:
        return self.b.params[0]

    @property
    def results(self) -> V:
        return self.b.params[1]

    @property
    def dims(self) -> V:
        return self.b.params[2]

    @property
    def arena(self) -> V:
        return self.b.params[3]

    @property
    def instance(self) -> V:
        return self.b.params[4]

    def field(self, name: str) -> V:
        """Loads a field of the instance."""
        return abi.load(self.b, self.instance, name)

    def constant(self, index: int) -> V:
        """The address of one of the program's constants."""
        return abi.load_constant(self.b, self.instance, index)
