"""Comparison of results with expected ones, as reported by `shlo-jit run --check`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np


class Tolerance(NamedTuple):
    """Permitted difference of an element from the expected one: `atol + rtol * |expected|`."""

    rtol: float = 0.0
    atol: float = 0.0

    def __str__(self) -> str:
        return f"{self.rtol:.2g} x + {self.atol:.2g}"


@dataclass(frozen=True)
class Difference:
    """Difference of one result from the expected one, over all of its elements."""

    same_bits: bool
    ulps: float
    """The largest difference, in units in the last place of the expected element."""
    relative: float
    """The largest difference, divided by the largest finite expected element."""
    at: tuple[int, ...]
    """Index of the largest difference; if elements exceed a tolerance, of the one that exceeds it most."""
    bound: float | Tolerance
    """The given tolerance, or the maximum of `relative`: 0 for integers, otherwise the square root of epsilon, which
    means half of the digits."""
    is_close: bool
    """Whether all elements are within `bound`."""

    @property
    def verdict(self) -> str:
        """One-word summary. `equal` elements may have different bits, since zeros and NaN have signs."""
        if self.same_bits:
            return "same bits"
        return "DIFFERS" if not self.is_close else "close" if self.relative else "equal"


def difference(got: np.ndarray, want: np.ndarray, tolerance: Tolerance | None = None) -> Difference:
    """Compares two arrays of the same shape and dtype, which may be any of numpy or ml_dtypes.

    Infinities and NaN differ infinitely from everything but themselves. Raises ValueError if shapes or dtypes differ.
    """
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        raise ValueError(f"expected {want.dtype.name}{list(want.shape)}, got {got.dtype.name}{list(got.shape)}")
    numbers = _numbers(want)
    limits = _limits(want.dtype)
    if want.size == 0:
        return Difference(True, 0.0, 0.0, (), tolerance or limits.bound, True)
    distance = _distance(_numbers(got), numbers)
    finite = np.abs(numbers[np.isfinite(numbers)])
    at = np.unravel_index(int(np.argmax(distance)), distance.shape)
    with np.errstate(all="ignore"):
        ulps = np.where(distance > 0, distance / limits.ulp(numbers), 0)
        relative = float(distance[at] / finite.max(initial=0) if distance[at] else 0.0)
        is_close = relative <= limits.bound
        if tolerance is not None:
            may_be = tolerance.atol + tolerance.rtol * np.abs(numbers)
            beyond = np.where(distance > 0, distance - np.where(np.isfinite(may_be), may_be, 0), 0)
            is_close = bool((beyond <= 0).all())
            at = at if is_close else np.unravel_index(int(np.argmax(beyond)), beyond.shape)
    same = np.array_equal(np.ascontiguousarray(got).view(np.uint8), np.ascontiguousarray(want).view(np.uint8))
    return Difference(same, float(ulps.max()), relative, _place(at, want), tolerance or limits.bound, is_close)


@dataclass(frozen=True)
class _Limits:
    """Resolution of a dtype."""

    eps: float
    smallest: float
    bound: float

    def ulp(self, x: np.ndarray) -> np.ndarray:
        _, exponent = np.frexp(np.where(np.isfinite(x) & (x != 0), x, self.smallest))
        return np.maximum(np.ldexp(self.eps, exponent - 1), self.smallest)


def _limits(dtype: np.dtype) -> _Limits:
    if dtype.kind in "biu" or dtype.name.lstrip("u").startswith("int"):
        return _Limits(1.0, 1.0, 0.0)
    info = ml_dtypes.finfo(dtype)
    eps = float(info.eps)
    return _Limits(eps, float(info.smallest_subnormal), math.sqrt(eps))


def _numbers(x: np.ndarray) -> np.ndarray:
    """Converts to f64, or to long doubles for 8-byte elements. Complex numbers become pairs along a last dimension."""
    if x.dtype.kind == "c":
        return np.stack([np.real(x), np.imag(x)], axis=-1).astype(np.float64)
    return x.astype(np.longdouble if x.dtype.itemsize == 8 else np.float64)


def _distance(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        distance = np.abs(got - want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0, np.where(np.isnan(distance), np.inf, distance))


def _place(at: tuple[np.intp, ...], x: np.ndarray) -> tuple[int, ...]:
    """Returns the index in `x`, without the index of a complex number's part."""
    return tuple(int(i) for i in at[: x.ndim])
