"""The functions by name."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.kernels.math import (
    bessel,
    error_function,
    exponential,
    gamma,
    hyperbolic,
    inverse_trigonometric,
    logarithm,
    power,
    rounding,
    trigonometric,
)
from shlo_jit.kernels.math.expr import X

INLINE_LIMIT = 80
"""Functions of at most so many lines are inlined."""

FUNCTIONS: dict[str, Callable[..., X]] = {
    "exp": exponential.exp,
    "expm1": exponential.expm1,
    "logistic": exponential.logistic,
    "log": logarithm.log,
    "log1p": logarithm.log1p,
    "log2": logarithm.log2,
    "tanh": hyperbolic.tanh,
    "sqrt": power.sqrt,
    "rsqrt": power.rsqrt,
    "cbrt": power.cbrt,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "pow": power.pow_,
    "atan": inverse_trigonometric.atan,
    "atan2": inverse_trigonometric.atan2,
    "asin": inverse_trigonometric.asin,
    "acos": inverse_trigonometric.acos,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "erf_inv": error_function.erf_inv,
    "lgamma": gamma.lgamma,
    "digamma": gamma.digamma,
    "polygamma": gamma.polygamma,
    "zeta": gamma.zeta,
    "bessel_i1e": bessel.bessel_i1e,
    "floor": rounding.floor,
    "ceil": rounding.ceil,
    "round_nearest_even": rounding.round_nearest_even,
    "round_nearest_afz": rounding.round_nearest_afz,
    "is_finite": rounding.is_finite,
    "next_after": rounding.next_after,
    "remainder": rounding.remainder,
}

ARITY: dict[str, int] = {"pow": 2, "atan2": 2, "next_after": 2, "remainder": 2, "zeta": 2, "polygamma": 2}
"""Arguments of the functions that do not take one."""
