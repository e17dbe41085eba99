"""Functions that are too long for the table of cases."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = Any


def softmax_numpy(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normalized(x: Array) -> Array:
    """Rows with mean 0 and variance 1."""
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def layer_norm(x: Array, scale: Array, offset: Array) -> Array:
    return normalized(x) * scale + offset


def rms_norm(x: Array) -> Array:
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)


def convnext_block(x: Array, window: Array, scale: Array, offset: Array, wide: Array, narrow: Array) -> Array:
    """A depthwise convolution, a normalization of each pixel, and two products, added to the images."""
    groups = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "feature_group_count": x.shape[-1]}
    y = layer_norm(lax.conv_general_dilated(x, window, (1, 1), "SAME", **groups), scale, offset)
    return x + jax.nn.gelu(y @ wide) @ narrow


def max_pool(x: Array) -> Array:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


# ---------------------------------------------------------------------- loops
def heat(u: Array) -> Array:
    """Sixty steps of the heat equation, with boundaries held at zero."""

    def step(_: Array, u: Array) -> Array:
        inner = u[1:-1, 1:-1]
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return jnp.pad(inner + 0.2 * (around - 4 * inner), 1)

    return lax.fori_loop(0, 60, step, u)


def wave(u: Array, v: Array) -> tuple[Array, Array]:
    """Forty steps of the wave equation on a torus."""

    def step(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        u, v = state
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return 2 * u - v + 0.2 * (around - 4 * u), u

    return lax.fori_loop(0, 40, step, (u, v))


def life(cells: Array) -> Array:
    """A hundred generations of the game of life on a torus."""

    def step(_: Array, cells: Array) -> Array:
        shifts = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
        near = sum(jnp.roll(cells, shift, (0, 1)) for shift in shifts)
        return ((near == 3) | ((cells == 1) & (near == 2))).astype(jnp.int32)

    return lax.fori_loop(0, 100, step, cells)


def mandelbrot(x: Array, y: Array) -> Array:
    """Iterations, of 100, in which points of the plane stay near the origin, summed by row.

    XLA may multiply and add with one rounding, so points at the edge may leave earlier or later.
    """
    zero = jnp.zeros_like(x)

    def step(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        a, b, count = state
        near = a * a + b * b < 4
        after = a * a - b * b + x, 2 * a * b + y
        return jnp.where(near, after[0], a), jnp.where(near, after[1], b), count + near.astype(jnp.int32)

    return lax.fori_loop(0, 100, step, (zero, zero, zero.astype(jnp.int32)))[2].sum(1)


def collatz(n: Array) -> Array:
    """Number of steps until every number has reached 1."""

    def step(state: Array) -> Array:
        n, steps = state
        after = jnp.where(n % 2 == 0, n // 2, 3 * n + 1)
        return jnp.where(n > 1, after, n), steps + (n > 1)

    return lax.while_loop(lambda state: jnp.any(state[0] > 1), step, (n, jnp.zeros_like(n)))[1]


def n_body(places: Array, speeds: Array) -> Array:
    """Ten steps of bodies that attract each other."""

    def step(_: Array, state: Array) -> Array:
        places, speeds = state
        apart = places[None] - places[:, None]
        pull = apart * lax.rsqrt((apart * apart).sum(-1, keepdims=True) + 0.1) ** 3
        speeds = speeds + 0.001 * pull.sum(1)
        return places + 0.001 * speeds, speeds

    return lax.fori_loop(0, 10, step, (places, speeds))


def directions(places: Array) -> Array:
    """The direction from each body to each other one."""
    apart = places[:, None] - places[None]
    return apart / jnp.sqrt((apart * apart).sum(-1, keepdims=True) + 0.01)


def normalized_pixels(image: Array) -> Array:
    """Pixels less the mean of their channel, by its deviation."""
    return (image - jnp.array([0.4, 0.5, 0.6], image.dtype)) / jnp.array([0.2, 0.3, 0.4], image.dtype)


def forces(places: Array) -> Array:
    """Forces between bodies that attract each other."""
    apart = places[:, None] - places[None]
    return (apart * ((apart * apart).sum(-1) + 0.01)[..., None] ** -1.5).sum(1)


def k_means(points: Array, centres: Array) -> Array:
    """Ten rounds of Lloyd's algorithm."""

    def step(_: Array, centres: Array) -> Array:
        distances = ((points * points).sum(1)[:, None] - 2 * points @ centres.T) + (centres * centres).sum(1)
        nearest = jax.nn.one_hot(distances.argmin(1), len(centres))
        return (nearest.T @ points) / jnp.maximum(nearest.sum(0), 1)[:, None]

    return lax.fori_loop(0, 10, step, centres)


