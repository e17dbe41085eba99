"""Elementwise ops on complex numbers, as pairs of registers."""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.errors import Diagnostic, UnsupportedError
from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import V, Builder
from shlo_jit.lower.registers import Reg

Pair = tuple[V, V]


def _add(b: Builder, x: Pair, y: Pair) -> Reg:
    return b.fadd(x[0], y[0]), b.fadd(x[1], y[1])


def _subtract(b: Builder, x: Pair, y: Pair) -> Reg:
    return b.fsub(x[0], y[0]), b.fsub(x[1], y[1])


def _multiply(b: Builder, x: Pair, y: Pair) -> Reg:
    (a, c), (d, e) = x, y
    return b.fsub(b.fmul(a, d), b.fmul(c, e)), b.fadd(b.fmul(a, e), b.fmul(c, d))


def _negate(b: Builder, x: Pair) -> Reg:
    return b.fneg(x[0]), b.fneg(x[1])


FUNCTIONS: dict[str, Callable[..., Reg]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "negate": _negate,
}


def call(b: Builder, name: str, dtype: DType, args: list) -> Reg:
    """Apply a function by name to pairs of registers."""
    function = FUNCTIONS.get(name)
    if function is None:
        raise UnsupportedError(Diagnostic(f"{name} of {dtype} is not supported"))
    return function(b, *args)
