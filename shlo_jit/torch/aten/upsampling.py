"""Images in other sizes, with weights that are computed while the program is built: products with their matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shlo_jit import builder as b
from shlo_jit.builder import DotDimensionNumbers, Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import cast, sizes, wide


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray) -> np.ndarray:
    a, x = -0.5, np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def antialiased_weights(
    n: int, m: int, align_corners: bool, scale: float | None, filter: Callable[[np.ndarray], np.ndarray], reach: int
) -> np.ndarray:
    """The matrix (m, n) that filters n elements to m."""
    if align_corners:
        ratio = (n - 1) / (m - 1) if m > 1 else 0.0
    else:
        ratio = 1 / scale if scale else n / m
    support = reach * max(ratio, 1.0)
    found = np.zeros((m, n))
    for i in range(m):
        middle = ratio * (i + 0.5)
        low, high = max(int(middle - support + 0.5), 0), min(int(middle + support + 0.5), n)
        weights = filter((np.arange(low, high) - middle + 0.5) / max(ratio, 1.0))
        total = weights.sum()
        found[i, low:high] = weights / total if total else weights
    return found


def _filtered(x: Value, matrices: Sequence[np.ndarray]) -> Value:
    """Multiplies the last dimensions by matrices."""
    y = cast(x, wide(x.element_type))
    for i, matrix in enumerate(matrices):
        d = x.ndim - len(matrices) + i
        weights = b.constant(matrix.astype(y.element_type.numpy))
        found = b.dot_general(y, weights, DotDimensionNumbers((d,), (1,)))
        y = b.transpose(found, [*range(d), y.ndim - 1, *range(d, y.ndim - 1)])
    return cast(y, x.element_type)


def _antialiased(
    x: Value, outs: Sequence[int], align: bool, scales: Sequence[float | None], filter: Callable[..., np.ndarray],
    reach: int,
) -> Value:  # fmt: skip
    matrices = [
        antialiased_weights(n, m, align, scale, filter, reach)
        for n, m, scale in zip(sizes(x)[2:], outs, scales, strict=True)
    ]
    return _filtered(x, matrices)


@aten("_upsample_bilinear2d_aa")
def upsample_bilinear2d_aa(
    call: Call, x: Value, outs: Sequence[int], align_corners: bool, *scales: float | None
) -> Value:
    """An image in another size by linear interpolation, filtered when it becomes smaller."""
    return _antialiased(x, outs, align_corners, [*scales, None, None][:2], _triangle, 1)


@aten("_upsample_bicubic2d_aa")
def upsample_bicubic2d_aa(
    call: Call, x: Value, outs: Sequence[int], align_corners: bool, *scales: float | None
) -> Value:
    """An image in another size by cubic interpolation, filtered when it becomes smaller."""
    return _antialiased(x, outs, align_corners, [*scales, None, None][:2], _cubic, 2)
