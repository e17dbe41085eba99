"""Functions that the polynomials of `coefficients.py` approximate. Needs mpmath; only `fit.py` uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp

Number = Any
"""Type of mpmath's numbers."""
Function = Callable[[Number], Number]


@dataclass(frozen=True)
class Table:
    """Polynomial P that minimizes |function(x) - P(variable(x))| * |weight(x)| over the interval."""

    name: str
    formula: str
    """The formula that uses P."""
    interval: tuple[Number, Number]
    function: Function
    weight: Function
    """Factor from an error of P to the error that is minimized."""
    terms: dict[int, int]
    """Number of coefficients for each format, by its bits."""
    variable: Function = lambda x: x


def square(x: Number) -> Number:
    return x * x


LN2_2 = mp.log(2) / 2
ROOT = mp.sqrt(2)


def odd_rest(f: Function) -> tuple[Function, Function]:
    """Returns P of f(x) = x + x^3 P(x^2), and its weight for the relative error."""
    return lambda x: (f(x) - x) / x**3, lambda x: x**3 / f(x)


def odd_table(name: str, label: str, f: Function, high: Number, terms: dict[int, int]) -> Table:
    function, weight = odd_rest(f)
    return Table(name, f"{label} = x + x^3 P(x^2)", (0, high), function, weight, terms, square)


def scaled_erfc(x: Number) -> Number:
    return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)


def inverse_of_root(v: Number) -> Number:
    """Returns erf_inv(x) / x for the x with sqrt(-log(1 - x^2)) = v; x is too close to 1 to be an argument."""
    complement = mp.exp(-v * v)  # 1 - x^2
    x = mp.sqrt(1 - complement)
    y = mp.sqrt(v * v - mp.log(v * v) / 2)
    target = complement / (1 + x)  # 1 - x
    for _ in range(60):
        step = (mp.erfc(y) - target) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < mp.mpf(10) ** -38:
            break
    return y / x


def stirling_rest(x: Number) -> Number:
    return (mp.loggamma(x) - ((x - mp.mpf("0.5")) * mp.log(x) - x + mp.log(2 * mp.pi) / 2)) * x


def root_bessel(x: Number) -> Number:
    return mp.exp(-x) * mp.besseli(1, x) * mp.sqrt(x)


