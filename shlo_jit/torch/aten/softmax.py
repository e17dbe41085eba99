"""Softmax and its logarithm."""

from __future__ import annotations

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import cast, dimension, expanded, number, sizes, wide


def _shifted(call: Call, x: Value, d: int) -> tuple[Value, Value]:
    """x less its maximum along a dimension, and the sums of the exponentials of that."""
    y = cast(x, wide(call.dtype))
    shifted = y - expanded(b.reduce_max(y, (d,)), (d,), sizes(y))
    return shifted, b.reduce_sum(b.exp(shifted), (d,))


@aten("_softmax", "softmax.int")
def softmax(call: Call, x: Value, dim: int, *_: object, **__: object) -> Value:
    """Exponentials along a dimension, divided by their sum."""
    if not x.ndim:
        return number(1, call.dtype)
    d = dimension(dim, x.ndim)
    if 0 in sizes(x):
        return cast(x, call.dtype)
    shifted, total = _shifted(call, x, d)
    return cast(b.exp(shifted) / expanded(total, (d,), sizes(x)), call.dtype)


@aten("_log_softmax", "log_softmax.int")
def log_softmax(call: Call, x: Value, dim: int, *_: object, **__: object) -> Value:
    """Logarithms of the softmax along a dimension."""
    if not x.ndim:
        return number(0, call.dtype)
    d = dimension(dim, x.ndim)
    if 0 in sizes(x):
        return cast(x, call.dtype)
    shifted, total = _shifted(call, x, d)
    return cast(shifted - expanded(b.log(total), (d,), sizes(x)), call.dtype)


@aten("_softmax_backward_data")
def softmax_backward(call: Call, gradient: Value, output: Value, dim: int, dtype: object) -> Value:
    """The gradient of the softmax."""
    g, y = (cast(v, wide(output.element_type)) for v in (gradient, output))
    product = g * y
    if not y.ndim:
        return cast(product - y * product, call.dtype)
    d = dimension(dim, y.ndim)
    total = expanded(b.reduce_sum(product, (d,)), (d,), sizes(y))
    return cast(product - y * total, call.dtype)


@aten("_log_softmax_backward_data")
def log_softmax_backward(call: Call, gradient: Value, output: Value, dim: int, dtype: object) -> Value:
    """The gradient of the softmax's logarithm."""
    g, y = (cast(v, wide(output.element_type)) for v in (gradient, output))
    if not y.ndim:
        return cast(g - b.exp(y) * g, call.dtype)
    d = dimension(dim, y.ndim)
    total = expanded(b.reduce_sum(g, (d,)), (d,), sizes(y))
    return cast(g - b.exp(y) * total, call.dtype)
