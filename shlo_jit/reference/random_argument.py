"""Random arguments to run a program without real data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from shlo_jit.ir.types import DTYPES


def random_argument(generator: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    """Returns a random array: floats and complex numbers are normally distributed, integers are in [0, 10) or the range
    of the type."""
    kind = next(d.kind for d in DTYPES.values() if d.numpy == dtype)
    if kind in "fc":
        values = generator.standard_normal(shape)
        return np.asarray(values if kind == "f" else values + 1j * generator.standard_normal(shape)).astype(dtype)
    high = 2 if kind == "b" else min(10, int(ml_dtypes.iinfo(dtype).max) + 1)
    return np.asarray(generator.integers(0, high, shape)).astype(dtype)
