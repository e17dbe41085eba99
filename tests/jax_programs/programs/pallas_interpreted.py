"""Pallas kernels, interpreted: they become loops over blocks in StableHLO."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

_call = functools.partial(pl.pallas_call, interpret=True)


def whole_arrays() -> Any:
    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = x[...] + 2 * y[...]

    f = jax.jit(_call(kernel, out_shape=jax.ShapeDtypeStruct((8,), jnp.float32)))
    return f(jnp.arange(8.0), jnp.ones(8))


def grids() -> Any:
    def numbers(out: Any) -> None:
        i = pl.program_id(0)
        out[pl.ds(4 * i, 4)] = jnp.full(4, i, jnp.int32)

    iota = jax.jit(_call(numbers, out_shape=jax.ShapeDtypeStruct((20,), jnp.int32), grid=(5,)))

    def product(a: Any, b: Any, out: Any, *, last: int) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        out[...] += a[...] @ b[...]

        @pl.when(pl.program_id(2) == last)
        def _() -> None:
            out[...] = jax.nn.relu(out[...])

    a = jax.random.normal(jax.random.key(0), (32, 48))
    b = jax.random.normal(jax.random.key(1), (48, 16))
    multiply = jax.jit(
        _call(
            functools.partial(product, last=2),
            out_shape=jax.ShapeDtypeStruct((32, 16), jnp.float32),
            grid=(4, 2, 3),
            in_specs=[
                pl.BlockSpec((8, 16), lambda i, j, k: (i, k)),
                pl.BlockSpec((16, 8), lambda i, j, k: (k, j)),
            ],
            out_specs=pl.BlockSpec((8, 8), lambda i, j, k: (i, j)),
        )
    )
    return iota(), multiply(a, b)


def rows() -> Any:
    """A softmax and a running maximum, under vmap and in a loop inside the kernel."""

    def softmax(x: Any, out: Any) -> None:
        e = jnp.exp(x[...] - x[...].max(axis=-1, keepdims=True))
        out[...] = e / e.sum(axis=-1, keepdims=True)

    def running(x: Any, out: Any) -> None:
        def step(i: int, best: jax.Array) -> jax.Array:
            best = jnp.maximum(best, x[i])
            out[i] = best
            return best

        jax.lax.fori_loop(0, x.shape[0], step, jnp.float32(-jnp.inf))

    x = jax.random.normal(jax.random.key(2), (3, 6, 10))
    shape = jax.ShapeDtypeStruct((6, 10), jnp.float32)
    block = pl.BlockSpec((2, 10), lambda i: (i, 0))
    f = _call(softmax, out_shape=shape, grid=(3,), in_specs=[block], out_specs=block)
    g = _call(running, out_shape=jax.ShapeDtypeStruct((10,), jnp.float32))
    return jax.jit(jax.vmap(f))(x), jax.jit(g)(x[0, 0])
