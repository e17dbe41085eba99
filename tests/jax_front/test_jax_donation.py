"""Donated JAX arrays: deleted, and their memory reused if that is safe."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp

import shlo_jit.jax as sj
from shlo_jit.runtime.pool import POOLED_BYTES

pytestmark = pytest.mark.xla
SHAPE = (POOLED_BYTES // 1024, 512)


@pytest.fixture
def step() -> Any:
    return sj.jit(lambda x, y: x * 2 + y, donate_argnums=0)


def ours(value: float = 1.0) -> Any:
    """Returns an array whose memory is one of our results."""
    return sj.jit(lambda v: jnp.full(SHAPE, v))(value)


def test_a_loop_stays_in_one_place(step: Any) -> None:
    x, expected = ours(), 1.0
    place = x.unsafe_buffer_pointer()
    for _ in range(5):
        old, x, expected = x, step(x, 1.0), expected * 2 + 1
        assert old.is_deleted()
        assert x.unsafe_buffer_pointer() == place
    np.testing.assert_array_equal(x, np.full(SHAPE, expected))


def test_the_first_call_copies_what_jax_made(step: Any) -> None:
    x = jnp.ones(SHAPE)
    y = step(x, 1.0)
    assert x.is_deleted()
    np.testing.assert_array_equal(y, np.full(SHAPE, 3))
    place = y.unsafe_buffer_pointer()
    assert step(y, 1.0).unsafe_buffer_pointer() == place


def test_memory_that_others_see_is_not_written_to(step: Any) -> None:
    host = np.ones(SHAPE, np.float32)  # JAX may share it
    x = jnp.asarray(host)
    step(x, 1.0)
    assert (host == 1).all()
    x = ours()
    view, capsule = np.asarray(x), np.from_dlpack(ours(5.0))
    assert step(x, 1.0).unsafe_buffer_pointer() != view.ctypes.data
    assert (view == 1).all()
    x = ours(5.0)
    capsule = np.from_dlpack(x)
    step(x, 1.0)
    assert (capsule == 5).all()


def test_what_xla_still_reads_is_not_written_to(step: Any) -> None:
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: jnp.sin(y + x), x).sum())
    slow(ours())
    for _ in range(5):
        x = ours(0.25)
        reading = slow(x)
        step(x, 1.0)
        assert float(reading) == float(slow(ours(0.25)))


def test_the_same_array_twice(step: Any) -> None:
    x = ours()
    with pytest.raises(RuntimeError, match="deleted"):
        step(x, x)
    assert x.is_deleted()
    x = ours()
    np.testing.assert_array_equal(sj.jit(lambda y, x: x * 2 + y, donate_argnums=1)(x, x), np.full(SHAPE, 3))
    assert x.is_deleted()


def test_deleted_arrays_are_refused(step: Any) -> None:
    x = ours()
    step(x, 1.0)
    with pytest.raises(RuntimeError, match="deleted"):
        step(x, 1.0)


def test_numpy_arrays_are_not_donated(step: Any) -> None:
    x = np.ones(SHAPE, np.float32)
    np.testing.assert_array_equal(step(x, 1.0), np.full(SHAPE, 3))
    assert (x == 1).all()


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("f", [lambda x, y: y + 1, lambda x, y: (x * y).sum(), lambda x, y: x[:4] * y])
def test_jax_does_not_donate_what_no_result_can_use(f: Any) -> None:
    x, y = ours(), jnp.asarray(2.0)
    for jit in (jax.jit, sj.jit):
        np.testing.assert_array_equal(jit(f, donate_argnums=0)(x, y), f(x, y))
        assert not x.is_deleted()


def test_donated_arguments_that_nothing_is_written_to() -> None:
    f = sj.jit(lambda x, y: (x @ y, x.sum()), donate_argnums=0)
    n = SHAPE[1]
    x = sj.jit(lambda v: jnp.full((n, n), v))(1.0)
    assert f.lower(x, x).compile().executable.overwritten == ()
    f(x, jnp.ones((n, n)))
    assert x.is_deleted()


def test_donation_beside_ordered_effects_and_constants() -> None:
    big, seen = jnp.arange(4.0), []

    def f(y: Any, x: Any) -> Any:
        jax.debug.callback(seen.append, y, ordered=True)
        return x * 2 + big.sum() + y

    x = ours()
    place = x.unsafe_buffer_pointer()
    result = sj.jit(f, donate_argnums=1)(1.0, x)
    np.testing.assert_array_equal(result, np.full(SHAPE, 9))
    assert result.unsafe_buffer_pointer() == place
    assert x.is_deleted()
    assert len(seen) == 1


def test_trees_of_parameters() -> None:
    @sj.jit
    def first() -> Any:
        return {"w": jnp.ones(SHAPE), "b": jnp.zeros(4)}

    @jax.jit
    def reference(p: Any, x: Any) -> Any:
        g = jax.grad(lambda p: ((x @ p["w"] + p["b"].sum()) ** 2).sum())(p)
        return jax.tree.map(lambda a, d: a - 0.0001 * d, p, g)

    update = sj.jit(reference.__wrapped__, donate_argnums=0)
    params, x = first(), jnp.ones((3, SHAPE[0])) / 100
    expected = jax.tree.map(jnp.array, params)
    places = []
    for _ in range(4):
        params, expected = update(params, x), reference(expected, x)
        places.append(params["w"].unsafe_buffer_pointer())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), params, expected)
    assert len(set(places)) <= 2  # a product's result cannot overwrite its operands: two blocks alternate


def test_threads_that_donate_one_array(step: Any) -> None:
    for _ in range(20):
        x, outcomes = ours(), []

        def run(x: Any = x, outcomes: list[Any] = outcomes) -> None:
            try:
                outcomes.append(np.asarray(step(x, 1.0)).copy())
            except RuntimeError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        results = [r for r in outcomes if isinstance(r, np.ndarray)]
        assert results
        assert all((r == 3).all() for r in results)
        assert all("deleted" in str(e) for e in outcomes if isinstance(e, RuntimeError))
