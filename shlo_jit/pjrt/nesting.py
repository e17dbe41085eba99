"""Tracks the threads that run functions of the framework's language, which programs call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_this_thread = threading.local()


def in_callback() -> bool:
    """Whether this thread runs such a function."""
    return getattr(_this_thread, "depth", 0) > 0


@contextmanager
def within_callback() -> Iterator[None]:
    _this_thread.depth = getattr(_this_thread, "depth", 0) + 1
    try:
        yield
    finally:
        _this_thread.depth -= 1
