"""Functions of probability distributions: incomplete gamma functions, quantiles of the normal distribution, and the
scaled complementary error function. All are computed in f64."""

from __future__ import annotations

import math
from collections.abc import Callable

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.polynomials import polynomial, quotient
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import BOOL, F64, I64, cast, filled, is_nan, number, pair, sizes

_ITERATIONS = 20_000
"""Most terms of a series or a continued fraction of an incomplete gamma function."""


def _f64(x: float) -> Value:
    return number(x, F64)


def _like(x: Value, value: float) -> Value:
    return filled(sizes(x), value, F64)


# ---------------------------------------------------------------------------- error function
_ASYMPTOTIC = 10.0
_ERFCX_TERMS = [(-1) ** k * math.prod(range(1, 2 * k, 2)) / 2.0**k for k in range(12, -1, -1)]
"""The asymptotic series of erfcx(x) * x * sqrt(pi) in 1 / x^2, exact in f64 for x above 10."""


def scaled_erfc(x: Value) -> Value:
    """exp(x * x) * erfc(x), without overflow."""
    small = b.clamp(_f64(-40), x, _f64(_ASYMPTOTIC))
    # The square is split into a number of few digits, whose exponential has no error of the square, and the rest.
    coarse = b.floor(small * _f64(65536)) / _f64(65536)
    rest = (small - coarse) * (small + coarse)
    near = b.exp(coarse * coarse) * b.exp(rest) * b.erfc(small)
    large = b.max(x, _like(x, _ASYMPTOTIC))
    far = polynomial(_f64(1) / (large * large), _ERFCX_TERMS) / (large * _f64(math.sqrt(math.pi)))
    found = b.select(x > _f64(_ASYMPTOTIC), far, near)
    return b.select(is_nan(x), x, found)


@aten("prims::erfcx", "special_erfcx")
def erfcx(call: Call, x: Value) -> Value:
    """The complementary error function, scaled by exp(x * x)."""
    return cast(scaled_erfc(cast(x, F64)), call.dtype)


# ---------------------------------------------------------------------------- quantiles, as in the Cephes library
_MIDDLE_P = [
    -59.96335010141079, 98.00107541859997, -56.67628574690703, 13.931260938727968, -1.2391658386738125,
]  # fmt: skip
_MIDDLE_Q = [
    1.0, 1.9544885833814176, 4.676279128988815, 86.36024213908905, -225.46268785411937, 200.26021238006066,
    -82.03722561683334, 15.90562251262117, -1.1833162112133,
]  # fmt: skip
_TAIL_P = [
    4.0554489230596245, 31.525109459989388, 57.16281922464213, 44.08050738932008, 14.684956192885803,
    2.1866330685079025, -0.1402560791713545, -0.03504246268278482, -0.0008574567851546854,
]  # fmt: skip
_TAIL_Q = [
    1.0, 15.779988325646675, 45.39076351288792, 41.3172038254672, 15.04253856929075, 2.504649462083094,
    -0.14218292285478779, -0.03808064076915783, -0.0009332594808954574,
]  # fmt: skip
_FAR_P = [
    3.2377489177694603, 6.915228890689842, 3.9388102529247444, 1.3330346081580755, 0.20148538954917908,
    0.012371663481782003, 0.00030158155350823543, 2.6580697468673755e-06, 6.239745391849833e-09,
]  # fmt: skip
_FAR_Q = [
    1.0, 6.02427039364742, 3.6798356385616087, 1.3770209948908132, 0.21623699359449663, 0.013420400608854318,
    0.00032801446468212774, 2.8924786474538068e-06, 6.790194080099813e-09,
]  # fmt: skip
_TAIL = math.exp(-2)
"""Probabilities between it and 1 minus it are in the middle."""


@aten("prims::ndtri", "special_ndtri")
def ndtri(call: Call, x: Value) -> Value:
    """The quantiles of the normal distribution."""
    p = cast(x, F64)
    is_high = p > _f64(1 - _TAIL)
    tail = b.select(is_high, _f64(1) - p, p)
    centered = p - _f64(0.5)
    square = centered * centered
    middle = centered + centered * (square * quotient(square, _MIDDLE_P, _MIDDLE_Q))
    middle = middle * _f64(math.sqrt(2 * math.pi))
    size = b.sqrt(_f64(-2) * b.log(b.min(tail, _like(p, _TAIL))))
    z = _f64(1) / size
    correction = z * b.select(size < _f64(8), quotient(z, _TAIL_P, _TAIL_Q), quotient(z, _FAR_P, _FAR_Q))
    outside = size - b.log(size) / size - correction
    found = b.select(tail > _f64(_TAIL), middle, b.select(is_high, outside, -outside))
    found = b.select(p == _f64(0), _like(p, -math.inf), b.select(p == _f64(1), _like(p, math.inf), found))
    return cast(b.select((p >= _f64(0)) & (p <= _f64(1)), found, _like(p, math.nan)), call.dtype)


