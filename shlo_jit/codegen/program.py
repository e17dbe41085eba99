"""The result of lowering, for code generation and the runtime: LLVM text and the facts that are needed to call it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, NamedTuple

import numpy as np

from shlo_jit.ir.dtypes import DType
from shlo_jit.kernels.routine import Routine
from shlo_jit.schedule.scratch import ScratchBytes
from shlo_jit.schedule.site import Site
from shlo_jit.sizes import Symbol


class Port(NamedTuple):
    """An argument or result: name (empty if it has none), shape, dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        n = self.dtype.itemsize
        for extent in self.shape:
            n *= extent
        return n

    def at(self, size: int) -> Port:
        """The port of a call in which the size that is known only at the call is `size`."""
        return self._replace(shape=tuple(size if n < 0 else n for n in self.shape))


class Reader(IntEnum):
    """The readers of an argument in place, for a program in a grid."""

    OTHERS = 0
    """Other ranks read it, and must reach it."""
    RANK = 1
    """Only the rank's own steps read it; other ranks fetch it."""
    NOBODY = 2
    """All ranks fetch it, including this one."""


@dataclass(frozen=True)
class Callback:
    """A custom call the program makes: the target's name, the types at the call, its attributes as Python values."""

    target: str
    operands: tuple[Port, ...]
    """The operands in memory layout: their dimensions are in the order of `operand_orders`."""
    results: tuple[Port, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    operand_orders: tuple[tuple[int, ...], ...] = ()
    """Dimensions of each operand, from major to minor; empty if all are row-major."""
    result_orders: tuple[tuple[int, ...], ...] = ()
    aliases: dict[int, int] = field(default_factory=dict)
    """Maps a result to the operand whose memory it has: the operand's elements are in it when the call begins."""
    place: str = ""
    """Its place in the program's text, such as `line 12`."""
    api_version: int = 1
    """The calling convention that the program requests; for version 4, the following fields are known."""
    attribute_types: dict[str, Any] = field(default_factory=dict)
    """Types of the attributes that the text gives to the target: `f32`, `array<i64>`, `string`, or a dictionary of
    these for a dictionary. Anything else is `= ` followed by its text."""
    operand_tokens: tuple[int, ...] = ()
    """Positions of tokens among the operands in the program, ascending."""
    result_tokens: tuple[int, ...] = ()


class CodeCall(NamedTuple):
    """A call of code that a user has provided, and that is part of the program."""

    target: str
    """Target of the custom call."""
    place: str
    """Its place in the program's text, such as `line 12`."""
    errors: tuple[str, ...] = ()
    """Meanings of the statuses that the code returns, from 1 on; empty if only the number is known."""

    def failure(self, status: int) -> str:
        """The message for a status that the code returned."""
        where = f"custom call {self.target!r}{f' ({self.place})' if self.place else ''}"
        if not self.errors:
            return f"{where} failed with status {status}"
        return f"{where}: {self.errors[status - 1] if 0 < status <= len(self.errors) else self.errors[0]}"


class TimedStep(NamedTuple):
    """A step of a program that is compiled for profiling."""

    label: str
    """Label as in the printed plan, preceded by the function's name unless it is the entry; empty for a call as a
    whole."""
    title: str
    kernels: tuple[str, ...] = ()
    nbytes: int = 0
    """Minimum number of bytes that it reads and writes; 0 if known only at the call."""
    operations: int | None = None
    """Number of arithmetic operations; None if it depends on values, or is known only at the call."""
    ops: str = ""
    """The ops that it computes, in printable form."""
    category: Literal["call", "control", "step", "copy", "part"] = "step"
    """A call as a whole; control flow, including the steps inside, and likewise the call of a function; a step; copies
    before a step or at the end of a block; a part of a step."""

    @property
    def counts(self) -> bool:
        """Whether its time neither includes nor is included in the time of another step."""
        return self.category in ("step", "copy")


@dataclass
class Program:
    """LLVM text that defines the function of `codegen/abi.py`, and the facts that its host needs.

    Parallel kernels call `void @shlo_parallel(ptr task, ptr frame, i64 tasks, i64 threads)`, which runs
    `task(ptr frame, i64 index, i64 worker)` for every index in [0, tasks), worker in [0, threads), and returns when all
    are done.
    """

    text: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arena_bytes: int
    """Bytes of the arena without `scratch`."""
    scratch: tuple[ScratchBytes, ...]
    """Scratch memory that steps need for each thread; the greatest of these comes after the rest of the arena."""
    constants: list[np.ndarray]
    callbacks: list[Callback]
    routines: tuple[Routine, ...]
    output_aliases: dict[int, int] = field(default_factory=dict)
    """Maps a result to the donated argument whose buffer it takes over."""
    overwritten: tuple[int, ...] = ()
    """Donated arguments whose buffers it writes to without a result taking them over."""
    externals: tuple[str, ...] = ()
    """Symbols that are functions of LAPACK, defined when the program is loaded (see `runtime/lapack.py`)."""
    is_short: bool = False
    """Whether it takes a few microseconds at most, whatever its arguments are."""
    symbol: Symbol | None = None
    """The symbol that is known only at the call: extents of AT_CALL have its value, or follow from it. The program then
    has `@shlo_sizes`, and `arena_bytes` and `scratch` are unused."""
    timed: tuple[TimedStep, ...] = ()
    """Steps whose times it records, in the order of their records."""
    sites: tuple[Site, ...] = ()
    """Its collective ops, at which it meets the other processes of its grid."""
    channels: tuple[int, ...] = ()
    """Handles of the channels that it sends and receives on; its code knows them by their index plus 1."""
    readers: tuple[Reader, ...] = ()
    """Readers of each argument, if there are `sites`."""
    codes: tuple[CodeCall, ...] = ()
    """Calls of code that users have provided."""
