"""Special functions that PyTorch does not decompose."""

from __future__ import annotations

import math

import numpy as np

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.elementwise import digamma
from shlo_jit.torch.aten.indexing import rows_at
from shlo_jit.torch.aten.polynomials import chebyshev_series
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import Operand, cast, common_shape, filled, number, pair, sizes, wide


@aten("polygamma")
def polygamma(call: Call, n: int, x: Value) -> Value:
    """The n-th derivative of the logarithm of the gamma function's logarithm."""
    y = cast(x, wide(call.dtype))
    if n == 0:
        return cast(digamma(y), call.dtype)
    if n == 1:
        return cast(trigamma(y), call.dtype)
    factor = number((1 if n % 2 else -1) * math.exp(math.lgamma(n + 1)), y.element_type)
    return cast(factor * hurwitz_zeta(filled(sizes(y), n + 1, y.element_type), y), call.dtype)


@aten("special_zeta", "special_zeta.other_scalar", "special_zeta.self_scalar")
def zeta(call: Call, x: Operand, q: Operand) -> Value:
    """The sum of (q + k) ** -x over k = 0, 1, 2 ..."""
    return cast(hurwitz_zeta(*pair(wide(call.dtype), x, q)), call.dtype)


def hurwitz_zeta(x: Value, q: Value) -> Value:
    """The zeta function, infinite at x = 1 and at all poles of q, as ATen's is."""
    dtype = x.element_type
    one = number(1, dtype)
    is_pole = (q <= number(0, dtype)) & (q == b.floor(q)) & ~(x < one)
    return b.select(is_pole | (x == one), filled(sizes(q), math.inf, dtype), b.zeta(x, q))


@aten("special_i1e")
def i1e(call: Call, x: Value) -> Value:
    """The modified Bessel function of order 1, exponentially scaled."""
    return cast(b.bessel_i1e(cast(x, wide(call.dtype))), call.dtype)


@aten("special_i1")
def i1(call: Call, x: Value) -> Value:
    """The modified Bessel function of order 1."""
    y = cast(x, wide(call.dtype))
    return cast(b.bessel_i1e(y) * b.exp(b.abs(y)), call.dtype)


_NEAR = [
    -4.41534164647933937950e-18, 3.33079451882223809783e-17, -2.43127984654795469359e-16, 1.71539128555513303061e-15,
    -1.16853328779934516808e-14, 7.67618549860493561688e-14, -4.85644678311192946090e-13, 2.95505266312963983461e-12,
    -1.72682629144155570723e-11, 9.67580903537323691224e-11, -5.18979560163526290666e-10, 2.65982372468238665035e-9,
    -1.30002500998624804212e-8, 6.04699502254191894932e-8, -2.67079385394061173391e-7, 1.11738753912010371815e-6,
    -4.41673835845875056359e-6, 1.64484480707288970893e-5, -5.75419501008210370398e-5, 1.88502885095841655729e-4,
    -5.76375574538582365885e-4, 1.63947561694133579842e-3, -4.32430999505057594430e-3, 1.05464603945949983183e-2,
    -2.37374148058994688156e-2, 4.93052842396707084878e-2, -9.49010970480476444210e-2, 1.71620901522208775349e-1,
    -3.04682672343198398683e-1, 6.76795274409476084995e-1,
]  # fmt: skip
"""Cephes' series of exp(-x) * I0(x) for x in [0, 8]."""
_FAR = [
    -7.23318048787475395456e-18, -4.83050448594418207126e-18, 4.46562142029675999901e-17, 3.46122286769746109310e-17,
    -2.82762398051658348494e-16, -3.42548561967721913462e-16, 1.77256013305652638360e-15, 3.81168066935262242075e-15,
    -9.55484669882830764870e-15, -4.15056934728722208663e-14, 1.54008621752140982691e-14, 3.85277838274214270114e-13,
    7.18012445138366623367e-13, -1.79417853150680611778e-12, -1.32158118404477131188e-11, -3.14991652796324136454e-11,
    1.18891471078464383424e-11, 4.94060238822496958910e-10, 3.39623202570838634515e-9, 2.26666899049817806459e-8,
    2.04891858946906374183e-7, 2.89137052083475648297e-6, 6.88975834691682398426e-5, 3.36911647825569408990e-3,
    8.04490411014108831608e-1,
]  # fmt: skip
"""Cephes' series of exp(-x) * sqrt(x) * I0(x) for x above 8."""