# ---------------------------------------------------------------------------- incomplete gamma functions
State = tuple[Value, ...]


def _iterate(start: State, step: Callable[[Value, State], State], is_open: Callable[[State], Value]) -> State:
    """Repeats `step(index, state)` while an element is open; elements that are not keep their values."""

    def any_open(state: State) -> Value:
        found = b.reduce(is_open(state[1:]), number(False, BOOL), b.or_, range(state[1].ndim))
        assert isinstance(found, Value)
        return found & (state[0] < number(_ITERATIONS, I64))

    def body(state: State) -> State:
        index, *values = state
        after = step(cast(index, F64), tuple(values))
        open_ = is_open(tuple(values))
        return index + number(1, I64), *(b.select(open_, x, y) for x, y in zip(after, values, strict=True))

    return b.while_(any_open, body, (number(1, I64), *start))[1:]


def _lower_series(a: Value, x: Value, factor: Value, wanted: Value) -> Value:
    """The lower function by the power series. `wanted`: the elements that need it. `factor`: x^a e^-x / gamma(a)."""
    one = _like(a, 1)

    def step(k: Value, state: State) -> State:
        term, total = state
        term = term * (x / (a + k))
        return term, total + term

    start = b.select(wanted, one, _like(a, 0)), one
    _, total = _iterate(start, step, lambda state: state[0] > _f64(2.0**-54) * state[1])
    return total * factor / a


def _upper_fraction(a: Value, x: Value, factor: Value, wanted: Value) -> Value:
    """The upper function by a continued fraction (Lentz's algorithm). `wanted`: the elements that need it."""
    tiny = _f64(1e-300)
    shifted = x + _f64(1) - a
    d = _f64(1) / shifted

    def step(k: Value, state: State) -> State:
        c, d, found, _ = state
        numerator = k * (a - k)
        denominator = shifted + k + k
        d = numerator * d + denominator
        d = _f64(1) / b.select(b.abs(d) < tiny, _like(d, 1e-300), d)
        c = denominator + numerator / c
        c = b.select(b.abs(c) < tiny, _like(c, 1e-300), c)
        return c, d, found * (c * d), b.abs(c * d - _f64(1))

    start = _like(a, 1e300), d, d, b.select(wanted, _like(a, 1), _like(a, 0))
    found = _iterate(start, step, lambda state: state[3] > _f64(2.0**-52))
    return found[2] * factor


def _incomplete_gamma(call: Call, a: Value, x: Value, is_upper: bool) -> Value:
    """The regularized incomplete gamma functions, with ATen's values at the limits."""
    a, x = pair(F64, a, x)
    zero, infinity = _f64(0), _f64(math.inf)
    is_regular = (a > zero) & (x > zero) & (a < infinity) & (x < infinity)
    safe_a, safe_x = (b.select(is_regular, y, _like(y, 1)) for y in (a, x))
    by_fraction = (safe_x > _f64(1)) & (safe_x > safe_a)
    factor = b.exp(safe_a * b.log(safe_x) - safe_x - b.lgamma(safe_a))
    lower = _lower_series(safe_a, b.select(by_fraction, _like(x, 0), safe_x), factor, is_regular & ~by_fraction)
    fraction_x = b.select(by_fraction, safe_x, safe_a + _f64(2))
    upper = _upper_fraction(safe_a, fraction_x, factor, is_regular & by_fraction)
    one = _f64(1)
    found = b.select(by_fraction, upper, one - lower) if is_upper else b.select(by_fraction, one - upper, lower)
    found = b.select(is_nan(a) | is_nan(x), _like(x, math.nan), found)
    none, all_ = (_like(x, v) for v in ((0, 1) if is_upper else (1, 0)))  # beyond all of the distribution, before it
    found = b.select(x == infinity, none, b.select(a == infinity, all_, found))
    found = b.select(x == zero, all_, b.select((a == zero) & (x > zero), none, found))
    is_undefined = (a < zero) | (x < zero) | ((a == zero) & ~(x > zero)) | ((a == infinity) & (x == infinity))
    return cast(b.select(is_undefined, _like(x, math.nan), found), call.dtype)


@aten("prims::igamma", "igamma", "special_gammainc")
def igamma(call: Call, a: Value, x: Value) -> Value:
    """The regularized lower incomplete gamma function."""
    return _incomplete_gamma(call, a, x, False)


@aten("prims::igammac", "igammac", "special_gammaincc")
def igammac(call: Call, a: Value, x: Value) -> Value:
    """The regularized upper incomplete gamma function."""
    return _incomplete_gamma(call, a, x, True)
