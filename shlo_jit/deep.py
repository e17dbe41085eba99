"""Programs whose regions nest deeply: walking them recursively takes more stack than a thread usually has.

Walks over regions are recursive, which is how they are best read. `deeply` lets a function that walks have as much
stack as NESTING_LIMIT levels take: it runs as it is first, and where that meets Python's recursion limit once more in a
thread of its own. So it must not do anything twice that may be done once only.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from shlo_jit.forking import GATE, compiling

P = ParamSpec("P")
T = TypeVar("T")

NESTING_LIMIT = 1100
"""Regions may nest this deep."""
FRAMES = 100 * NESTING_LIMIT
"""Recursion limit of the thread: more than any walk takes for so many regions."""
STACK_BYTES = 256 << 20
"""Reserved, and used as far as it is needed."""

_here = threading.local()
_lock = threading.Lock()
_running = 0
_limit_before = 0


def _after_fork() -> None:
    """Another thread may have held the lock, and it does not exist in the child."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def deeply(function: Callable[P, T]) -> Callable[P, T]:
    """The function, with enough stack for deeply nested programs."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if getattr(_here, "is_deep", False):
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except RecursionError:
            pass
        return _in_deep_thread(lambda: function(*args, **kwargs))

    return run


def _in_deep_thread(work: Callable[[], T]) -> T:
    """What the work returns, done in a thread with a large stack. Raises what it raises."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        _here.is_deep = True
        _raise_limit()
        try:
            with compiling():
                results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            _restore_limit()

    thread = threading.Thread(target=run, name="shlo_jit deep", daemon=True)
    with _lock:  # the size is the process's: another thread that starts meanwhile gets it too
        before = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    with GATE.outside():
        thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _raise_limit() -> None:
    """The recursion limit is the interpreter's: it is raised while any deep thread runs."""
    global _running, _limit_before  # noqa: PLW0603
    with _lock:
        if _running == 0:
            _limit_before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_limit_before, FRAMES))
        _running += 1


def _restore_limit() -> None:
    global _running  # noqa: PLW0603
    with _lock:
        _running -= 1
        if _running == 0:
            sys.setrecursionlimit(_limit_before)
