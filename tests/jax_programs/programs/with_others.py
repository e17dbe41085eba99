"""Haiku, Jraph, Distrax, JAXopt and Chex."""

from __future__ import annotations

from typing import Any

import chex
import distrax
import haiku as hk
import jax
import jax.numpy as jnp
import jaxopt
import jraph
import optax

Array = jax.Array


def haiku_network() -> Any:
    def forward(x: Array, train: bool) -> Array:
        x = hk.Conv2D(4, 3, with_bias=False)(x)
        x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(x, train))
        x = hk.Flatten()(hk.MaxPool(2, 2, "VALID")(x))
        core = hk.LSTM(8)
        x, _ = hk.dynamic_unroll(core, jnp.stack([x] * 4), core.initial_state(x.shape[0]))
        x = hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling(2.0))(x, x, x)
        return hk.nets.MLP([16, 3])(hk.dropout(hk.next_rng_key(), 0.2 if train else 0.0, x[-1]))

    net = hk.transform_with_state(forward)
    x = jax.random.normal(jax.random.key(0), (6, 8, 8, 2))
    params, state = net.init(jax.random.key(1), x, True)
    optimizer = optax.sgd(0.05, momentum=0.9)
    moments = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, moments: Any, key: Array) -> Any:
        def loss(p: Any) -> Any:
            y, new = net.apply(p, state, key, x, True)
            return optax.softmax_cross_entropy_with_integer_labels(y, jnp.arange(6) % 3).mean(), new

        (value, state_), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, moments_ = optimizer.update(grads, moments)
        return optax.apply_updates(params, updates), state_, moments_, value

    values = []
    for i in range(4):
        params, state, moments, value = step(params, state, moments, jax.random.key(i))
        values.append(value)
    return params, state, jnp.stack(values)


def graph_network() -> Any:
    edges = jnp.array([[0, 1, 2, 3, 3, 0], [1, 2, 0, 0, 2, 3]])
    one = jraph.GraphsTuple(
        nodes=jnp.eye(4), edges=jnp.arange(6.0)[:, None], senders=edges[0], receivers=edges[1],
        n_node=jnp.array([4]), n_edge=jnp.array([6]), globals=jnp.ones((1, 2)),
    )  # fmt: skip
    graph = jraph.pad_with_graphs(jraph.batch([one, one._replace(nodes=2 * jnp.eye(4))]), 12, 16, 4)
    w = jax.random.normal(jax.random.key(0), (16, 5))

    def layers(w: Array, graph: Any) -> Any:
        pick = lambda *xs: jnp.tanh(jnp.concatenate(xs, -1) @ w[: sum(x.shape[-1] for x in xs)])  # noqa: E731
        net = jraph.GraphNetwork(pick, lambda n, s, r, g: pick(n, r, g), pick)
        graph = net(graph)
        graph = jraph.GraphConvolution(lambda n: n @ w[:5], add_self_edges=True)(graph)
        return jraph.GAT(lambda n: n @ w[5:10], lambda s, r, e: (s * r).sum(-1, keepdims=True))(graph)

    loss = lambda w: sum((v**2).sum() for v in layers(w, graph)[:2])  # noqa: E731
    return jax.jit(layers)(w, graph), jax.jit(jax.grad(loss))(w), jraph.get_node_padding_mask(graph)


def distributions() -> Any:
    flow = distrax.Chain([distrax.ScalarAffine(0.5, 2.0), distrax.Tanh()])
    spline = distrax.RationalQuadraticSpline(jnp.linspace(-1, 1, 13), -2.0, 2.0)
    mixture = distrax.MixtureSameFamily(distrax.Categorical(logits=jnp.zeros(3)), distrax.Normal(jnp.arange(3.0), 1.0))
    hmm = distrax.HMM(distrax.Categorical(probs=jnp.array([0.6, 0.4])), distrax.Categorical(probs=jnp.array([[0.7, 0.3], [0.2, 0.8]])),
        distrax.Normal(jnp.array([0.0, 2.0]), 1.0))  # fmt: skip
    seen = jnp.array([0.1, 1.9, 2.2, -0.3])
    x, log = distrax.Transformed(distrax.Normal(0.0, 1.0), flow).sample_and_log_prob(
        seed=jax.random.key(0), sample_shape=(5,)
    )
    return (
        x, log, spline.forward_and_log_det(jnp.linspace(-3, 3, 9)), mixture.log_prob(seen), hmm.forward_backward(seen), hmm.viterbi(seen),
        distrax.MultivariateNormalFullCovariance(jnp.zeros(2), jnp.eye(2) + 0.3).kl_divergence(distrax.MultivariateNormalDiag(jnp.ones(2))),
    )  # fmt: skip


def solvers() -> Any:
    """Minima with and without bounds, a lasso, a quadratic program, and derivatives through them."""
    with jax.enable_x64(True):  # they stop by comparing
        return _solved()


def _solved() -> Any:
    x = jax.random.normal(jax.random.key(0), (30, 5))
    y = x @ jnp.array([1.0, 0.0, -2.0, 0.0, 0.5]) + 0.05 * jax.random.normal(jax.random.key(1), (30,))
    ridge = lambda w, l2: jnp.mean((x @ w - y) ** 2) + l2 * jnp.sum(w**2)  # noqa: E731
    lasso = jaxopt.ProximalGradient(
        lambda w, data: jnp.mean((data[0] @ w - data[1]) ** 2), jaxopt.prox.prox_lasso, maxiter=100, tol=1e-6
    )
    boxed = jaxopt.ProjectedGradient(ridge, jaxopt.projection.projection_box, maxiter=100, tol=1e-6)

    @jax.jit
    def tuned(l2: Array) -> Array:
        return jaxopt.LBFGS(ridge, maxiter=50, tol=1e-6).run(jnp.zeros(5), l2=l2).params

    quadratic = jaxopt.OSQP(tol=1e-6)
    found = quadratic.run(
        params_obj=(jnp.eye(2) * 2, jnp.array([-2.0, -5.0])), params_ineq=(jnp.array([[1.0, 1.0]]), jnp.array([2.0]))
    )
    return (
        tuned(0.1), jax.jacrev(tuned)(0.1), lasso.run(jnp.zeros(5), hyperparams_prox=0.1, data=(x, y)).params,
        boxed.run(jnp.zeros(5), (-0.5, 0.5), l2=0.01).params, found.params.primal,
        jaxopt.projection.projection_simplex(jnp.arange(4.0)),
    )  # fmt: skip


def checks() -> Any:
    @chex.dataclass
    class Pair:
        a: Array
        b: Array

    def f(x: Array) -> Any:
        chex.assert_rank(x, 1)
        return Pair(a=x * 2, b=x.sum())

    made = jax.jit(f)(jnp.arange(4.0))
    chex.assert_trees_all_close(made, f(jnp.arange(4.0)))
    chex.assert_tree_all_finite(made)
    checked = chex.chexify(jax.jit(lambda x: (chex.assert_tree_all_finite({"x": x}), x + 1)[1]), async_check=False)
    refused = False
    try:
        checked(jnp.array([1.0, jnp.nan]))
    except AssertionError:
        refused = True
    return made, checked(jnp.ones(2)), refused
