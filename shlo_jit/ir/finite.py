"""Which values are known to be finite when a program is compiled: constants, also moved ones.

0 * x is 0 only for finite x. So who leaves out products with zeros asks here; see docs/accuracy.md.
"""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Value

LARGE = 2.0**15
"""A number that all types of sums hold."""
MOVES = frozenset(
    f"stablehlo.{name}" for name in ("transpose", "reshape", "reverse", "slice", "broadcast_in_dim", "copy")
)
"""Ops whose elements are elements of their operand."""


def is_known_finite(value: Value) -> bool:
    """Whether products of a value's elements with zero are zeros, whatever a call brings."""
    op = value.op
    while op is not None and op.name in MOVES:
        op = op.operands[0].op
    return op is not None and op.name == "stablehlo.constant" and is_finite(op.constant)


def is_finite(constant: Dense) -> bool:
    """Whether products of all elements with zero are zeros, also after a conversion to the type of the sums."""

    def ends(array: np.ndarray) -> np.ndarray:
        parts = [np.real(array), np.imag(array)] if array.dtype.kind == "c" else [array]
        with np.errstate(invalid="ignore"):
            return np.array([f(x) for x in parts for f in (np.min, np.max)], np.float64)

    return constant.type.size == 0 or bool((np.abs(constant.derived("ends", ends)) < LARGE).all())
