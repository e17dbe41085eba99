"""numpy meanings of complex arithmetic and functions.

complex<f32> arrives here as complex<f64> (`numeric.in_double`), except in plain arithmetic. The parts of a function are
computed apart where numpy's own loses digits (log of numbers near 1, expm1) or mixes an infinity with a NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
"""A numpy array (its stubs give `real` and `imag` to some dtypes only)."""


def join(real: Array, imag: Array) -> Array:
    """Parts to complex numbers of twice their width, without arithmetic."""
    real, imag = np.broadcast_arrays(np.asarray(real), np.asarray(imag))
    out = np.empty(real.shape, np.complex64 if real.dtype == np.float32 else np.complex128)
    out.real = real
    out.imag = imag
    return out


def _long(x: Array) -> tuple[Array, Array]:
    """Real and imaginary parts in extended precision."""
    return x.real.astype(np.longdouble), x.imag.astype(np.longdouble)


def _finish(real: Array, imag: Array) -> Array:
    return join(np.asarray(real).astype(np.float64), np.asarray(imag).astype(np.float64))


def absolute(x: Array) -> Array:
    return np.hypot(x.real, x.imag)


def sign(x: Array) -> Array:
    size = np.hypot(x.real, x.imag)
    nan = np.isnan(x.real) | np.isnan(x.imag)
    unit = join(x.real / size, x.imag / size)
    unit = np.where(size == 0, np.zeros_like(x), unit)
    return np.where(nan, join(size * np.nan, size * np.nan), unit).astype(x.dtype)


def multiply(x: Array, y: Array) -> Array:
    """(a + bi)(c + di), each part rounded once per operation."""
    return join(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real).astype(x.dtype)


def divide(x: Array, y: Array) -> Array:
    """Scaled so that nothing in between overflows; a number by zero is infinite as in C (Annex G)."""
    a, b = _long(x)
    c, d = _long(y)
    scale = np.maximum(np.abs(c), np.abs(d))
    usable = np.isfinite(scale) & (scale > 0)
    power = np.where(usable, np.floor(np.log2(np.where(usable, scale, 1))), 0).astype(np.int64)
    c, d = np.ldexp(c, -power), np.ldexp(d, -power)
    size = c * c + d * d
    real = np.ldexp((a * c + b * d) / size, -power)
    imag = np.ldexp((b * c - a * d) / size, -power)
    lost = np.isnan(real) & np.isnan(imag)
    by_zero = lost & (size == 0) & ~(np.isnan(a) & np.isnan(b))
    real = np.where(by_zero, np.copysign(np.inf, c) * a, real)
    imag = np.where(by_zero, np.copysign(np.inf, c) * b, imag)
    infinite = lost & (np.isinf(a) | np.isinf(b)) & np.isfinite(c) & np.isfinite(d)
    boxed_a, boxed_b = np.copysign(np.isinf(a) * 1.0, a), np.copysign(np.isinf(b) * 1.0, b)
    real = np.where(infinite, np.inf * (boxed_a * c + boxed_b * d), real)
    imag = np.where(infinite, np.inf * (boxed_b * c - boxed_a * d), imag)
    far = lost & np.isinf(scale) & np.isfinite(a) & np.isfinite(b)
    boxed_c, boxed_d = np.copysign(np.isinf(c) * 1.0, c), np.copysign(np.isinf(d) * 1.0, d)
    real = np.where(far, 0.0 * (a * boxed_c + b * boxed_d), real)
    imag = np.where(far, 0.0 * (b * boxed_c - a * boxed_d), imag)
    return join(real.astype(x.real.dtype), imag.astype(x.real.dtype))


def _precedes(x: Array, y: Array) -> Array:
    """Lexicographic order of (real, imaginary)."""
    return (x.real < y.real) | ((x.real == y.real) & (x.imag < y.imag))


def maximum(x: Array, y: Array) -> Array:
    return np.where(_precedes(x, y), y, x)


def minimum(x: Array, y: Array) -> Array:
    return np.where(_precedes(y, x), y, x)


def compare(direction: str, x: Array, y: Array) -> Array:
    equal = np.asarray((x.real == y.real) & (x.imag == y.imag))
    answers = {
        "EQ": equal,
        "NE": ~equal,
        "LT": _precedes(x, y),
        "LE": _precedes(x, y) | equal,
        "GT": _precedes(y, x),
        "GE": _precedes(y, x) | equal,
    }
    return np.asarray(answers[direction])


# Functions


def sqrt(x: Array) -> Array:
    return np.sqrt(x)


def exp(x: Array) -> Array:
    size = np.exp(x.real)
    half = np.exp(x.real / 2)  # exp(re) may overflow where exp(re) cos(im) does not
    real = np.where(np.isinf(size), half * (half * np.cos(x.imag)), size * np.cos(x.imag))
    imag = np.where(np.isinf(size), half * (half * np.sin(x.imag)), size * np.sin(x.imag))
    imag = np.where(x.imag == 0, x.imag, imag)
    real = np.where(x.imag == 0, size, real)
    gone, far = x.real == -np.inf, (x.real == np.inf) & ~np.isfinite(x.imag)
    return join(np.where(gone, 0.0, np.where(far, np.inf, real)), np.where(gone, 0.0, imag))


def square(x: Array) -> Array:
    """(a - b)(a + b) + 2ab i, where neither square overflows by itself."""
    a, b = x.real, x.imag
    real = np.where(np.isfinite(a) & (np.abs(a) == np.abs(b)), 0.0, (a - b) * (a + b)).astype(a.dtype)
    product = a * b
    return join(real, product + product)


def expm1(x: Array) -> Array:
    real = np.expm1(x.real) * np.cos(x.imag) - 2 * np.square(np.sin(x.imag / 2))
    imag = np.where(x.imag == 0, x.imag, np.exp(x.real) * np.sin(x.imag))
    return join(np.where(x.imag == 0, np.expm1(x.real), real), imag)


def log(x: Array) -> Array:
    a, b = _long(x)
    size = np.hypot(a, b)
    near_one = (size > 0.5) & (size < 2)
    exact = 0.5 * np.log1p((np.abs(a) - 1) * (np.abs(a) + 1) + b * b)
    swapped = 0.5 * np.log1p((np.abs(b) - 1) * (np.abs(b) + 1) + a * a)
    real = np.where(near_one, np.where(np.abs(a) >= np.abs(b), exact, swapped), np.log(size))
    return _finish(real, np.arctan2(b, a))


def log1p(x: Array) -> Array:
    a, b = _long(x)
    small = (np.abs(a) < 0.5) & (np.abs(b) < 1)
    real = np.where(small, 0.5 * np.log1p(a * (2 + a) + b * b), np.log(np.hypot(1 + a, b)))
    return _finish(real, np.arctan2(b, 1 + a))


def power(x: Array, y: Array) -> Array:
    """exp(y log x), by parts in extended precision; 0^0 is 1."""
    a, b = _long(x)
    c, d = _long(y)
    log_size = np.log(np.hypot(a, b))
    angle = np.arctan2(b, a)
    zero = (a == 0) & (b == 0)
    safe_log = np.where(zero, 0.0, log_size)
    size = np.exp(c * safe_log - d * angle)
    turn = d * safe_log + c * angle
    real, imag = size * np.cos(turn), size * np.sin(turn)
    at_zero = np.where((c == 0) & (d == 0), 1.0, np.where(c > 0, 0.0, np.nan))
    one = (c == 0) & (d == 0)
    real = np.where(zero, at_zero, np.where(one, 1.0, real))
    imag = np.where(zero | one, np.where(zero & ~one & (c <= 0), np.nan, 0.0), imag)
    return _finish(real, imag)


def logistic(x: Array) -> Array:
    return divide(np.ones_like(x), 1 + exp(-x))


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x) by modulus and argument."""
    a, b = _long(x)
    size = np.hypot(a, b)
    root = np.sqrt(size)
    half = np.arctan2(b, a) / 2
    real, imag = np.cos(half) / root, -np.sin(half) / root
    zero, far = size == 0, np.isinf(size)
    nan = np.isnan(a) | np.isnan(b)
    real = np.where(zero, np.inf, np.where(far, 0.0, real))
    imag = np.where(zero, np.where(nan, np.nan, np.copysign(0.0, -b)), np.where(far, np.copysign(0.0, -b), imag))
    imag = np.where((b == 0) & (a > 0) & ~far, np.copysign(0.0, -b), imag)
    return _finish(real, imag)


def cbrt(x: Array) -> Array:
    a, b = _long(x)
    root = np.cbrt(np.hypot(a, b))
    third = np.arctan2(b, a) / 3
    return _finish(root * np.cos(third), root * np.sin(third))


def sin(x: Array) -> Array:
    return join(np.sin(x.real) * np.cosh(x.imag), np.cos(x.real) * np.sinh(x.imag))


def cos(x: Array) -> Array:
    return join(np.cos(x.real) * np.cosh(x.imag), -np.sin(x.real) * np.sinh(x.imag))


def tan(x: Array) -> Array:
    return np.tan(x)


def tanh(x: Array) -> Array:
    return np.tanh(x)


def atan2(y: Array, x: Array) -> Array:
    """-i log((x + iy) / sqrt(x^2 + y^2))"""
    i = np.asarray(1j, x.dtype)
    return -i * log(divide(x + multiply(np.broadcast_to(i, y.shape), y), np.sqrt(x * x + y * y)))
