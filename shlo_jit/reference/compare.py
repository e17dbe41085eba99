"""How far results are from those expected: what `shlo-jit run --check` says of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np


class Tolerance(NamedTuple):
    """How far an element may be from what is expected: `atol`, and `rtol` times that besides."""

    rtol: float = 0.0
    atol: float = 0.0

    def __str__(self) -> str:
        return f"{self.rtol:.2g} x + {self.atol:.2g}"


@dataclass(frozen=True)
class Difference:
    """Of one result, over all of its elements."""

    same_bits: bool
    ulps: float
    """The largest difference in units in the last place of the element expected."""
    relative: float
    """The largest difference, over the largest finite element expected."""
    at: tuple[int, ...]
    """Where that is; where elements are beyond a tolerance, the one that is farthest."""
    bound: float | Tolerance
    """What `relative` may be, unless a tolerance was given: 0 of integers, and half of the digits of others, the square
    root of epsilon."""
    is_close: bool
    """Whether all is within that."""

    @property
    def verdict(self) -> str:
        """In a word. `equal` without having the same bits: zeros and NaN have signs."""
        if self.same_bits:
            return "same bits"
        return "DIFFERS" if not self.is_close else "close" if self.relative else "equal"


def difference(got: np.ndarray, want: np.ndarray, tolerance: Tolerance | None = None) -> Difference:
    """Between two arrays of a shape and a dtype, any that ml_dtypes or numpy has. Infinities and NaN differ infinitely
    from all but themselves. Raises ValueError where shapes or dtypes are not the same."""
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        raise ValueError(f"{got.dtype.name}{list(got.shape)} and {want.dtype.name}{list(want.shape)} do not compare")
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
    """What a dtype can tell apart."""

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
    """In f64, or as long integers where there are such; complex numbers as pairs along a last dimension."""
    if x.dtype.kind == "c":
        return np.stack([np.real(x), np.imag(x)], axis=-1).astype(np.float64)
    return x.astype(np.longdouble if x.dtype.itemsize == 8 else np.float64)


def _distance(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        distance = np.abs(got - want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0, np.where(np.isnan(distance), np.inf, distance))


def _place(at: tuple[np.intp, ...], x: np.ndarray) -> tuple[int, ...]:
    """An index of `x`; of a complex number, whichever part it was."""
    return tuple(int(i) for i in at[: x.ndim])
