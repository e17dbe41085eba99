"""Windows as columns of a matrix, and back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import cast, number, sizes, slice_along, wide


@aten("col2im")
def col2im(
    call: Call, x: Value, outs: Sequence[int], kernel: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int], stride: Sequence[int],
) -> Value:  # fmt: skip
    """The sums of the windows that are the columns, at their places in an image."""
    y = x if x.ndim == 3 else b.reshape(x, (1, *sizes(x)))
    batch, features = sizes(y)[0], sizes(y)[1] // (kernel[0] * kernel[1])
    counts = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(outs, padding, dilation, kernel, stride, strict=True)
    ]
    dtype = wide(x.element_type)
    parts = b.reshape(cast(y, dtype), (batch, features, *kernel, *counts))
    found: Value | None = None
    for places in itertools.product(*(range(k) for k in kernel)):
        part = parts
        for i, at in enumerate(places):
            part = slice_along(part, 2 + i, at, at + 1)
        part = b.reshape(part, (batch, features, *counts))
        amounts = [(0, 0, 0), (0, 0, 0)]
        for i, at in enumerate(places):
            low = at * dilation[i] - padding[i]
            reached = (counts[i] - 1) * stride[i] + 1
            amounts.append((low, outs[i] - low - reached, stride[i] - 1))
        spread = b.pad(part, number(0, dtype), amounts)
        found = spread if found is None else found + spread
    assert found is not None
    result = cast(found, x.element_type)
    return result if x.ndim == 3 else b.reshape(result, sizes(result)[1:])
