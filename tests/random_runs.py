"""How many random programs the tests that are marked slow run: `RANDOM_PROGRAMS=20000 pytest -m slow ...`."""

from __future__ import annotations

import os


def seeds(usual: int) -> range:
    """The seeds of a long run: so many, or those that the environment asks for, from RANDOM_FIRST on."""
    first = int(os.environ.get("RANDOM_FIRST", "0"))
    return range(first, first + int(os.environ.get("RANDOM_PROGRAMS", usual)))
