"""Models of Flax for `flax_training`, each with an optimizer of optax and batches of random samples.

A state is a tree of arrays; a step maps the state and a batch to the next state and the loss, as the step of Flax's
examples does. The MLP is written with `flax.nnx`, the others with `flax.linen`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import optax  # type: ignore[import-not-found]
from flax import linen, nnx  # type: ignore[import-not-found]
from flax.training.train_state import TrainState  # type: ignore[import-not-found]

Batch = tuple[np.ndarray, np.ndarray]
CLASSES, WORDS = 10, 1000


class Training(NamedTuple):
    """Training of one model."""

    state: Any
    step: Callable[[Any, Any], tuple[Any, jax.Array]]
    batch: Callable[[np.random.Generator], Batch]
    """Samples and labels."""


class Mlp(nnx.Module):
    """A multilayer perceptron for images of 28x28."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(784, 512, rngs=rngs)
        self.second = nnx.Linear(512, 512, rngs=rngs)
        self.last = nnx.Linear(512, CLASSES, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = nnx.relu(self.first(images.reshape(images.shape[0], -1)))
        return self.last(nnx.relu(self.second(x)))


class Cnn(linen.Module):
    """Two convolutions with pooling."""

    @linen.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = images
        for features in (32, 64):
            x = linen.relu(linen.Conv(features, (3, 3))(x))
            x = linen.avg_pool(x, (2, 2), strides=(2, 2))
        x = linen.relu(linen.Dense(256)(x.reshape(x.shape[0], -1)))
        return linen.Dense(CLASSES)(x)


class Convnet(linen.Module):
    """Three convolutions, the last with strides, with normalization and max pooling."""

    @linen.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = images
        for features, stride in ((32, 1), (64, 1), (128, 2)):
            x = linen.Conv(features, (3, 3), strides=stride, use_bias=False)(x)
            x = linen.relu(linen.GroupNorm(8)(x))
            if stride == 1:
                x = linen.max_pool(x, (2, 2), strides=(2, 2))
        return linen.Dense(CLASSES)(x.reshape(x.shape[0], -1))


class Transformer(linen.Module):
    """A language model with causal attention."""

    width: int = 128
    layers: int = 2
    heads: int = 4
    dropout: float = 0.1

    @linen.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        mask = linen.make_causal_mask(tokens)
        places = self.param("places", linen.initializers.normal(0.02), (tokens.shape[1], self.width))
        x = linen.Embed(WORDS, self.width)(tokens) + places
        for _ in range(self.layers):
            y = linen.MultiHeadDotProductAttention(self.heads)(linen.LayerNorm()(x), mask=mask)
            x = x + linen.Dropout(self.dropout, deterministic=False)(y)
            y = linen.gelu(linen.Dense(4 * self.width)(linen.LayerNorm()(x)))
            x = x + linen.Dropout(self.dropout, deterministic=False)(linen.Dense(self.width)(y))
        return linen.Dense(WORDS)(linen.LayerNorm()(x))


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def mlp() -> Training:
    graph, parameters = nnx.split(Mlp(nnx.Rngs(0)))
    optimizer = optax.sgd(0.05, momentum=0.9)

    def step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
        parameters, moments = state
        images, labels = batch
        loss, gradients = jax.value_and_grad(lambda p: cross_entropy(nnx.merge(graph, p)(images), labels))(parameters)
        updates, moments = optimizer.update(gradients, moments, parameters)
        return (optax.apply_updates(parameters, updates), moments), loss

    return Training((parameters, optimizer.init(parameters)), step, images_of(128, 28, 1))


def cnn() -> Training:
    return _linen(Cnn(), optax.adam(1e-3), images_of(64, 28, 1))


def convnet() -> Training:
    return _linen(Convnet(), optax.adamw(1e-3), images_of(64, 32, 3))


def transformer() -> Training:
    return _linen(Transformer(), optax.adamw(3e-4), sentences_of(8, 64))


def _linen(model: linen.Module, optimizer: optax.GradientTransformation, batch: Callable[..., Batch]) -> Training:
    samples, _ = batch(np.random.default_rng(0))
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    parameters: Any = model.init(keys, samples)["params"]
    state = TrainState.create(apply_fn=model.apply, params=parameters, tx=optimizer)

    def step(state: TrainState, batch: Any) -> tuple[TrainState, jax.Array]:
        samples, labels = batch
        key = jax.random.fold_in(jax.random.key(2), state.step)

        def loss_of(parameters: Any) -> jax.Array:
            return cross_entropy(state.apply_fn({"params": parameters}, samples, rngs={"dropout": key}), labels)

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    return Training(state, step, batch)


def images_of(count: int, side: int, channels: int) -> Callable[[np.random.Generator], Batch]:
    """Noise around an image of each class, the same for all batches."""
    centers = np.random.default_rng(1).standard_normal((CLASSES, side, side, channels), np.float32)

    def batch(random: np.random.Generator) -> Batch:
        labels = random.integers(0, CLASSES, count, np.int32)
        noise = random.standard_normal((count, side, side, channels), np.float32)
        return 0.25 * centers[labels] + noise, labels

    return batch


def sentences_of(count: int, length: int) -> Callable[[np.random.Generator], Batch]:
    """Words that count up by a step that differs for each sentence; the labels are the next words."""

    def batch(random: np.random.Generator) -> Batch:
        start, stride = random.integers(0, WORDS, (count, 1)), random.integers(1, 4, (count, 1))
        words = ((start + stride * np.arange(length + 1)) % WORDS).astype(np.int32)
        return words[:, :-1], words[:, 1:]

    return batch


MODELS: Mapping[str, Callable[[], Training]] = {
    "MLP 784-512-512-10, batch 128": mlp,
    "CNN 28x28, batch 64": cnn,
    "CNN 32x32x3, batch 64": convnet,
    "transformer 2x128, 8x64 tokens": transformer,
}
