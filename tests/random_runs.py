"""Number of random programs of tests marked slow: `RANDOM_PROGRAMS=20000 pytest -m slow ...`."""

from __future__ import annotations

import os


def seeds(usual: int) -> range:
    """The seeds of a long run: the given number, or that of the environment, from RANDOM_FIRST on."""
    first = int(os.environ.get("RANDOM_FIRST", "0"))
    return range(first, first + int(os.environ.get("RANDOM_PROGRAMS", usual)))