TABLES: list[Table] = [
    Table(
        "exp",
        "exp(x) - 1 = x + x^2 P(x)",
        (-LN2_2 * 1.001, LN2_2 * 1.001),
        lambda x: (mp.expm1(x) - x) / x**2,
        lambda x: x**2 / mp.expm1(x),
        {32: 6, 64: 11},
    ),
    Table(
        "exp2",
        "2^x = P(x) (for pow of f32, in f64)",
        (-0.501, 0.501),
        lambda x: mp.mpf(2) ** x,
        lambda x: mp.mpf(2) ** -x,
        {64: 7},
    ),
    Table(
        "log2",
        "log2(1 + x) = x P(x) (for pow of f32, in f64)",
        (1 / ROOT - 1, ROOT - 1),
        lambda x: mp.log1p(x) / mp.log(2) / x,
        lambda x: x * mp.log(2) / mp.log1p(x),
        {64: 14},
    ),
    Table(
        "log",
        "log(1 + x) = x - x^2/2 + x^3 P(x)",
        (mp.mpf(2) / 3 - 1, mp.mpf(4) / 3 - 1),
        lambda x: (mp.log1p(x) - x + x * x / 2) / x**3,
        lambda x: x**3 / mp.log1p(x),
        {32: 8},
    ),
    Table(
        "log_atanh",
        "2 atanh(x) = 2x + x^3 P(x^2)",
        (0, 3 - 2 * ROOT),
        lambda x: (2 * mp.atanh(x) - 2 * x) / x**3,
        lambda x: x**3 / (2 * mp.atanh(x)),
        {64: 7},
        square,
    ),
    Table(
        "log_pow",
        "2 atanh(x) = 2x + 2/3 x^3 + x^5 P(x^2) (for pow)",
        (0, 3 - 2 * ROOT),
        lambda x: (2 * mp.atanh(x) - 2 * x - mp.mpf(2) / 3 * x**3) / x**5,
        lambda x: x**5 / (2 * mp.atanh(x)),
        {64: 8},
        square,
    ),
    odd_table("sin", "sin(x)", mp.sin, mp.pi / 4 * 1.002, {32: 3, 64: 6}),
    Table(
        "cos",
        "cos(x) = 1 - x^2/2 + x^4 P(x^2)",
        (0, mp.pi / 4 * 1.002),
        lambda x: (mp.cos(x) - 1 + x * x / 2) / x**4,
        lambda x: x**4 / mp.cos(x),
        {32: 3, 64: 6},
        square,
    ),
    odd_table("tan", "tan(x)", mp.tan, mp.pi / 4 * 1.002, {32: 7, 64: 15}),
    odd_table("sinpi", "sin(pi x) / pi", lambda x: mp.sin(mp.pi * x) / mp.pi, mp.mpf(1) / 2, {64: 8}),
    Table(
        "cospi",
        "cos(pi x) = 1 + x^2 P(x^2)",
        (0, mp.mpf(1) / 4),
        lambda x: (mp.cos(mp.pi * x) - 1) / x**2,
        lambda x: x**2 / mp.cos(mp.pi * x),
        {64: 7},
        square,
    ),
    odd_table("atan", "atan(x)", mp.atan, 1, {32: 9, 64: 20}),
    odd_table("asin", "asin(x)", mp.asin, mp.mpf(1) / 2, {32: 5, 64: 13}),
    odd_table("sinh", "sinh(x)", mp.sinh, 1, {32: 4, 64: 7}),
    Table(
        "erf_small",
        "erf(x) = x + x P(x^2)",
        (0, 1),
        lambda x: mp.erf(x) / x - 1,
        lambda x: x / mp.erf(x),
        {32: 7, 64: 13},
        square,
    ),
    Table(
        "erf_large",
        "erf(x) = 1 - exp(-x - x P(x)); error relative to erf",
        (1, 4.0),
        lambda x: -mp.log(mp.erfc(x)) / x - 1,
        lambda x: x * mp.erfc(x) / mp.erf(x),
        {32: 7},
    ),
    Table(
        "erf_large",
        "erf(x) = 1 - exp(-x - x P(x)); error relative to erf",
        (1, 6.0),
        lambda x: -mp.log(mp.erfc(x)) / x - 1,
        lambda x: x * mp.erfc(x) / mp.erf(x),
        {64: 18},
    ),
    Table(
        "erfc_f32",
        "exp(x^2) erfc(x) (1 + 2x) = P((x - 2) / (x + 2)) (for f32, in f64)",
        (0, mp.mpf("10.2")),
        scaled_erfc,
        lambda x: 1 / scaled_erfc(x),
        {64: 11},
        lambda x: (x - 2) / (x + 2),
    ),
    Table(
        "erfc",
        "exp(x^2) erfc(x) (1 + 2x) = P((x - 4) / (x + 4))",
        (0, mp.mpf("27.3")),
        scaled_erfc,
        lambda x: 1 / scaled_erfc(x),
        {64: 23},
        lambda x: (x - 4) / (x + 4),
    ),
    Table(
        "erf_inv_middle",
        "erf_inv(x) = x P(w - 2.5), w = -log(1 - x^2)",
        (mp.mpf("1e-12"), 5),
        lambda w: mp.erfinv(mp.sqrt(-mp.expm1(-w))) / mp.sqrt(-mp.expm1(-w)),
        lambda w: mp.sqrt(-mp.expm1(-w)) / mp.erfinv(mp.sqrt(-mp.expm1(-w))),
        {32: 10, 64: 22},
        lambda w: w - mp.mpf("2.5"),
    ),
    Table(
        "erf_inv_tail",
        "erf_inv(x) = x P(sqrt(w) - 3)",
        (mp.sqrt(5), mp.sqrt(17)),
        inverse_of_root,
        lambda v: 1 / inverse_of_root(v),
        {32: 10},
        lambda v: v - 3,
    ),
    Table(
        "erf_inv_tail",
        "erf_inv(x) = x P(sqrt(w) - 3.2)",
        (mp.sqrt(5), mp.sqrt(17)),
        inverse_of_root,
        lambda v: 1 / inverse_of_root(v),
        {64: 25},
        lambda v: v - mp.mpf("3.2"),
    ),
    Table(
        "erf_inv_far",
        "erf_inv(x) = x P(sqrt(w) - 5)",
        (mp.sqrt(16), mp.mpf("6.1")),
        inverse_of_root,
        lambda v: 1 / inverse_of_root(v),
        {64: 21},
        lambda v: v - 5,
    ),
    Table(
        "lgamma",
        "log(gamma(2 + x)) = x P(x)",
        (mp.mpf("-0.5"), mp.mpf("0.5")),
        lambda x: mp.loggamma(2 + x) / x,
        lambda x: x / mp.loggamma(2 + x),
        {64: 19},
    ),
    Table(
        "stirling",
        "log(gamma(1/sqrt(x))) = Stirling's formula + P(x) sqrt(x)",
        (mp.mpf(10) ** -7, mp.mpf(1) / 64),
        lambda v: stirling_rest(1 / mp.sqrt(v)),
        lambda v: mp.mpf(1),
        {64: 8},
    ),
    Table(
        "digamma",
        "digamma(1/sqrt(x)) = -log(x)/2 - sqrt(x)/2 - x P(x)",
        (mp.mpf(10) ** -7, mp.mpf(1) / 100),
        lambda v: (-mp.log(v) / 2 - mp.sqrt(v) / 2 - mp.digamma(1 / mp.sqrt(v))) / v,
        lambda v: mp.mpf(1) / 100,
        {64: 8},
    ),
    Table(
        "bessel_i1",
        "I1(x) = x/2 + x^3 P(x^2)",
        (0, 8),
        lambda x: (mp.besseli(1, x) / x - mp.mpf(1) / 2) / x**2,
        lambda x: x**3 / mp.besseli(1, x),
        {64: 17},
        square,
    ),
    Table(
        "bessel_i1e_large",
        "exp(-z) I1(z) = P(x) / sqrt(z), z = 16 / (1 + x)",
        (mp.mpf("-0.999"), 1),
        lambda u: root_bessel(16 / (1 + u)),
        lambda u: 1 / root_bessel(16 / (1 + u)),
        {64: 26},
    ),
]
