"""References for the functions of `shlo_jit.kernels.math`: error bounds, values in f64 and with mpmath, ULPs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
from scipy import special

mp.mp.prec = 240
Array = np.ndarray
Number = Any


def in_f64(f: Callable[..., Array]) -> Callable[..., Array]:
    """Returns the reference for f32: f evaluated in f64."""

    def reference(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            return f(*[np.asarray(a, np.float64) for a in args])

    return reference


def away_from_zero(x: Array) -> Array:
    t = np.trunc(x)
    return np.copysign(t + np.copysign(np.abs(x - t) >= 0.5, x), x)


def logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


UNARY: dict[str, tuple[Callable[..., Array], Callable[[Number], Number], float, float]] = {
    # name: reference in f64, in mpmath, bound in ULP for f32 and f64
    "exp": (np.exp, mp.exp, 1, 1),
    "expm1": (np.expm1, mp.expm1, 1, 1),
    "log": (np.log, mp.log, 1, 1),
    "log1p": (np.log1p, mp.log1p, 1, 1),
    "tanh": (np.tanh, mp.tanh, 2, 2),
    "logistic": (logistic, lambda x: 1 / (1 + mp.exp(-x)), 2, 2),
    "sqrt": (np.sqrt, mp.sqrt, 0.5, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: 1 / mp.sqrt(x), 1, 1),
    "cbrt": (np.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x)), 1, 1),
    "sin": (np.sin, mp.sin, 1, 1),
    "cos": (np.cos, mp.cos, 1, 1),
    "tan": (np.tan, mp.tan, 2, 2),
    "erf": (special.erf, mp.erf, 1, 1),
    "erfc": (special.erfc, mp.erfc, 2, 4),
    "erf_inv": (special.erfinv, mp.erfinv, 4, 8),
    "atan": (np.arctan, mp.atan, 2, 2),
    "asin": (np.arcsin, mp.asin, 2, 2),
    "acos": (np.arccos, mp.acos, 2, 2),
    "sinh": (np.sinh, mp.sinh, 2, 2),
    "cosh": (np.cosh, mp.cosh, 2, 2),
    "asinh": (np.arcsinh, mp.asinh, 2, 2),
    "acosh": (np.arccosh, mp.acosh, 2, 2),
    "atanh": (np.arctanh, mp.atanh, 2, 2),
    "log2": (np.log2, lambda x: mp.log(x, 2), 2, 2),
    "bessel_i1e": (special.i1e, lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), 1, 4),
}

BINARY: dict[str, tuple[Callable[..., Array], Callable[[Number, Number], Number], float, float]] = {
    "pow": (np.power, mp.power, 1, 1),
    "atan2": (np.arctan2, mp.atan2, 2, 2),
}


def ulps(got: Array, reference: Array) -> Array:
    """Returns |got - reference| in units in the last place of the reference, for got in f32 and the reference in f64.
    Zero where the rounded reference agrees (NaN with NaN, infinity with infinity); infinite if only one is NaN."""
    with np.errstate(all="ignore"):
        rounded = reference.astype(np.float32)
        result = np.zeros(got.shape)
        differ = np.flatnonzero((got != rounded) & ~(np.isnan(got) & np.isnan(rounded)))
        y, r = got.ravel()[differ].astype(np.float64), reference.ravel()[differ]
        exponent = np.frexp(np.abs(r))[1] - 24
        error = np.abs(y - r) / np.ldexp(1.0, np.clip(exponent, -149, 104))
        result.ravel()[differ] = np.where(np.isnan(error), np.inf, error)
    return result


def ulps_exact(got: float, exact: Number) -> float:
    """Returns the same for one f64 and an mpmath number."""
    if mp.isnan(exact):
        return 0.0 if np.isnan(got) else float("inf")
    size = abs(exact)
    if size >= mp.mpf(2) ** 1024 * (1 - mp.mpf(2) ** -54):
        return 0.0 if np.isinf(got) and (got > 0) == (exact > 0) else float("inf")
    if not np.isfinite(got):
        return float("inf")
    exponent = max(int(mp.frexp(exact)[1]) - 53, -1074) if size else -1074
    return float(abs(mp.mpf(float(got)) - exact) / mp.mpf(2) ** exponent)


def edges(dtype: type) -> Array:
    """Returns zeros, infinities, NaN, the smallest and largest numbers, small integers and their neighbours."""
    info = np.finfo(dtype)
    positive = [0.0, info.smallest_subnormal, 7 * info.smallest_subnormal, info.tiny, info.tiny * (1 - info.eps)]
    positive += [info.max, np.inf, info.eps, 1e-10, 1e-5, 1e10, 1e30, 1e38]
    positive += [88.7, 88.8, 103.9, 104.5, 709.7, 709.8, 745.2]
    for k in (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 8.0, 10.0, 2.0**23, 2.0**24, 2.0**52, 2.0**53):
        positive += [k, k * (1 + info.eps), k * (1 - info.eps / 2)]
    values = np.array(positive, dtype=np.float64).astype(dtype)
    return np.concatenate([values, -values, np.array([np.nan], dtype)])


def samples(dtype: type, count: int, seed: int = 0) -> Array:
    """Returns the edges, random bit patterns, and numbers of common sizes."""
    rng = np.random.default_rng(seed)
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    patterns = rng.integers(0, np.iinfo(unsigned).max, count, dtype=unsigned, endpoint=True).view(dtype)
    sizes = rng.standard_normal(count) * np.exp2(rng.integers(-10, 8, count))
    near = rng.uniform(-2, 2, count)
    return np.concatenate([edges(dtype), patterns, sizes.astype(dtype), near.astype(dtype)])
