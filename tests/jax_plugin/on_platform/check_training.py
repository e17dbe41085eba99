"""Loops that train small models, on the platform and on XLA's CPU: from the same state, both have the same losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

jax.config.update("jax_platforms", "shlo,xla_cpu")
STEPS = 20
Batch = tuple[np.ndarray, np.ndarray]
RANDOM = np.random.default_rng(0)


def losses(step: Callable[[Any, Any], Any], state: Any, batches: list[Batch], platform: str) -> list[float]:
    """Returns the losses of a loop whose state is donated from step to step."""
    device = jax.devices(platform)[0]
    assert ("shlo_jit" in device.client.platform_version) == (platform == "shlo")
    state = jax.device_put(jax.tree.map(np.array, state), device)
    run, found = jax.jit(step, donate_argnums=0), []
    for batch in batches:
        before = jax.tree.leaves(state)
        state, loss = run(state, batch)
        assert all(x.is_deleted() for x in before)
        found.append(loss)
    return [float(x) for x in found]


def check(step: Callable[[Any, Any], Any], state: Any, batches: list[Batch]) -> None:
    ours, theirs = (losses(step, state, batches, platform) for platform in ("shlo", "xla_cpu"))
    assert theirs[-1] < 0.7 * theirs[0], "it learns nothing"
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def images(count: int, side: int) -> list[Batch]:
    centers = RANDOM.standard_normal((10, side, side, 1), np.float32)
    labels = RANDOM.integers(0, 10, (STEPS, count), np.int32)
    noise = 0.5 * RANDOM.standard_normal((STEPS, count, side, side, 1), np.float32)
    return [(centers[y] + n, y) for y, n in zip(labels, noise, strict=True)]


def sentences(count: int, length: int, words: int) -> list[Batch]:
    starts = RANDOM.integers(0, words, (STEPS, count, 1))
    rows = ((starts + np.arange(length + 1)) % words).astype(np.int32)
    return [(row[:, :-1], row[:, 1:]) for row in rows]


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -picked.mean()


def weights(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[:-1])).astype(np.float32)


def momentum(loss_of: Callable[..., jax.Array], rate: float) -> Callable[[Any, Any], Any]:
    def step(state: Any, batch: Any) -> Any:
        parameters, moments, count = state
        key = jax.random.fold_in(jax.random.key(0), count)
        loss, gradients = jax.value_and_grad(loss_of)(parameters, *batch, key)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
        parameters = jax.tree.map(lambda p, m: p - rate * m, parameters, moments)
        return (parameters, moments, count + 1), loss

    return step


def start(parameters: Any) -> Any:
    return parameters, jax.tree.map(np.zeros_like, parameters), np.int32(0)


def test_a_network_of_convolutions_with_dropout() -> None:
    def loss_of(p: Any, x: jax.Array, labels: jax.Array, key: jax.Array) -> jax.Array:
        for kernel, bias in p["convolutions"]:
            x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x + bias)
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = x.reshape(x.shape[0], -1)
        x = jnp.where(jax.random.bernoulli(key, 0.8, x.shape), x / 0.8, 0)
        return cross_entropy(x @ p["last"] + p["bias"], labels)

    convolutions = [(weights(3, 3, 1, 8), weights(8) * 0), (weights(3, 3, 8, 16), weights(16) * 0)]
    parameters = {"convolutions": convolutions, "last": weights(3 * 3 * 16, 10), "bias": weights(10) * 0}
    check(momentum(loss_of, 0.05), start(parameters), images(24, 12))


def test_a_language_model() -> None:
    width, words = 32, 50

    def loss_of(p: Any, tokens: jax.Array, labels: jax.Array, key: jax.Array) -> jax.Array:
        x = p["words"][tokens]
        q, k, v = (x @ w for w in p["attention"])
        scores = jnp.einsum("bsd,btd->bst", q, k) / np.sqrt(width).astype(np.float32)
        seen = np.tril(np.ones(scores.shape[1:], bool))
        x = x + jnp.einsum("bst,btd->bsd", jax.nn.softmax(jnp.where(seen, scores, -1e9)), v)
        x = x + jax.nn.gelu(x @ p["wide"]) @ p["narrow"]
        return cross_entropy(x @ p["words"].T, labels)

    parameters = {
        "words": weights(words, width) * 2,
        "attention": [weights(width, width) for _ in range(3)],
        "wide": weights(width, 4 * width),
        "narrow": weights(4 * width, width),
    }
    check(momentum(loss_of, 0.05), start(parameters), sentences(16, 12, words))


def test_a_model_of_flax() -> None:
    linen = pytest.importorskip("flax.linen", reason="a training loop of Flax's")
    optax = pytest.importorskip("optax", reason="its optimizer")
    train_state = pytest.importorskip("flax.training.train_state")

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = linen.avg_pool(linen.relu(linen.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
            x = linen.LayerNorm()(linen.Dense(32)(x.reshape(x.shape[0], -1)))
            x = linen.Dropout(0.2, deterministic=False)(linen.gelu(x))
            return linen.Dense(10)(x)

    def step(state: Any, batch: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(1), state.step)

        def loss_of(parameters: Any) -> jax.Array:
            logits = state.apply_fn({"params": parameters}, batch[0], rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    batches = images(24, 12)
    model = Model()
    parameters = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, batches[0][0])["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=parameters, tx=optax.adamw(3e-3))
    check(step, state, batches)
