"""The logger `shlo_jit`: at level DEBUG what came from the object cache, and how long each stage took.

logging.getLogger("shlo_jit").setLevel(logging.DEBUG)    # and a handler, as logging.basicConfig() gives
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

LOG = logging.getLogger("shlo_jit")
LOG.addHandler(logging.NullHandler())


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Log how long the block takes."""
    if not LOG.isEnabledFor(logging.DEBUG):
        yield
        return
    start = time.perf_counter()
    yield
    LOG.debug("%s: %.1f ms", name, 1e3 * (time.perf_counter() - start))
