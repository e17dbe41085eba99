"""Orthogonal polynomials, whose degree is a tensor: three-term recurrences in a loop up to the highest degree."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import BOOL, I64, Operand, cast, filled, is_nan, number, pair, sizes, wide

Step = Callable[[Value, Value, Value, Value], Value]
"""The next polynomial from x, the index k of the last one (a float), the last one and the one before."""


def recurrence(x: Value, degree: Value, first: Value, step: Step) -> Value:
    """The polynomial of each element's degree, from those of the degrees 0 (one) and 1. degree: i64.
    As in ATen, a recurrence ends at NaN."""
    dtype = x.element_type
    one = filled(sizes(x), 1, dtype)

    def active(k: Value, last: Value) -> Value:
        return (k < degree) & ~is_nan(last)

    def goes_on(state: tuple[Value, Value, Value]) -> Value:
        k, last, _ = state
        found = b.reduce(active(k, last), number(False, BOOL), b.or_, range(x.ndim))
        assert isinstance(found, Value)
        return found

    def body(state: tuple[Value, Value, Value]) -> tuple[Value, Value, Value]:
        k, last, before = state
        found = step(x, cast(k, dtype), last, before)
        return k + number(1, I64), b.select(active(k, last), found, last), last

    found = b.while_(goes_on, body, (number(1, I64), first, one))[1]
    return b.select(degree < number(1, I64), b.select(degree == number(0, I64), one, filled(sizes(x), 0, dtype)), found)


def _degrees(n: Value) -> Value:
    """Degrees as integers: -1, for which polynomials are zero, for those that are none."""
    if n.element_type.kind != "f":
        return cast(n, I64)
    is_degree = (n >= number(0, n.element_type)) & (n < number(2.0**62, n.element_type))
    return b.select(is_degree, cast(n, I64), filled(sizes(n), -1, I64))


def _polynomial(name: str, function: Callable[[Value, Value], Value]) -> None:
    """Registers a function of x and the degree."""

    def record(call: Call, x: Operand, n: Operand) -> Value:
        y, degree = pair(wide(call.dtype), x, n)
        return cast(function(y, _degrees(degree)), call.dtype)

    record.__doc__, record.__module__ = function.__doc__, __name__
    base = f"special_{name}"
    aten(base, f"{base}.x_scalar", f"{base}.n_scalar")(record)


# ---------------------------------------------------------------------------- Chebyshev's
_TRIGONOMETRIC = 8
"""Degrees above it are computed by trigonometric functions for |x| < 1, which are exact enough, and need no loop."""


def _chebyshev(
    x: Value, degree: Value, first: Value, by_angle: Callable[[Value, Value], Value], at_one: Value, at_minus_one: Value
) -> Value:
    """A kind of Chebyshev's polynomials. `by_angle`: the polynomial from the degree and the arc cosine of x.
    `at_one`, `at_minus_one`: the values there; that at -1 is for even degrees, and has the other sign for odd ones."""
    dtype = x.element_type
    one = number(1, dtype)
    is_inside = b.abs(x) < one
    is_high = is_inside & (degree > number(_TRIGONOMETRIC, I64))
    in_loop = b.select(is_high | (b.abs(x) == one), b.min(degree, filled(sizes(x), 0, I64)), degree)
    found = recurrence(x, in_loop, first, lambda x, k, last, before: (x + x) * last - before)
    inside = b.select(is_inside, x, filled(sizes(x), 0, dtype))
    found = b.select(is_high, by_angle(cast(degree, dtype), b.acos(inside)), found)
    is_odd = b.rem(degree, filled(sizes(x), 2, I64)) != number(0, I64)
    found = b.select(x == one, at_one, b.select(x == -one, b.select(is_odd, -at_minus_one, at_minus_one), found))
    return b.select(degree < number(0, I64), filled(sizes(x), 0, dtype), found)


def chebyshev_t(x: Value, degree: Value) -> Value:
    """Chebyshev's polynomials of the first kind."""
    one = filled(sizes(x), 1, x.element_type)
    return _chebyshev(x, degree, x, lambda n, angle: b.cos(n * angle), one, one)


