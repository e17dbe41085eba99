"""A decoder written with Flax NNX, against XLA: a prompt, then tokens one by one with caches that are donated."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_jit.jax

nnx: Any = pytest.importorskip("flax.nnx")
WIDTH, HIDDEN, HEADS, KEY_HEADS, SIZE, SLOTS, WORDS = 64, 96, 4, 2, 16, 24, 50
Caches = list[jax.Array]


def rotated(x: jax.Array, positions: jax.Array) -> jax.Array:
    half = SIZE // 2
    angles = positions[:, None, None] * 10000.0 ** (-jnp.arange(half) / half)
    low, high = x[..., :half], x[..., half:]
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    return jnp.concatenate([low * cosine - high * sine, low * sine + high * cosine], -1)


def layer_type() -> Any:
    """The class of a layer. It is made here because its base is of a package that may be missing."""

    class Layer(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            linear = functools.partial(nnx.Linear, use_bias=False, rngs=rngs)
            self.before, self.between = (nnx.RMSNorm(WIDTH, rngs=rngs) for _ in range(2))
            self.queries, self.keys, self.values = (linear(WIDTH, n * SIZE) for n in (HEADS, KEY_HEADS, KEY_HEADS))
            self.output = linear(HEADS * SIZE, WIDTH)
            self.gate, self.up, self.down = linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN), linear(HIDDEN, WIDTH)

        def __call__(self, x: jax.Array, start: jax.Array, caches: Caches) -> tuple[jax.Array, Caches]:
            positions, h = start + jnp.arange(len(x)), self.before(x)
            q, k, v = (f(h).reshape(len(x), -1, SIZE) for f in (self.queries, self.keys, self.values))
            new = rotated(k, positions), v
            caches = [jax.lax.dynamic_update_slice(c, y, (start, 0, 0)) for c, y in zip(caches, new, strict=True)]
            mask = (jnp.arange(SLOTS) <= positions[:, None])[None, None]
            found = nnx.dot_product_attention(
                rotated(q, positions)[None], *(jnp.repeat(c, HEADS // KEY_HEADS, 1)[None] for c in caches), mask=mask
            )
            x = x + self.output(found.reshape(len(x), -1))
            h = self.between(x)
            return x + self.down(nnx.silu(self.gate(h)) * self.up(h)), caches

    return Layer


def decoder_type() -> Any:
    layer = layer_type()

    class Decoder(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.embedding = nnx.Embed(WORDS, WIDTH, rngs=rngs)
            self.layers = nnx.List([layer(rngs) for _ in range(2)])
            self.norm = nnx.RMSNorm(WIDTH, rngs=rngs)

        def __call__(self, tokens: jax.Array, start: jax.Array, caches: list[Caches]) -> tuple[jax.Array, list[Caches]]:
            x, found = self.embedding(tokens), []
            for part, own in zip(self.layers, caches, strict=True):
                x, own = part(x, start, own)
                found.append(own)
            return self.embedding.attend(self.norm(x[-1:]))[0], found

    return Decoder


def test_a_prompt_and_the_tokens_after_it() -> None:
    graph, weights = nnx.split(decoder_type()(nnx.Rngs(0)))

    def step(weights: Any, caches: list[Caches], tokens: jax.Array, start: jax.Array) -> Any:
        return nnx.merge(graph, weights)(tokens, start, caches)

    ours, theirs = shlo_jit.jax.jit(step, donate_argnums=1), jax.jit(step)
    caches = [[np.zeros((SLOTS, KEY_HEADS, SIZE), np.float32) for _ in range(2)] for _ in range(2)]
    expected: Any = jax.tree.map(jnp.array, caches)
    tokens, position = np.array([3, 14, 15, 9, 26, 5, 35], np.int32), 0
    for _ in range(6):
        scores, caches = ours(weights, caches, tokens, np.int32(position))
        wanted, expected = theirs(weights, expected, tokens, np.int32(position))
        np.testing.assert_allclose(scores, wanted, atol=1e-5, rtol=1e-5)
        position += len(tokens)
        tokens = np.array([np.argmax(scores)], np.int32)
    for found, want in zip(jax.tree.leaves(caches), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, want, atol=1e-5, rtol=1e-5)
