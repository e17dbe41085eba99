"""Bessel and Airy functions, by the approximations of the Cephes library. All are computed in f64."""

from __future__ import annotations

import math
from collections.abc import Callable

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten import bessel_coefficients as table
from shlo_jit.torch.aten.polynomials import chebyshev_series, polynomial, quotient
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.special import scaled_i0
from shlo_jit.torch.aten.values import F64, cast, filled, number, sizes

_NEAR = 5.0
"""Arguments above it have the form of an oscillation with amplitudes."""


def _f64(x: float) -> Value:
    return number(x, F64)


def _function(*names: str) -> Callable[[Callable[[Value], Value]], Callable[[Value], Value]]:
    """Registers a function of f64 for an operator with one argument."""

    def register(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
        def record(call: Call, x: Value) -> Value:
            return cast(function(cast(x, F64)), call.dtype)

        record.__doc__, record.__module__ = function.__doc__, function.__module__
        aten(*names)(record)
        return function

    return register


def _oscillation(x: Value, order: int, is_second: bool) -> Value:
    """The Bessel function of the first or second kind for x above 5."""
    x = b.max(x, filled(sizes(x), _NEAR, F64))
    ratio = _f64(_NEAR) / x
    square = ratio * ratio
    parts = (
        (table.J0_COSINE_P, table.J0_COSINE_Q, table.J0_SINE_P, table.J0_SINE_Q),
        (table.J1_COSINE_P, table.J1_COSINE_Q, table.J1_SINE_P, table.J1_SINE_Q),
    )[order]
    even, odd = quotient(square, *parts[:2]), ratio * quotient(square, *parts[2:])
    phase = x - _f64(math.pi / 4 + order * math.pi / 2)
    cosine, sine = b.cos(phase), b.sin(phase)
    found = even * sine + odd * cosine if is_second else even * cosine - odd * sine
    return found * _f64(math.sqrt(2 / math.pi)) / b.sqrt(x)


@_function("prims::bessel_j0", "special_bessel_j0")
def bessel_j0(x: Value) -> Value:
    """The Bessel function of the first kind of order 0."""
    size = b.abs(x)
    square = x * x
    zeros = (square - _f64(5.78318596294678452118)) * (square - _f64(30.4712623436620863991))
    near = zeros * quotient(square, table.J0_NEAR_P, table.J0_NEAR_Q)
    near = b.select(size < _f64(1e-5), _f64(1) - square / _f64(4), near)
    return b.select(size <= _f64(_NEAR), near, _oscillation(size, 0, False))


@_function("prims::bessel_j1", "special_bessel_j1")
def bessel_j1(x: Value) -> Value:
    """The Bessel function of the first kind of order 1."""
    size = b.abs(x)
    square = x * x
    zeros = (square - _f64(14.6819706421238932572)) * (square - _f64(49.2184563216946036703))
    near = x * quotient(square, table.J1_NEAR_P, table.J1_NEAR_Q) * zeros
    far = _oscillation(size, 1, False)
    return b.select(size <= _f64(_NEAR), near, b.select(x < _f64(0), -far, far))


def _of_positive(x: Value, found: Value, at_zero: float) -> Value:
    """A function with a pole at zero, which is not defined below."""
    return b.select(x > _f64(0), found, b.select(x == _f64(0), filled(sizes(x), at_zero, F64), found * _f64(math.nan)))


@_function("special_bessel_y0")
def bessel_y0(x: Value) -> Value:
    """The Bessel function of the second kind of order 0."""
    near = quotient(x * x, table.Y0_NEAR_P, table.Y0_NEAR_Q) + _f64(2 / math.pi) * b.log(x) * bessel_j0(x)
    return _of_positive(x, b.select(x <= _f64(_NEAR), near, _oscillation(x, 0, True)), -math.inf)


@_function("special_bessel_y1")
def bessel_y1(x: Value) -> Value:
    """The Bessel function of the second kind of order 1."""
    near = x * quotient(x * x, table.Y1_NEAR_P, table.Y1_NEAR_Q)
    near = near + _f64(2 / math.pi) * (bessel_j1(x) * b.log(x) - _f64(1) / x)
    return _of_positive(x, b.select(x <= _f64(_NEAR), near, _oscillation(x, 1, True)), -math.inf)


@_function("prims::spherical_bessel_j0", "special_spherical_bessel_j0")
def spherical_bessel_j0(x: Value) -> Value:
    """The spherical Bessel function of the first kind of order 0, sin(x) / x."""
    near = polynomial(x * x, [(-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)])
    size = b.abs(x)
    found = b.select(size < _f64(0.5), near, b.sin(x) / x)
    return b.select(size == _f64(math.inf), filled(sizes(x), 0, F64), found)


# ---------------------------------------------------------------------------- modified functions
@_function("special_modified_bessel_i0")
def modified_bessel_i0(x: Value) -> Value:
    """The modified Bessel function of the first kind of order 0."""
    return scaled_i0(x) * b.exp(b.abs(x))


@_function("special_modified_bessel_i1")
def modified_bessel_i1(x: Value) -> Value:
    """The modified Bessel function of the first kind of order 1."""
    return b.bessel_i1e(x) * b.exp(b.abs(x))


def _scaled_k(x: Value, order: int) -> tuple[Value, Value, Value]:
    """Parts of the modified Bessel function of the second kind: for x up to 2, for x above, where the function is
    this times exp(-x), and whether x is at most 2."""
    near_series, far_series = ((table.K0_NEAR, table.K0_FAR), (table.K1_NEAR, table.K1_FAR))[order]
    series = chebyshev_series(x * x - _f64(2), near_series)
    logarithm = b.log(_f64(0.5) * x)
    if order:
        near = logarithm * modified_bessel_i1(x) + series / x
    else:
        near = series - logarithm * modified_bessel_i0(x)
    large = b.max(x, filled(sizes(x), 2, F64))
    return near, chebyshev_series(_f64(8) / large - _f64(2), far_series) / b.sqrt(large), x <= _f64(2)


def _modified_k(x: Value, order: int, is_scaled: bool) -> Value:
    near, far, is_near = _scaled_k(x, order)
    found = b.select(is_near, near * b.exp(x), far) if is_scaled else b.select(is_near, near, far * b.exp(-x))
    return _of_positive(x, found, math.inf)


@_function("special_modified_bessel_k0")
def modified_bessel_k0(x: Value) -> Value:
    """The modified Bessel function of the second kind of order 0."""
    return _modified_k(x, 0, False)


@_function("special_modified_bessel_k1")
def modified_bessel_k1(x: Value) -> Value:
    """The modified Bessel function of the second kind of order 1."""
    return _modified_k(x, 1, False)


@_function("special_scaled_modified_bessel_k0")
def scaled_modified_bessel_k0(x: Value) -> Value:
    """The modified Bessel function of the second kind of order 0, times exp(x)."""
    return _modified_k(x, 0, True)


@_function("special_scaled_modified_bessel_k1")
def scaled_modified_bessel_k1(x: Value) -> Value:
    """The modified Bessel function of the second kind of order 1, times exp(x)."""
    return _modified_k(x, 1, True)


# ---------------------------------------------------------------------------- Airy function
_AIRY_NEAR, _AIRY_FAR = 2.09, 103.892
_AIRY_TERMS = 40
"""Terms of the power series: enough for |x| = 2.09 in f64."""


@_function("special_airy_ai")
def airy_ai(x: Value) -> Value:
    """The Airy function Ai."""
    size = b.max(b.abs(x), filled(sizes(x), _AIRY_NEAR, F64))
    root = b.sqrt(size)
    zeta = _f64(2 / 3) * size * root
    z = _f64(1) / zeta
    square = z * z
    scale = _f64(1 / math.sqrt(math.pi)) / b.sqrt(root)
    phase = zeta + _f64(math.pi / 4)
    below = scale * (
        b.sin(phase) * (_f64(1) + square * quotient(square, table.AIRY_AFN, table.AIRY_AFD))
        - b.cos(phase) * (z * quotient(square, table.AIRY_AGN, table.AIRY_AGD))
    )
    above = scale * quotient(z, table.AIRY_AN, table.AIRY_AD) / (_f64(2) * b.exp(zeta))
    far = b.select(x < _f64(0), below, b.select(x > _f64(_AIRY_FAR), filled(sizes(x), 0, F64), above))
    found = b.select(b.abs(x) < _f64(_AIRY_NEAR), _airy_series(x), far)
    # As in ATen, the value at the infinities is not a number.
    return b.select(b.abs(x) < _f64(math.inf), found, filled(sizes(x), math.nan, F64))


def _airy_series(x: Value) -> Value:
    """The power series of Ai, whose terms have two recurrences with steps of x^3."""
    even, odd = [1.0], [1.0]
    for k in range(1, _AIRY_TERMS // 2):
        even.append(even[-1] / ((3 * k - 1) * (3 * k)))
        odd.append(odd[-1] / ((3 * k) * (3 * k + 1)))
    cube = x * x * x
    first = _f64(0.355028053887817239260) * polynomial(cube, even[::-1])
    return first - _f64(0.258819403792806798405) * x * polynomial(cube, odd[::-1])