def chebyshev_u(x: Value, degree: Value) -> Value:
    """Chebyshev's polynomials of the second kind."""
    one = number(1, x.element_type)
    size = cast(degree, x.element_type) + one
    return _chebyshev(x, degree, x + x, lambda n, angle: b.sin((n + one) * angle) / b.sin(angle), size, size)


def chebyshev_v(x: Value, degree: Value) -> Value:
    """Chebyshev's polynomials of the third kind."""
    one, half = number(1, x.element_type), number(0.5, x.element_type)
    n = cast(degree, x.element_type)
    return _chebyshev(x, degree, x + x - one, lambda n, angle: b.cos((n + half) * angle) / b.cos(half * angle),
                      filled(sizes(x), 1, x.element_type), n + n + one)  # fmt: skip


def chebyshev_w(x: Value, degree: Value) -> Value:
    """Chebyshev's polynomials of the fourth kind."""
    one, half = number(1, x.element_type), number(0.5, x.element_type)
    n = cast(degree, x.element_type)
    return _chebyshev(x, degree, x + x + one, lambda n, angle: b.sin((n + half) * angle) / b.sin(half * angle),
                      n + n + one, filled(sizes(x), 1, x.element_type))  # fmt: skip


def _shifted(function: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    def shifted(x: Value, degree: Value) -> Value:
        return function(x + x - number(1, x.element_type), degree)

    shifted.__doc__ = (function.__doc__ or "").replace(".", ", of 2 * x - 1.")
    return shifted


for _kind, _function in zip("tuvw", (chebyshev_t, chebyshev_u, chebyshev_v, chebyshev_w), strict=True):
    _polynomial(f"chebyshev_polynomial_{_kind}", _function)
    _polynomial(f"shifted_chebyshev_polynomial_{_kind}", _shifted(_function))


# ---------------------------------------------------------------------------- others
_HERMITE_LIMITS = {32: 128, 64: 512}
"""The highest degrees that ATen computes, by the number of bits."""


def _hermite(x: Value, degree: Value, first: Value, step: Step) -> Value:
    """One of Hermite's polynomials; NaN for degrees that ATen does not compute."""
    dtype = x.element_type
    limit = number(_HERMITE_LIMITS[dtype.bits], I64)
    found = recurrence(x, b.min(degree, b.broadcast_in_dim(limit, sizes(x), ())), first, step)
    return b.select(degree > limit, filled(sizes(x), float("nan"), dtype), found)


def hermite_h(x: Value, degree: Value) -> Value:
    """Hermite's polynomials of physics."""
    return _hermite(x, degree, x + x, lambda x, k, last, before: (x + x) * last - (k + k) * before)


def hermite_he(x: Value, degree: Value) -> Value:
    """Hermite's polynomials of probability."""
    return _hermite(x, degree, x, lambda x, k, last, before: x * last - k * before)


def laguerre_l(x: Value, degree: Value) -> Value:
    """Laguerre's polynomials."""
    one = number(1, x.element_type)
    return recurrence(x, degree, one - x,
                      lambda x, k, last, before: (((k + k) + (one - x)) * last - k * before) / (k + one))  # fmt: skip


def legendre_p(x: Value, degree: Value) -> Value:
    """Legendre's polynomials."""
    one = number(1, x.element_type)
    return recurrence(x, degree, x,
                      lambda x, k, last, before: ((k + k + one) * x * last - k * before) / (k + one))  # fmt: skip


for _name, _function in (
    ("hermite_polynomial_h", hermite_h),
    ("hermite_polynomial_he", hermite_he),
    ("laguerre_polynomial_l", laguerre_l),
    ("legendre_polynomial_p", legendre_p),
):
    _polynomial(_name, _function)
