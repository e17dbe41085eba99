"""Neutral elements: e with op(e, x) = op(x, e) = x for every x of an element type, bit for bit (a NaN stays a NaN).

The functions return None if there is no neutral element.
"""

from __future__ import annotations

from shlo_jit.ir.types import DType, storage_range


def of_sum(dtype: DType) -> int | float | complex | None:
    """Returns 0; for floats -0, since -0 + 0 = 0 while -0 + -0 = -0."""
    if dtype.name == "f8E8M0FNU":
        return None  # it has no zero
    if dtype.is_complex:
        return complex(-0.0, -0.0)
    return -0.0 if dtype.is_float else 0


def of_product(dtype: DType) -> int | None:
    """Returns 1. Complex numbers have none: (a + bi)(1 + 0i) = (a - 0b) + (b + 0a)i is NaN for infinite parts."""
    return None if dtype.is_complex else 1


def of_maximum(dtype: DType) -> int | float | None:
    """Returns the smallest number if there is one.

    Complex numbers have none, since those with an infinite part tie with others. None for floats of at most 8 bits,
    some of which have no infinity.
    """
    return _limit(dtype, 0)


def of_minimum(dtype: DType) -> int | float | None:
    """Returns the largest number, with the exceptions of `of_maximum`."""
    return _limit(dtype, 1)


def _limit(dtype: DType, end: int) -> int | float | None:
    if dtype.is_complex or (dtype.is_float and dtype.bits < 16):
        return None
    if dtype.is_float:
        return (float("-inf"), float("inf"))[end]
    return end if dtype.kind == "b" else storage_range(dtype)[end]


def no_bits(dtype: DType) -> int:
    """Returns the neutral element of `or` and `xor`."""
    return 0


def all_bits(dtype: DType) -> int:
    """Returns the neutral element of `and`."""
    if dtype.kind == "b":
        return 1
    return (1 << dtype.bits) - 1 if dtype.kind == "u" else -1
