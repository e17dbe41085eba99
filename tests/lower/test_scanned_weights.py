"""Weights that a scan slices from a stack of layers: products read or compute them where they lie in the stack, and have
the same bits as with an array for each layer."""

from __future__ import annotations

from typing import Any

import guarded
import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
LAYERS = 3


def stack(rng: np.random.Generator, kind: str, n: int, groups: int) -> dict[str, np.ndarray]:
    shape = (LAYERS, n, groups, 32)
    if kind == "f32":
        return {"q": rng.standard_normal(shape).astype(np.float32) / 32}
    ranges = {"i8": (-128, 128, np.int8), "i4": (-8, 8, ml_dtypes.int4), "ui4": (0, 16, ml_dtypes.uint4)}
    low, high, dtype = ranges[kind]
    scales = rng.random((LAYERS, n, groups, 1), np.float32) / (16 * high)
    return {"q": rng.integers(low, high, shape).astype(dtype), "s": scales}


def product(x: Any, w: dict[str, Any]) -> Any:
    full = w["q"].astype(jnp.float32) * w["s"] if "s" in w else w["q"]
    return x @ full.reshape(full.shape[0], -1).T


def scanned(x: Any, w: dict[str, Any]) -> Any:
    return lax.scan(lambda x, layer: (jnp.tanh(product(x, layer)), None), x, w)[0]


def unrolled(x: Any, w: dict[str, Any]) -> Any:
    for i in range(LAYERS):
        x = jnp.tanh(product(x, {name: array[i] for name, array in w.items()}))
    return x


@pytest.mark.parametrize("kind", ["f32", "i8", "i4", "ui4"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("are_constants", [False, True])
@pytest.mark.sampled(2)
def test_layers_of_a_stack(kind: str, rows: int, are_constants: bool) -> None:
    rng = np.random.default_rng(rows)
    n = 256
    x, w = rng.standard_normal((rows, n)).astype(np.float32), stack(rng, kind, n, n // 32)
    found = []
    for f in (scanned, unrolled):
        text = jax.jit(f).lower(x, w).as_text()
        leaves = jax.tree.leaves(w)
        constants = dict(enumerate(leaves, 1)) if are_constants else None
        exe = guarded.compile(text, cache=False, threads=2, constants=constants)
        assert kind == "f32" or exe.memory.arena < n * n * 4
        found.append(exe(x) if are_constants else exe(x, *leaves))
    np.testing.assert_allclose(found[0], unrolled(x, w), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["i8", "i4"])
def test_layers_that_do_not_begin_at_a_word(kind: str) -> None:
    """A layer has 43 x 1055 numbers, so that layers begin within a word, and those of 4 bits within a byte."""
    rng = np.random.default_rng(0)
    q = rng.integers(-8, 8, (9, 43, 1055)).astype(np.int8 if kind == "i8" else ml_dtypes.int4)
    x = rng.standard_normal((1, 1055)).astype(np.float32)

    def sums(x: Any, q: Any) -> Any:
        return lax.scan(lambda total, w: (total + x @ w.astype(jnp.float32).T, None), jnp.zeros((1, 43)), q)[0]

    text = jax.jit(sums).lower(x, q).as_text()
    want = x.astype(np.float64) @ q.astype(np.float64).sum(0).T
    for constants in (None, {1: q}):
        exe = guarded.compile(text, cache=False, threads=2, constants=constants)
        np.testing.assert_allclose(exe(x) if constants else exe(x, q), want, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("are_scaled", [False, True])
def test_a_table_holds_the_numbers_of_layers(are_scaled: bool) -> None:
    """The number of the layer is read from an array whose elements have an index known at the call as well."""
    rng = np.random.default_rng(0)
    q, x = rng.integers(-8, 8, (4, 256, 256)).astype(np.int8), rng.standard_normal((3, 256)).astype(np.float32)
    table = np.array([2, 3, 1, 0], np.int32)

    def product(x: Any, q: Any, table: Any, i: Any) -> Any:
        w = q[table[i]].astype(jnp.float32)
        return x @ (w * table[i].astype(jnp.float32) if are_scaled else w)

    exe = guarded.compile(jax.jit(product).lower(x, q, table, np.int32(0)).as_text(), cache=False, threads=2)
    for i, layer in enumerate(table):
        want = x.astype(np.float64) @ q[layer] * (layer if are_scaled else 1)
        np.testing.assert_allclose(exe(x, q, table, np.int32(i)), want, rtol=1e-4, atol=1e-2)
