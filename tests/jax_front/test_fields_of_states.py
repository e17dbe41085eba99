"""Fields of words that a program overwrites: views of their memory must not be read too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_jit

COUNT = 1 << 17


def fields(w: Any) -> Any:
    return (w[:, None] >> (jnp.arange(2, dtype=jnp.uint8) * 4)[None, :]) & 15


def joined(high: Any, low: Any) -> Any:
    return high * jnp.uint8(16) + low


def reversed_words(w: Any) -> Any:
    f = fields(w)[::-1]
    return joined(f[:, 0], f[:, 1])


def swapped_halves(w: Any) -> Any:
    f = fields(w)
    return joined(f[:, 0], f[:, 1])


def shifted_fields(w: Any) -> Any:
    f = jnp.roll(fields(w).reshape(-1), 1).reshape(-1, 2)
    return joined(f[:, 0], f[:, 1])


def one_word_changed(w: Any) -> Any:
    return w.at[5].set(7), fields(w).reshape(-1).astype(jnp.float32).sum()


def in_a_loop(w: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda _, s: joined(fields(s)[::-1, 0], fields(s)[:, 1]), w)


def read_between_changes(w: Any) -> Any:
    return jax.lax.scan(lambda s, i: (s.at[i].set(s[i] ^ 255), fields(s)[i * 3, 1]), w, jnp.arange(6))[1]


PROGRAMS = [reversed_words, swapped_halves, shifted_fields, one_word_changed, in_a_loop, read_between_changes]


@pytest.mark.parametrize("threads", (1, 3))
@pytest.mark.parametrize("f", PROGRAMS)
def test_words_that_are_overwritten(f: Callable[[Any], Any], threads: int) -> None:
    w = np.random.default_rng(0).integers(0, 256, COUNT).astype(np.uint8)
    exe = shlo_jit.compile(jax.jit(f).lower(w).as_text(), threads=threads, donate=[0])
    assert "packed" in exe.text("plan")
    found = jax.tree.leaves(exe(w.copy()))
    for got, want in zip(found, jax.tree.leaves(jax.jit(f)(w)), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
