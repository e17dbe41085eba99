"""Activations and their gradients that are worth a record of their own."""

from __future__ import annotations

import math

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import cast, number, pair, together, wide


@aten("relu")
def relu(call: Call, x: Value) -> Value:
    """The greater of every element and 0."""
    return b.max(*pair(x.element_type, x, 0))


@aten("gelu")
def gelu(call: Call, x: Value, *, approximate: str = "none") -> Value:
    """x times the normal distribution's probability of a number less than x."""
    y = cast(x, wide(x.element_type))
    dtype = y.element_type
    half, one = number(0.5, dtype), number(1, dtype)
    if approximate == "tanh":
        inner = number(math.sqrt(2 / math.pi), dtype) * (y + number(0.044715, dtype) * y * y * y)
        return cast(half * y * (one + b.tanh(inner)), x.element_type)
    return cast(y * half * (one + b.erf(y * number(math.sqrt(0.5), dtype))), x.element_type)


@aten("silu")
def silu(call: Call, x: Value) -> Value:
    """x times the logistic function of x."""
    y = cast(x, wide(x.element_type))
    return cast(y * b.logistic(y), x.element_type)


@aten("elu")
def elu(call: Call, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    """scale * x above 0, and scale * alpha * (exp(x * input_scale) - 1) below."""
    y = cast(x, wide(x.element_type))
    dtype = y.element_type
    below = number(scale * alpha, dtype) * b.expm1(y * number(input_scale, dtype))
    return cast(b.select(y > number(0, dtype), y * number(scale, dtype), below), x.element_type)


@aten("leaky_relu")
def leaky_relu(call: Call, x: Value, negative_slope: float = 0.01) -> Value:
    """x above 0, and negative_slope * x below."""
    y = cast(x, wide(x.element_type))
    dtype = y.element_type
    return cast(b.select(y > number(0, dtype), y, y * number(negative_slope, dtype)), x.element_type)


@aten("hardtanh")
def hardtanh(call: Call, x: Value, min_val: float = -1, max_val: float = 1) -> Value:
    """Every element, limited to [min_val, max_val]."""
    dtype = x.element_type
    return b.min(b.max(x, together(dtype, min_val, x)[0]), together(dtype, max_val, x)[0])


@aten("threshold_backward")
def threshold_backward(call: Call, gradient: Value, x: Value, threshold: float) -> Value:
    """The gradient where x is above the threshold, 0 elsewhere."""
    dtype = call.dtype
    g, y = together(dtype, gradient, x)
    return b.select(y <= number(threshold, dtype), together(dtype, 0, g)[0], g)