# ---------------------------------------------------------------------- networks
def scaled_product(x: Array, w: Array, scales: Array) -> Array:
    """A product with weights of few bits, which have a scale for each column."""
    return x @ (w.astype(x.dtype) * scales)


def grouped_product(x: Array, w: Array, scales: Array) -> Array:
    """A product with weights [group, row, column], which have a scale for each group and column."""
    return x @ (w.astype(x.dtype) * scales[:, None, :]).reshape(-1, w.shape[-1])


def stacked_layers(x: Array, up: Array, down: Array) -> Array:
    """Layers whose weights are stacked."""
    return lax.scan(lambda x, w: (x + jax.nn.silu(x @ w[0]) @ w[1], None), x, (up, down))[0]


def mlp(x: Array, *layers: Array) -> Array:
    """A multilayer perceptron. Layers are a weight and a bias each, with a ReLU between them."""
    for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        x = jnp.maximum(x @ weight + bias, 0)
    return x @ layers[-2] + layers[-1]


def mlp_numpy(x: np.ndarray, *layers: np.ndarray) -> np.ndarray:
    for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    return x @ layers[-2] + layers[-1]


def mlp_step(x: Array, labels: Array, *layers: Array) -> Array:
    """Returns the loss, and the layers after a step of gradient descent."""

    def loss(layers: Array) -> Array:
        scores = jax.nn.log_softmax(mlp(x, *layers))
        return -(jax.nn.one_hot(labels, scores.shape[1]) * scores).sum(1).mean()

    value, gradients = jax.value_and_grad(loss)(layers)
    return value, [w - 0.05 * g for w, g in zip(layers, gradients, strict=True)]


def attention(q: Array, k: Array, v: Array) -> Array:
    """Attention with operands that have heads first."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v)


def attention_gradient(q: Array, k: Array, v: Array) -> tuple[Array, ...]:
    """Gradient of the sum of squares of the result of `attention`."""
    return jax.grad(lambda *operands: (attention(*operands) ** 2).sum(), (0, 1, 2))(q, k, v)


def grouped_attention(q: Array, k: Array, v: Array) -> Array:
    """Attention with rows first; keys and values are repeated for the heads of a group."""
    k, v = (jnp.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)


def causal_attention(q: Array, k: Array, v: Array) -> Array:
    """Attention with rows first, in which a row attends to itself and those before it."""
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def transformer_block(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, up: Array, down: Array) -> Array:
    """Attention with eight heads and a feed-forward part, each after a normalization and with a residual connection."""
    length, width = x.shape
    h = normalized(x)
    q, k, v = ((h @ w).reshape(length, 8, width // 8) for w in (wq, wk, wv))
    scores = jnp.einsum("qhd,khd->hqk", q, k) * (width // 8) ** -0.5
    mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), v)
    x = x + mixed.reshape(length, width) @ wo
    return x + jax.nn.gelu(normalized(x) @ up) @ down


def gru(xs: Array, state: Array, w: Array, u: Array) -> Array:
    """A gated recurrent unit over a sequence."""

    def step(h: Array, x: Array) -> Array:
        (xr, xz, xn), (hr, hz, hn) = jnp.split(x @ w, 3, -1), jnp.split(h @ u, 3, -1)
        z = jax.nn.sigmoid(xz + hz)
        h = (1 - z) * jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * hn) + z * h
        return h, h

    return lax.scan(step, state, xs)


def residual_network(x: Array, first: Array, *rest: Array) -> Array:
    """Pairs of 3x3 convolutions with residual connections, then the mean of the image and a dense layer."""

    def conv(x: Array, w: Array, stride: int = 1) -> Array:
        return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    *filters, dense = rest
    x = jax.nn.relu(conv(x, first, 2))
    for a, b in zip(filters[::2], filters[1::2], strict=True):
        x = jax.nn.relu(x + conv(jax.nn.relu(conv(x, a)), b))
    return x.mean((1, 2)) @ dense
