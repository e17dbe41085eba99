"""Reference implementations of complex arithmetic and functions in numpy.

complex<f32> arrives here as complex<f64> (`numeric.in_double`), except in plain arithmetic. Real and imaginary parts
are computed separately if numpy lacks the function or loses digits (log of numbers near 1, expm1). Infinities and NaNs
follow Annex G of C.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
"""A numpy array; numpy's stubs declare `real` and `imag` for some dtypes only."""


def join(real: Array, imag: Array) -> Array:
    """Combines parts to complex numbers of twice their width, without arithmetic."""
    real, imag = np.broadcast_arrays(np.asarray(real), np.asarray(imag))
    out = np.empty(real.shape, np.complex64 if real.dtype == np.float32 else np.complex128)
    out.real = real
    out.imag = imag
    return out


def _long(x: Array) -> tuple[Array, Array]:
    """Returns real and imaginary parts in extended precision."""
    return x.real.astype(np.longdouble), x.imag.astype(np.longdouble)


def _finish(real: Array, imag: Array) -> Array:
    return join(np.asarray(real).astype(np.float64), np.asarray(imag).astype(np.float64))


def absolute(x: Array) -> Array:
    return np.hypot(x.real, x.imag)


def sign(x: Array) -> Array:
    a, b = _long(x)
    size = np.hypot(a, b)
    unit = np.where(size == 0, np.zeros_like(x), _finish(a / size, b / size))
    nan = np.isnan(a) | np.isnan(b)
    return np.where(nan, join(size * np.nan, size * np.nan).astype(x.dtype), unit).astype(x.dtype)


def multiply(x: Array, y: Array) -> Array:
    """Returns (a + bi)(c + di), each part rounded once per operation."""
    return join(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real).astype(x.dtype)


def divide(x: Array, y: Array) -> Array:
    """Divides with scaling, so that no intermediate overflows. Division by zero is infinite as in C (Annex G)."""
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
    """Whether x precedes y in the lexicographic order of (real, imaginary)."""
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
    return np.exp(x)


def square(x: Array) -> Array:
    """Returns (a - b)(a + b) + 2ab i, which avoids overflow of the individual squares."""
    a, b = x.real, x.imag
    real = np.where(np.isfinite(a) & (np.abs(a) == np.abs(b)), 0.0, (a - b) * (a + b)).astype(a.dtype)
    product = a * b
    return join(real, product + product)


def expm1(x: Array) -> Array:
    a, b = x.real, x.imag
    whole = np.exp(x)
    real = np.expm1(a) * np.cos(b) - 2 * np.square(np.sin(b / 2))
    ordinary = (np.abs(a) < 700) & np.isfinite(b)
    real = np.where(b == 0, np.expm1(a), np.where(ordinary, real, whole.real - 1))
    return join(real, np.where(b == 0, b, whole.imag))


def _log_modulus(a: Array, b: Array) -> Array:
    size = np.hypot(a, b)
    near_one = (size > 0.5) & (size < 2)
    exact = 0.5 * np.log1p((np.abs(a) - 1) * (np.abs(a) + 1) + b * b)
    swapped = 0.5 * np.log1p((np.abs(b) - 1) * (np.abs(b) + 1) + a * a)
    return np.where(near_one, np.where(np.abs(a) >= np.abs(b), exact, swapped), np.log(size))


def log(x: Array) -> Array:
    a, b = _long(x)
    return _finish(_log_modulus(a, b), np.arctan2(b, a))


def log1p(x: Array) -> Array:
    a, b = _long(x)
    small = (np.abs(a) < 0.5) & (np.abs(b) < 1)
    real = np.where(small, 0.5 * np.log1p(a * (2 + a) + b * b), np.log(np.hypot(1 + a, b)))
    return _finish(real, np.arctan2(b, 1 + a))


