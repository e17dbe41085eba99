"""Programs on several devices."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
SPECS = [P(), P("x"), P("y"), P(None, "x"), P("x", "y"), P(("x", "y")), P(None, ("y", "x"))]


def sharded(array: np.ndarray, spec: P) -> jax.Array:
    return jax.device_put(array, NamedSharding(MESH, spec))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("out", [None, P("x"), P(None, "y")], ids=str)
def test_a_program_on_whole_arrays(spec: P, out: P | None) -> None:
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    options = {} if out is None else {"out_shardings": NamedSharding(MESH, out)}
    result = jax.jit(lambda a: a @ a.T + 1, **options)(sharded(x, spec))
    np.testing.assert_array_equal(np.asarray(result), x @ x.T + 1)
    if out is not None:
        assert result.sharding.spec == out
        assert all(s.data.shape == result.sharding.shard_shape((8, 8)) for s in result.addressable_shards)


@pytest.mark.parametrize("spec", [P("x"), P("x", "y"), P(("y", "x"))], ids=str)
def test_a_program_on_parts(spec: P) -> None:
    x = np.arange(64, dtype=np.float32).reshape(8, 8)

    @jax.jit
    @partial(jax.shard_map, mesh=MESH, in_specs=spec, out_specs=(spec, P()))
    def f(part: jax.Array) -> tuple[jax.Array, jax.Array]:
        axes = tuple(a for entry in spec for a in (entry if isinstance(entry, tuple) else (entry,)))
        return part * 2, jax.lax.psum(part.sum(), axes)

    double, total = f(sharded(x, spec))
    np.testing.assert_array_equal(np.asarray(double), x * 2)
    assert float(total) == x.sum()


def test_pmap() -> None:
    f = jax.pmap(lambda v: jax.lax.all_gather(v, "i") + jax.lax.axis_index("i"), axis_name="i")
    want = np.arange(4.0)[None, :] + np.arange(4)[:, None]
    np.testing.assert_array_equal(np.asarray(f(jnp.arange(4.0))), want)


def test_training_on_parts_of_a_batch_is_training_on_the_whole() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, 8), np.float32), rng.standard_normal((16, 2), np.float32)
    w = rng.standard_normal((8, 2), np.float32)

    def loss(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return ((x @ w - y) ** 2).mean()

    @jax.jit
    @partial(jax.shard_map, mesh=MESH, in_specs=(P(), P("x"), P("x")), out_specs=P(), check_vma=False)
    def step(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return w - 0.1 * jax.lax.pmean(jax.grad(loss)(w, x, y), "x")

    got = step(sharded(w, P()), sharded(x, P("x")), sharded(y, P("x")))
    want = w - 0.1 * np.asarray(jax.grad(loss)(w, x, y))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)


def test_donated_parts_are_gone() -> None:
    x = sharded(np.ones((8, 8), np.float32), P("x"))
    jax.jit(lambda a: a + 1, donate_argnums=0)(x)
    assert x.is_deleted()


def test_a_result_without_sharding_is_split_as_the_argument() -> None:
    x = sharded(np.arange(64, dtype=np.float32).reshape(8, 8), P("x", "y"))
    assert jax.jit(lambda a: jnp.tanh(a).T)(x).sharding.spec == P("y", "x")
    assert x[:, 3].sharding.shard_shape((8,)) == (4,)
    assert jax.jit(lambda a: jnp.array(a, copy=True))(x).sharding == x.sharding


@pytest.mark.parametrize("spec", [P("x"), P(None, "y"), P()], ids=str)
def test_a_sharding_may_be_inspected(spec: P) -> None:
    seen: list[jax.sharding.Sharding] = []

    @jax.jit
    def f(a: jax.Array) -> jax.Array:
        jax.debug.inspect_array_sharding(a * 2, callback=seen.append)
        return a.sum()

    f(sharded(np.ones((8, 8), np.float32), spec))
    assert len(seen) == 1
    assert seen[0].is_equivalent_to(NamedSharding(MESH, spec), 2)


def test_an_exception_of_the_one_who_inspects_is_the_compilations() -> None:
    def refuse(sharding: jax.sharding.Sharding) -> None:
        raise ValueError("not so")

    def f(a: jax.Array) -> jax.Array:
        jax.debug.inspect_array_sharding(a, callback=refuse)
        return a + 1

    with pytest.raises((ValueError, RuntimeError), match="not so"):
        jax.jit(f)(sharded(np.ones((8, 8), np.float32), P("x")))


def parts_of(a: jax.Array) -> jax.Array:
    """Runs a computation on parts, which makes every device run the whole program."""
    return jax.shard_map(lambda p: p + jax.lax.psum(p * 0, "x"), mesh=MESH, in_specs=P("x"), out_specs=P("x"))(a)


@pytest.mark.parametrize("has_parts", [False, True])
def test_a_callback_sees_whole_arrays_once(has_parts: bool) -> None:
    seen: list[np.ndarray] = []

    def note(a: np.ndarray) -> np.ndarray:
        seen.append(np.asarray(a))
        return np.asarray(a) * 3

    def f(a: jax.Array) -> jax.Array:
        if has_parts:
            a = parts_of(a)
        jax.debug.callback(note, a)
        return jax.pure_callback(note, jax.ShapeDtypeStruct((8, 8), jnp.float32), a) + 1

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    result = jax.jit(f)(sharded(x, P("x", "y")))
    jax.effects_barrier()
    np.testing.assert_array_equal(np.asarray(result), x * 3 + 1)
    assert len(seen) == 2
    for array in seen:
        np.testing.assert_array_equal(array, x)


@pytest.mark.parametrize("has_parts", [False, True])
@pytest.mark.parametrize("turns", [1, 3])
def test_a_callback_may_see_the_part_of_each_device(has_parts: bool, turns: int) -> None:
    seen: list[np.ndarray] = []

    def f(a: jax.Array) -> jax.Array:
        if has_parts:
            a = parts_of(a)

        def step(i: jax.Array, b: jax.Array) -> jax.Array:
            jax.debug.callback(lambda v: seen.append(np.asarray(v)), b * 2, partitioned=True)
            return b

        return jax.lax.fori_loop(0, turns, step, a)

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    jax.block_until_ready(jax.jit(f)(sharded(x, P("x"))))
    jax.effects_barrier()
    parts = sorted((a.tolist() for a in seen), key=str)
    halves = [(x[:4] * 2).tolist(), (x[4:] * 2).tolist()]
    assert parts == sorted(halves * (2 * turns), key=str)


@pytest.mark.parametrize("kind", ["device", "pinned_host", "unpinned_host"])
def test_results_are_in_the_memory_that_is_wanted(kind: str) -> None:
    x = np.ones((8, 8), np.float32)
    for place in (
        NamedSharding(MESH, P("x"), memory_kind=kind),
        jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind=kind),
    ):
        result = jax.jit(lambda a: a * 2, out_shardings=place)(x)
        assert result.sharding.memory_kind == kind
        again = jax.jit(lambda a: a + 0, in_shardings=place, out_shardings=place)(result)
        assert again.sharding.memory_kind == kind
        np.testing.assert_array_equal(np.asarray(again), x * 2)


def test_a_callback_has_no_mesh_of_its_callers() -> None:
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))

    def add(part: jax.Array) -> jax.Array:
        return jnp.asarray(part) + 1  # on one device, which a global mesh would not permit

    with jax.set_mesh(mesh):
        f = jax.shard_map(
            lambda part: jax.pure_callback(add, jax.ShapeDtypeStruct.like(part), part),
            in_specs=P("x"),
            out_specs=P("x"),
        )
        x = jax.device_put(np.arange(8, dtype=np.float32), P("x"))
        np.testing.assert_array_equal(np.asarray(f(x)), np.arange(8) + 1)


def test_parts_call_functions_in_order() -> None:
    seen: list[list[float]] = [[], [], [], []]

    def note(device: np.ndarray, part: np.ndarray) -> None:
        seen[int(device[0])].append(float(part[0]))

    def f(device: jax.Array, part: jax.Array) -> jax.Array:
        io_callback(note, None, device, part, ordered=True)
        io_callback(note, None, device, part * 10, ordered=True)
        return part

    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    run = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P("d")))
    np.testing.assert_array_equal(np.asarray(run(np.arange(4), np.arange(4.0))), np.arange(4.0))
    jax.effects_barrier()
    assert seen == [[0, 0], [1, 10], [2, 20], [3, 30]]
