"""The interface between a program's machine code and its host, in version ABI_VERSION. A program is one function,

    i32 @shlo_main(ptr args, ptr results, ptr dims, ptr arena, ptr instance)

    args, results   arrays of pointers to row-major dense buffers
    dims            the size that is known only at the call, an i64; null if there is none
    arena           scratch memory of this call, undefined at entry; null if `arena_bytes` is 0
    instance        a record with the fields INSTANCE, followed by the addresses of the constants, in order

which returns a Status. The host guarantees:

* Alignment: arguments and results are at multiples of their element's size (complex: half of it). Results of at least
  ALIGNED_RESULT_BYTES, the arena and constants are at multiples of ALIGNMENT. A result that takes over a donated
  argument is at the argument's address.
* No overlap: a result, an argument that is written to (because it was donated) and the arena share no byte with
  anything else of the call, except a result with the argument that it takes over. Other arguments may overlap.
* Size: the arena has `arena_bytes(fixed, scratch, threads)` bytes, where `threads` is that of the instance.
* Lifetime: code, constants and the instance outlive every call. Arguments that were not donated are only read, and so
  are constants.
* Threads: any thread may call, several at the same time and with the same instance, each with separate results and a
  separate arena. The error record is then that of the call that stopped last. Tasks run on the threads of one pool, of
  the process or of the exported library (`kernels/threads/`). If another call uses the pool, or the host calls from
  within a task, the call continues on its own thread only.

A program with a size that is known only at the call has a second function,

    void @shlo_sizes(ptr dims, i64 threads, ptr sizes)

which writes the numbers that its host needs before the call, as i64: the bytes of the arena, and for every result its
bytes and its extents. Arguments and results have AT_CALL for such extents; those of arguments are all the same size.

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
"""An extent that is known only at the call."""
PARAMETERS = (("ptr", "args"), ("ptr", "results"), ("ptr", "dims"), ("ptr", "arena"), ("ptr", "instance"))
"""Parameters of the entry, and of every function within a program that runs steps."""
ALIGNMENT = 64
"""Alignment of the arena, constants, and large results, in bytes: a cache line."""
ALIGNED_RESULT_BYTES = 8 << 20
"""Results of at least this size may be written past the caches, one line at a time."""
assert ALIGNMENT % ALIGN == 0


class Status(enum.IntEnum):
    """The status that a program returns, and that `callback` and `pause` return to it."""

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
    Status.OK: "the program succeeded",
    Status.CALL_FAILED: "a custom call of the program failed",
    Status.INTERRUPTED: "the program was interrupted",
    Status.STOPPED: "another process stopped the program",
    Status.TIMED_OUT: "another process made no progress in time",
    Status.MISMATCHED: "another process reached a different op",
    Status.ENDED_EARLY: "another process ended the program without taking part",
    Status.CODE_FAILED: "code of a custom call failed",
    Status.UNREADABLE: "the program could not read an argument in the memory of the calling process",
}


def status_text(status: int) -> str:
    """Describes a status returned by a program or a host of any version."""
    return Status(status).text if status in Status._value2member_map_ else f"the program ended with status {status}"


class Field(NamedTuple):
    """A field of the instance."""

    type: str
    """Its LLVM type."""
    offset: int


INSTANCE = {
    "threads": Field("i64", 0),  # number of threads the call may use
    "callback": Field("ptr", 8),  # i32 (ptr handle, i64 number, ptr operands, ptr results): makes a custom call
    "handle": Field("ptr", 16),  # passed to `callback`
    "pause": Field("ptr", 24),  # i32 (): called every millisecond or so by programs that may be long
    "rank": Field("i64", 32),  # the number of the process in its grid; 0 in a single process
    "communicator": Field("ptr", 40),  # its connection to other processes, see kernels/collective/; null without
    "error_status": Field("i32", 48),  # the error record: the status that stopped a call, unless it was OK
    "error_call": Field("i32", 52),  # the number of the custom call that did, or NO_CALL
    "profile": Field("ptr", 56),  # where programs with `Program.timed` record times (PROFILE); otherwise null
    "draws": Field("i64", 64),  # number of runs of any rng; calls in several threads count together
}
CONSTANTS = 72
"""Offset of the address of the first constant."""
NO_CALL = -1
FIRST_CODE = -2
"""In place of the number of a custom call: the program's first call of code that was compiled with it. The second has
-3, and so on. The record's status is then the one that the code returned."""

# ---------------------------------------------------------------------- memory at the field `profile`
PROFILE = {
    "events": Field("ptr", 0),  # an array of EVENT, zero at first; null if only records are wanted
    "room": Field("i64", 8),  # number of events that fit
    "begun": Field("i64", 16),  # number of events so far, including those that did not fit; 0 at first
}
"""The head of that memory. A record for each of `Program.timed` follows, zero at first, of i64: the number of runs, the
nanoseconds of all runs, and those of the most recent runs, the nth at n modulo PROFILE_SAMPLES."""
PROFILE_HEAD_BYTES = 8 * len(PROFILE)
PROFILE_SAMPLES = 1022
PROFILE_BYTES = 8 * (2 + PROFILE_SAMPLES)
"""Bytes of a record."""
EVENT = {
    "step": Field("i64", 0),  # the number of its record
    "thread": Field("i64", 8),  # the result of pthread_self
    "begin": Field("i64", 16),  # nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share
    "end": Field("i64", 24),  # 0 until the run ends; `begin` is written at the same time
}
"""One run of a step. Events are in the order in which they began, so enclosing steps come first."""
EVENT_BYTES = 8 * len(EVENT)


def instance_bytes(constants: int) -> int:
    """Bytes of the instance of a program with this number of constants."""
    return CONSTANTS + 8 * constants


def arena_bytes(fixed: int, scratch: Sequence[ScratchBytes], threads: int) -> int:
    """Bytes of the arena of a call that may use `threads` threads, for a program's `arena_bytes` and `scratch`."""
    scratch_bytes = max((s.nbytes(threads) for s in scratch), default=0)
    return fixed + -(-scratch_bytes // ALIGN) * ALIGN


# ---------------------------------------------------------------------- in machine code
def load(b: Builder, instance: V, name: str) -> V:
    """Loads a field of the instance."""
    field = INSTANCE[name]
    return b.load(field.type, b.offset(instance, field.offset))


def count_draw(b: Builder, instance: V) -> V:
    """Increments `draws`. Returns the previous number as an i64, which no other draw of the instance gets.

    Threads that share the instance each count in one atomic operation. They pass the same record as a `noalias`
    parameter.
    LLVM keeps an atomic operation whose result is used, whatever it assumes about other accesses to the memory.
    """
    field = INSTANCE["draws"]
    return b.emit(field.type, f"atomicrmw add ptr {b.offset(instance, field.offset).text}, i64 1 monotonic")


def load_constant(b: Builder, instance: V, index: int) -> V:
    """The address of a constant."""
    return b.load("ptr", b.offset(instance, CONSTANTS + 8 * index))


def store_error(b: Builder, instance: V, status: V, call: int = NO_CALL) -> None:
    """Fills the error record."""
    b.store(status, b.offset(instance, INSTANCE["error_status"].offset))
    b.store(i32(call), b.offset(instance, INSTANCE["error_call"].offset))
