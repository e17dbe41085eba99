"""Support for programs with deeply nested regions, whose recursive traversal overflows the stack of a thread.

Traversals of regions are recursive, which is the most readable form. `deeply` gives a function enough stack for
NESTING_LIMIT levels: it first calls the function directly, and again in a separate thread if that reaches Python's
recursion limit. So the function must tolerate being started twice.
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
"""Maximum nesting of regions."""
FRAMES = 100 * NESTING_LIMIT
"""Recursion limit of the thread: more than any traversal takes for that nesting."""
STACK_BYTES = 256 << 20
"""Address space reserved for the stack, of which only the used part takes memory."""

_here = threading.local()
_lock = threading.Lock()
_running = 0
_limit_before = 0


def _after_fork() -> None:
    """Replaces the lock, which another thread that does not exist in the child may have held."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def deeply(function: Callable[P, T]) -> Callable[P, T]:
    """Returns the function with enough stack for deeply nested programs."""

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
    """Runs the work in a thread with a large stack; returns its result or raises its exception."""
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
    with _lock:  # the stack size is per process: another thread that starts meanwhile gets it too
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
    """Raises the recursion limit, which is per interpreter, while any deep thread runs."""
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
