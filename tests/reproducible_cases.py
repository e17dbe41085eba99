"""Programs whose results have rows, for tests of `reproducible=True`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Rows = Callable[..., Any]


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    values = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    return np.asarray(jnp.asarray(values, dtype))


def integers(*shape: int, low: int = -127, high: int = 127, dtype: Any = np.int8) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(dtype)


class Case(NamedTuple):
    """A function whose first argument and results have a row for each index of dimension 0."""

    function: Rows
    rows: np.ndarray
    others: Sequence[np.ndarray] = ()


K, N = 1300, 70
"""Terms of more than one pass, and columns that fill no whole tile."""
W = normal(K, N)
SCALES = normal(N)


def scaled(x: jax.Array, q: jax.Array, s: jax.Array) -> jax.Array:
    return x @ (q.astype(jnp.float32) * s)


def by_groups(x: jax.Array, packed: jax.Array, s: jax.Array) -> jax.Array:
    """Weights of 4 bits, two in a byte, with a scale for each 32 terms of a column, whose terms are adjacent."""
    n, half = packed.shape
    q = jnp.stack([(packed & 15).astype(jnp.float32) - 8, (packed >> 4).astype(jnp.float32) - 8], -1)
    return x @ (q.reshape(n, half // 16, 32) * s[:, :, None]).reshape(n, 2 * half).T


def by_groups_of_terms(x: jax.Array, q: jax.Array, s: jax.Array) -> jax.Array:
    """Bytes with a scale for each 32 terms of a column."""
    k, n = q.shape
    return x @ (q.reshape(k // 32, 32, n).astype(jnp.float32) * s[:, None]).reshape(k, n)


def exact_sums(x: jax.Array, q: jax.Array, s: jax.Array) -> jax.Array:
    """Activations rounded to bytes by row."""
    step = jnp.abs(x).max(-1, keepdims=True) / 127
    a = jnp.round(x / step).astype(jnp.int8)
    return jax.lax.dot(a, q, preferred_element_type=jnp.int32).astype(jnp.float32) * step * s


def attention(q: jax.Array, places: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    """Rows of queries over the slots of a cache up to their places."""
    scores = jnp.einsum("bhd,hsd->hbs", q, keys) * 0.2
    seen = jnp.arange(keys.shape[1]) <= places[:, None]
    return jnp.einsum("hbs,hsd->bhd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), values)


def attend(z: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    heads, _, width = keys.shape
    return attention(z[:, 1:].reshape(-1, heads, width), z[:, 0].astype(jnp.int32), keys, values)


def attend_own(z: jax.Array) -> jax.Array:
    """Each row has keys and values of its own."""
    z = z.reshape(-1, 2, 4, 33, 32)
    q = z[:, 0, :, 0]
    return jnp.einsum("bhs,bhsd->bhd", jax.nn.softmax(jnp.einsum("bhd,bhsd->bhs", q, z[:, 0])), z[:, 1])


def layer_norm(x: jax.Array) -> jax.Array:
    centered = x - x.mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt((centered * centered).mean(-1, keepdims=True) + 1e-5)


def mlp(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    return x + jax.nn.gelu(layer_norm(x) @ up) @ down


def windows() -> dict[str, Case]:
    """Convolutions and pooling of images [row, height, width, channel]."""

    def convolution(x: jax.Array, w: Any, *, layout: str = "NHWC", padding: Any = "SAME", **options: Any) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=(layout, "HWIO", layout), **options)

    def pooled(x: jax.Array, f: Rows, start: float, padding: str) -> jax.Array:
        return jax.lax.reduce_window(x, np.float32(start), f, (1, 3, 3, 1), (1, 2, 2, 1), padding)

    images, kernel = normal(64, 9, 11, 24), normal(3, 3, 24, 33)
    gradient = jax.grad(lambda x: (pooled(x, jax.lax.max, -np.inf, "SAME") ** 2).sum())
    return {
        "convolution": Case(convolution, images, [kernel]),
        "convolution with a constant kernel": Case(lambda x: jax.nn.relu(convolution(x, kernel)), images),
        "planes": Case(partial(convolution, layout="NCHW"), normal(64, 24, 9, 11), [kernel]),
        "depthwise": Case(partial(convolution, feature_group_count=24), images, [normal(3, 3, 1, 24)]),
        "depthwise 5x5": Case(partial(convolution, feature_group_count=24), images, [normal(5, 5, 1, 24)]),
        "depthwise planes": Case(
            partial(convolution, layout="NCHW", feature_group_count=24), normal(64, 24, 9, 11), [normal(3, 3, 1, 24)]
        ),
        "groups of channels": Case(partial(convolution, feature_group_count=6), images, [normal(3, 3, 4, 24)]),
        "one feature": Case(convolution, images, [normal(3, 3, 24, 1)]),
        "dilated input": Case(partial(convolution, lhs_dilation=(2, 2), padding=[(1, 2), (2, 1)]), images, [kernel]),
        "dilated window": Case(partial(convolution, rhs_dilation=(2, 2)), images, [kernel]),
        "bf16 convolution": Case(
            convolution, normal(64, 9, 11, 24, dtype=jnp.bfloat16), [normal(3, 3, 24, 33, dtype=jnp.bfloat16)]
        ),
        "f16 convolution": Case(
            convolution, normal(64, 9, 11, 24, dtype=jnp.float16), [normal(3, 3, 24, 33, dtype=jnp.float16)]
        ),
        "patches": Case(
            lambda x, w: jax.lax.conv_general_dilated(x, w, (8, 8), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")),
            normal(64, 32, 32, 3),
            [normal(8, 8, 3, 48)],
        ),
        "average pooling": Case(lambda x: pooled(x, jax.lax.add, 0.0, "SAME") / 9, images),
        "maximum pooling": Case(lambda x: (pooled(x, jax.lax.max, -np.inf, "SAME"), gradient(x)), images),
    }


PLACES = np.random.default_rng(0).integers(0, 40, 300).astype(np.int32)
PLACED = np.concatenate([np.arange(64, dtype=np.float32)[:, None] * 3, normal(64, 128)], 1)
CASES = {
    "product": Case(jnp.matmul, normal(64, K), [W]),
    "transposed matrix": Case(lambda x, w: x @ w.T, normal(64, K), [np.ascontiguousarray(W.T)]),
    "constant matrix": Case(lambda x: jnp.tanh(x @ W), normal(64, K)),
    "large matrix": Case(jnp.matmul, normal(64, 600), [normal(600, 1100)]),
    "one column": Case(jnp.matmul, normal(64, 700), [normal(700, 1)]),
    "one column of few terms": Case(jnp.matmul, normal(64, 30), [normal(30, 1)]),
    "few terms and columns": Case(jnp.matmul, normal(64, 9), [normal(9, 5)]),
    "four terms": Case(jnp.matmul, normal(64, 4), [normal(4, 33)]),
    "narrow": Case(jnp.matmul, normal(64, 900), [normal(900, 3)]),
    "rows as columns": Case(lambda x, w: (w.T @ x.T).T, normal(64, K), [W]),
    "two contracting dimensions": Case(
        lambda x, w: jnp.einsum("bhd,dhn->bn", x, w), normal(64, 12, 40), [normal(40, 12, N)]
    ),
    "bf16": Case(jnp.matmul, normal(64, K, dtype=jnp.bfloat16), [normal(K, N, dtype=jnp.bfloat16)]),
    "f16": Case(jnp.matmul, normal(64, K, dtype=jnp.float16), [normal(K, N, dtype=jnp.float16)]),
    "scaled bytes": Case(scaled, normal(64, K), [integers(K, N), SCALES]),
    "large scaled bytes": Case(scaled, normal(64, 640), [integers(640, 1024), normal(1024)]),
    "nibbles": Case(by_groups, normal(64, 640), [integers(N, 320, low=0, high=255, dtype=np.uint8), normal(N, 20)]),
    "grouped scales": Case(by_groups_of_terms, normal(64, 640), [integers(640, 512), normal(20, 512)]),
    "sums of bytes": Case(exact_sums, normal(64, K), [integers(K, N), SCALES]),
    "softmax": Case(jax.nn.softmax, normal(64, 1003)),
    "softmax of a long row": Case(jax.nn.softmax, normal(64, 9001)),
    "softmax of a short row": Case(jax.nn.softmax, normal(64, 10)),
    "layer norm": Case(layer_norm, normal(64, 300)),
    "sums": Case(lambda x: (x.sum(-1), x.max(-1), x.argmax(-1)), normal(64, 517)),
    "sums of bf16": Case(lambda x: x.sum(-1), normal(64, 517, dtype=jnp.bfloat16)),
    "sums over outer dimensions": Case(lambda x: (x.sum(1), x.sum((1, 2)), x.mean(2)), normal(64, 21, 19)),
    "long sums": Case(lambda x: x.sum(-1), normal(64, 70_000)),
    "attention over a cache": Case(attend, PLACED, [normal(4, 256, 32), normal(4, 256, 32)]),
    "attention": Case(attend_own, normal(64, 2 * 4 * 33 * 32)),
    "feed-forward": Case(mlp, normal(64, 96), [normal(96, 400), normal(400, 96)]),
    **windows(),
    "cumulative sums": Case(lambda x: (jnp.cumsum(x, -1), jnp.cumsum(x, 1)), normal(64, 37, 70)),
    "cumulative sums from the end": Case(lambda x: jax.lax.cumsum(x, 1, reverse=True), normal(64, 1003)),
    "cumulative products": Case(lambda x: jnp.cumprod(x + 1, -1), normal(64, 45)),
    "scattered sums": Case(lambda x, at: jax.vmap(jnp.zeros(40).at[at].add)(x), normal(64, 300), [PLACES]),
    "added rows": Case(lambda x, at: jnp.zeros((len(x), 40)).at[:, at].add(x), normal(64, 300), [PLACES]),
    "transforms": Case(
        lambda x: (jnp.fft.fft(x), jnp.fft.fft(x[:, :60]), jnp.fft.fft2(x.reshape(-1, 3, 74))), normal(64, 222)
    ),
    "real transforms": Case(lambda x: (jnp.fft.rfft(x), jnp.fft.irfft(x[:, :33] + 0j)), normal(64, 96)),
    "batch norm": Case(lambda x: jax.nn.relu((x - x.mean((1, 2), keepdims=True)) * W[0, :33]), normal(64, 5, 6, 33)),
    "logits": Case(lambda x, w: jax.nn.log_softmax(x @ w), normal(64, 96), [normal(96, 2000)]),
}


# ---------------------------------------------------------------------- a decoder
HEADS, WIDTH, SLOTS, LAYERS, VOCABULARY = 4, 16, 160, 2, 211
SIZE = HEADS * WIDTH
PROMPT = 100


def weights(kind: str) -> list[np.ndarray]:
    """Matrices of the layers, and of the vocabulary."""
    shapes = [(SIZE, 3 * SIZE), (SIZE, SIZE), (SIZE, 4 * SIZE), (4 * SIZE, SIZE)] * LAYERS + [(SIZE, VOCABULARY)]
    dtype = {"f32": np.float32, "bf16": jnp.bfloat16, "bytes": np.int8}[kind]
    return [integers(*s) if kind == "bytes" else normal(*s, dtype=dtype) for s in shapes]


def decoder(x: jax.Array, start: jax.Array, cache: jax.Array, *matrices: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the logits of some tokens that begin at slot `start`, and the cache [layer, keys or values, slot, head,
    width] with their keys and values."""

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        if w.dtype == jnp.int8:
            return x @ (w.astype(jnp.float32) * 0.01)
        return (x.astype(w.dtype) @ w).astype(jnp.float32)

    count = x.shape[0]
    places = start + jnp.arange(count)
    for layer in range(LAYERS):
        qkv, out, up, down = matrices[4 * layer : 4 * layer + 4]
        q, *new = (part.reshape(count, HEADS, WIDTH) for part in jnp.split(product(layer_norm(x), qkv), 3, -1))
        for i, part in enumerate(new):
            cache = jax.lax.dynamic_update_slice(cache, part[None, None], (layer, i, start, 0, 0))
        keys, values = (cache[layer, i].swapaxes(0, 1) for i in (0, 1))
        x = x + product(attention(q, places, keys, values).reshape(count, SIZE), out)
        x = x + product(jax.nn.silu(product(layer_norm(x), up)), down)
    return product(layer_norm(x), matrices[-1]), cache


