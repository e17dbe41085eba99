"""Polynomials and series with constant coefficients, by which special functions are approximated."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.builder import Value
from shlo_jit.torch.aten.values import filled, number, sizes


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial, the highest power first."""
    found = filled(sizes(x), coefficients[0], x.element_type)
    for c in coefficients[1:]:
        found = found * x + number(c, x.element_type)
    return found


def quotient(x: Value, above: Sequence[float], below: Sequence[float]) -> Value:
    """A quotient of polynomials."""
    return polynomial(x, above) / polynomial(x, below)


def chebyshev_series(x: Value, coefficients: Sequence[float]) -> Value:
    """A series of Chebyshev polynomials of x / 2, by Clenshaw's recurrence, the highest order first."""
    first = second = third = filled(sizes(x), 0, x.element_type)
    for c in coefficients:
        third, second = second, first
        first = x * second - third + number(c, x.element_type)
    return number(0.5, x.element_type) * (first - third)
