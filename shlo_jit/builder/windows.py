"""Windows that move over tensors: padding by name or as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.builder.arguments import pairs, word
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.records import Padding

PaddingLike = Padding | Sequence[Sequence[int]]
"""SAME, VALID, or for each dimension the padding before and after."""


def padding_of(
    padding: object,
    extents: Sequence[int | None],
    window: Sequence[int],
    strides: Sequence[int],
    base_dilations: Sequence[int],
    window_dilations: Sequence[int],
) -> list[tuple[int, int]]:
    """Padding before and after each dimension.

    SAME pads so that the number of windows is the (dilated) extent divided by the stride, rounded up. VALID does not
    pad.
    """
    if not isinstance(padding, str):
        found = pairs(padding, "padding")
        if len(found) != len(window):
            raise wrong("padding", f"expected {len(window)} pairs, one for each dimension, got {len(found)}")
        return found
    if word(padding, Padding, "padding") == "VALID":
        return [(0, 0)] * len(window)
    return [_same(*sizes) for sizes in zip(extents, window, strides, base_dilations, window_dilations, strict=True)]


def _same(extent: int | None, window: int, stride: int, base_dilation: int, window_dilation: int) -> tuple[int, int]:
    if extent is None:
        raise wrong("padding", "SAME requires known extents")
    size = (extent - 1) * base_dilation + 1 if extent else 0
    reach = (window - 1) * window_dilation + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0) if stride > 0 else 0
    return total // 2, total - total // 2
