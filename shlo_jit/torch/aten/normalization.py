"""Normalizations: of batches, layers and groups. PyTorch decomposes those that have no record."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.reductions import variance
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import cast, expanded, filled, keep, number, sizes, wide


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


@aten("_native_batch_norm_legit_no_training")
def batch_norm_of_inference(
    call: Call, x: Value, weight: Value | None, bias: Value | None, means: Value, variances: Value, momentum: float,
    eps: float,
) -> tuple[Value, ...]:  # fmt: skip
    """The tensor normalized by the running means and variances of its features, and two empty tensors."""
    dtype = wide(x.element_type)
    # As in PyTorch, an element is multiplied and added to once, by numbers of its feature.
    factor = b.rsqrt(cast(variances, dtype) + number(eps, dtype))
    if weight is not None:
        factor = factor * cast(weight, dtype)
    summand = -cast(means, dtype) * factor
    if bias is not None:
        summand = summand + cast(bias, dtype)
    factor, summand = (b.broadcast_in_dim(v, sizes(x), (1,)) for v in (factor, summand))
    rest = [filled(shape or (), 0, t or dtype) for shape, t in zip(call.shapes()[1:], call.dtypes[1:], strict=True)]
    return cast(cast(x, dtype) * factor + summand, call.dtype), *rest


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
