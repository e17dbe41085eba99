"""Contents of JAX's first pages: transformations, trees, control flow, custom derivatives, random numbers,
callbacks."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

Array = jax.Array


def quickstart() -> Any:
    """Runs jit, grad, vmap and their compositions."""

    @jax.jit
    def activation(x: Array) -> Array:
        return jnp.where(x > 0, 1.05 * x, 1.75 * jnp.expm1(x))

    x = jnp.linspace(-3, 3, 1000)
    weights = jax.random.normal(jax.random.key(0), (150, 100))
    batch = jax.random.normal(jax.random.key(1), (10, 100))
    slow = jnp.stack([weights @ v for v in batch])
    fast = jax.jit(jax.vmap(lambda v: weights @ v))(batch)

    def energy(v: Array) -> Array:
        return jnp.sum(jax.nn.sigmoid(v) * jnp.cos(v))

    small = jnp.arange(3.0)
    hessian = jax.jit(jax.jacfwd(jax.jacrev(energy)))(small)
    steps = 1e-2
    numeric = jnp.stack([(energy(small + steps * e) - energy(small - steps * e)) / (2 * steps) for e in jnp.eye(3)])
    return activation(x), slow, fast, jax.grad(energy)(small), hessian, numeric


def forward_and_reverse() -> Any:
    """Runs jvp, vjp, Hessian-vector products, and linearize."""

    def f(w: Array, x: Array) -> Array:
        return jnp.tanh(x @ w).sum(axis=-1)

    w = jax.random.normal(jax.random.key(3), (4, 3))
    x = jax.random.normal(jax.random.key(4), (5, 4))
    y, tangent = jax.jvp(lambda v: f(v, x), (w,), (jnp.ones_like(w),))
    y2, pull = jax.vjp(f, w, x)
    _, line = jax.linearize(lambda v: f(v, x), w)
    total = lambda v: (f(v, x) ** 2).sum()  # noqa: E731
    hvp = jax.jvp(jax.grad(total), (w,), (jnp.ones_like(w),))[1]
    transposed = jax.linear_transpose(lambda v: x @ v, w)(jnp.ones((5, 3)))
    return y, tangent, y2, pull(jnp.ones(5)), line(w), hvp, jax.hessian(total)(w), transposed


@partial(jax.tree_util.register_dataclass, data_fields=["mean", "scale"], meta_fields=["name"])
class _Scaler:
    def __init__(self, mean: Array, scale: Array, name: str) -> None:
        self.mean, self.scale, self.name = mean, scale, name


class _Point(NamedTuple):
    x: Any
    y: Any


def trees() -> Any:
    """Runs custom nodes, maps with paths, transposition and ravelling."""
    tree = {"a": [jnp.arange(3.0), _Point(jnp.ones(2), None)], "b": _Scaler(jnp.array(2.0), jnp.arange(2.0), "s")}
    doubled = jax.jit(lambda t: jax.tree.map(lambda v: 2 * v, t))(tree)
    grads = jax.grad(lambda t: sum(jnp.sum(v**2) for v in jax.tree.leaves(t)))(tree)
    named = jax.tree_util.tree_map_with_path(lambda path, v: v + len(jax.tree_util.keystr(path)), tree)
    flat, back = ravel_pytree(tree)
    several = [{"u": jnp.ones(2) * i, "v": jnp.arange(i, i + 3)} for i in range(4)]
    stacked = jax.tree.map(lambda *v: jnp.stack(v), *several)
    return doubled, grads, named, flat, back(flat * 3), stacked, jax.tree.reduce(jnp.add, [1.0, jnp.ones(3)])


def control_flow() -> Any:
    """Runs cond, switch, while_loop, fori_loop and scan, and derivatives of those that have them."""

    @jax.jit
    def collatz(n: Array) -> Array:
        def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
            n, count = state
            return jax.lax.cond(n % 2 == 0, lambda m: m // 2, lambda m: 3 * m + 1, n), count + 1

        return jax.lax.while_loop(lambda state: state[0] != 1, step, (n, 0))[1]

    @jax.jit
    def choose(i: Array, x: Array) -> Array:
        return jax.lax.switch(i, [jnp.sin, jnp.cos, lambda v: v**2], x)

    def newton(a: Array) -> Array:
        return jax.lax.fori_loop(0, 8, lambda _, x: 0.5 * (x + a / x), a)

    def cumulative(xs: Array) -> tuple[Array, Array]:
        return jax.lax.scan(lambda c, x: (c * 0.9 + x, c * x), 0.0, xs)

    xs = jnp.linspace(0.0, 2.0, 20)
    numbers = jnp.arange(1, 40)
    return (
        jax.vmap(collatz)(numbers),
        jnp.stack([choose(i, xs) for i in range(-1, 4)]),
        jax.vmap(choose, (0, None))(jnp.arange(3), xs),
        jax.vmap(jax.value_and_grad(newton))(jnp.linspace(1.0, 9.0, 5)),
        cumulative(xs),
        jax.jacrev(lambda v: cumulative(v)[0])(xs),
        jax.grad(lambda v: jax.lax.cond(v.sum() > 0, jnp.sum, lambda u: (u**2).sum(), v))(xs),
        jax.lax.map(lambda v: v**2, xs, batch_size=6),
        jax.lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (xs, xs + 1)),
    )


def recurrent_scan() -> Any:
    """Runs a GRU over a batch of sequences, as a scan, with the gradient of its loss."""

    def cell(params: dict[str, Array], h: Array, x: Array) -> tuple[Array, Array]:
        both = jnp.concatenate([h, x], axis=-1)
        z, r = jnp.split(jax.nn.sigmoid(both @ params["gates"]), 2, axis=-1)
        new = jnp.tanh(jnp.concatenate([r * h, x], axis=-1) @ params["new"])
        h = (1 - z) * h + z * new
        return h, h

    def loss(params: dict[str, Array], xs: Array) -> Array:
        last, hs = jax.lax.scan(partial(cell, params), jnp.zeros((xs.shape[1], 16)), xs)
        return (last**2).mean() + jnp.abs(hs).mean()

    key = jax.random.key(7)
    params = {"gates": 0.3 * jax.random.normal(key, (24, 32)), "new": 0.3 * jax.random.normal(key, (24, 16))}
    xs = jax.random.normal(jax.random.key(8), (30, 4, 8))
    return jax.jit(jax.value_and_grad(loss))(params, xs)


def own_derivatives() -> Any:
    """Runs custom_jvp for a stable derivative, custom_vjp to clip gradients, and a fixed point by the implicit
    function."""

    @jax.custom_jvp
    def softplus(x: Array) -> Array:
        return jnp.log1p(jnp.exp(x))

    @softplus.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return softplus(x), (1 - 1 / (1 + jnp.exp(x))) * t

    @partial(jax.custom_vjp, nondiff_argnums=(0, 1))
    def clipped(low: float, high: float, x: Array) -> Array:
        return x

    clipped.defvjp(lambda low, high, x: (x, None), lambda low, high, _, g: (jnp.clip(g, low, high),))

    @partial(jax.custom_vjp, nondiff_argnums=(0,))
    def fixed_point(f: Any, a: Array, guess: Array) -> Array:
        def goes_on(state: tuple[Array, Array]) -> Array:
            return jnp.abs(state[0] - state[1]).max() > 1e-6

        return jax.lax.while_loop(goes_on, lambda s: (s[1], f(a, s[1])), (guess, f(a, guess)))[1]

    def forward(f: Any, a: Array, guess: Array) -> Any:
        found = fixed_point(f, a, guess)
        return found, (a, found)

    def backward(f: Any, kept: Any, cotangent: Array) -> Any:
        a, found = kept
        _, pull_a = jax.vjp(lambda v: f(v, found), a)
        _, pull_x = jax.vjp(lambda v: f(a, v), found)
        u = fixed_point(lambda packed, v: packed + pull_x(v)[0], cotangent, cotangent)
        return pull_a(u)[0], jnp.zeros_like(found)

    fixed_point.defvjp(forward, backward)

    def root(a: Array) -> Array:
        return fixed_point(lambda a, x: 0.5 * (x + a / x), a, jnp.ones_like(a))

    x = jnp.array([-50.0, 0.0, 3.0, 80.0])
    return (
        jax.vmap(jax.grad(softplus))(x),
        jax.grad(lambda v: jnp.sum(jnp.sin(clipped(-0.2, 0.4, v)) * 3))(x),
        jax.jit(jax.value_and_grad(lambda a: root(a).sum()))(jnp.array([2.0, 3.0])),
        jax.grad(jax.grad(lambda v: jax.lax.stop_gradient(v) * v**3))(2.0),
    )


def where_and_gradients() -> Any:
    """A branch that is not taken must not make the gradient nan if the argument was made safe."""

    def unsafe(x: Array) -> Array:
        return jnp.where(x > 0, jnp.sqrt(x), 0.0)

    def safe(x: Array) -> Array:
        return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)

    x = jnp.array([-1.0, 0.0, 4.0])
    return [jax.vmap(jax.grad(f))(x) for f in (unsafe, safe)], jax.grad(jnp.linalg.norm)(jnp.zeros(2))


def per_example_gradients() -> Any:
    def loss(w: dict[str, Array], x: Array, y: Array) -> Array:
        return -jax.nn.log_softmax(jnp.tanh(x @ w["in"]) @ w["out"])[y]

    keys = jax.random.split(jax.random.key(0), 3)
    w = {"in": jax.random.normal(keys[0], (6, 8)), "out": jax.random.normal(keys[1], (8, 3))}
    x, y = jax.random.normal(keys[2], (12, 6)), jnp.arange(12) % 3
    each = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))(w, x, y)
    norms = jax.vmap(lambda g: jnp.sqrt(sum(jnp.sum(v**2) for v in jax.tree.leaves(g))))(each)
    private = jax.tree.map(lambda g: jnp.einsum("n,n...->...", jnp.minimum(1, 0.5 / norms), g), each)
    return each, norms, private


def rematerialised() -> Any:
    """Runs jax.checkpoint with policies, also in a scan."""

    def layer(x: Array, w: Array) -> Array:
        return jnp.sin(jnp.sin(x @ w))

    ws = jax.random.normal(jax.random.key(0), (6, 16, 16)) / 4
    x = jax.random.normal(jax.random.key(1), (4, 16))
    results = []
    for policy in (None, jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.nothing_saveable):
        kept = jax.checkpoint(layer, policy=policy)
        results.append(
            jax.jit(jax.grad(lambda ws, k=kept: jax.lax.scan(lambda c, w: (k(c, w), None), x, ws)[0].sum()))(ws)
        )
    return results


def random_numbers() -> Any:
    """Runs streams of keys and every distribution of some pages; bits are the same on all platforms."""
    key = jax.random.key(42)
    a, b, *more = jax.random.split(key, 12)
    draws = jax.vmap(lambda k: jax.random.uniform(k, (3,)))(jax.random.split(a, 4))
    r = jax.random
    return (
        jax.random.key_data(jax.random.fold_in(key, 7)),
        r.bits(b, (5,)),
        draws,
        r.normal(a, (100,)),
        r.randint(a, (50,), -3, 9),
        r.permutation(b, 20),
        r.choice(b, 10, (4,), replace=False),
        r.choice(b, 4, (9,), p=jnp.array([0.1, 0.2, 0.3, 0.4])),
        r.bernoulli(more[0], 0.3, (30,)),
        r.categorical(more[1], jnp.log(jnp.array([0.2, 0.5, 0.3])), shape=(20,)),
        r.gamma(more[2], 2.5, (20,)),
        r.beta(more[3], 2.0, 3.0, (20,)),
        r.dirichlet(more[4], jnp.ones(4), (5,)),
        r.poisson(more[5], 3.0, (30,)),
        r.truncated_normal(more[6], -1, 2, (20,)),
        r.multivariate_normal(more[7], jnp.zeros(3), jnp.eye(3) + 0.5, (6,)),
        r.laplace(more[8], (10,)),
        r.gumbel(more[9], (10,)),
        r.t(more[2], 4.0, (10,)),
        r.orthogonal(more[3], 4),
        r.binomial(more[4], 20, 0.3, (10,)),
        r.exponential(more[5], (10,)),
        r.ball(more[6], 3, shape=(4,)),
        r.uniform(jax.random.key(5, impl="rbg"), (7,)),
    )


def random_gradient() -> Any:
    """The reparametrisation of a gamma distribution has a derivative."""
    f = lambda a: jax.random.gamma(jax.random.key(1), a, (50,)).mean()  # noqa: E731
    return jax.jit(jax.value_and_grad(f))(2.0)


def called_back() -> Any:
    """Runs pure_callback of a NumPy function with a custom derivative, under jit and vmap; debug.print and
    debug.callback."""
    seen: list[float] = []

    @jax.custom_jvp
    def cosine(x: Array) -> Array:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda v: np.cos(v).astype(v.dtype), shape, x, vmap_method="expand_dims")

    @cosine.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return cosine(primals[0]), -jnp.sin(primals[0]) * tangents[0]

    @jax.jit
    def f(x: Array) -> Array:
        y = cosine(x)
        jax.debug.print("x={x} y={y:.3f}", x=x, y=y)
        jax.debug.callback(lambda v: seen.append(float(v)), y)
        return y * 2

    x = jnp.linspace(0.0, 1.0, 4)
    result = jax.vmap(jax.value_and_grad(f))(x), jax.jit(jax.vmap(cosine))(x)
    f(0.25)
    jax.effects_barrier()
    return result, np.sort(seen)


def exported() -> Any:
    """Runs jax.export: a program with an unknown batch, to bytes and back, with its derivative."""

    def f(w: Array, x: Array) -> Array:
        return jax.nn.softmax(jnp.tanh(x @ w), axis=-1)

    (n,) = jax.export.symbolic_shape("n")
    specs = jax.ShapeDtypeStruct((4, 3), jnp.float32), jax.ShapeDtypeStruct((n, 4), jnp.float32)
    data = jax.export.export(jax.jit(f))(*specs).serialize(vjp_order=1)
    again = jax.export.deserialize(data)
    w = jnp.arange(12.0).reshape(4, 3) / 10
    results = [again.call(w, jnp.ones((size, 4)) * 0.3) for size in (1, 5)]
    return results, jax.grad(lambda w: (again.call(w, jnp.ones((2, 4))) ** 2).sum())(w)


def indexed_updates() -> Any:
    """Runs `.at`, gathers with modes, dynamic slices, and their gradients."""
    x = jnp.arange(24.0).reshape(4, 6)
    i = jnp.array([3, 0, 3, 9])
    return (
        x.at[1:3, ::2].set(-1),
        x.at[i, 0].add(10.0),
        x.at[i].max(5.0, mode="drop"),
        x.at[i].get(mode="fill", fill_value=-7),
        x.at[:, 2].multiply(3),
        jnp.take(x, i, axis=1, mode="wrap"),
        x[jnp.array([0, 2])[:, None], jnp.array([1, 5])],
        jax.lax.dynamic_update_slice(x, jnp.zeros((2, 2)), (9, 3)),
        jax.grad(lambda v: (v[i] ** 2).sum())(x),
        jax.ops.segment_sum(x.ravel(), jnp.arange(24) % 5, 6),
        x[x > 11.0],
        jnp.nonzero(x % 5 == 0, size=7, fill_value=-1),
        jnp.unique(jnp.array([3, 1, 3, 2, 1]), return_counts=True),
    )


def stateful() -> Any:
    """Passes state in and out, and uses a mutable array."""

    @jax.jit
    def step(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        count, mean = state
        count = count + 1
        mean = mean + (x - mean) / count
        return (count, mean), mean

    state: Any = (jnp.zeros((), jnp.int32), jnp.zeros(3))
    outs = []
    for i in range(5):
        state, out = step(state, jnp.full(3, float(i * i)))
        outs.append(out)

    ref = jax.new_ref(jnp.zeros(4))

    @jax.jit
    def write(v: Array) -> Array:
        ref[1] = v
        ref[2:] += 2 * v
        return ref[...] + 1

    written = [write(jnp.float32(v)) for v in (1, 5)]
    return state, outs, written, ref[...]


def dtypes_and_promotion() -> Any:
    x = jnp.arange(8, dtype=jnp.int8)
    return (
        (x + jnp.float16(1.5)).astype(jnp.float32),
        (x * jnp.uint8(3)).astype(jnp.int32),
        (jnp.bfloat16(1) / 3 + x).astype(jnp.float32),
        jnp.array([1.9, -1.9, 300.0, jnp.nan]).astype(jnp.int8),
        jnp.finfo(jnp.bfloat16).max.astype(jnp.float32),
        x // 3,
        x % -3,
        -x >> 1,
        jnp.bitwise_count(x),
        jax.lax.bitcast_convert_type(jnp.float32(1.5), jnp.uint32),
        jnp.uint8(250) + jnp.uint8(10),
        jnp.power(2, x),
        1j * x,
        jnp.abs(3 + 4j * jnp.ones(2)),
    )
