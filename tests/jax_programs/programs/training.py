"""Networks trained by hand: no library, only JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array


def _digits(count: int = 64) -> tuple[Array, Array]:
    """Returns pictures of ten kinds: a pattern each, with noise."""
    patterns = jax.random.normal(jax.random.key(11), (10, 8, 8))
    labels = jnp.arange(count) % 10
    return patterns[labels] + 0.3 * jax.random.normal(jax.random.key(12), (count, 8, 8)), labels


def layers_by_hand() -> Any:
    """A multi-layer perceptron: vmap over the batch, value_and_grad, a Python loop of jitted steps."""
    sizes = [64, 32, 16, 10]
    keys = jax.random.split(jax.random.key(0), 3)
    params = [
        (jax.random.normal(k, (n, m)) * m**-0.5, jnp.zeros(n)) for k, m, n in zip(keys, sizes, sizes[1:], strict=False)
    ]
    pictures, labels = _digits()

    def predict(params: Any, picture: Array) -> Array:
        v = picture.ravel()
        for w, b in params[:-1]:
            v = jax.nn.relu(w @ v + b)
        w, b = params[-1]
        logits = w @ v + b
        return logits - jax.nn.logsumexp(logits)

    batched = jax.vmap(predict, in_axes=(None, 0))

    def loss(params: Any, x: Array, y: Array) -> Array:
        return -jnp.mean(batched(params, x) * jax.nn.one_hot(y, 10)) * 10

    @jax.jit
    def update(params: Any, x: Array, y: Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.3 * g, params, grads), value

    values = []
    for _ in range(4):
        for i in range(0, 64, 16):
            params, value = update(params, pictures[i : i + 16], labels[i : i + 16])
            values.append(value)
    right = jnp.mean(jnp.argmax(batched(params, pictures), axis=1) == labels)
    return params, jnp.stack(values), right


def pictures_by_hand() -> Any:
    """A convolutional network with pooling and batch normalization, trained by momentum inside a scan."""
    pictures, labels = _digits(40)
    x = pictures[..., None]
    k = jax.random.split(jax.random.key(5), 3)
    params = {
        "c1": jax.random.normal(k[0], (3, 3, 1, 8)) / 3,
        "c2": jax.random.normal(k[1], (3, 3, 8, 16)) / 8,
        "out": jax.random.normal(k[2], (2 * 2 * 16, 10)) / 8,
        "scale": jnp.ones(8),
        "shift": jnp.zeros(8),
    }

    def forward(p: Any, x: Array) -> Array:
        conv = lambda v, w: lax.conv_general_dilated(v, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))  # noqa: E731
        pool = lambda v: lax.reduce_window(v, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")  # noqa: E731
        v = conv(x, p["c1"])
        v = (v - v.mean((0, 1, 2))) * lax.rsqrt(v.var((0, 1, 2)) + 1e-5) * p["scale"] + p["shift"]
        v = pool(jax.nn.relu(v))
        v = pool(jax.nn.gelu(conv(v, p["c2"])))
        return v.reshape(v.shape[0], -1) @ p["out"]

    def loss(p: Any) -> Array:
        logp = jax.nn.log_softmax(forward(p, x))
        return -jnp.take_along_axis(logp, labels[:, None], 1).mean()

    def step(state: Any, _: Any) -> Any:
        p, m = state
        value, grads = jax.value_and_grad(loss)(p)
        m = jax.tree.map(lambda a, g: 0.9 * a + g, m, grads)
        return (jax.tree.map(lambda a, b: a - 0.02 * b, p, m), m), value

    start = params, jax.tree.map(jnp.zeros_like, params)
    (params, _), values = jax.jit(lambda s: lax.scan(step, s, None, length=5))(start)
    return params, values


def attention_by_hand() -> Any:
    """A small decoder: rotary embedding, causal attention in bfloat16 and float32, tied embedding, Adam."""
    vocabulary, width, heads, length = 31, 32, 4, 16
    keys = jax.random.split(jax.random.key(1), 6)
    init = lambda k, *shape: jax.random.normal(k, shape) * shape[0] ** -0.5  # noqa: E731
    params = {
        "embed": init(keys[0], vocabulary, width),
        "qkv": init(keys[1], width, 3 * width),
        "proj": init(keys[2], width, width),
        "up": init(keys[3], width, 4 * width),
        "down": init(keys[4], 4 * width, width),
    }
    text = jax.random.randint(keys[5], (8, length + 1), 0, vocabulary)

    def rotate(x: Array) -> Array:
        half = x.shape[-1] // 2
        angle = jnp.arange(x.shape[1])[:, None] / 1000 ** (jnp.arange(half) / half)
        cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

    def norm(x: Array) -> Array:
        return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)

    def forward(p: Any, tokens: Array) -> Array:
        x = p["embed"][tokens]
        q, k, v = (a.reshape(*a.shape[:2], heads, -1) for a in jnp.split(norm(x) @ p["qkv"], 3, axis=-1))
        x = x + jax.nn.dot_product_attention(rotate(q), rotate(k), v, is_causal=True).reshape(x.shape) @ p["proj"]
        x = x + jax.nn.silu(norm(x) @ p["up"]) @ p["down"]
        return norm(x) @ p["embed"].T

    def loss(p: Any) -> Array:
        logits = forward(p, text[:, :-1])
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), text[:, 1:, None], axis=-1)
        return -picked.mean()

    @jax.jit
    def step(p: Any, m: Any, v: Any, t: Array) -> Any:
        value, g = jax.value_and_grad(loss)(p)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b**2, v, g)
        move = lambda w, a, b: w - 0.003 * (a / (1 - 0.9**t)) / (jnp.sqrt(b / (1 - 0.99**t)) + 1e-3)  # noqa: E731
        return jax.tree.map(move, p, m, v), m, v, value

    m = v = jax.tree.map(jnp.zeros_like, params)
    values = []
    for t in range(1, 6):
        params, m, v, value = step(params, m, v, float(t))
        values.append(value)
    return params, jnp.stack(values)


def evolving() -> Any:
    """Conway's life for 20 generations, and a reaction-diffusion system in float32."""

    def alive(board: Array, _: Any) -> tuple[Array, Array]:
        around = sum(jnp.roll(board, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        new = ((around == 3) | ((board == 1) & (around == 2))).astype(board.dtype)
        return new, new.sum()

    board = jax.random.bernoulli(jax.random.key(0), 0.3, (32, 32)).astype(jnp.int32)
    life = jax.jit(lambda b: lax.scan(alive, b, None, length=20))(board)

    def react(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        u, v = state
        spread = lambda a: sum(jnp.roll(a, s, d) for s in (1, -1) for d in (0, 1)) - 4 * a  # noqa: E731
        uvv = u * v * v
        return u + 0.16 * spread(u) - uvv + 0.035 * (1 - u), v + 0.08 * spread(v) + uvv - 0.095 * v

    u = jnp.ones((48, 48)).at[20:28, 20:28].set(0.5)
    v = jnp.zeros((48, 48)).at[20:28, 20:28].set(0.25)
    return life, jax.jit(lambda s: lax.fori_loop(0, 100, react, s))((u, v))