def power(x: Array, y: Array) -> Array:
    """Returns exp(y log x), by parts in extended precision, where a product with a factor 0 is 0.

    Therefore x^0 = 1^y = 1, whatever the other operand is. The sign of a zero x is ignored. The direction of a real
    power of a number on an axis is exact for quarters of a circle.
    """
    a, b = _long(x)
    c, d = _long(y)
    log_size = _log_modulus(a, b)
    angle = np.where((a == 0) & (b == 0), b, np.arctan2(b, a))
    exponent = _product(c, log_size) - _product(d, angle)
    size = np.exp(exponent)
    rotation = _product(d, log_size) + _product(c, angle)
    cosine, sine = np.cos(rotation), np.sin(rotation)
    level = (b == 0) | (np.isinf(a) & np.isfinite(b))
    upright = ~level & ((a == 0) | (np.isinf(b) & np.isfinite(a)))
    axis = (level | upright) & (d == 0) & np.isfinite(c) & ~np.isnan(a + b)
    half_turns = np.where(upright, c / 2, np.where(a < 0, c, 0)) * np.copysign(1, b)
    half_turns = np.where(axis & ~((a == 0) & (b == 0)), half_turns - 2 * np.rint(half_turns / 2), 0)
    cosine = np.where(axis, np.where(np.abs(half_turns) == 0.5, 0, np.cos(np.pi * half_turns)), cosine)
    sine = np.where(axis, np.where(half_turns % 1 == 0, 0, np.sin(np.pi * half_turns)), sine)
    rotation = np.where(axis, 0, rotation)
    gone, directed = exponent == -np.inf, np.isfinite(rotation)
    real = np.where(directed, _product(size, cosine), np.where(exponent == np.inf, size, np.nan))
    imag = np.where(directed, _product(size, sine), np.nan)
    real, imag = np.where(gone, 0, real), np.where(gone, 0, imag)
    one = ((c == 0) & (d == 0)) | ((a == 1) & (b == 0))
    return _finish(np.where(one, 1, real), np.where(one, 0, imag))


def _product(x: Array, y: Array) -> Array:
    return np.where((x == 0) | (y == 0), 0, x * y)


def logistic(x: Array) -> Array:
    """Returns 1 / (1 + e^-x), by parts that do not overflow: |1 + e^-x|^2 = g^2 + 4 f c^2 with the names below."""
    a, b = _long(x)
    f, g = np.exp(-np.abs(a)), -np.expm1(-np.abs(a))
    square = np.cos(b / 2) ** 2
    size = g * g + 4 * f * square
    real = np.where(a < 0, f * (2 * square - g), g + 2 * f * square) / size
    imag = np.where(b == 0, b, f * np.sin(b) / size)
    far = np.isinf(a)
    return _finish(np.where(far, np.where(a < 0, 0.0, 1.0), real), np.where(far, np.copysign(0.0, b), imag))


def rsqrt(x: Array) -> Array:
    """Returns conj(sqrt(x)) / |x|; 0 for infinities, and infinite for 0."""
    a, b = _long(x)
    size = np.hypot(a, b)
    root = np.sqrt(x.astype(np.clongdouble))
    real, imag = root.real / size, root.imag / size
    zero, far = size == 0, np.isinf(size)
    real = np.where(zero, np.inf, np.where(far, 0.0, real))
    return _finish(real, np.copysign(np.where(zero | far, 0.0, imag), -b))


def cbrt(x: Array) -> Array:
    """Returns the root with a third of the argument; infinite for an infinity whose argument is a NaN."""
    a, b = _long(x)
    root = np.cbrt(np.hypot(a, b))
    third = np.arctan2(b, a) / 3
    real = np.where(np.isinf(root) & np.isnan(third), root, root * np.cos(third))
    return _finish(real, np.where(third == 0, third, root * np.sin(third)))


def sin(x: Array) -> Array:
    return np.sin(x)


def cos(x: Array) -> Array:
    return np.cos(x)


def tan(x: Array) -> Array:
    return np.tan(x)


def tanh(x: Array) -> Array:
    return np.tanh(x)


def atan2(y: Array, x: Array) -> Array:
    """Returns -i log((x + iy) / sqrt(x^2 + y^2))."""
    i = np.asarray(1j, x.dtype)
    return -i * log(divide(x + multiply(np.broadcast_to(i, y.shape), y), np.sqrt(x * x + y * y)))
