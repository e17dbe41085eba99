"""Failures while programs run: functions that raise, at every place they may be called from. The next call works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import PartitionSpec as P

SHAPE = jax.ShapeDtypeStruct((4,), jnp.float32)
MESH = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
X = np.arange(4, dtype=np.float32)


def pure(function: Callable[[Any], Any], x: jax.Array) -> jax.Array:
    return jax.pure_callback(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def unordered(function: Callable[[Any], Any], x: jax.Array) -> jax.Array:
    return io_callback(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def ordered(function: Callable[[Any], Any], x: jax.Array) -> jax.Array:
    return io_callback(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x, ordered=True)


def debug(function: Callable[[Any], Any], x: jax.Array) -> jax.Array:
    jax.debug.callback(function, x)
    return x


def ordered_debug(function: Callable[[Any], Any], x: jax.Array) -> jax.Array:
    jax.debug.callback(function, x, ordered=True)
    return x


KINDS = (pure, unordered, ordered, debug, ordered_debug)


def plain(call: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    return call(x)


def in_scan(call: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda carry, _: (call(carry), None), x, None, length=5)[0]


def in_while(call: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda pair: pair[0] < 3, lambda pair: (pair[0] + 1, call(pair[1])), (0, x))[1]


def in_shards(call: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    return jax.shard_map(lambda part: call(part) + jax.lax.psum(part, "i") * 0, mesh=MESH, in_specs=P("i"), out_specs=P("i"))(x)  # fmt: skip


PLACES = (plain, in_scan, in_while, in_shards)
NOT_THERE = {(ordered, in_shards), (ordered_debug, in_shards)}
"""JAX orders no effects on several devices."""


@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", KINDS, ids=lambda f: f.__name__)
def test_a_function_that_raises(kind: Any, place: Any) -> None:
    """The call, or the wait for effects, raises with the text; when the function no longer raises, the same program
    works."""
    if (kind, place) in NOT_THERE:
        pytest.skip("JAX orders no effects on several devices")
    raises = True

    def function(x: Any) -> Any:
        if raises:
            raise LookupError("no such thing as 4711")
        return np.asarray(x)

    f = jax.jit(partial(place, partial(kind, function)))
    for _ in range(2):
        with pytest.raises(Exception, match="no such thing as 4711"):
            jax.block_until_ready(f(X))
            jax.effects_barrier()
    raises = False
    np.testing.assert_array_equal(f(X), X)
    jax.effects_barrier()
    np.testing.assert_array_equal(jnp.asarray(X) + 1, X + 1)


@pytest.mark.parametrize("place", (plain, in_shards), ids=lambda f: f.__name__)
@pytest.mark.parametrize("result", (np.zeros(3, np.float32), np.zeros(4, np.complex64), None, "text"), ids=repr)
def test_a_function_that_gives_something_else(result: Any, place: Any) -> None:
    f = jax.jit(partial(place, partial(pure, lambda x: result)))
    with pytest.raises(Exception, match=r"(?i)result|shape|dtype|callback|pytree|convert"):
        jax.block_until_ready(f(X))
    np.testing.assert_array_equal(jnp.asarray(X) + 1, X + 1)


@pytest.mark.parametrize("place", (plain, in_scan, in_shards), ids=lambda f: f.__name__)
def test_a_function_that_calls_jax(place: Any) -> None:
    """The calling program continues. The function uses the same device, and another one."""
    inner = jax.jit(lambda x: (x @ x.T).sum() * 0)
    other = jax.devices()[1]

    def function(x: Any) -> Any:
        x = np.asarray(x)
        here = inner(np.ones((200, 200), np.float32))
        there = jax.jit(lambda v: v * 2)(jax.device_put(x, other)) + jax.jit(jnp.sin)(jnp.zeros(x.shape))
        return np.asarray(here) + np.asarray(there)

    f = jax.jit(partial(place, partial(pure, function)))
    np.testing.assert_array_equal(f(X), X * (32 if place is in_scan else 2))


def test_a_function_that_calls_the_program_it_is_called_by() -> None:
    depth = 0

    def function(x: Any) -> Any:
        nonlocal depth
        depth += 1
        return np.asarray(f(np.asarray(x) - 1)) if x[0] > 0 else np.asarray(x)

    f = jax.jit(partial(pure, function)).lower(X).compile()
    np.testing.assert_array_equal(f(np.full(4, 5, np.float32)), np.zeros(4))
    assert depth == 6


def test_a_function_that_calls_the_program_of_several_devices_it_is_called_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is impossible, as its devices are busy: it raises an error after a while. The program works afterwards."""
    monkeypatch.setattr("shlo_jit.pjrt.multi_device.NESTED_SECONDS", 0.5)
    nested = True

    def function(x: Any) -> Any:
        return np.asarray(f(sharded))[:1] if nested else np.asarray(x)

    sharded = jax.device_put(X, jax.NamedSharding(MESH, P("i")))
    f = jax.jit(partial(in_shards, partial(pure, function))).lower(sharded).compile()
    with pytest.raises(Exception, match="another call.*0.5 s"):
        jax.block_until_ready(f(sharded))
    nested = False
    np.testing.assert_array_equal(f(sharded), X)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]


