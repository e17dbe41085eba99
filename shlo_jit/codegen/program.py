"""What lowering hands to code generation and the run time: LLVM text and what is needed to call it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shlo_jit.ir.types import DType
from shlo_jit.kernels.routine import Routine
from shlo_jit.schedule.scratch import ALIGN, Scratch

PAUSE_SLOT, FIRST_CONSTANT_SLOT = 3, 4
"""Of a program's context."""
INTERRUPTED = 2
"""The status of a program that was stopped at a look at signals; the exception is set."""


@dataclass(frozen=True)
class Port:
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


def arena_bytes(fixed: int, scratch: Sequence[Scratch], threads: int) -> int:
    """Of a call that may use so many threads: a program's `arena_bytes` and `scratch`."""
    behind = max((s.nbytes(threads) for s in scratch), default=0)
    return fixed + -(-behind // ALIGN) * ALIGN


@dataclass
class Program:
    """LLVM text whose entry is

        i32 @shlo_main(ptr args, ptr results, ptr arena, ptr context)

    `args` and `results` are arrays of pointers to row-major dense buffers; `arena` is memory aligned to 64, undefined
    at entry, of `arena_bytes(program, threads)`; `context` is an array of 8-byte slots:

        0                      number of threads the call may use (i64)
        1                      `i32 (ptr executable, i64 callback, ptr operand_pointers, ptr result_pointers)`,
                               called for custom calls; non-zero stops the program
        2                      the `executable` handed to it
        3                      `i32 ()`, called now and then by programs that may be long, on the thread that called the
                               program; non-zero stops it
        4 ...                  pointers to `constants`, in order, aligned to 64

    The result is 0, or the non-zero status of what stopped it.
    Parallel kernels call `void @shlo_parallel(ptr task, ptr frame, i64 tasks, i64 threads)`, which runs
    `task(ptr frame, i64 index, i64 worker)` for every index in [0, tasks), worker in [0, threads), and returns when all
    are done.
    """

    text: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arena_bytes: int
    """Without `scratch`."""
    scratch: tuple[Scratch, ...]
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
