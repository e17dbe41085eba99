"""Attention of a few rows over a cache reads the keys that a mask leaves in registers, and of the values that it leaves
out only whether they are finite.

SHLO_JIT_RANDOM=200 pytest -m slow tests/lower/test_few_rows_of_keys.py     # more random programs
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest

import shlo_jit

jax = pytest.importorskip("jax")
jnp = jax.numpy
TARGETS = ("native", "x86-64-v3", "x86-64-v2")
ROUNDS = int(os.environ.get("SHLO_JIT_RANDOM", "16"))
Arrays = list[Any]


def soft(scores: Any, inside: Any) -> Any:
    return jax.nn.softmax(jnp.where(inside, scores, -jnp.inf), -1)


def by_head(q: Any, k: Any, v: Any, first: Any, last: Any) -> Any:
    key = jnp.arange(k.shape[1])
    weights = soft(jnp.einsum("gqd,gkd->gqk", q, k) / 8, (key >= first) & (key < last))
    return jnp.einsum("gqk,gkd->gqd", weights, v)


def by_slot(q: Any, k: Any, v: Any, first: Any, last: Any) -> Any:
    """The heads of a slot are adjacent, and each row has a range of its own."""
    key, row = jnp.arange(k.shape[0]), jnp.arange(q.shape[1])[:, None]
    weights = soft(jnp.einsum("gqd,kgd->gqk", q, k) / 8, (key >= first + row) & (key < last + row))
    return jnp.einsum("gqk,kgd->gqd", weights, v)


def updated(q: Any, k: Any, v: Any, first: Any, last: Any) -> Any:
    """The step of a decoder: a slot is written, and those up to it are read."""
    k, v = (jax.lax.dynamic_update_slice(x, x[:, :1] * 2, (0, last, 0)) for x in (k, v))
    inside = jnp.arange(k.shape[1]) <= last
    return jnp.einsum("gqk,gkd->gqd", soft(jnp.einsum("gqd,gkd->gqk", q, k) / 8, inside), v), k, v


def in_layers(q: Any, k: Any, v: Any, first: Any, last: Any) -> Any:
    """Steps of two layers, whose keys and values are rows of stacks."""

    def layer(q: Any, pair: Any) -> Any:
        k, v = pair
        q, k, v = updated(q, k, v, first, last)
        return q, (k, v)

    return jax.lax.scan(layer, q, tuple(jnp.stack([x, x[::-1]]) for x in (k, v)))


def written_out(q: Any, k: Any, v: Any, first: Any, last: Any) -> Any:
    """Steps of two layers, whose keys and values are known rows of stacks that are updated in place."""
    stacks = [jnp.stack([x, x[::-1]]) for x in (k, v)]
    for i in range(2):
        stacks = [jax.lax.dynamic_update_slice(x, x[i : i + 1, :, :1] * 2, (i, 0, last, 0)) for x in stacks]
        q = by_head(q, stacks[0][i], stacks[1][i], first, last)
    return q, *stacks


def numbers(rows: int, keys: int, depth: int, heads: int = 8, dtype: Any = np.float32, seed: int = 0) -> Arrays:
    r = np.random.default_rng([rows, keys, depth, heads, seed])
    return [r.standard_normal((heads, n, depth)).astype(dtype) for n in (rows, keys, keys)]


def check(function: Callable[..., Any], given: Arrays, **options: Any) -> Any:
    """Compares with XLA, in guarded memory, for several numbers of threads. Returns the executable."""
    lowered = jax.jit(function, keep_unused=True).lower(*given)
    want = [np.asarray(v) for v in jax.tree.leaves(lowered.compile()(*given))]
    exe = guarded.compile(lowered.as_text(), threads=1, **options)
    found = exe(*given)
    got = jax.tree.leaves(found)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4)
    for threads in (2, 3, 8):
        again = shlo_jit.compile(lowered.as_text(), threads=threads, **options)(*given)
        for a, b in zip(jax.tree.leaves(again), got, strict=True):
            assert a.tobytes() == b.tobytes(), threads
    return exe


def stages(exe: Any) -> int:
    """Number of products that read a range of keys in registers."""
    return exe.text("schedule").count("right operand read in registers")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("finite", [False, True])
@pytest.mark.parametrize("function", [by_head, by_slot, updated, in_layers, written_out])
@pytest.mark.parametrize(("rows", "keys", "depth"), [(1, 600, 64), (4, 513, 80), (8, 1024, 24), (3, 700, 33)])
def test_ranges(function: Any, rows: int, keys: int, depth: int, finite: bool, target: str) -> None:
    q, k, v = numbers(rows, keys, depth)
    if function is by_slot:
        k, v = (np.ascontiguousarray(x.swapaxes(0, 1)) for x in (k, v))
    for first, last in ((0, 1), (0, 130), (200, 333), (keys - 40, keys - 10), (0, keys - 9)):
        exe = check(function, [q, k, v, np.int32(first), np.int32(last)], assume_finite=finite, target=target)
    assert stages(exe) == (4 if function is written_out else 2)


def test_types() -> None:
    with jax.enable_x64(True):
        assert stages(check(by_head, [*numbers(4, 600, 48, dtype=np.float64), np.int32(3), np.int32(40)])) == 2


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_values_that_are_left_out_count(number: float) -> None:
    """0 times a number that is not finite is NaN, for all rows of the head; keys that are left out have no effect."""
    q, k, v = numbers(4, 600, 64)
    k[:, 300:], v[2, 599, 5], v[7, 450, 63], v[3, 1, 0] = number, number, number, number
    got = check(by_head, [q, k, v, np.int32(130), np.int32(258)])(q, k, v, np.int32(130), np.int32(258))
    lost = np.zeros(got.shape, bool)
    lost[2, :, 5], lost[7, :, 63], lost[3, :, 0] = True, True, True
    assert np.array_equal(np.isnan(got), lost)


def test_sums_do_not_depend_on_what_is_left_out() -> None:
    """The bits are those of a promise that all values are finite, and signs of zeros do not change them."""
    q, k, v = numbers(5, 1000, 64)
    v[:, 200:] = -np.abs(v[:, 200:])
    given = [q, k, v, np.int32(0), np.int32(150)]
    text = jax.jit(by_head, keep_unused=True).lower(*given).as_text()
    tested, promised = (shlo_jit.compile(text, assume_finite=x)(*given) for x in (False, True))
    assert tested.tobytes() == promised.tobytes()


def test_rows_without_keys() -> None:
    """Their weights are NaN."""
    q, k, v = numbers(4, 600, 64)
    exe = check(by_head, [q, k, v, np.int32(9), np.int32(9)])
    assert stages(exe) == 2 and np.isnan(exe(q, k, v, np.int32(9), np.int32(9))).all()


def also_weights(q: Any, k: Any, v: Any, first: Any, last: Any) -> Any:
    weights = soft(jnp.einsum("gqd,gkd->gqk", q, k) / 8, jnp.arange(k.shape[1]) < last)
    return jnp.einsum("gqk,gkd->gqd", weights, v), weights


def computed_values(q: Any, k: Any, v: Any, first: Any, last: Any) -> Any:
    return by_head(q, k, jnp.tanh(v), first, last)


def finite_mask(q: Any, k: Any, v: Any, first: Any, last: Any) -> Any:
    scores = jnp.where(jnp.arange(k.shape[1]) < last, jnp.einsum("gqd,gkd->gqk", q, k) / 8, -1e30)
    return jnp.einsum("gqk,gkd->gqd", jax.nn.softmax(scores, -1), v)


@pytest.mark.parametrize("function", [also_weights, computed_values, finite_mask])
def test_other_programs_compute_all_keys(function: Any) -> None:
    """Nothing of the ranges is left in the plan."""
    q, k, v = numbers(2, 600, 64)
    v[1, 500, 2] = np.inf
    exe = check(function, [q, k, v, np.int32(0), np.int32(77)])
    assert "masked-keys" not in exe.text("schedule") and "i64" not in exe.text("plan")


@pytest.mark.parametrize(("rows", "keys", "heads"), [(9, 600, 8), (4, 600, 1), (4, 256, 8)])
def test_more_rows_few_products_and_few_keys_compute_all(rows: int, keys: int, heads: int) -> None:
    exe = check(by_head, [*numbers(rows, keys, 64, heads), np.int32(0), np.int32(50)])
    assert "masked-keys" not in exe.text("schedule")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("moves", [("split", "by", 3), ("parallel", "grain", 2)])
@pytest.mark.parametrize("finite", [False, True])
def test_blocks_and_tasks_of_fewer_rows(finite: bool, moves: tuple[str, str, int], target: str) -> None:
    """A schedule that is given may divide the rows of a batch. They are read in registers only together."""
    move, key, count = moves
    given = [*numbers(8, 700, 64), np.int32(100), np.int32(300)]
    text = jax.jit(by_head, keep_unused=True).lower(*given).as_text()
    usual = shlo_jit.compile(text, assume_finite=finite, target=target)
    (label,) = [line.split()[0] for line in usual.text("schedule").splitlines() if line.split()[1:2] == ["attention"]]
    schedule = {label: [{"move": move, **({"loop": "m"} if move == "split" else {}), key: count}]}
    exe = check(by_head, given, assume_finite=finite, target=target, schedule=schedule)
    assert stages(exe) == 0 and stages(usual) == 2


def random_attention(r: np.random.Generator) -> tuple[Callable[..., Any], Arrays]:
    """A mask by bounds of each head, row or all, in one of two layouts; some values or keys are not finite."""
    heads, rows, keys, depth = (int(r.integers(*span)) for span in ((8, 13), (1, 9), (512, 900), (8, 100)))
    q, k, v = numbers(rows, keys, depth, heads, seed=int(r.integers(1 << 30)))
    for x in (k, v):
        if r.random() < 0.4:
            x[tuple(int(r.integers(n)) for n in x.shape)] = r.choice([np.inf, -np.inf, np.nan])
    shape = [(), (heads, 1, 1), (rows, 1), (heads, rows, 1)][int(r.integers(4))]
    first = r.integers(0, keys, shape)
    last = r.integers(first, keys + 1) if r.random() < 0.7 else np.minimum(first + 70, keys)
    by_slots, is_window = r.random() < 0.5, r.random() < 0.5

    def attended(q: Any, k: Any, v: Any, first: Any, last: Any) -> Any:
        key, order = jnp.arange(keys), "kgd" if by_slots else "gkd"
        inside = (key >= first) & (key < last) if is_window else key < last
        return jnp.einsum(f"gqk,{order}->gqd", soft(jnp.einsum(f"gqd,{order}->gqk", q, k) / 8, inside), v)

    if by_slots:
        k, v = (np.ascontiguousarray(x.swapaxes(0, 1)) for x in (k, v))
    return attended, [q, k, v, np.asarray(first, np.int32), np.asarray(last, np.int32)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_many_random_ranges(seed: int) -> None:
    r = np.random.default_rng(seed)
    function, given = random_attention(r)
    target = TARGETS[int(r.integers(3))]
    check(function, given, target=target)
    if all(np.isfinite(x).all() for x in given):
        check(function, given, target=target, assume_finite=True)
