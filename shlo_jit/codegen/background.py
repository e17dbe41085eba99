"""Background compilation: LLVM needs no Python, so it runs while Python lowers the rest of a program."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from shlo_jit import tuning
from shlo_jit.forking import GATE, thread_pool

T = TypeVar("T")


class Job(Generic[T]):
    """Work that a background thread, or the caller, will do."""

    def __init__(self, work: Callable[[], T], executor: ThreadPoolExecutor) -> None:
        self._work = work
        self._submitted: Future[T]
        try:
            self._submitted = executor.submit(work)
        except RuntimeError:  # no more threads, or the interpreter is about to end: the caller will do it
            self._submitted = Future()
        self._done = self._submitted

    def take(self) -> None:
        """Does the work here, unless it has begun."""
        if self._done is self._submitted and self._submitted.cancel():
            self._done = Future()
            try:
                self._done.set_result(self._work())
            except Exception as error:
                self._done.set_exception(error)

    def result(self) -> T:
        """Returns what the work returned, and raises what it raised."""
        self.take()
        with GATE.outside():
            return self._done.result()


class _SwitchInterval:
    """Switch interval of Python's lock: shorter than Python's 5 ms while anything is compiled in the background.
    Between two jobs a thread takes the lock about fifteen times for a moment, and the thread that lowers the program
    never waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0.0

    def shorten(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, tuning.SWITCH_INTERVAL_SECONDS))

    def restore(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                sys.setswitchinterval(self._before)


_switch_interval = _SwitchInterval()


class Background:
    """Threads for one compilation, with a queue of jobs. Leaving the `with` block drops jobs that have not begun and
    waits for the rest."""

    def __init__(self, threads: int) -> None:
        self._executor = thread_pool(max(1, threads), "shlo_jit codegen")
        self._jobs: list[Job[Any]] = []

    def start(self, work: Callable[[], T]) -> Job[T]:
        """Puts work at the end of the queue."""
        job = Job(work, self._executor)
        self._jobs.append(job)
        return job

    def help(self) -> None:
        """Does jobs that have not begun, from the front of the queue, as one more thread."""
        for job in self._jobs:
            job.take()

    def __enter__(self) -> Background:
        _switch_interval.shorten()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with GATE.outside():
                self._executor.shutdown(cancel_futures=True)
        finally:
            _switch_interval.restore()
