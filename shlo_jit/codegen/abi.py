"""The interface between a program's machine code and its host, in version ABI_VERSION. A program is one function,

    i32 @shlo_main(ptr args, ptr results, ptr dims, ptr arena, ptr instance)

    args, results   arrays of pointers to row-major dense buffers
    dims            the size that is known at the call only, an i64; null where there is none
    arena           scratch memory of this call, undefined at entry; null where `arena_bytes` is 0
    instance        a record with the fields INSTANCE, and behind them the addresses of the constants, in order

which returns a Status. What the host guarantees:

* Alignment: arguments and results at multiples of their element's size (complex: half of it), but results of
  ALIGNED_RESULT_BYTES and more, the arena and constants at multiples of ALIGNMENT. A result that takes over a donated
  argument is where that is.
* No overlap: a result, an argument that is written to (because it was donated) and the arena share no byte with
  anything else of the call, but for a result with the argument that it takes over. Other arguments may overlap.
* Size: the arena has `arena_bytes(fixed, scratch, threads)` bytes, where `threads` is that of the instance.
* Lifetime: code, constants and the instance outlive every call. Arguments that were not donated are only read, and so
  are constants.
* Threads: any thread may call, several at the same time and with the same instance, each with results and an arena of
  its own. The error record is then that of whichever stopped last. Tasks run on the threads of one pool, the
  process's or the exported library's (`kernels/threads/`); when another call has that, or the host calls from within a
  task, the call goes on alone.

A program with a size that is known at the call only has a second function,

    void @shlo_sizes(ptr dims, i64 threads, ptr sizes)

which writes what its host must know beforehand, i64 each: the bytes of the arena, and of every result its bytes and
its extents. Arguments and results have AT_CALL for such extents; those of arguments are all the same size.

The code calls `callback` and `pause` on the thread that called it, never from a task, and both may call programs.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.collective import board
from shlo_jit.kernels.llvm_values import V, i32
from shlo_jit.schedule.scratch import ALIGN, ScratchBytes

ABI_VERSION = 3
"""Changes with anything in this file that code or hosts rely on. Part of the keys of cached code."""
ENTRY = "shlo_main"
SIZES = "shlo_sizes"
AT_CALL = -1
"""An extent that is known at the call only."""
PARAMETERS = (("ptr", "args"), ("ptr", "results"), ("ptr", "dims"), ("ptr", "arena"), ("ptr", "instance"))
"""Of the entry, and of every function within a program that runs steps."""
ALIGNMENT = 64
"""Of the arena, constants, and large results: a cache line."""
ALIGNED_RESULT_BYTES = 8 << 20
"""Results of so many bytes may be written past the caches, a line at a time."""
assert ALIGNMENT % ALIGN == 0


class Status(enum.IntEnum):
    """What a program returns, and what `callback` and `pause` return to it."""

    OK = 0
    CALL_FAILED = 1
    INTERRUPTED = 2
    STOPPED = board.STOPPED
    TIMED_OUT = board.TIMED_OUT
    MISMATCHED = board.MISMATCHED
    ENDED_EARLY = board.ENDED_EARLY
    UNREADABLE = board.UNREADABLE
    CODE_FAILED = 32

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    Status.OK: "the program ended well",
    Status.CALL_FAILED: "a custom call of the program failed",
    Status.INTERRUPTED: "the program was interrupted",
    Status.STOPPED: "another process stopped the program",
    Status.TIMED_OUT: "another process did not get on",
    Status.MISMATCHED: "another process was at another op",
    Status.ENDED_EARLY: "another process ended without it",
    Status.CODE_FAILED: "code of a custom call failed",
    Status.UNREADABLE: "it could not read an argument in the memory of the process that calls",
}


def status_text(status: int) -> str:
    """What a status says, of a program or a host of any version."""
    return Status(status).text if status in Status._value2member_map_ else f"the program ended with status {status}"


class Field(NamedTuple):
    """A part of the instance."""

    type: str
    """LLVM's."""
    offset: int


