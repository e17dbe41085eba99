"""A program to be timed. This module is in no package, because processes that measure the start import it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Ready:
    """A program that can be called."""

    call: Callable[[], Any]
    """Runs the program and waits for the results."""
    arrays: Callable[[Any], list[np.ndarray]]
    """The results of a call as numpy arrays."""
    compile_seconds: float | None = None
    """Seconds from the lowered program to a callable one."""


def listed(results: Any) -> list[np.ndarray]:
    """Returns one or several results as a list."""
    return [np.asarray(r) for r in (results if isinstance(results, tuple | list) else [results])]
