"""Functions that are not in the documents: elementwise ones against SciPy, and `op`."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import shlo_jit
import shlo_jit.builder as b
from shlo_jit.builder import special

X = np.array([0.125, 0.5, 0.75, 0.9375])
WANTED: dict[str, Any] = {
    "acos": np.arccos, "acosh": lambda x: np.arccosh(x + 1), "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "bessel_i1e": sp.i1e, "conj": np.conj, "digamma": sp.digamma, "erf_inv": sp.erfinv, "erfc": sp.erfc,
    "is_inf": np.isinf, "lgamma": sp.gammaln, "sinh": np.sinh, "square": np.square,
    "next_after": lambda x: np.nextafter(x, 2 * x), "polygamma": lambda x: sp.polygamma(2, x), "zeta": lambda x: sp.zeta(x + 1.5, x),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [n for n, f in inspect.getmembers(special, inspect.isfunction) if f.__module__ == special.__name__]
)
def test_special_functions(name: str) -> None:
    function = getattr(b, name)
    if name == "op":
        return
    given: dict[str, Any] = {
        "acosh": lambda x: (x + 1.0,), "next_after": lambda x: (x, x * 2.0), "polygamma": lambda x: (2.0, x), "zeta": lambda x: (x + 1.5, x)
    }  # fmt: skip
    got = shlo_jit.jit(lambda x: function(*given.get(name, lambda x: (x,))(x)))(X)
    np.testing.assert_allclose(got, WANTED[name](X), rtol=1e-9)


def test_any_operation() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    f = shlo_jit.jit(lambda x: b.op("stablehlo.einsum", [x, x], {"einsum_config": "ij,kj->ik"}, ["f32[2,2]"])[0])
    np.testing.assert_array_equal(f(x), x @ x.T)
    f = shlo_jit.jit(lambda x: b.op("stablehlo.transpose", [x], {"permutation": [1, 0]})[0])
    np.testing.assert_array_equal(f(x), x.T)
    with pytest.raises(b.BuilderError, match="operation"), b.function("main", x="f32[2]") as g:
        b.op("stablehlo.tanhh", [g.x])
    with pytest.raises(b.BuilderError, match="do not follow"), b.function("main", x="f32[2]") as g:
        b.op("stablehlo.reshape", [g.x])
    with pytest.raises(b.BuilderError, match="permutation"), b.function("main", x="f32[2]") as g:
        b.op("stablehlo.transpose", [g.x], {"permutation": [1]})
