"""Compile-time test whether values are finite: constants, also after data movement.

0 * x is 0 only for finite x, so optimizations that omit products with zeros use this test; see docs/accuracy.md.
"""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Value

LARGE = 2.0**15
"""A number that all accumulator types can represent."""
MOVES = frozenset(
    f"stablehlo.{name}" for name in ("transpose", "reshape", "reverse", "slice", "broadcast_in_dim", "copy")
)
"""Ops whose result elements are elements of their operand."""


def is_known_finite(value: Value) -> bool:
    """Whether products of a value's elements with zero are zeros in every call."""
    op = value.op
    while op is not None and op.name in MOVES:
        op = op.operands[0].op
    return op is not None and op.name == "stablehlo.constant" and is_finite(op.constant)


def is_finite(constant: Dense) -> bool:
    """Whether products of all elements with zero are zeros, also after conversion to the accumulator type."""

    def ends(array: np.ndarray) -> np.ndarray:
        parts = [np.real(array), np.imag(array)] if array.dtype.kind == "c" else [array]
        with np.errstate(invalid="ignore"):
            return np.array([f(x) for x in parts for f in (np.min, np.max)], np.float64)

    return constant.type.size == 0 or bool((np.abs(constant.derived("ends", ends)) < LARGE).all())
