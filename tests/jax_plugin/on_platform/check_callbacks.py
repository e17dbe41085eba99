"""Python functions that programs call."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback


def test_pure_callbacks_in_loops_and_branches() -> None:
    def twice(x: np.ndarray) -> np.ndarray:
        return np.asarray(x) * 2

    def f(x: jax.Array) -> jax.Array:
        def body(i: int, v: jax.Array) -> jax.Array:
            return jax.lax.cond(
                i % 2 == 0,
                lambda w: jax.pure_callback(twice, jax.ShapeDtypeStruct(w.shape, w.dtype), w),
                lambda w: w + 1,
                v,
            )

        return jax.lax.fori_loop(0, 4, body, x)

    np.testing.assert_array_equal(jax.jit(f)(jnp.arange(3.0)), ((np.arange(3.0) * 2 + 1) * 2) + 1)


def test_ordered_callbacks_come_in_order() -> None:
    seen: list[int] = []

    def note(i: np.ndarray) -> None:
        seen.append(int(i))

    def body(i: int, carry: int) -> int:
        io_callback(note, None, i, ordered=True)
        return carry

    @jax.jit
    def f(n: int) -> int:
        io_callback(note, None, 100, ordered=True)
        jax.lax.fori_loop(0, 5, body, 0)
        io_callback(note, None, 200, ordered=True)
        return n

    f(1)
    f(2)
    jax.effects_barrier()
    assert seen == [100, 0, 1, 2, 3, 4, 200] * 2


def test_what_a_callback_raises_is_what_the_call_raises() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise KeyError("not so")

    f = jax.jit(lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct((), jnp.float32), x))
    with pytest.raises(Exception, match="not so"):
        jax.block_until_ready(f(1.0))
    assert jax.jit(lambda x: x + 1)(1.0) == 2


def test_debug_print(capfd: pytest.CaptureFixture[str]) -> None:
    jax.jit(lambda x: jax.debug.print("x is {}", x))(jnp.float32(3))
    jax.effects_barrier()
    assert "x is 3.0" in capfd.readouterr().out
