"""A program in this process: its code and constants, by address."""

from __future__ import annotations

import dataclasses

from shlo_jit.codegen import abi
from shlo_jit.codegen.jit import Library
from shlo_jit.codegen.objects import Compiled
from shlo_jit.runtime.constants import resident


class Loaded:
    """Immutable state that all calls of a program share. It must be alive while the program runs."""

    first_callback = 0
    """Number of the program's first custom call."""

    def __init__(self, compiled: Compiled, library: Library) -> None:
        self.program = dataclasses.replace(compiled, objects=(), constants=())
        """Description of the program."""
        self.constants = tuple(map(resident, compiled.constants))
        self.library = library
        """Keeps the code loaded."""
        self.entry = library.addresses[abi.ENTRY]
        self.sizes = library.addresses.get(abi.SIZES, 0)

    def arena_bytes(self, threads: int) -> int:
        """Returns the scratch memory of a call that may use `threads` threads."""
        return abi.arena_bytes(self.program.arena_bytes, self.program.scratch, threads)

    @property
    def code_bytes(self) -> int:
        """Size of the program's own machine code."""
        return self.library.nbytes

    @property
    def constant_bytes(self) -> int:
        return sum(constant.data.nbytes for constant in self.constants)
