"""What lowering hands to code generation and the run time: LLVM text and what is needed to call it."""

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
    """An argument or result: name (empty when it has none), shape, dtype."""

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
        """The argument of a call where what is known at the call only is that size."""
        return self._replace(shape=tuple(size if n < 0 else n for n in self.shape))


class Reader(IntEnum):
    """Who reads an argument where it is, of a program in a grid."""

    OTHERS = 0
    """Other ranks do, and must reach it."""
    RANK = 1
    """The rank's own steps; the others fetch it."""
    NOBODY = 2
    """All ranks fetch it, this one too."""


@dataclass(frozen=True)
class Callback:
    """A custom call the program makes: the target's name, the types at the call, its attributes as Python values."""

    target: str
    operands: tuple[Port, ...]
    """As they lie in memory: their dimensions are in the order of `operand_orders`."""
    results: tuple[Port, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    operand_orders: tuple[tuple[int, ...], ...] = ()
    """Dimensions from major to minor, of each operand; empty when all are row-major."""
    result_orders: tuple[tuple[int, ...], ...] = ()
    aliases: dict[int, int] = field(default_factory=dict)
    """Result -> operand whose memory it has: the operand's elements are in it when the call begins."""
    place: str = ""
    """Where the program's text has it, `line 12`."""
    api_version: int = 1
    """How the program wants it to be called; of version 4 what follows is known."""
    attribute_types: dict[str, Any] = field(default_factory=dict)
    """Of those attributes that the text gives to the target: `f32`, `array<i64>`, `string`, a dictionary of these for a
    dictionary, and `= ` with its text of anything else."""
    operand_tokens: tuple[int, ...] = ()
    """Where there are tokens among the operands as the program has them, ascending."""
    result_tokens: tuple[int, ...] = ()


class CodeCall(NamedTuple):
    """A call of code that users have brought, and that is part of the program."""

    target: str
    """Of the custom call."""
    place: str
    """Where the program's text has it, `line 12`."""
    errors: tuple[str, ...] = ()
    """What it means when the code gives a number from 1 on; empty where nothing is known but the number."""

    def failure(self, status: int) -> str:
        """What is said where the code gave a status."""
        where = f"custom call {self.target!r}{f' ({self.place})' if self.place else ''}"
        if not self.errors:
            return f"{where} failed with status {status}"
        return f"{where}: {self.errors[status - 1] if 0 < status <= len(self.errors) else self.errors[0]}"


class TimedStep(NamedTuple):
    """A step of a program that is compiled to be profiled."""

    label: str
    """As in the printed plan, with the function's name where it is not the entry's; empty of a call as a whole."""
    title: str
    kernels: tuple[str, ...] = ()
    nbytes: int = 0
    """What it reads and writes at least; 0 where that is known at the call only."""
    operations: int | None = None
    """Arithmetic ones; None where that depends on values, or is known at the call only."""
    ops: str = ""
    """What it computes, for people."""
    category: Literal["call", "control", "step", "copy", "part"] = "step"
    """A call as a whole; control flow, with the steps inside, and so the call of a function; a step; copies before one
    or at the end of a block; a part of a step."""

    @property
    def counts(self) -> bool:
        """Whether its time is in no other step's, and no other step's in its own."""
        return self.category in ("step", "copy")


@dataclass
class Program:
    """LLVM text that defines the function of `codegen/abi.py`, and what its host must know.

    Parallel kernels call `void @shlo_parallel(ptr task, ptr frame, i64 tasks, i64 threads)`, which runs
    `task(ptr frame, i64 index, i64 worker)` for every index in [0, tasks), worker in [0, threads), and returns when all
    are done.
    """

    text: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arena_bytes: int
    """Without `scratch`."""
    scratch: tuple[ScratchBytes, ...]
    """What steps need for each thread; the greatest of these comes behind the rest of the arena."""
    constants: list[np.ndarray]
    callbacks: list[Callback]
    routines: tuple[Routine, ...]
    output_aliases: dict[int, int] = field(default_factory=dict)
    """Result -> donated argument whose buffer it takes over."""
    overwritten: tuple[int, ...] = ()
    """Donated arguments whose buffers it writes to without a result taking them over."""
    externals: tuple[str, ...] = ()
    """Symbols it refers to that are functions of LAPACK, defined when it is loaded (see `runtime/lapack.py`)."""
    is_short: bool = False
    """Whether it takes some microseconds at most, whatever its arguments are."""
    symbol: Symbol | None = None
    """What is known at the call only: extents of AT_CALL have its value, or follow from it. Then there is
    `@shlo_sizes`, and `arena_bytes` and `scratch` count for nothing."""
    timed: tuple[TimedStep, ...] = ()
    """Steps whose times it notes, in the order of their records."""
    sites: tuple[Site, ...] = ()
    """Where it meets the other processes of its grid."""
    channels: tuple[int, ...] = ()
    """Handles of the channels that it sends and receives on; its code knows them by their index plus 1."""
    readers: tuple[Reader, ...] = ()
    """Of each argument, if there are `sites`."""
    codes: tuple[CodeCall, ...] = ()
    """Calls of code that users have brought."""
