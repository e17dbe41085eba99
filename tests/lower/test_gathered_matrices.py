"""Matrices that are gathered by an index for each row, as those of experts for a few tokens: they are multiplied where
they lie, and never copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import guarded
import ml_dtypes
import numpy as np
import pytest

from shlo_jit.reference.interpreter import evaluate
from shlo_jit.text.parser import parse_module

jax = pytest.importorskip("jax")
jnp = jax.numpy
E, K, N = 5, 96, 160


def numbers(r: np.random.Generator, *shape: int) -> np.ndarray:
    return r.standard_normal(shape, np.float32)


def case(name: str) -> tuple[Callable[..., Any], list[np.ndarray]]:
    r = np.random.default_rng(0)
    x, w, one, two = numbers(r, 3, K), numbers(r, E, K, N), r.integers(-E, E, 3), r.integers(0, E, (3, 2))
    several, share = numbers(r, 3, 4, K), numbers(r, 3, 2)
    many, q = numbers(r, 3, 512), r.integers(0, 16, (E, 24, 16, 32)).astype(ml_dtypes.uint4)
    scales, least = numbers(r, E, 24, 16) / 10, numbers(r, E, 24, 16)
    few, scale = r.integers(-9, 9, (E, K, N)).astype(np.int8), numbers(r, E, 1, N)
    return {
        "one": lambda: (lambda x, w, i: jnp.einsum("rk,rkn->rn", x, w[i]), [x, w, one]),
        "taken": lambda: (lambda x, w, i: jnp.einsum("rk,rkn->rn", x, jnp.take(w, i, 0, mode="clip")), [x, w, one]),
        "transposed": lambda: (
            lambda x, w, i: jnp.einsum("rk,rnk->rn", x, w[i]), [x, w.swapaxes(1, 2).copy(), one]
        ),
        "several rows": lambda: (lambda x, w, i: jnp.einsum("brk,bkn->brn", x, w[i]), [several, w, one]),
        "two": lambda: (lambda x, w, i: jnp.einsum("rk,rakn->ran", x, w[i]), [x, w, two]),
        "two, added up": lambda: (
            lambda x, w, i, p: jnp.einsum("rk,rakn,ra->rn", x, w[i], p), [x, w, two, share]
        ),
        "bytes": lambda: (
            lambda x, w, s, i: jnp.einsum("rk,rkn->rn", x, w[i].astype(x.dtype) * s[i]), [x, few, scale, one]
        ),
        "groups": lambda: (
            lambda x, q, s, z, i: jnp.einsum(
                "rk,rank->ran", x, (q[i].astype(x.dtype) * s[i][..., None] + z[i][..., None]).reshape(3, 2, 24, 512)
            ),
            [many, q, scales, least, two],
        ),
    }[name]()  # fmt: skip


NAMES = ("one", "taken", "transposed", "several rows", "two", "two, added up", "bytes", "groups")


@pytest.mark.parametrize("name", NAMES)
def test_as_the_reference_and_the_same_on_any_number_of_threads(name: str) -> None:
    f, arrays = case(name)
    text = jax.jit(f).lower(*arrays).as_text()
    arrays = [a.astype(np.int32) if a.dtype == np.int64 else a for a in arrays]
    one, *others = (guarded.compile(text, cache=False, threads=threads) for threads in (1, 2, 3, 8))
    found, (wanted,) = one(*arrays), evaluate(parse_module(text), *arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    for other in others:
        np.testing.assert_array_equal(found, other(*arrays))


@pytest.mark.parametrize("name", NAMES)
def test_no_matrix_is_copied(name: str) -> None:
    f, arrays = case(name)
    exe = guarded.compile(jax.jit(f).lower(*arrays).as_text(), cache=False, threads=1)
    assert exe.memory.arena < K * N * 4, exe.text("plan")


def test_lanes_are_terms_of_a_group() -> None:
    """Each row reads the matrices that it gathers, which are more bytes than its copies of scales."""
    f, arrays = case("groups")
    exe = guarded.compile(jax.jit(f).lower(*arrays).as_text(), cache=False, threads=1)
    assert "computed in registers" in exe.text("schedule")