def test_compilations_in_several_threads() -> None:
    def work(number: int) -> None:
        for i in range(4):
            f = jax.jit(lambda x, n=number, i=i: jnp.tanh(x @ x + n) * i)
            expected = np.tanh(np.ones((8, 8)) * 8 + number) * i
            np.testing.assert_allclose(f(jnp.ones((8, 8))), expected, rtol=1e-5)

    in_threads(4, work)


def test_calls_of_one_program_in_several_threads() -> None:
    f = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "i"), mesh=MESH, in_specs=P("i"), out_specs=P()))
    g = jax.jit(lambda x: x @ x)
    h = jax.jit(partial(pure, lambda x: np.asarray(x) + 1))

    def work(number: int) -> None:
        for i in range(30):
            x = np.full(4, number + i, np.float32)
            np.testing.assert_array_equal(f(x), [4 * x[0]])
            np.testing.assert_array_equal(g(np.full((70, 70), i, np.float32)), np.full((70, 70), 70 * i * i))
            np.testing.assert_array_equal(h(x), x + 1)

    in_threads(4, work)


def test_arrays_that_others_delete() -> None:
    """A thread that uses an array which another thread deletes sees its values, or an error that it is deleted."""
    f, g = jax.jit(lambda x: x + 1), jax.jit(lambda x: x * 2, donate_argnums=0)
    deleted = 0

    def work(number: int) -> None:
        nonlocal deleted
        for i in range(200):
            x = jax.device_put(np.full(5000, i, np.float32))
            others = [threading.Thread(target=x.delete)]
            if i % 3 == 0:
                others.append(threading.Thread(target=lambda x=x: x.is_deleted() or x.nbytes))
            for thread in others:
                thread.start()
            try:
                got = np.asarray((g if i % 2 else f)(x))
                np.testing.assert_array_equal(got, np.full(5000, 2 * i if i % 2 else i + 1))
                copied = np.asarray(jnp.copy(x)) if i % 2 == 0 else got
                assert copied.shape == (5000,)
            except (RuntimeError, ValueError) as error:
                assert "deleted" in str(error) or "donated" in str(error), error
                deleted += 1
            for thread in others:
                thread.join()

    in_threads(2, work)


def test_an_array_that_is_donated_twice() -> None:
    x = jnp.ones(8)
    f = jax.jit(lambda a, b: (a + 1, b + 2), donate_argnums=(0, 1))
    with pytest.raises(Exception, match="donate"):
        f(x, x)
    sharded = jax.device_put(jnp.ones(8), jax.NamedSharding(MESH, P("i")))
    with pytest.raises(Exception, match="donate"):
        f(sharded, sharded)
    np.testing.assert_array_equal(f(jnp.ones(8), jnp.ones(8))[1], np.full(8, 3))
