"""Strides of tensors that are dense in another order of their dimensions, such as channels last."""

from __future__ import annotations

from collections.abc import Sequence


def physical_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The order of dimensions in memory of a dense tensor; None for a contiguous one, or one that is not dense."""
    order = dense_order(shape, strides)
    if order is None or list(order) == sorted(order) or 0 in shape:
        return None
    return (*(d for d, n in enumerate(shape) if n == 1), *order)


def dense_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The order in memory of the dimensions of extents other than 1; None for a tensor that is not dense."""
    order = sorted((d for d, n in enumerate(shape) if n != 1), key=lambda d: -strides[d])
    expected = 1
    for d in reversed(order):
        if strides[d] != expected:
            return None
        expected *= shape[d]
    return tuple(order)
