"""The logger `shlo_jit`: at level DEBUG, lookups in the object cache and the time of each stage.

logging.getLogger("shlo_jit").setLevel(logging.DEBUG)    # and a handler, as logging.basicConfig() gives

`logging` is imported only if another module has imported it: the import takes longer than loading a program from the
object cache.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shlo_jit.forking import register_before

if TYPE_CHECKING:
    import logging


def log() -> logging.Logger:
    import logging

    register_before("logging")
    logger = logging.getLogger("shlo_jit")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def debug(message: str, *values: object) -> None:
    """Logs a message at level DEBUG. Without an import of `logging` no level can have been set."""
    if "logging" in sys.modules:
        log().debug(message, *values)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Logs the duration of the block."""
    start = time.perf_counter()
    yield
    debug("%s: %.1f ms", name, 1e3 * (time.perf_counter() - start))
