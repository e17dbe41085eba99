"""Makers of inputs: each takes a random generator and returns an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Maker = Callable[[np.random.Generator], np.ndarray]


def normal(*shape: int, dtype: Any = np.float32, scale: float = 1.0) -> Maker:
    """Normally distributed numbers; complex ones for a complex dtype."""

    def make(generator: np.random.Generator) -> np.ndarray:
        values = generator.standard_normal(shape) * scale
        if np.issubdtype(dtype, np.complexfloating):
            values = values + 1j * generator.standard_normal(shape) * scale
        return np.asarray(values).astype(dtype)

    return make


def uniform(*shape: int, dtype: Any = np.float32) -> Maker:
    """Uniformly distributed numbers in [0, 1)."""
    return lambda generator: np.asarray(generator.random(shape)).astype(dtype)


def integers(*shape: int, low: int = 0, below: int, dtype: Any = np.int32) -> Maker:
    """Uniformly distributed integers in [low, below)."""
    return lambda generator: np.asarray(generator.integers(low, below, shape)).astype(dtype)


def value(array: Any) -> Maker:
    """A constant array."""
    return lambda generator: np.asarray(array)


def positive_definite(n: int) -> Maker:
    """A symmetric matrix with eigenvalues well above zero."""

    def make(generator: np.random.Generator) -> np.ndarray:
        a = generator.standard_normal((n, n)).astype(np.float32)
        return a @ a.T + n * np.eye(n, dtype=np.float32)

    return make
