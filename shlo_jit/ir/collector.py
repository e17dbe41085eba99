"""Pausing of Python's cyclic garbage collector."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Disables garbage collection in a `with` block or a decorated function.

    Ops, values and blocks refer to each other and live as long as their module, so the collector traverses all of them
    repeatedly and frees nothing: 4.3 instead of 0.5 us per op in the parser, and a fifth of the passes' time.
    """
    global _pausing  # noqa: PLW0603
    paused = gc.isenabled()
    gc.disable()
    if paused:
        _pausing = threading.get_ident()
    try:
        yield
    finally:
        if paused:
            _pausing = None
            gc.enable()


_pausing: int | None = None
"""The thread that will enable the collector again."""


def _after_fork() -> None:
    """Enables the collector in a forked child, in which the pausing thread may not exist."""
    global _pausing  # noqa: PLW0603
    if _pausing not in (None, threading.get_ident()):
        _pausing = None
        gc.enable()


os.register_at_fork(after_in_child=_after_fork)
