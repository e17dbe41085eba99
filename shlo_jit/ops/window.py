"""Windows over tensors: attributes shared by reduce_window, select_and_scatter and convolution, their shapes, and the
reference's extraction of windows from an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Op
from shlo_jit.ops.record import Violation
from shlo_jit.sizes import NotSymbolic, Size, surely

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """Sizes and steps of a window: one number (for padding, a pair) per dimension."""

    dimensions: tuple[int | None, ...]
    strides: Ints
    padding: tuple[tuple[int, int], ...]
    base_dilations: Ints
    window_dilations: Ints


def padding_pairs(attr: Any, rank: int, label: str) -> tuple[tuple[int, int], ...]:
    """Returns the pairs of a padding attribute; an absent one means no padding."""
    if attr is None:
        return ((0, 0),) * rank
    assert isinstance(attr, Dense)
    shape = attr.type.shape
    if shape is None or len(shape) != 2 or shape[1] != 2:
        got = ", ".join(map(str, shape or ()))
        raise Violation(label, f"expects the shape of padding-attribute to be {{N, 2}}, but got {{{got}}}.")
    return tuple((int(a), int(b)) for a, b in attr.array.reshape(-1, 2))


def check_positive(what: str, values: Sequence[int | None], label: str) -> None:
    """Checks that known extents and steps are positive."""
    for i, n in enumerate(values):
        if n is not None and n <= 0:
            raise Violation(label, f"expects window to have positive {what} for {i}-th window dimension, but got {n}.")


def make_window(
    dimensions: tuple[int | None, ...],
    labels: Mapping[str, str],
    *,
    strides: Ints | None,
    padding: tuple[tuple[int, int], ...],
    base_dilations: Ints | None,
    window_dilations: Ints | None,
) -> Window:
    """Checks sizes and signs and returns the window; absent values are 1. `labels` are constraint labels by the keys
    used below."""
    rank = len(dimensions)
    ones = (1,) * rank
    check_positive("value", dimensions, labels["window"])
    for key, many, one, values in (
        ("strides", "window-strides", "stride", strides),
        ("base", "base-dilation factors", "base dilation factor", base_dilations),
        ("dilation", "window-dilation factors", "window dilation factor", window_dilations),
    ):
        if values is None:
            continue
        if len(values) != rank:
            raise Violation(
                labels[f"{key} size"],
                f"expects {many} to have same dimension-size as size of window dimensions ({rank}),"
                f" but got: {len(values)}.",
            )
        check_positive(one, values, labels[key])
    if len(padding) != rank:
        raise Violation(
            labels["padding"],
            f"expects padding-entries to have same dimension-size as size of window dimensions ({rank}),"
            f" but got: {len(padding)}.",
        )
    return Window(dimensions, strides or ones, padding, base_dilations or ones, window_dilations or ones)


def optional_ints(op: Op, name: str) -> Ints | None:
    return op.ints(name) if op.attributes.get(name) is not None else None


def window_counts(shape: tuple[int | None, ...], window: Window) -> tuple[int | None, ...]:
    """Returns the number of windows that fit along each dimension (reduce_window C15)."""
    counts: list[int | None] = []
    for n, size, stride, (low, high), base, dilation in zip(
        shape, window.dimensions, window.strides, window.padding, window.base_dilations, window.window_dilations,
        strict=True,
    ):  # fmt: skip
        if n is None or size is None:
            counts.append(None)
            continue
        padded = low + ((n - 1) * base + 1 if n else 0) + high
        reach = (size - 1) * dilation + 1 if size else 0
        if isinstance(padded, Size) and not surely(lambda padded=padded, reach=reach: reach <= padded):
            raise NotSymbolic(
                "comparison-unknown", f"it is unknown whether a window of {reach} fits into {padded} elements"
            )
        counts.append((padded - reach) // stride + 1 if padded > 0 and reach <= padded else 0)
    return tuple(counts)


def take_windows(padded: np.ndarray, counts: Ints, window: Window) -> np.ndarray:
    """Returns all windows of an array that is already dilated and padded, with shape counts + window dimensions."""
    sizes = tuple(n or 0 for n in window.dimensions)
    if 0 in counts:
        return np.empty((*counts, *sizes), padded.dtype)
    index = []
    rank = padded.ndim
    for d in range(rank):
        start = np.arange(counts[d]) * window.strides[d]
        offset = np.arange(sizes[d]) * window.window_dilations[d]
        grid = start[:, None] + offset[None, :]
        shape = [1] * (2 * rank)
        shape[d], shape[rank + d] = counts[d], sizes[d]
        index.append(grid.reshape(shape))
    return padded[tuple(index)]
