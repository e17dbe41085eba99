"""Flax and Optax: modules of both interfaces, dropout, batch statistics, recurrence, attention, checkpointed state."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx, serialization
from flax.training import train_state

Array = jax.Array


def _pictures(count: int) -> tuple[Array, Array]:
    labels = jnp.arange(count) % 4
    patterns = jax.random.normal(jax.random.key(1), (4, 12, 12, 1))
    return patterns[labels] + 0.2 * jax.random.normal(jax.random.key(2), (count, 12, 12, 1)), labels


class _Net(nn.Module):
    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        x = nn.Conv(8, (3, 3), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.GroupNorm(4)(nn.Conv(16, (3, 3), strides=2)(x)))
        x = nn.avg_pool(x, (3, 3), (1, 1)).reshape(x.shape[0], -1)
        x = nn.Dropout(0.3, deterministic=not train)(nn.gelu(nn.Dense(16)(x)))
        return nn.Dense(4)(x)


class _State(train_state.TrainState):
    statistics: Any = None


def linen_pictures() -> Any:
    """A convolutional network with batch statistics and dropout, Adam with weight decay, and its state as bytes."""
    model = _Net()
    x, y = _pictures(32)
    variables = model.init(jax.random.key(0), x, train=False)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.01, 20)))
    state: Any = _State.create(
        apply_fn=model.apply, params=variables["params"], tx=optimizer, statistics=variables["batch_stats"]
    )

    @jax.jit
    def step(state: Any, x: Array, y: Array, key: Array) -> Any:
        def loss(params: Any) -> Any:
            given = {"params": params, "batch_stats": state.statistics}
            logits, new = state.apply_fn(given, x, train=True, mutable=["batch_stats"], rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), new["batch_stats"]

        (value, statistics), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads).replace(statistics=statistics), value

    values = []
    for i in range(6):
        state, value = step(state, x, y, jax.random.fold_in(jax.random.key(9), i))
        values.append(value)
    again = serialization.from_bytes(state, serialization.to_bytes(state))
    logits = model.apply({"params": again.params, "batch_stats": again.statistics}, x, train=False)
    return jnp.stack(values), logits, state.statistics


def linen_sequences() -> Any:
    """An LSTM as a scanned cell, an encoder block with attention, and a tied embedding."""

    class Reader(nn.Module):
        @nn.compact
        def __call__(self, tokens: Array) -> Array:
            embed = nn.Embed(20, 16)
            x = embed(tokens)
            x = nn.RNN(nn.OptimizedLSTMCell(16))(x)
            x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x), mask=nn.make_causal_mask(tokens))
            x = x + nn.Dense(16)(nn.swish(nn.Dense(32)(nn.RMSNorm()(x))))
            return embed.attend(x)

    tokens = jax.random.randint(jax.random.key(3), (4, 10), 0, 20)
    model = Reader()
    params = model.init(jax.random.key(0), tokens)

    @jax.jit
    def loss(params: Any) -> Array:
        logits = model.apply(params, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    return jax.value_and_grad(loss)(params), jax.jit(model.apply)(params, tokens)


def nnx_training() -> Any:
    """The newer interface: modules as objects, `nnx.jit`, an optimizer object, metrics, and lifted vmap and scan."""

    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.first = nnx.Linear(6, 24, use_bias=False, rngs=rngs)
            self.norm = nnx.BatchNorm(24, rngs=rngs)
            self.drop = nnx.Dropout(0.2, rngs=rngs)
            self.last = nnx.Linear(24, 3, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))

    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
    x = jax.random.normal(jax.random.key(1), (30, 6))
    y = jnp.argmax(x[:, :3], axis=1)

    @nnx.jit
    def step(model: Any, optimizer: Any, metrics: Any, x: Array, y: Array) -> None:
        def loss(model: Any) -> Any:
            logits = model(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits

        (value, logits), grads = nnx.value_and_grad(loss, has_aux=True)(model)
        metrics.update(loss=value, logits=logits, labels=y)
        optimizer.update(model, grads)

    for _ in range(5):
        step(model, optimizer, metrics, x, y)
    model.eval()

    @nnx.vmap(in_axes=0, out_axes=0)
    def build(key: Array) -> nnx.Linear:
        return nnx.Linear(6, 6, rngs=nnx.Rngs(key))

    layers = build(jax.random.split(jax.random.key(4), 3))

    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    def deep(x: Array, layer: Any) -> Array:
        return jnp.tanh(layer(x))

    return nnx.state(model, nnx.Param), metrics.compute(), model(x), deep(x, layers)


def optimizers() -> Any:
    """Ten optimizers on one problem, schedules, accumulated and masked updates, a line search and losses."""
    target = {"a": jnp.linspace(-1, 1, 6).reshape(2, 3), "b": jnp.array([0.5, 2.0])}

    def loss(p: Any) -> Array:
        return sum(jnp.sum((u - v) ** 2) + jnp.sum(jnp.cos(u)) / 9 for u, v in zip(
            jax.tree.leaves(p), jax.tree.leaves(target), strict=True))  # fmt: skip

    kinds = [
        optax.sgd(optax.exponential_decay(0.1, 5, 0.8)),
        optax.adam(optax.warmup_cosine_decay_schedule(0.0, 0.1, 3, 20)),
        optax.adamw(0.05, weight_decay=0.1, mask={"a": True, "b": False}),
        optax.rmsprop(0.05),
        optax.adagrad(0.3),
        optax.lion(0.03),
        optax.lamb(0.05),
        optax.adafactor(0.1, min_dim_size_to_factor=2),
        optax.nadam(0.05),
        optax.radam(0.05),
        optax.MultiSteps(optax.adabelief(0.05), 3),
        optax.contrib.muon(0.05),
    ]
    results = []
    for kind in kinds:
        start = jax.tree.map(jnp.ones_like, target)

        def step(carry: Any, _: Any, kind: Any = kind) -> Any:
            p, s = carry
            value, g = jax.value_and_grad(loss)(p)
            updates, s = kind.update(g, s, p)
            return (optax.apply_updates(p, updates), s), value

        (p, _), values = jax.jit(lambda p, s, step=step: jax.lax.scan(step, (p, s), None, 12))(start, kind.init(start))
        results.append((p, values))

    search = optax.lbfgs()
    p = jax.tree.map(jnp.ones_like, target)
    state = search.init(p)
    both = optax.value_and_grad_from_state(loss)

    @jax.jit
    def line(p: Any, state: Any) -> Any:
        value, g = both(p, state=state)
        updates, state = search.update(g, state, p, value=value, grad=g, value_fn=loss)
        return optax.apply_updates(p, updates), state

    for _ in range(4):
        p, state = line(p, state)
    logits = jnp.linspace(-2, 2, 12).reshape(2, 3, 2)
    losses = [
        optax.ctc_loss(logits, jnp.zeros((2, 3)), jnp.ones((2, 2), jnp.int32), jnp.zeros((2, 2))),
        optax.huber_loss(logits, 0.3),
        optax.sigmoid_focal_loss(logits, (logits > 0).astype(jnp.float32)),
        optax.cosine_similarity(logits[0], logits[1]),
    ]
    return results, p, losses
