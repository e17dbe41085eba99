"""JAX features for XLA's partitioner, or for devices with several layouts of an array."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import JaxRuntimeError
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

MESH = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
X = np.arange(32, dtype=np.float32).reshape(4, 8)


@pytest.mark.parametrize("spec", [P(), P("x"), P("y", "x")], ids=str)
def test_a_function_with_its_own_partitioning(spec: P) -> None:
    @custom_partitioning
    def f(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.sin(x) * w, x.sum(1)

    def partition(mesh: Mesh, arguments: object, results: object) -> tuple[object, ...]:
        raise AssertionError("nothing is partitioned")

    f.def_partition(partition=partition, sharding_rule="i j, j -> i j, i")
    x, w = jax.device_put(X, NamedSharding(MESH, spec)), np.linspace(0, 1, 8, dtype=np.float32)
    first, second = jax.jit(lambda x, w: f(x * 2, w))(x, w)
    np.testing.assert_allclose(np.asarray(first), np.sin(2 * X) * w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(second), 2 * X.sum(1))
    parts = jax.shard_map(lambda x: f(x, w)[1], mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_allclose(np.asarray(jax.jit(parts)(x)), X.sum(1))


def test_layouts() -> None:
    """Arrays are row-major; a program that requests another layout is refused."""
    home = SingleDeviceSharding(jax.devices()[0])
    usual, other = Format(Layout((0, 1)), home), Format(Layout((1, 0)), home)
    f = jax.jit(lambda x: x + 1, in_shardings=usual, out_shardings=usual)
    np.testing.assert_array_equal(np.asarray(f(X)), X + 1)
    chosen = jax.jit(lambda x: x.T, in_shardings=Format(Layout.AUTO), out_shardings=Format(Layout.AUTO))
    assert chosen.lower(X).compile().output_formats.layout.major_to_minor == (0, 1)
    with pytest.raises(JaxRuntimeError, match=r"result 0 .*\{0,1\}.*row-major"):
        jax.jit(lambda x: x + 1, out_shardings=other)(X)
    with pytest.raises(JaxRuntimeError, match=r"argument 1 .*\{0,1\}.*row-major"):
        jax.jit(lambda x, y: x + y, in_shardings=(usual, other)).lower(X, X).compile()
    with pytest.raises(JaxRuntimeError, match="row-major"):
        jax.device_put(jnp.asarray(X), other)


def test_what_cannot_be_cut_evenly_is_whole() -> None:
    uneven = jax.jit(lambda a: jax.lax.with_sharding_constraint(a * 2, NamedSharding(MESH, P("x"))))(X[:3])
    assert uneven.sharding.is_fully_replicated
    np.testing.assert_array_equal(np.asarray(uneven), 2 * X[:3])
