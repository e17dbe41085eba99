"""Elementary functions on scalars and vectors of f32 and f64, written as LLVM text.

    y = call(b, "tanh", x)      # x: a V of type float, double, <16 x float>, ...

Each function is defined once per module and type (`@shlo.tanh.v16f32`), and called. The bits of a result do not depend
on the number of lanes. All operations are IEEE arithmetic, fused multiply-adds, integer operations and selects and,
with AVX-512, tables that fit in two registers. libm is used only for f64 on targets without fused multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, lanes, mangle, scalar, vector
from shlo_jit.kernels.math.expr import X
from shlo_jit.kernels.math.registry import ARITY, FUNCTIONS

__all__ = ["ARITY", "FUNCTIONS", "call"]

ATTRIBUTES = "memory(none) nounwind willreturn"


def call(b: Builder, name: str, *args: V) -> V:
    """Applies a function of `FUNCTIONS`; the arguments share a type. Raises TypeError for other types than float and
    double."""
    write = _writer(name)
    type_ = args[0].type
    if scalar(type_) not in ("float", "double"):
        raise TypeError(f"{name} is defined for float and double, not {type_}")
    symbol = f"shlo.{name}.{mangle(type_)}"
    result = vector("i1", lanes(type_)) if name == "is_finite" else type_
    if symbol not in b.module.functions:
        body = b.module.function(symbol, [(type_, f"x{i}") for i in range(len(args))], result)
        b.module.functions[symbol] = ""  # reserved: a function may call others
        y = write(*[X(body, p) for p in body.params])
        body.ret(y.v)
        # Whether to inline depends on the size, which is known only now: the attributes are inserted in the first line.
        text = b.module.functions[symbol]
        size = text.count("\n")
        inline = "alwaysinline" if size <= tuning.INLINE_FUNCTION_LINES else "noinline"
        b.module.functions[symbol] = text.replace(" {\n", f" {ATTRIBUTES} {inline} {{\n", 1)
    return b.call(result, symbol, list(args))


def _writer(name: str) -> Callable[..., X]:
    """Returns the function that writes `name` for expressions. Raises KeyError for an unknown name."""
    return getattr(import_module(f"shlo_jit.kernels.math.{FUNCTIONS[name]}"), name)
