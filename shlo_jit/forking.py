"""Forks while other threads compile.

A child has only the thread that forked. Locks that other threads held stay locked in it: LLVM's, llvmlite's, those of
modules being imported. So a fork waits until the threads that compile hold no such locks: at `pause`, between two steps
of a compilation, or when they are done. It keeps them waiting until it has happened.

    with compiling():           # no other thread forks meanwhile
        ...
        pause()                 # unless a thread waits to fork

A signal handler may run in a thread that waits to fork, and compile, fork or wait for another thread's code. Then the
others continue, and the fork waits again afterwards.

A fork waits for at most FORK_SECONDS. If one call of LLVM takes longer, the fork proceeds, and the child must not
compile (`compiling` raises RuntimeError there); it can call compiled code.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

FORK_SECONDS = 10.0


class Gate:
    """Mutual exclusion of compilations and forks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: dict[int, int] = {}
        """Threads that compile, with the number of times each has entered."""
        self._forking: int | None = None
        """The thread that forks, or waits to fork."""
        self._waits = False
        """Whether it still waits. A signal handler that runs meanwhile cancels the wait."""
        self._llvm: Any = None
        """llvmlite's lock, while a fork holds it."""
        self._in_time = True
        """Whether the current fork found all threads paused."""
        self.is_broken = False
        """Whether this is a child of a fork that did not."""

    @property
    def is_fork_waiting(self) -> bool:
        return self._forking is not None

    def enter(self, times: int = 1) -> None:
        """Waits until no thread forks."""
        this = threading.get_ident()
        with self._changed:
            self._let_others(this)
            while self._forking not in (None, this) and this not in self._inside:
                self._changed.wait()
            self._inside[this] = self._inside.get(this, 0) + times

    def leave(self) -> int:
        """Leaves once; returns how many times this thread is still inside."""
        this = threading.get_ident()
        with self._changed:
            left = self._inside.pop(this) - 1
            if left:
                self._inside[this] = left
            self._changed.notify_all()
        return left

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Temporarily leaves, so that others can fork.

        In a signal handler of a thread that waits to fork, it lets others compile: the handler may wait for them.
        """
        this = threading.get_ident()
        with self._changed:
            self._let_others(this)
            times = self._inside.pop(this, 0)
            self._changed.notify_all()
        try:
            yield
        finally:
            if times:
                self.enter(times)

    def _let_others(self, this: int) -> None:
        if self._waits and self._forking == this:
            self._forking = None
            self._changed.notify_all()

    # ------------------------------------------------------------------ around a fork
    def before(self) -> None:
        this, deadline = threading.get_ident(), time.monotonic() + FORK_SECONDS
        if self._forking == this and not self._waits:  # it is registered twice, see `register_before`
            return
        with self._changed:
            while not self._may_fork(this, deadline):
                pass
        ffi = sys.modules.get("llvmlite.binding.ffi")
        if ffi is not None:  # others may use llvmlite, too
            lock = ffi.lib._lock._lock
            if lock.acquire(timeout=max(0.0, deadline - time.monotonic()) or 0.01):
                self._llvm = lock
            else:
                self._in_time = False

    def _may_fork(self, this: int, deadline: float) -> bool:
        """Waits until the thread may fork, or until the deadline; returns False if a signal handler let others
        continue."""
        self._let_others(this)
        while self._forking is not None:
            self._changed.wait()
        self._forking, self._waits = this, True
        left = max(0.0, deadline - time.monotonic())
        at_rest = self._changed.wait_for(lambda: self._forking != this or not self._inside.keys() - {this}, left)
        if self._forking != this:
            return False
        self._in_time, self._waits = at_rest, False
        return True

    def after_in_parent(self) -> None:
        if self._forking != threading.get_ident():
            return
        self._give_back()
        with self._changed:
            self._forking = None
            self._changed.notify_all()

    def after_in_child(self) -> None:
        if self._forking != threading.get_ident():
            return
        self._give_back()
        times = self._inside.get(threading.get_ident())
        self._changed = threading.Condition()  # another thread may have held it
        self.is_broken |= not self._in_time
        self._inside = {} if times is None else {threading.get_ident(): times}
        self._forking = None

    def _give_back(self) -> None:
        if self._llvm is not None:
            self._llvm.release()
            self._llvm = None


GATE = Gate()


@functools.cache
def register_before(module: str) -> None:
    """Registers our fork handler so that it runs before that of a module that is already imported.

    The module holds a lock of its own during a fork. A compilation might need that lock before it lets others fork.
    """
    assert module in sys.modules
    os.register_at_fork(before=GATE.before, after_in_parent=GATE.after_in_parent, after_in_child=GATE.after_in_child)


register_before(__name__)


def thread_pool(threads: int, name: str) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    executor = ThreadPoolExecutor(threads, name)
    register_before("concurrent.futures.thread")
    return executor


@contextmanager
def compiling() -> Iterator[None]:
    """Prevents forks during imports and LLVM's work. Raises RuntimeError in a child that was forked during a
    compilation."""
    if GATE.is_broken:
        raise RuntimeError(
            f"this process was forked while another thread had been compiling for {FORK_SECONDS:g} s; compile before "
            f"the fork, or start the process with multiprocessing's 'spawn' or 'forkserver'"
        )
    GATE.enter()
    try:
        yield
    finally:
        GATE.leave()


def pause() -> None:
    """Lets waiting threads fork. Must not be called while holding a lock that other threads may wait for."""
    if GATE.is_fork_waiting:
        with GATE.outside():
            pass