# ---------------------------------------------------------------------- everything in one function
def elementary(x: jax.Array) -> list[jax.Array]:
    """Elementary functions, on numbers of both signs."""
    a = jnp.abs(x) + 0.01
    ones = [jnp.tanh, jnp.exp, jnp.expm1, jnp.sin, jnp.cos, jnp.tan, jax.nn.sigmoid, jax.lax.erf, jax.lax.erfc]
    ones += [jnp.arctan, jnp.sinh, jnp.cosh, jnp.arcsinh, jnp.cbrt]
    positive = [jnp.log, jnp.log1p, jnp.sqrt, jax.lax.rsqrt, jax.lax.lgamma, jax.lax.digamma]
    both = [f(x * 3) for f in ones] + [f(a) for f in positive]
    return [*both, a**x, jnp.arctan2(x, a), jax.lax.erf_inv(jnp.tanh(x)), jax.lax.erf_inv(jnp.tanh(x * 4))]


MODEL = weights("f32"), weights("bytes")
"""Matrices of two decoders."""
ROWS = 5


def everything() -> tuple[str, list[np.ndarray]]:
    """Returns the text of a function that has the results of all cases, for a few rows, and its arguments."""
    given = [normal(ROWS, 37), *MODEL[0], *MODEL[1], normal(3, SIZE)]
    given += [
        normal(LAYERS, 2, SLOTS, HEADS, WIDTH),
        *(a for case in CASES.values() for a in (case.rows[:ROWS], *case.others)),
    ]

    def function(*arrays: jax.Array) -> list[Any]:
        left = iter(arrays)
        found: list[Any] = elementary(next(left))
        models = [[next(left) for _ in matrices] for matrices in MODEL]
        tokens, cache = next(left), next(left)
        found += [decoder(tokens, jnp.int32(9), cache, *matrices) for matrices in models]
        for case in CASES.values():
            found.append(case.function(*(next(left) for _ in (case.rows, *case.others))))
        return jax.tree.leaves(found)

    return jax.jit(function).lower(*given).as_text(), given
