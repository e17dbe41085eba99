"""Strides of tensors that are dense in another order of their dimensions, such as channels last."""

from __future__ import annotations

from collections.abc import Sequence


def physical_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The order of dimensions in memory of a dense tensor; None for a contiguous one, or one that is not dense."""
    order = sorted((d for d, n in enumerate(shape) if n != 1), key=lambda d: -strides[d])
    if order == sorted(order) or 0 in shape:
        return None
    expected = 1
    for d in reversed(order):
        if strides[d] != expected:
            return None
        expected *= shape[d]
    return (*(d for d, n in enumerate(shape) if n == 1), *order)
