"""Rows of stacked tensors that loops read, change in part, and write to stacked results: in place, with the reference's
results in guarded memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import guarded
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_stacks import random_stacks
from test_random_states import check_exactly

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

COUNT = int(os.environ.get("SHLO_JIT_RANDOM_STACKS", "400"))
"""Number of programs of the slow test."""
FIRST = int(os.environ.get("SHLO_JIT_RANDOM_STACKS_FIRST", "2000000"))
LAYERS, SLOTS, WIDTH = 4, 96, 32
Step = Callable[[Any, Any], tuple[Any, Any]]


def attend(position: Any) -> Step:
    """A step that writes a token to a cache [slots, width] and reads all of the cache."""

    def step(x: Any, cache: Any) -> tuple[Any, Any]:
        cache = jax.lax.dynamic_update_slice(cache, jnp.tanh(x)[None], (position, 0))
        return x + jax.nn.softmax(cache @ x) @ cache, cache

    return step


def scan(caches: Any, x: Any, position: Any, reverse: bool = False) -> Any:
    return jax.lax.scan(attend(position), x, caches, reverse=reverse)


def reversed_scan(caches: Any, x: Any, position: Any) -> Any:
    return scan(caches, x, position, reverse=True)


def carried(caches: Any, x: Any, position: Any) -> Any:
    """The caches are a state, which is read and written by an index."""

    def body(i: Any, state: Any) -> Any:
        x, row = attend(position)(state[0], state[1][i])
        return x, state[1].at[i].set(row)

    return jax.lax.fori_loop(0, LAYERS, body, (x, caches))


def other_result(caches: Any, x: Any, position: Any) -> Any:
    """A loop that counts down, and writes to another tensor."""

    def body(state: Any) -> Any:
        i, x, result = state
        x, row = attend(position)(x, caches[i])
        return i - 1, x, result.at[i].set(row)

    return jax.lax.while_loop(lambda s: s[0] >= 0, body, (LAYERS - 1, x, jnp.zeros_like(caches)))[1:]


def in_branches(caches: Any, x: Any, position: Any) -> Any:
    """Odd layers keep their cache."""

    def step(state: Any, cache: Any) -> Any:
        x, i = state
        x, cache = jax.lax.cond(i % 2 == 0, attend(position), lambda x, cache: (x * 2, cache), x, cache)
        return (x, i + 1), cache

    (x, _), caches = jax.lax.scan(step, (x, 0), caches)
    return x, caches


def in_groups(caches: Any, x: Any, position: Any) -> Any:
    """A scan over groups of layers, in which a scan over the layers runs."""
    groups = caches.reshape(2, LAYERS // 2, SLOTS, WIDTH)
    x, groups = jax.lax.scan(lambda x, group: scan(group, x, position), x, groups)
    return x, groups.reshape(caches.shape)


def tokens(caches: Any, x: Any, position: Any) -> Any:
    """A loop over tokens, in which a scan over layers runs."""

    def token(i: Any, state: Any) -> Any:
        return scan(state[1], state[0], position + i)

    return jax.lax.fori_loop(0, 3, token, (x, caches))


def tokens_in_layer(caches: Any, x: Any, position: Any) -> Any:
    """A scan over layers, in each of which a loop over tokens runs."""

    def layer(x: Any, cache: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, s: attend(position + i)(*s), (x, cache))

    return jax.lax.scan(layer, x, caches)


def two_stacks(caches: Any, x: Any, position: Any) -> Any:
    def layer(x: Any, pair: Any) -> Any:
        x, first = attend(position)(x, pair[0])
        x, second = attend(position + 1)(x, pair[1])
        return x, (first, second)

    x, (first, second) = jax.lax.scan(layer, x, (caches, caches[::-1] * 2))
    return x, first, second


PROGRAMS = [scan, reversed_scan, carried, other_result, in_branches, in_groups, tokens, tokens_in_layer, two_stacks]
COPY = re.compile(r"copy %\S+ (\d\S*x\S+) ")


def given(count: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Caches, a token and a position; those of some sequences."""
    r = np.random.default_rng(5)
    outer = (count,) if count else ()
    caches = r.standard_normal((LAYERS, *outer, SLOTS, WIDTH)).astype(np.float32)
    x = r.standard_normal((*outer, WIDTH)).astype(np.float32)
    return caches, x, np.asarray(r.integers(0, 90, outer), np.int32)


def large_copies(exe: shlo_jit.Executable) -> list[str]:
    """The types of copies of caches, or of all caches, as the memory plan prints them."""
    found = COPY.findall(exe.text("memory"))
    return [t for t in found if np.prod([int(n) for n in re.findall(r"(\d+)x", t)]) >= SLOTS * WIDTH]


def check(function: Any, arguments: tuple[np.ndarray, ...], donate: tuple[int, ...]) -> shlo_jit.Executable:
    text = jax.jit(function).lower(*arguments).as_text()
    wants = evaluate(shlo_jit.parse(text), *[x.copy() for x in arguments])
    exe = guarded.compile(text, threads=2, cache=False, donate=donate)
    passed = [x.copy() for x in arguments]
    for got, want in zip(exe(*passed), wants, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=3e-5, atol=3e-5)
    for i, (x, y) in enumerate(zip(passed, arguments, strict=True)):
        assert i in donate or x.tobytes() == y.tobytes(), f"argument {i} was written to"
    return exe


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_donated_caches_are_updated_in_place(function: Any) -> None:
    exe = check(function, given(), (0,))
    assert large_copies(exe) == []


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_caches_of_the_caller_are_copied_once(function: Any) -> None:
    exe = check(function, given(), ())
    assert len(large_copies(exe)) <= 1


@pytest.mark.parametrize("function", [scan, carried, in_groups], ids=lambda f: f.__name__)
def test_sequences_of_a_batch(function: Any) -> None:
    """Each sequence has a position of its own, so caches are updated by scatters."""
    exe = check(jax.vmap(function, (1, 0, 0), (0, 1)), given(3), (0,))
    assert large_copies(exe) == []


def test_the_old_caches_are_returned_too() -> None:
    check(lambda c, x, p: (*scan(c, x, p), c * 2), given(), (0,))
    check(lambda c, x, p: (*scan(c, x, p), c), given(), ())


def test_the_layer_before_is_read() -> None:
    """Each layer reads the old cache of the one before: it must not have been overwritten."""

    def layers(caches: Any, x: Any, position: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            x, result = state
            x, row = attend(position)(x + caches[jnp.maximum(i - 1, 0)][0], caches[i])
            return x, result.at[i].set(row)

        return jax.lax.fori_loop(0, LAYERS, body, (x, jnp.zeros_like(caches)))

    check(layers, given(), (0,))


@pytest.mark.parametrize("seed", range(12))
def test_some_programs(seed: int) -> None:
    run(seed)


@pytest.mark.slow
def test_many_programs() -> None:
    for seed in range(FIRST, FIRST + COUNT):
        try:
            run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def run(seed: int) -> None:
    text, arguments, stacks = random_stacks(seed)
    check_exactly(text, arguments, tuple(stacks) if seed % 3 == 1 else ())
