"""Batched loops: tile by tile, each until its own elements are done, with the same bits as running all iterations on
all elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.reference.interpreter import evaluate

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")


def root(a: Any) -> Any:
    """Newton's iteration, and the number of iterations."""
    return jax.lax.while_loop(
        lambda c: (jnp.abs(c[0] * c[0] - a) > 1e-5 * a) & (c[1] < 50),
        lambda c: (0.5 * (c[0] + a / c[0]), c[1] + 1),
        (a, 0),
    )


def escape(x: Any) -> Any:
    return jax.lax.while_loop(
        lambda c: (c[0] * c[0] + c[1] * c[1] < 4.0) & (c[2] < 60),
        lambda c: (c[0] * c[0] - c[1] * c[1] + x - 1, 2 * c[0] * c[1] + 0.5 * x, c[2] + 1),
        (0.0 * x, 0.0 * x, 0),
    )


def halved(x: Any) -> Any:
    """One state, and a body that is not run for any element of some inputs."""
    return jax.lax.while_loop(lambda c: c > 0.3, lambda c: c * 0.5, x)


def hailstone(x: Any) -> Any:
    n = (x * 50).astype(jnp.int32) + 1
    return jax.lax.while_loop(
        lambda c: (c[0] > 1) & (c[1] < 200),
        lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1),
        (n, 0),
    )


def batched(one: Callable[[Any], Any], rank: int) -> Callable[[Any], Any]:
    for _ in range(rank):
        one = jax.vmap(one)
    return one


def check(text: str, *given: Any, by_tiles: bool = True) -> None:
    wants = evaluate(shlo_jit.parse(text), *given)
    exe = guarded.compile(text, cache=False)
    assert (" interchanged " in exe.text("plan")) is by_tiles, exe.text("plan")
    for got, want in zip(guarded.outputs(exe(*given)), wants, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(1000,), (3,), (37, 29), (2, 5, 31)], ids=str)
@pytest.mark.parametrize("one", [root, escape, halved, hailstone], ids=lambda f: f.__name__)
@pytest.mark.sampled(4)
def test_the_reference_says_the_same(one: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).random(shape).astype(np.float32) * 4 + 0.1
    text = jax.jit(batched(one, len(shape))).lower(x).as_text()
    check(text, x)
    check(text, np.full(shape, 0.25, np.float32))


def test_more_iterations_than_a_tile_runs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer loop checks again."""
    monkeypatch.setattr(tuning, "INTERCHANGE_LEAST_ITERATIONS", 3)
    monkeypatch.setattr(tuning, "INTERCHANGE_WORK", 1)
    x = np.linspace(0.1, 40, 500, dtype=np.float32)
    check(jax.jit(jax.vmap(root)).lower(x).as_text(), x)


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
def test_other_targets(target: str) -> None:
    x = np.linspace(0.1, 4, 333, dtype=np.float32)
    for one in (root, hailstone):
        text = jax.jit(jax.vmap(one)).lower(x).as_text()
        found = shlo_jit.compile(text, target=target, cache=False)(x)
        for got, want in zip(found, evaluate(shlo_jit.parse(text), x), strict=True):
            np.testing.assert_array_equal(got, want)


def test_the_same_bits_for_any_number_of_threads() -> None:
    x = np.random.default_rng(2).random(100_003).astype(np.float32) * 4
    text = jax.jit(jax.vmap(escape)).lower(x).as_text()
    found = [[np.asarray(y).tobytes() for y in shlo_jit.compile(text, cache=False, threads=n)(x)] for n in (1, 2, 5)]
    assert found[0] == found[1] == found[2]


def whole(cond: Callable[[Any], Any], body: Callable[[Any], Any], *states: Any) -> str:
    return jax.jit(lambda *s: jax.lax.while_loop(cond, body, s)).lower(*states).as_text()


@pytest.mark.parametrize(
    "cond,body",
    [
        (lambda s: (s[0] > 0.3).any(), lambda s: (s[0] * 0.5,)),
        (lambda s: (s[0] > 0.3).any(), lambda s: (jnp.where(s[0] > 0.2, s[0] * 0.5, s[0]),)),
        (lambda s: (s[0] > 0.3).any(), lambda s: (jnp.where(s[0] > 0.3, s[0], 0.5 * s[0]) * 0.9,)),
        (lambda s: (s[0] > 0.3).all(), lambda s: (jnp.where(s[0] > 0.3, s[0] * 0.5, s[0]),)),
        (
            lambda s: (s[0] > s[0][0] * 0.5).any() & (s[0][0] > 0.1),
            lambda s: (jnp.where(s[0] > 0.1, s[0] * 0.5, s[0]),),
        ),
    ],
    ids=["nothing stays", "another predicate", "what is done goes on", "all", "neighbours"],
)
def test_which_loops_are_not_interchanged(cond: Callable[[Any], Any], body: Callable[[Any], Any]) -> None:
    x = np.random.default_rng(3).random(300).astype(np.float32)
    check(whole(cond, body, x), x, by_tiles=False)


def test_parts_of_operands_per_iteration() -> None:
    """A part for each state is read along lines, and the loop is not interchanged; one part for several states is read
    in place."""

    def sums(x: Any) -> Any:
        return jax.lax.scan(lambda s, row: (s * 0.5 + row, None), x[0], x)[0]

    def several(x: Any) -> Any:
        iteration = lambda s, row: ((s[0] * 0.5 + row, s[1] + s[0], s[2] * s[0]), None)  # noqa: E731
        return jax.lax.scan(iteration, (x[0], x[1], x[2]), x)[0]

    x = np.random.default_rng(5).random((40, 333)).astype(np.float32)
    check(jax.jit(sums).lower(x).as_text(), x, by_tiles=False)
    check(jax.jit(several).lower(x).as_text(), x)


def test_a_counter_of_all_iterations_is_not_interchanged() -> None:
    """It counts the iterations of the slowest element."""
    x = np.random.default_rng(4).random(300).astype(np.float32)
    text = whole(
        lambda s: (s[0] > 0.3).any(), lambda s: (jnp.where(s[0] > 0.3, s[0] * 0.5, s[0]), s[1] + 1), x, np.int32(0)
    )
    check(text, x, np.int32(0), by_tiles=False)
