"""Equinox, with Optax: modules that are trees, filtered transformations, state, serialized leaves."""

from __future__ import annotations

import io
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

Array = jax.Array


class _Spirals(eqx.Module):
    hidden: int
    cell: eqx.nn.GRUCell
    last: eqx.nn.Linear
    bias: Array

    def __init__(self, key: Array) -> None:
        a, b = jax.random.split(key)
        self.hidden = 12
        self.cell = eqx.nn.GRUCell(2, 12, key=a)
        self.last = eqx.nn.Linear(12, 1, use_bias=False, key=b)
        self.bias = jnp.zeros(1)

    def __call__(self, xs: Array) -> Array:
        last, _ = jax.lax.scan(lambda h, x: (self.cell(x, h), None), jnp.zeros(self.hidden), xs)
        return jax.nn.sigmoid(self.last(last) + self.bias)[0]


def recurrent_classifier() -> Any:
    t = jnp.linspace(0, 6, 16)
    phases = jnp.arange(16.0)[:, None]
    turn = jnp.where(jnp.arange(16)[:, None] % 2 == 0, 1.0, -1.0)
    x = jnp.stack([jnp.sin(t + phases), turn * jnp.cos(t + phases)], -1) / (1 + t)[:, None]
    y = (turn[:, 0] > 0).astype(jnp.float32)
    model = _Spirals(jax.random.key(0))
    optimizer = optax.adam(0.01)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model: Any, state: Any) -> Any:
        def loss(m: Any) -> Array:
            p = jax.vmap(m)(x)
            return -jnp.mean(y * jnp.log(p) + (1 - y) * jnp.log(1 - p))

        value, grads = eqx.filter_value_and_grad(loss)(model)
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(model, updates), state, value

    values = []
    for _ in range(6):
        model, state, value = step(model, state)
        values.append(value)
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, model)
    file.seek(0)
    again = eqx.tree_deserialise_leaves(file, _Spirals(jax.random.key(1)))
    return jnp.stack(values), jax.vmap(again)(x), eqx.filter(model, eqx.is_array)


def layers_with_state() -> Any:
    """A convolutional network with batch statistics and spectral normalization, in training and in inference."""

    class Net(eqx.Module):
        conv: eqx.nn.Conv2d
        norm: eqx.nn.BatchNorm
        spectral: eqx.nn.SpectralNorm
        drop: eqx.nn.Dropout

        def __init__(self, key: Array) -> None:
            a, b, c = jax.random.split(key, 3)
            self.conv = eqx.nn.Conv2d(1, 4, 3, key=a)
            self.norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch")
            self.spectral = eqx.nn.SpectralNorm(eqx.nn.Linear(4 * 36, 3, key=b), weight_name="weight", key=c)
            self.drop = eqx.nn.Dropout(0.4)

        def __call__(self, x: Array, state: Any, key: Any) -> Any:
            x, state = self.norm(self.conv(x), state)
            x, state = self.spectral(self.drop(jax.nn.relu(x).ravel(), key=key), state)
            return x, state

    model, state = eqx.nn.make_with_state(Net)(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (6, 1, 8, 8))
    batched = eqx.filter_jit(jax.vmap(model, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None)))
    for i in range(3):
        y, state = batched(x, state, jax.random.split(jax.random.key(i), 6))
    quiet = eqx.nn.inference_mode(model)
    z, _ = jax.vmap(quiet, axis_name="batch", in_axes=(0, None, None), out_axes=(0, None))(x, state, None)
    return y, z


def attention_and_errors() -> Any:
    """Attention with rotary positions, an MLP ensemble by filtered vmap, while loops that are differentiated, and
    checks at run time."""
    attention = eqx.nn.MultiheadAttention(2, 8, key=jax.random.key(0))
    rotary = eqx.nn.RotaryPositionalEmbedding(4)
    x = jax.random.normal(jax.random.key(1), (5, 8))

    def turned(q: Array, k: Array, v: Array) -> Any:
        return jax.vmap(rotary, 1, 1)(q), jax.vmap(rotary, 1, 1)(k), v

    attended = eqx.filter_jit(attention)(x, x, x, mask=jnp.tril(jnp.ones((5, 5), bool)), process_heads=turned)
    several = eqx.filter_vmap(lambda k: eqx.nn.MLP(8, 2, 16, 2, key=k))(jax.random.split(jax.random.key(2), 3))
    ensemble = eqx.filter_vmap(lambda m, v: jax.vmap(m)(v), in_axes=(eqx.if_array(0), None))(several, x)

    @jax.jit
    def halve(a: Array) -> Array:
        loop = eqx.internal.while_loop(
            lambda s: s[0] > 0.1, lambda s: (s[0] / 2, s[1] + s[0] ** 2), (a, 0.0), kind="checkpointed", max_steps=20
        )
        return loop[1]

    @eqx.filter_jit
    def checked(v: Array) -> Array:
        v = eqx.error_if(v, v < 0, "below zero")
        return jnp.sqrt(v)

    refused = False
    try:
        jax.block_until_ready(checked(jnp.float32(-1)))
    except Exception as error:
        refused = "below zero" in str(error)
    return attended, ensemble, jax.value_and_grad(halve)(3.0), checked(jnp.float32(4)), refused
