"""A graph as a JAX function, from which the programs for shlo_jit and XLA are exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.deployed.graph import Graph, Value

EPSILON = 1e-5
Array = Any


def function(graph: Graph, dtype: Any = jnp.float32) -> Callable[..., tuple[Array, ...]]:
    """A function of a dictionary of weights, and of the inputs.

    Floats are computed in `dtype`, which the weights have. Inputs and results are f32, and so are sums of
    normalizations and softmax.
    """

    def call(weights: Mapping[str, Array], *inputs: Array) -> tuple[Array, ...]:
        given = iter(inputs)
        found: dict[Value, Array] = {}
        for value in graph.values:
            if value.op == "input":
                x = next(given)
                found[value] = x.astype(dtype) if value.dtype == "f32" else x
            elif value.op == "weight":
                found[value] = weights[value.name]
            else:
                found[value] = WRITERS[value.op](value, *(found[operand] for operand in value.operands))
        return tuple(found[output].astype(jnp.float32) for output in graph.outputs)

    return call


def _conv(value: Value, x: Array, filters: Array) -> Array:
    options = value.attributes
    return lax.conv_general_dilated(
        x, filters, (options["stride"],) * 2, options["padding"], rhs_dilation=(options["dilation"],) * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=options["groups"],
    )  # fmt: skip


def _max_pool(value: Value, x: Array) -> Array:
    size, stride, pad = (value.attributes[name] for name in ("size", "stride", "pad"))
    sides = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), sides)


def _twice_as_large(value: Value, x: Array) -> Array:
    n, rows, columns, channels = x.shape
    copies = jnp.broadcast_to(x[:, :, None, :, None], (n, rows, 2, columns, 2, channels))
    return copies.reshape(value.shape)


def _part(value: Value, x: Array) -> Array:
    options = value.attributes
    return lax.slice_in_dim(x, options["start"], options["stop"], axis=options["axis"])


def _layer_norm(value: Value, x: Array, scale: Array, offset: Array) -> Array:
    wide = x.astype(jnp.float32)
    wide = wide - wide.mean(-1, keepdims=True)
    wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + EPSILON)
    return (wide * scale + offset).astype(x.dtype)


def _rms_norm(value: Value, x: Array, scale: Array) -> Array:
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + EPSILON) * scale).astype(x.dtype)


def _matmul(value: Value, a: Array, b: Array) -> Array:
    return jnp.einsum("bmk,bnk->bmn" if value.attributes["is_transposed"] else "bmk,bkn->bmn", a, b)


def _linear(value: Value, x: Array, weight: Array, *bias: Array) -> Array:
    return x @ weight + bias[0] if bias else x @ weight


def _lstm(value: Value, x: Array, by_input: Array, by_state: Array, bias: Array) -> Array:
    def step(state: tuple[Array, Array], row: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = state
        i, o, f, g = jnp.split(row + h @ by_state, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros(value.shape[1], x.dtype)
    return lax.scan(step, (zeros, zeros), x @ by_input + bias)[1]


def _quantized(value: Value, x: Array) -> Array:
    return jnp.clip(jnp.round(x / value.attributes["scale"]), 0, 127).astype(jnp.int8)


def _linear_i8(value: Value, x: Array, weight: Array, scales: Array, bias: Array) -> Array:
    sums = lax.dot_general(x, weight, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32).astype(jnp.float32)
    return sums * (scales * value.attributes["scale"]) + bias


def _softmax(value: Value, x: Array) -> Array:
    return jax.nn.softmax(x.astype(jnp.float32), -1).astype(x.dtype)


def _concatenate(value: Value, *operands: Array) -> Array:
    return jnp.concatenate(operands, value.attributes["axis"])


def _bucketed(value: Value, table: Array) -> Array:
    return jnp.moveaxis(table[value.attributes["buckets"]], -1, 0)


def _reshape(value: Value, x: Array) -> Array:
    return x.reshape(value.shape)


def _columns(value: Value, x: Array) -> Array:
    return x[:, list(value.attributes["places"])]


WRITERS: Mapping[str, Callable[..., Array]] = {
    "conv": _conv,
    "batch_norm": lambda value, x, scale, offset: x * scale + offset,
    "bias": lambda value, x, offset: x + offset,
    "max_pool": _max_pool,
    "mean_of_image": lambda value, x: x.mean((1, 2), keepdims=True),
    "twice_as_large": _twice_as_large,
    "pixels": _reshape,
    "relu": lambda value, x: jnp.maximum(x, 0),
    "relu6": lambda value, x: jnp.clip(x, 0, 6),
    "leaky_relu": lambda value, x: jnp.where(x > 0, x, 0.1 * x),
    "sigmoid": lambda value, x: jax.nn.sigmoid(x),
    "silu": lambda value, x: jax.nn.silu(x),
    "tanh": lambda value, x: jnp.tanh(x),
    "gelu": lambda value, x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda value, x: jax.nn.gelu(x, approximate=True),
    "softmax": _softmax,
    "add": lambda value, a, b: a + b,
    "multiply": lambda value, a, b: a * b,
    "scaled": lambda value, x: x * value.attributes["factor"],
    "concatenate": _concatenate,
    "part": _part,
    "reshape": _reshape,
    "transpose": lambda value, x: x.transpose(value.attributes["order"]),
    "rows": lambda value, table, indices: jnp.take(table, indices, axis=0, mode="clip"),
    "columns": _columns,
    "bucketed": _bucketed,
    "linear": _linear,
    "linear_by_rows": lambda value, x, table: x @ table.T,
    "matmul": _matmul,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "lstm": _lstm,
    "quantized": _quantized,
    "linear_i8": _linear_i8,
}


def exported(
    graph: Graph, weights: Mapping[str, Array], inputs: Sequence[Array], dtype: Any, *, constant: bool
) -> bytes:
    """Output of `jax.export`: the program with the weights in it, or as its first arguments, in alphabetic order."""
    placed = {name: jnp.asarray(w, dtype if w.dtype.kind == "f" else None) for name, w in weights.items()}
    call = function(graph, dtype)
    if constant:
        lowered = jax.export.export(jax.jit(lambda *xs: call(placed, *xs)))(*inputs)
    else:
        lowered = jax.export.export(jax.jit(call, keep_unused=True))(placed, *inputs)
    return bytes(lowered.serialize())
