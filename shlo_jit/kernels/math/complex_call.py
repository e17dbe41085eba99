"""Complex functions by name, on pairs of registers of f32 or f64.

    re, im = call(b, "exp", (re, im))

Each function is defined once per module and type (`@shlo.complex.exp.v8f64`) as an LLVM function that returns both
parts. It computes in f64: parts in f32 are converted before and rounded after.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, mangle, scalar
from shlo_jit.kernels.math import complex_functions as cf
from shlo_jit.kernels.math import complex_inverse as ci
from shlo_jit.kernels.math import complex_numbers as cn
from shlo_jit.kernels.math import complex_power as cp
from shlo_jit.kernels.math.expr import X

ATTRIBUTES = "memory(none) nounwind willreturn noinline"

FUNCTIONS: dict[str, Callable[..., cn.Z | X]] = {
    "abs": cn.modulus,
    "divide": cn.divide,
    "sign": cn.sign,
    "sqrt": cf.sqrt,
    "rsqrt": cf.rsqrt,
    "cbrt": cf.cbrt,
    "exp": cf.exp,
    "expm1": cf.expm1,
    "log": cf.log,
    "log1p": cf.log1p,
    "logistic": cf.logistic,
    "power": cp.power,
    "sin": cf.sin,
    "cos": cf.cos,
    "tan": cf.tan,
    "sinh": cf.sinh,
    "cosh": cf.cosh,
    "tanh": cf.tanh,
    "atan2": cf.atan2,
    "asin": ci.asin,
    "acos": ci.acos,
    "atan": ci.atan,
    "asinh": ci.asinh,
    "acosh": ci.acosh,
    "atanh": ci.atanh,
    "asin_acos_kernel": ci.asin_acos_kernel,
}

OF_SINGLES: dict[str, Callable[..., cn.Z | X]] = {"abs": cn.modulus_of_singles, "divide": cn.divide_of_singles}
"""Functions that are computed differently for parts in f32."""


def call(b: Builder, name: str, *args: tuple[V, V]) -> tuple[V, ...]:
    """Applies a function of `FUNCTIONS`. Returns the parts of its result (one for `abs`)."""
    t = args[0][0].type
    symbol, result = _signature(name, t)
    if symbol not in b.module.functions:
        _define(b, name, t, len(args))
    both = b.call(result, symbol, [part for z in args for part in z], declare=False)
    if result == t:
        return (both,)
    return tuple(b.emit(t, f"extractvalue {result} {both.text}, {k}") for k in (0, 1))


def _signature(name: str, t: str) -> tuple[str, str]:
    """Returns the function's name and the type of its result."""
    return f"shlo.complex.{name}.{mangle(t)}", t if name == "abs" else f"{{ {t}, {t} }}"


def _define(b: Builder, name: str, t: str, count: int) -> None:
    symbol, result = _signature(name, t)
    parameters = [(t, f"{part}{k}") for k in range(count) for part in ("re", "im")]
    body = b.module.function(symbol, parameters, result, attributes=ATTRIBUTES)
    b.module.functions[symbol] = ""  # reserved: the functions it calls are emitted meanwhile
    wide = [X(body, body.cast("fpext", p, "double")) for p in body.params]
    functions = FUNCTIONS | OF_SINGLES if scalar(t) == "float" else FUNCTIONS
    out = functions[name](*zip(wide[::2], wide[1::2], strict=True))
    values = [body.cast("fptrunc", x.v, scalar(t)) for x in (out if isinstance(out, tuple) else (out,))]
    if len(values) == 1:
        body.ret(values[0])
        return
    first = body.emit(result, f"insertvalue {result} poison, {t} {values[0].text}, 0")
    body.ret(body.emit(result, f"insertvalue {result} {first.text}, {t} {values[1].text}, 1"))
