"""Elementwise ops on complex numbers, as pairs of registers.

Sums, differences and products follow their definitions, each operation rounded once, as XLA computes them; the rest is
in `kernels/math/complex_*.py`.
"""

from __future__ import annotations

from shlo_jit.errors import Diagnostic, UnsupportedError
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V
from shlo_jit.lower.elements.registers import Reg

Pair = tuple[V, V]


def add(b: Builder, x: Pair, y: Pair) -> Reg:
    return b.fadd(x[0], y[0]), b.fadd(x[1], y[1])


def subtract(b: Builder, x: Pair, y: Pair) -> Reg:
    return b.fsub(x[0], y[0]), b.fsub(x[1], y[1])


def multiply(b: Builder, x: Pair, y: Pair) -> Reg:
    (a, c), (d, e) = x, y
    return b.fsub(b.fmul(a, d), b.fmul(c, e)), b.fadd(b.fmul(a, e), b.fmul(c, d))


def negate(b: Builder, x: Pair) -> Reg:
    return b.fneg(x[0]), b.fneg(x[1])


def precedes(b: Builder, x: Pair, y: Pair) -> V:
    """Whether x precedes y in the lexicographic order of (real, imaginary)."""
    tie = b.and_(b.fcmp("oeq", x[0], y[0]), b.fcmp("olt", x[1], y[1]))
    return b.or_(b.fcmp("olt", x[0], y[0]), tie)


def equal(b: Builder, x: Pair, y: Pair) -> V:
    return b.and_(b.fcmp("oeq", x[0], y[0]), b.fcmp("oeq", x[1], y[1]))


def compare(b: Builder, direction: str, x: Pair, y: Pair) -> V:
    """Returns i1 lanes of x `direction` y (EQ NE LT LE GT GE), with parts in lexicographic order."""
    if direction == "NE":
        return b.not_(equal(b, x, y))
    if direction == "EQ":
        return equal(b, x, y)
    if direction[0] == "G":
        x, y = y, x
    before = precedes(b, x, y)
    return before if direction[1] == "T" else b.or_(before, equal(b, x, y))


def _choose(b: Builder, condition: V, x: Pair, y: Pair) -> Reg:
    return b.select(condition, x[0], y[0]), b.select(condition, x[1], y[1])


def maximum(b: Builder, x: Pair, y: Pair) -> Reg:
    return _choose(b, precedes(b, x, y), y, x)


def minimum(b: Builder, x: Pair, y: Pair) -> Reg:
    return _choose(b, precedes(b, y, x), y, x)


def call(b: Builder, name: str, *args: Pair) -> Reg:
    """Applies a function by name to pairs of registers. Raises UnsupportedError for other functions than those of
    `complex_call`."""
    from shlo_jit.kernels.math import complex_call

    if name not in complex_call.FUNCTIONS:
        raise UnsupportedError(
            Diagnostic(f"{name} of complex numbers is not supported", label="unsupported-element-type")
        )
    parts = complex_call.call(b, name, *args)
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])