INSTANCE = {
    "threads": Field("i64", 0),  # how many the call may use
    "callback": Field("ptr", 8),  # i32 (ptr handle, i64 number, ptr operands, ptr results): makes a custom call
    "handle": Field("ptr", 16),  # what `callback` is handed
    "pause": Field("ptr", 24),  # i32 (): called every millisecond or so by programs that may be long
    "rank": Field("i64", 32),  # the number of the process in its grid; 0 where there is one
    "communicator": Field("ptr", 40),  # how it meets the others, see kernels/collective/; null where alone
    "error_status": Field("i32", 48),  # the error record: what stopped a call, unless it was OK
    "error_call": Field("i32", 52),  # the number of the custom call that did, or NO_CALL
    "profile": Field("ptr", 56),  # where programs with `Program.timed` note times (PROFILE); else null
    "draws": Field("i64", 64),  # how often an rng has run; calls in several threads count together
}
CONSTANTS = 72
"""Offset of the address of the first constant."""
NO_CALL = -1
FIRST_CODE = -2
"""In the place of that number: the first of the program's calls of code that was compiled with it; -3 the second. What
the code said is the record's status then."""

# ---------------------------------------------------------------------- behind the field `profile`
PROFILE = {
    "events": Field("ptr", 0),  # an array of EVENT, zero at first; null where only records are wanted
    "room": Field("i64", 8),  # how many events it has place for
    "begun": Field("i64", 16),  # how many events there were, those without a place too; 0 at first
}
"""The head of that memory. Behind it is a record for each of `Program.timed`, zero at first, of i64: the number of
runs, the nanoseconds of all, and those of the last so many, the nth at n modulo PROFILE_SAMPLES."""
PROFILE_HEAD_BYTES = 8 * len(PROFILE)
PROFILE_SAMPLES = 1022
PROFILE_BYTES = 8 * (2 + PROFILE_SAMPLES)
"""Of a record."""
EVENT = {
    "step": Field("i64", 0),  # the number of its record
    "thread": Field("i64", 8),  # what pthread_self gives
    "begin": Field("i64", 16),  # nanoseconds of CLOCK_MONOTONIC, which all processes of a machine have in common
    "end": Field("i64", 24),  # 0 until then; `begin` is there no earlier
}
"""One run of a step. Events are in the order in which they began, so what is around a step comes before it."""
EVENT_BYTES = 8 * len(EVENT)


def instance_bytes(constants: int) -> int:
    """Of the record of a program with so many constants."""
    return CONSTANTS + 8 * constants


def arena_bytes(fixed: int, scratch: Sequence[ScratchBytes], threads: int) -> int:
    """Of a call that may use so many threads: of a program's `arena_bytes` and `scratch`."""
    behind = max((s.nbytes(threads) for s in scratch), default=0)
    return fixed + -(-behind // ALIGN) * ALIGN


# ---------------------------------------------------------------------- in machine code
def load(b: Builder, instance: V, name: str) -> V:
    """A field of the instance."""
    field = INSTANCE[name]
    return b.load(field.type, b.offset(instance, field.offset))


def count_draw(b: Builder, instance: V) -> V:
    """One more for `draws`; how many there were before, an i64 that no other draw of the instance gets.

    Threads that share the instance count in one atomic step each. They pass the same record as a `noalias` parameter:
    LLVM keeps an atomic step whose result is wanted, whatever it believes about who else sees the memory.
    """
    field = INSTANCE["draws"]
    return b.emit(field.type, f"atomicrmw add ptr {b.offset(instance, field.offset).text}, i64 1 monotonic")


def load_constant(b: Builder, instance: V, index: int) -> V:
    """The address of a constant."""
    return b.load("ptr", b.offset(instance, CONSTANTS + 8 * index))


def store_error(b: Builder, instance: V, status: V, call: int = NO_CALL) -> None:
    """Fill the error record."""
    b.store(status, b.offset(instance, INSTANCE["error_status"].offset))
    b.store(i32(call), b.offset(instance, INSTANCE["error_call"].offset))
