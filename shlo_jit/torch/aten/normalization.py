"""Normalizations: of batches, layers and groups. PyTorch decomposes those that have no record."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.reductions import variance
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import cast, expanded, keep, number, sizes, wide


@aten("native_layer_norm")
def native_layer_norm(
    call: Call, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """The tensor normalized along its last dimensions, its mean, and the reciprocal of its standard deviation."""
    where = tuple(range(x.ndim - len(shape), x.ndim))
    y = cast(x, wide(x.element_type))
    spread, middle = variance(y, where, 0)
    rstd = b.rsqrt(spread + number(eps, y.element_type))
    found = (y - expanded(middle, where, sizes(y))) * expanded(rstd, where, sizes(y))
    for function, factor in ((b.mul, weight), (b.add, bias)):
        if factor is not None:
            found = function(found, b.broadcast_in_dim(cast(factor, y.element_type), sizes(y), where))
    means, deviations = (cast(keep(v, where, x.ndim), t or x.element_type) for v, t in
                         zip((middle, rstd), call.dtypes[1:], strict=True))  # fmt: skip
    return cast(found, call.dtype), means, deviations


@aten("native_group_norm")
def native_group_norm(
    call: Call, x: Value, weight: Value | None, bias: Value | None, batch: int, features: int, inner: int,
    groups: int, eps: float,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """The tensor normalized within groups of features, the means, and the reciprocals of the standard deviations."""
    shape = (batch, groups, features // groups, math.prod(sizes(x)[2:]))
    y = b.reshape(cast(x, wide(x.element_type)), shape)
    spread, middle = variance(y, (2, 3), 0)
    rstd = b.rsqrt(spread + number(eps, y.element_type))
    found = (y - expanded(middle, (2, 3), shape)) * expanded(rstd, (2, 3), shape)
    found = b.reshape(found, sizes(x))
    for function, factor in ((b.mul, weight), (b.add, bias)):
        if factor is not None:
            found = function(found, b.broadcast_in_dim(cast(factor, y.element_type), sizes(x), (1,)))
    means, deviations = (cast(v, t or x.element_type) for v, t in
                         zip((middle, rstd), call.dtypes[1:], strict=True))  # fmt: skip
    return cast(found, call.dtype), means, deviations
