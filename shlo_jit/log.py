"""The logger `shlo_jit`: at level DEBUG what came from the object cache, and how long each stage took.

logging.getLogger("shlo_jit").setLevel(logging.DEBUG)    # and a handler, as logging.basicConfig() gives

`logging` is imported only where somebody else has: a program from the object cache is there before that would be.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shlo_jit.forking import go_first

if TYPE_CHECKING:
    import logging


def log() -> logging.Logger:
    import logging

    go_first("logging")
    logger = logging.getLogger("shlo_jit")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def debug(message: str, *values: object) -> None:
    """A message at level DEBUG. Who has not imported `logging` has set no level."""
    if "logging" in sys.modules:
        log().debug(message, *values)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Log how long the block takes."""
    start = time.perf_counter()
    yield
    debug("%s: %.1f ms", name, 1e3 * (time.perf_counter() - start))
