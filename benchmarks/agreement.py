"""Comparison of the results of two peers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def difference(got: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float, strict: bool = True) -> str:
    """Describes in a line how `got` differs from `expected`; empty if they agree.

    An element may be off by `tolerance * (|expected| + rms(expected))`; NaN agrees with NaN. With `strict` the dtypes
    must be equal too (some of NumPy's functions return wider ones).
    """
    if len(got) != len(expected):
        return f"{len(got)} results, expected {len(expected)}"
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        if a.shape != b.shape or (strict and a.dtype != b.dtype):
            return f"result {i}: {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
        wrong, worst = _mismatches(a, b, tolerance)
        if wrong:
            return f"result {i}: {wrong} of {b.size} elements differ, by up to {worst:.2g}"
    return ""


def _mismatches(got: np.ndarray, expected: np.ndarray, tolerance: float) -> tuple[int, float]:
    """Number of elements that differ too much, and the largest relative error."""
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    if not tolerance:
        same = got == expected
        if expected.dtype.kind in "fc":
            same |= np.isnan(got) & np.isnan(expected)
        return int((~same).sum()), float("inf")
    a, b = got.astype(wide), expected.astype(wide)
    finite = np.isfinite(b)
    rms = float(np.sqrt(np.mean(np.abs(b[finite]) ** 2))) if finite.any() else 0.0
    with np.errstate(invalid="ignore"):
        error = np.abs(a - b) / (np.abs(b) + rms + 1e-300)
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (error <= tolerance)
    wrong = ~same
    return int(wrong.sum()), float(error[wrong].max()) if wrong.any() else 0.0
