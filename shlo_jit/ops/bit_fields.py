"""Ops that take integers apart into fields of bits, as programs do that keep several small numbers in one integer."""

from __future__ import annotations

SHIFTS = ("stablehlo.shift_left", "stablehlo.shift_right_arithmetic", "stablehlo.shift_right_logical")
MASK = "stablehlo.and"
TAKES_BITS = (*SHIFTS, MASK)
"""Ops whose second operand says which bits of the first one are wanted, if it is a constant."""
