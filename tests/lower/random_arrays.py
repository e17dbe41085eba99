"""Random arrays of every element type, and comparison within a type's precision."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from shlo_jit.ir.types import DType

ROUNDINGS = 4
"""Units in the last place of the largest element by which another order of additions may differ."""


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, special: bool = False) -> np.ndarray:
    """Returns values that repeat now and then; with `special`, floats include NaN, infinities and both zeros."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        bits = min(dtype.bits, 6)
        low = 0 if dtype.kind == "u" else -(2 ** (bits - 1))
        return rng.integers(low, low + 2**bits, shape).astype(dtype.numpy)
    x = np.asarray(rng.integers(-40, 40, shape) / 8.0)
    if special:
        odd = rng.choice(np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]), shape)
        x = np.where(rng.random(shape) < 0.3, odd, x)
    if dtype.is_complex:
        x = x + 1j * rng.integers(-8, 8, shape) / 4.0
    return np.asarray(x).astype(dtype.numpy)


def close(got: np.ndarray, expected: np.ndarray, dtype: DType) -> None:
    """Compares integers exactly, floats up to some roundings."""
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected)
        return
    want = expected.astype(np.complex128 if dtype.is_complex else np.float64)
    unit = float(ml_dtypes.finfo(got.real.dtype if dtype.is_complex else got.dtype).eps)
    largest = np.abs(want[np.isfinite(want)]).max(initial=0)
    np.testing.assert_allclose(got.astype(want.dtype), want, rtol=0, atol=ROUNDINGS * unit * largest)
