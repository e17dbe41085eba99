"""One program with all elementary functions of all types of floats, for tests that compare targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

COUNT = 4001
"""Arguments of each function."""
ANY = {
    **{f.__name__: f for f in (jnp.exp, jnp.expm1, jnp.tanh, jnp.sin, jnp.cos, jnp.tan, jnp.sinh, jnp.cosh, jnp.cbrt)},
    **{f.__name__: f for f in (jnp.arcsinh, jnp.arctan, lax.erf, lax.erfc, lax.logistic, lax.bessel_i1e)},
}
"""Functions of any number."""
POSITIVE = {
    **{f.__name__: f for f in (jnp.log, jnp.log1p, jnp.log2, jnp.sqrt, lax.rsqrt, lax.lgamma, lax.digamma)},
    "arccosh": lambda x: jnp.arccosh(1 + x),
    "zeta": lambda x: lax.zeta(1 + x, x),
    "polygamma": lambda x: lax.polygamma(jnp.ones_like(x), x),
    "power": lambda x: lax.pow(x, jnp.sin(x)),
}
UNIT = {f.__name__: f for f in (jnp.arcsin, jnp.arccos, jnp.arctanh, lax.erf_inv)}
"""Functions of numbers between -1 and 1."""
BOTH = {"atan2": lambda x: lax.atan2(x, x[::-1]), "remainder": lambda x: lax.rem(x, x[::-1])}
COMPLEX = {
    **{f.__name__: f for f in (jnp.exp, jnp.log, jnp.sqrt, jnp.sin, jnp.cos, jnp.tanh, jnp.abs, jnp.arctan)},
    "sign": jnp.sign,
    "multiply": lambda x: x * x[::-1],
    "divide": lambda x: x / x[::-1],
    "power": lambda x: x ** x[::-1],
}
TYPES = {
    "f32": jnp.float32,
    "f64": jnp.float64,
    "bf16": jnp.bfloat16,
    "f16": jnp.float16,
    "c64": jnp.complex64,
    "c128": jnp.complex128,
}


def arguments() -> list[np.ndarray]:
    """Returns numbers of all sizes, of moderate ones, and between -1 and 1."""
    g = np.random.default_rng(3)
    wide = g.standard_normal(COUNT) * np.exp2(g.integers(-40, 40, COUNT))
    return [wide, g.standard_normal(COUNT) * 3, g.uniform(-1, 1, COUNT)]


def results(kinds: Sequence[str], given: Sequence[jax.Array]) -> dict[str, Any]:
    """Returns the results by the name of the function and of the type."""
    found: dict[str, Any] = {}
    for kind in kinds:
        wide, moderate, unit = (x.astype(TYPES[kind]) for x in given)
        if kind.startswith("c"):
            found |= {f"{name} {kind}": f(moderate + 1j * moderate[::-1]) for name, f in COMPLEX.items()}
            continue
        for name, f in (ANY | BOTH).items():
            found[f"{name} {kind}"] = f(wide), f(moderate)
        for name, f in POSITIVE.items():
            found[f"{name} {kind}"] = f(abs(wide)), f(abs(moderate))
        found |= {f"{name} {kind}": f(unit) for name, f in UNIT.items()}
    return found


def program(kinds: Sequence[str], only: Sequence[str] = ()) -> tuple[str, list[np.ndarray], list[str]]:
    """Returns the text, the arguments, and the name of the function and the type of each result. `only`: the functions
    with types, otherwise all."""

    def function(*given: jax.Array) -> dict[str, Any]:
        return {name: found for name, found in results(kinds, given).items() if not only or name in only}

    with jax.enable_x64(True):
        given = arguments()
        lowered = jax.jit(function, keep_unused=True).lower(*given)
        paths = jax.tree_util.tree_flatten_with_path(lowered.out_info)[0]
        return lowered.as_text(), given, [path[0].key for path, _ in paths]


def differing(left: list[np.ndarray], right: list[np.ndarray], names: list[str]) -> dict[str, int]:
    """Returns the names whose results differ, with the number of elements. All NaNs are equal."""
    found: dict[str, int] = {}
    for x, y, name in zip(left, right, names, strict=True):
        part = np.real(x).dtype
        bits = [np.ascontiguousarray(v).view(f"u{part.itemsize}") for v in (x, y)]
        nan = [np.isnan(v.view(part)) for v in (x, y)]
        count = int(((bits[0] != bits[1]) & ~(nan[0] & nan[1])).sum())
        if count:
            found[name] = found.get(name, 0) + count
    return found
