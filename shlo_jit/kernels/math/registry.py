"""The functions by name. Each is in the module of its family, which is imported when a program first calls one."""

from __future__ import annotations

_MODULES = {
    "exponential": "exp expm1 logistic",
    "logarithm": "log log1p log2",
    "hyperbolic": "tanh sinh cosh asinh acosh atanh",
    "power": "sqrt rsqrt cbrt pow",
    "trigonometric": "sin cos tan",
    "inverse_trigonometric": "atan atan2 asin acos",
    "error_function": "erf erfc erf_inv",
    "gamma": "lgamma digamma polygamma zeta",
    "bessel": "bessel_i1e",
    "rounding": "floor ceil round_nearest_even round_nearest_afz is_finite next_after remainder",
}

FUNCTIONS: dict[str, str] = {name: module for module, names in _MODULES.items() for name in names.split()}
"""The module that defines a function, by its name."""

ARITY: dict[str, int] = {"pow": 2, "atan2": 2, "next_after": 2, "remainder": 2, "zeta": 2, "polygamma": 2}
"""Number of arguments of the functions that do not have one."""
