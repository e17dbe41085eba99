"""Values of which devices have summands: `unreduced` in a PartitionSpec, and `reduced`, which their gradients are."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
X = np.arange(32, dtype=np.float32).reshape(4, 8)
SPECS = [
    P(unreduced={"x"}),
    P(None, None, unreduced={"x", "y"}),
    P("x", unreduced={"y"}),
    P(None, "y", unreduced={"x"}),
    P("x", None, reduced={"y"}),
]


@pytest.fixture(autouse=True)
def mesh():
    with jax.set_mesh(MESH):
        yield


def summed(array: jax.Array) -> np.ndarray:
    """Returns the sum of the devices' parts."""
    spec, total = array.sharding.spec, np.zeros(array.shape, array.dtype)
    replicas = 4 // 2 ** len({*spec.partitions, *spec.unreduced} - {None})
    places = NamedSharding(MESH, P(*spec.partitions)).devices_indices_map(array.shape)
    for shard in array.addressable_shards:
        total[places[shard.device]] += np.asarray(shard.data) / replicas
    return total


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("given", [P(), P("y", "x")], ids=str)
def test_there_and_back(spec: P, given: P) -> None:
    x = jax.device_put(X, NamedSharding(MESH, given))
    split = jax.jit(lambda a: jax.reshard(a + 1, spec))(x)
    assert split.sharding.spec.unreduced == spec.unreduced
    np.testing.assert_array_equal(summed(split), X + 1)
    np.testing.assert_array_equal(np.asarray(jax.reshard(split, P("x", "y"))), X + 1)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda a: jax.reshard(a, P()) * 2)(split)), X * 2 + 2)


def test_products_of_parts() -> None:
    """Each device's product is a summand of the whole one."""
    a = jax.device_put(X, NamedSharding(MESH, P("x", "y")))
    b = jax.device_put(X.T, NamedSharding(MESH, P("y", None)))
    f = jax.shard_map(
        lambda a, b: jax.lax.pcast(a @ b, "y", to="unreduced"),
        in_specs=(P("x", "y"), P("y", None)),
        out_specs=P("x", None, unreduced={"y"}),
    )
    with_dot = jax.jit(lambda a, b: jnp.dot(a, b, out_sharding=P("x", None, unreduced={"y"})))
    for product in (jax.jit(f)(a, b), with_dot(a, b)):
        assert product.sharding.spec.unreduced == {"y"}
        np.testing.assert_array_equal(summed(product), X @ X.T)
    parts = [np.asarray(shard.data) for shard in jax.jit(f)(a, b).addressable_shards]
    np.testing.assert_array_equal(parts[0], X[:2, :4] @ X.T[:4])
    np.testing.assert_array_equal(parts[3], X[2:, 4:] @ X.T[4:])


def test_between_computations_on_parts() -> None:
    """Summands are passed on as they are, and added up where the value is needed."""
    double = jax.shard_map(lambda v: v, in_specs=P(unreduced={"x"}), out_specs=P(unreduced={"x"}))
    total = jax.shard_map(lambda v: jax.lax.psum(v, "x"), in_specs=P(unreduced={"x"}), out_specs=P())
    scatter = jax.shard_map(
        lambda v: jax.lax.psum_scatter(v, "x", tiled=True), in_specs=P(unreduced={"x"}), out_specs=P("x")
    )

    @jax.jit
    def f(x: jax.Array) -> tuple[jax.Array, ...]:
        split = double(jax.reshard(x, P(unreduced={"x"})))
        return total(split), scatter(split), jax.reshard(split, P()) * 2

    whole, rows, twice = f(jax.device_put(X, NamedSharding(MESH, P())))
    np.testing.assert_array_equal(np.asarray(whole), X)
    np.testing.assert_array_equal(np.asarray(rows), X)
    assert rows.addressable_shards[0].data.shape == (2, 8)
    np.testing.assert_array_equal(np.asarray(twice), 2 * X)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_gradients(is_compiled: bool) -> None:
    """The gradient of a value that every device has is a value of summands along that axis."""

    @partial(jax.shard_map, in_specs=(P("x", None), P(reduced={"x"})), out_specs=P())
    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.psum(jnp.sin(x * w).sum(), "x")

    x = jax.device_put(X, NamedSharding(MESH, P("x")))
    w = np.linspace(0, 1, 8, dtype=np.float32)
    given = jax.device_put(w, NamedSharding(MESH, P(None, reduced={"x"})))
    gradient = jax.grad(loss, argnums=1)
    got = (jax.jit(gradient) if is_compiled else gradient)(x, given)
    assert got.sharding.spec.unreduced == {"x"}
    np.testing.assert_allclose(summed(got), (X * np.cos(X * w)).sum(0), rtol=1e-4, atol=1e-5)


def test_summands_of_bf16_and_complex_numbers() -> None:
    for dtype in ("bfloat16", "complex64", "int8"):
        x = X.astype(jnp.dtype(dtype))
        split = jax.reshard(jax.device_put(x, NamedSharding(MESH, P())), P("y", unreduced={"x"}))
        np.testing.assert_array_equal(np.asarray(jax.reshard(split, P())), x)
