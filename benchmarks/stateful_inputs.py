"""Arguments of the programs of `benchmarks.stateful_loops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[Callable[..., Any], tuple]
"""A function and its arguments."""
ROUNDS = 300
"""Iterations of most loops."""


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return rng().standard_normal(shape).astype(np.float32)


def places_in(count: int, most: int) -> np.ndarray:
    """Random indices below `most`."""
    return rng().integers(0, most, count).astype(np.int32)
