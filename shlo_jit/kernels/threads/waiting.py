"""How a thread of the pool waits until a word of memory changes: it spins, then it sleeps.

Two ways to sleep. Both keep this promise, with which no wake-up is lost: whoever changes the word first and wakes
afterwards, wakes everybody who saw the old value and has begun to wait, and nobody begins to wait who would see the old
value no more.

    Futexes      the kernel compares the word when it puts a thread to sleep
    Conditions   the word is compared with a mutex held, and whoever wakes takes that mutex in between
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.target import Target

FUTEX_WAIT, FUTEX_WAKE = 128, 129
"""With FUTEX_PRIVATE_FLAG."""
OBJECT_BYTES = 128
"""Room for a mutex or a condition: they take 40 to 64 bytes in the C libraries there are."""
EVERYBODY = 0x7FFFFFFF


class Waiting(Protocol):
    """Writes the calls. `objects` is memory in the pool's state, 3 * OBJECT_BYTES, for what they need; `word` is one of
    two, told apart by `of_caller`: the one that the caller of a job waits on, or the one that workers do."""

    wiped_on_fork: bool
    """The kernel can be asked to zero the state in a child."""

    def make(self, b: Builder, objects: V) -> None: ...

    def destroy(self, b: Builder, objects: V) -> None: ...

    def wait(self, b: Builder, objects: V, word: V, seen: V, of_caller: bool) -> None:
        """Sleep while `word` is `seen`, an i32; now and then return for no reason."""
        ...

    def wake(self, b: Builder, objects: V, word: V, count: V, of_caller: bool) -> None:
        """Wake at least `count` who sleep, an i32, if there are so many."""
        ...


class Futexes:
    """Linux."""

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
    """POSIX: a mutex, a condition for workers, one for the caller."""

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
    """Attributes of functions that call `spin`. LLVM writes RISC-V's pause for CPUs with that extension only; to all
    others it is a `fence` that does nothing."""
    if target.arch != "riscv64":
        return "nounwind"
    features = f"{target.features},+zihintpause".lstrip(",")
    return f'nounwind "target-features"="{features}"'


def spin(b: Builder, target: Target, met: Callable[[], V]) -> V:
    """Evaluate `met()` up to SPIN_ROUNDS times with pauses between; the last answer (i1)."""
    before, body, more, end = b.block, b.label("turn"), b.label("more"), b.label("spun")
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
    """Tell the core that this is a spin loop."""
    if target.arch == "x86_64":
        b.call("void", "llvm.x86.sse2.pause", [])
    elif target.arch == "aarch64":
        b.call("void", "llvm.aarch64.hint", [i32(1)])
    elif target.arch == "riscv64":
        b.call("void", "llvm.riscv.pause", [])