def scaled_i0(y: Value) -> Value:
    """The modified Bessel function of order 0, exponentially scaled."""
    size = b.abs(y)
    dtype = y.element_type
    near = chebyshev_series(size / number(2, dtype) - number(2, dtype), _NEAR)
    safe = b.max(size, filled(sizes(y), 8, dtype))
    far = chebyshev_series(number(32, dtype) / safe - number(2, dtype), _FAR) / b.sqrt(safe)
    return b.select(size <= number(8, dtype), near, far)


@aten("i0", "special_i0")
def i0(call: Call, x: Value) -> Value:
    """The modified Bessel function of order 0."""
    y = cast(x, wide(call.dtype))
    return cast(scaled_i0(y) * b.exp(b.abs(y)), call.dtype)


@aten("special_i0e")
def i0e(call: Call, x: Value) -> Value:
    """The modified Bessel function of order 0, exponentially scaled."""
    return cast(scaled_i0(cast(x, wide(call.dtype))), call.dtype)


@aten("_cdist_forward")
def cdist(call: Call, x: Value, y: Value, p: float, mode: int | None = None) -> Value:
    """The distances of all rows of two matrices, in the norm p."""
    batch = common_shape(sizes(x)[:-2], sizes(y)[:-2])
    rows, columns, width = sizes(x)[-2], sizes(y)[-2], sizes(x)[-1]
    shape, n = (*batch, rows, columns, width), len(batch)
    left = b.broadcast_in_dim(x, shape, (*range(n - x.ndim + 2, n), n, n + 2))
    right = b.broadcast_in_dim(y, shape, (*range(n - y.ndim + 2, n), n + 1, n + 2))
    return norms(b.abs(cast(left, wide(x.element_type)) - cast(right, wide(x.element_type))), p, call)


def norms(distance: Value, p: float, call: Call) -> Value:
    """The norms p of rows, which are the last dimension."""
    last, dtype = (distance.ndim - 1,), distance.element_type
    if p == 0:
        return cast(b.reduce_sum(cast(distance != number(0, dtype), dtype), last), call.dtype)
    if p == float("inf"):
        empty = 0 in sizes(distance)
        return filled(call.shape, 0, call.dtype) if empty else cast(b.reduce_max(distance, last), call.dtype)
    if p == 1:
        return cast(b.reduce_sum(distance, last), call.dtype)
    if p == 2:
        return cast(b.sqrt(b.reduce_sum(distance * distance, last)), call.dtype)
    total = b.reduce_sum(b.pow(distance, filled(sizes(distance), p, dtype)), last)
    return cast(b.pow(total, filled(sizes(total), 1 / p, dtype)), call.dtype)


@aten("_pdist_forward")
def pdist(call: Call, x: Value, p: float = 2) -> Value:
    """The distances of all pairs of rows, in the norm p."""
    first, second = np.triu_indices(sizes(x)[0], 1)
    if not len(first):
        return filled(call.shape, 0, call.dtype)
    left, right = (rows_at(x, b.constant(i), 0) for i in (first, second))
    return norms(b.abs(left - right), p, call)


def trigamma(x: Value) -> Value:
    """The second derivative of the gamma function's logarithm, by the reflection and the series that ATen uses."""
    dtype = x.element_type
    one = number(1, dtype)
    is_low = x < number(0.5, dtype)
    sine = b.sin(number(math.pi, dtype) * x)
    reflected = -number(math.pi**2, dtype) / (sine * sine)
    y = b.select(is_low, one - x, x)
    found = b.select(is_low, reflected, filled(sizes(x), 0, dtype))
    for _ in range(6):
        found = found + one / (y * y)
        y = y + one
    square = one / (y * y)
    series = number(1 / 6, dtype) - square * (number(1 / 30, dtype) - square * number(1 / 42, dtype))
    found = found + (one + one / (y + y) + square * series) / y
    return b.select(is_low, -found, found)
