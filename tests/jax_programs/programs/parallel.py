"""Several devices: named shardings, shard_map, collectives, explicit axes, and training on parts of a batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Array = jax.Array


def _mesh(*shape: int, names: tuple[str, ...] = ("x", "y")) -> Mesh:
    return Mesh(np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape), names)


def sharded_products() -> Any:
    mesh = _mesh(2, 2)
    a = jax.device_put(jnp.arange(64.0).reshape(8, 8) / 64, NamedSharding(mesh, P("x", "y")))
    b = jax.device_put(jnp.ones((8, 4)) * jnp.arange(4.0), NamedSharding(mesh, P("y", None)))
    y = jax.jit(lambda a, b: jnp.sin(a @ b))(a, b)
    held = jax.jit(lambda a: lax.with_sharding_constraint(a.T * 2, NamedSharding(mesh, P(None, "x"))))(a)
    rows = jax.jit(lambda a: a.sum(1), out_shardings=NamedSharding(mesh, P("x")))(a)
    return y, held, rows, len(rows.addressable_shards), [np.asarray(s.data) for s in rows.addressable_shards]


def products_by_parts() -> Any:
    """A matrix product whose parts are gathered, summed, or passed around a ring, with the derivative of each."""
    mesh = _mesh(4, names=("i",))
    lhs = jnp.arange(128.0).reshape(8, 16) / 100
    rhs = jnp.cos(jnp.arange(64.0)).reshape(16, 4)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P("i", None), P("i", None)), out_specs=P("i", None))
    def gathered(a: Array, b: Array) -> Array:
        return a @ lax.all_gather(b, "i", tiled=True)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(None, "i"), P("i", None)), out_specs=P("i", None))
    def scattered(a: Array, b: Array) -> Array:
        return lax.psum_scatter(a @ b, "i", scatter_dimension=0, tiled=True)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P("i", None), P("i", None)), out_specs=P("i", None))
    def round_a_ring(a: Array, b: Array) -> Array:
        size, own = lax.axis_size("i"), lax.axis_index("i")
        block = b.shape[0]

        def step(s: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
            total, b = state
            columns = lax.dynamic_slice_in_dim(a, ((own + s) % size) * block, block, 1)
            return total + columns @ b, lax.ppermute(b, "i", [(j, (j - 1) % size) for j in range(size)])

        start = lax.pcast(jnp.zeros((a.shape[0], b.shape[1])), "i", to="varying")
        return lax.fori_loop(0, size, step, (start, b))[0]

    results = [f(lhs, rhs) for f in (gathered, scattered, round_a_ring)]
    grads = [jax.grad(lambda b, f=f: (f(lhs, b) ** 2).sum())(rhs) for f in (gathered, scattered, round_a_ring)]
    return results, grads


def exchanges() -> Any:
    mesh = _mesh(2, 2)
    x = jnp.arange(64.0).reshape(8, 8)

    @partial(jax.shard_map, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    def f(part: Array) -> Array:
        shared = lax.pmean(part, "x") + lax.pmax(part, "y") - lax.psum(part.sum(), ("x", "y"))
        return shared + lax.all_to_all(part, "y", 0, 0, tiled=True) + lax.axis_index("x")

    @partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    def half(part: Array) -> Array:
        return jnp.cumsum(part, 1) + lax.psum(part, "x")

    return jax.jit(f)(x), jax.jit(half)(x), jax.pmap(lambda v: lax.psum(v, "i") * v, axis_name="i")(x[:4])


def explicit_axes() -> Any:
    """Types that describe how values are split."""
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Explicit))
    with jax.set_mesh(mesh):
        a = jax.device_put(np.arange(32.0, dtype=np.float32).reshape(8, 4), P("x", "y"))
        b = jax.device_put(np.ones((4, 6), np.float32), P("y", None))

        @jax.jit
        def f(a: Array, b: Array) -> Array:
            y = jnp.einsum("ij,jk->ik", a, b, out_sharding=P("x", None))
            return jnp.tanh(y / 10) + jax.reshard(a.sum(1, keepdims=True), P("x", None))

        y = f(a, b)
        return y, jax.jit(jax.grad(lambda b: f(a, b).sum()))(b), str(jax.typeof(y).sharding.spec) == "P('x', None)"


def training_in_parts() -> Any:
    """Trains one network in three ways: batch split by the compiler, batch split by hand, and layers split over
    devices."""
    sizes = [16, 32, 8]
    keys = jax.random.split(jax.random.key(0), 3)
    params = [jax.random.normal(k, (m, n)) / m**0.5 for k, m, n in zip(keys, sizes, sizes[1:], strict=False)]
    x = jax.random.normal(keys[2], (16, 16))
    y = jnp.roll(x[:, :8], 1, 1)

    def loss(params: Any, x: Array, y: Array) -> Array:
        return ((jnp.tanh(x @ params[0]) @ params[1] - y) ** 2).mean()

    def train(step: Any, params: Any, x: Array, y: Array) -> Any:
        for _ in range(5):
            params = step(params, x, y)
        return params

    mesh = _mesh(4, names=("b",))
    cut, whole = NamedSharding(mesh, P("b")), NamedSharding(mesh, P())
    by_compiler = jax.jit(lambda p, x, y: jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(loss)(p, x, y)))

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("b"), P("b")), out_specs=P())
    def by_hand(p: Any, x: Array, y: Array) -> Any:
        return jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(lambda p: lax.pmean(loss(p, x, y), "b"))(p))

    wide = Mesh(mesh.devices.reshape(2, 2), ("b", "m"))
    placed = [
        jax.device_put(p, NamedSharding(wide, s)) for p, s in zip(params, (P(None, "m"), P("m", None)), strict=True)
    ]
    return (
        train(by_compiler, jax.device_put(params, whole), jax.device_put(x, cut), jax.device_put(y, cut)),
        train(by_hand, params, x, y),
        train(by_compiler, placed, jax.device_put(x, NamedSharding(wide, P("b"))), y),
    )


def random_numbers_in_parts() -> Any:
    mesh = _mesh(4, names=("i",))
    draw = jax.jit(lambda k: jax.random.normal(k, (16, 3)), out_shardings=NamedSharding(mesh, P("i")))
    by_hand = jax.shard_map(
        lambda k: jax.random.uniform(jax.random.fold_in(k, lax.axis_index("i")), (2,)),
        mesh=mesh, in_specs=P(), out_specs=P("i"),
    )  # fmt: skip
    return draw(jax.random.key(3)), jax.jit(by_hand)(jax.random.key(4))


def local_arrays() -> Any:
    """Arrays assembled from parts, and callbacks that read them."""
    mesh = _mesh(2, 2)
    host = np.arange(48.0, dtype=np.float32).reshape(8, 6)
    sharding = NamedSharding(mesh, P("x", "y"))
    made = jax.make_array_from_callback((8, 6), sharding, lambda index: host[index])
    parts = [jax.device_put(host[i], d) for d, i in sharding.addressable_devices_indices_map((8, 6)).items()]
    single = jax.make_array_from_single_device_arrays((8, 6), sharding, parts)
    called = jax.shard_map(
        lambda v: jax.pure_callback(lambda a: np.asarray(a) * 2, jax.ShapeDtypeStruct(v.shape, v.dtype), v),
        mesh=mesh, in_specs=P("x"), out_specs=P("x"),
    )  # fmt: skip
    replicated = jax.device_put(host, NamedSharding(mesh, P()))
    return made, jax.jit(jnp.add)(made, single), jax.jit(called)(host), jax.device_put(replicated, sharding) + 1
