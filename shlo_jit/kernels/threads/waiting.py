"""Waiting of the pool's threads until a word of memory changes: they spin, then they sleep.

There are two mechanisms for sleeping. Both guarantee that no wake-up is lost: a thread that changes the word and then
wakes, wakes all threads that saw the old value and have begun to wait. No thread begins to wait after the word has
changed.

    Futexes      the kernel compares the word when it puts a thread to sleep
    Conditions   the word is compared with a mutex held, and the waking thread takes that mutex in between
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target

FUTEX_WAIT, FUTEX_WAKE = 128, 129
"""Operations with FUTEX_PRIVATE_FLAG."""
OBJECT_BYTES = 128
"""Size of a mutex or a condition, which take 40 to 64 bytes in the known C libraries, rounded up."""
EVERYBODY = 0x7FFFFFFF


class Waiting(Protocol):
    """Emits the calls of a mechanism. `objects` is memory of 3 * OBJECT_BYTES in the pool's state, for its objects.
    `word` is the word that the caller of a job waits on if `of_caller`, else the word that workers wait on."""

    wiped_on_fork: bool
    """Whether the kernel can zero the state in a forked child."""

    def make(self, b: Builder, objects: V) -> None: ...

    def destroy(self, b: Builder, objects: V) -> None: ...

    def wait(self, b: Builder, objects: V, word: V, seen: V, of_caller: bool) -> None:
        """Sleeps while `word` is `seen`, an i32; may return spuriously."""
        ...

    def wake(self, b: Builder, objects: V, word: V, count: V, of_caller: bool) -> None:
        """Wakes at least `count` sleepers (an i32), or all if there are fewer."""
        ...


class Futexes:
    """Futexes of Linux."""

    wiped_on_fork = True

    def __init__(self, target: Target) -> None:
        self._number = i64(202 if target.arch == "x86_64" else 98)  # newer architectures have one table

    def make(self, b: Builder, objects: V) -> None:
        pass

    def destroy(self, b: Builder, objects: V) -> None:
        pass

    def wait(self, b: Builder, objects: V, word: V, seen: V, of_caller: bool) -> None:
        self._call(b, word, FUTEX_WAIT, seen)

    def wake(self, b: Builder, objects: V, word: V, count: V, of_caller: bool) -> None:
        self._call(b, word, FUTEX_WAKE, count)

    def _call(self, b: Builder, word: V, operation: int, value: V) -> None:
        no_time_limit = V("ptr", "null")
        b.call("i64", "syscall", [self._number, word, i64(operation), b.cast("sext", value, "i64"), no_time_limit])


class Conditions:
    """POSIX threads: a mutex, a condition for workers, and one for the caller."""

    wiped_on_fork = False

    def __init__(self, target: Target) -> None:
        pass

    def make(self, b: Builder, objects: V) -> None:
        default = V("ptr", "null")
        b.call("i32", "pthread_mutex_init", [objects, default])
        for of_caller in (False, True):
            b.call("i32", "pthread_cond_init", [self._condition(b, objects, of_caller), default])

    def destroy(self, b: Builder, objects: V) -> None:
        for of_caller in (False, True):
            b.call("i32", "pthread_cond_destroy", [self._condition(b, objects, of_caller)])
        b.call("i32", "pthread_mutex_destroy", [objects])

    def wait(self, b: Builder, objects: V, word: V, seen: V, of_caller: bool) -> None:
        b.call("i32", "pthread_mutex_lock", [objects])
        now = b.emit("i32", f"load atomic i32, ptr {word.text} seq_cst, align 4")
        with b.if_(b.icmp("eq", now, seen)):
            b.call("i32", "pthread_cond_wait", [self._condition(b, objects, of_caller), objects])
        b.call("i32", "pthread_mutex_unlock", [objects])

    def wake(self, b: Builder, objects: V, word: V, count: V, of_caller: bool) -> None:
        b.call("i32", "pthread_mutex_lock", [objects])
        b.call("i32", "pthread_cond_broadcast", [self._condition(b, objects, of_caller)])
        b.call("i32", "pthread_mutex_unlock", [objects])

    def _condition(self, b: Builder, objects: V, of_caller: bool) -> V:
        return b.offset(objects, 2 * OBJECT_BYTES if of_caller else OBJECT_BYTES)


def spinning(target: Target) -> str:
    """Returns the attributes of functions that call `spin`. LLVM emits RISC-V's pause only for CPUs with that
    extension; other CPUs execute it as a `fence` without effect."""
    if target.arch != "riscv64":
        return "nounwind"
    features = f"{target.features},+zihintpause".lstrip(",")
    return f'nounwind "target-features"="{features}"'


def spin(b: Builder, target: Target, met: Callable[[], V]) -> V:
    """Evaluates `met()` up to SPIN_ROUNDS times with pauses in between. Returns the last answer (i1)."""
    before, body, more, end = b.block, b.label("body"), b.label("more"), b.label("spun")
    b.branch(body)
    b.start(body)
    position, count = b.position(), b.reserve("i32")
    answer = met()
    b.branch_if(answer, end, more)
    b.start(more)
    relax(b, target)
    following = b.add(count, i32(1))
    b.branch_if(b.icmp("slt", following, i32(tuning.SPIN_ROUNDS)), body, end)
    b.fill_phi(position, count, [(i32(0), before), (following, more)])
    b.start(end)
    return answer


def relax(b: Builder, target: Target) -> None:
    """Emits the hint that tells the core that this is a spin loop."""
    if target.arch == "x86_64":
        b.call("void", "llvm.x86.sse2.pause", [])
    elif target.arch == "aarch64":
        b.call("void", "llvm.aarch64.hint", [i32(1)])
    elif target.arch == "riscv64":
        b.call("void", "llvm.riscv.pause", [])
