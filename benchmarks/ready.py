"""What is timed; of no package, as processes that measure the start import it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Ready:
    """A program that can be called."""

    call: Callable[[], Any]
    """Runs it and waits until the results are there."""
    arrays: Callable[[Any], list[np.ndarray]]
    """The results of a call as numpy arrays."""
    compile_seconds: float | None = None
    """From the lowered program to one that can be called."""


def listed(results: Any) -> list[np.ndarray]:
    """A result, or several, as a list."""
    return [np.asarray(r) for r in (results if isinstance(results, tuple | list) else [results])]
