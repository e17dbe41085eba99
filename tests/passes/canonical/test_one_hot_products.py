"""Products with one-hot matrices become gathers and scatters of rows, with the results of the products as written: for
indices outside of the matrix, and for numbers that are not finite."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit.ir.core import walk
from shlo_jit.passes import one_hot
from shlo_jit.reference.interpreter import evaluate

jax = pytest.importorskip("jax")
jnp = jax.numpy
T, K, N, E, C, M = 23, 19, 9, 4, 6, 33
SPECIAL = (None, np.nan, np.inf, -np.inf)


def dispatch(e: Any, c: Any, x: Any) -> Any:
    """One index is an expert, the other a place there; tokens without a place are left out."""
    mask = jax.nn.one_hot(e, E) * (c[:, None] < C - 1 + jnp.arange(E) % 2)
    return mask[:, :, None] * jax.nn.one_hot(c, C)[:, None, :]


def gates(e: Any) -> Any:
    return 1 + 0.25 * e.astype(jnp.float32)


def pair(i: Any, j: Any) -> Any:
    return jnp.stack([i, j], 1)


def top_2(e: Any, c: Any, g: Any) -> Any:
    """Two experts for each token, each with a place and a factor."""
    return jnp.einsum("tke,tkc,tk->tec", jax.nn.one_hot(e, 8), jax.nn.one_hot(c, M), g)


FORMS: dict[str, tuple[Callable[..., Any], str, tuple[int, ...], str]] = {
    "rows": (lambda i, _, w: jax.nn.one_hot(i, K) @ w, "gather", (K, N), "i"),
    "columns": (lambda i, _, w: w.T @ jax.nn.one_hot(i, K).T, "gather", (K, N), "i"),
    "transposed": (lambda i, _, w: jnp.einsum("tk,ank->ant", jax.nn.one_hot(i, K), w), "gather", (2, N, K), "i"),
    "sums": (lambda i, _, x: jax.nn.one_hot(i, K).T @ x, "scatter", (T, N), "i"),
    "sums of columns": (lambda i, _, x: x.T @ jax.nn.one_hot(i, K), "scatter", (T, N), "i"),
    "scaled": (lambda i, _, x: (jax.nn.one_hot(i, K) * gates(i)[:, None]).T @ x, "scatter", (T, N), "i"),
    "dispatch": (lambda e, c, x: jnp.einsum("tec,td->ecd", dispatch(e, c, x), x), "scatter", (T, N), "ec"),
    "combine": (
        lambda e, c, y: jnp.einsum("tec,ecd->td", dispatch(e, c, y) * gates(e)[:, None, None], y),
        "gather", (E, C, N), "ec",
    ),
    "selected numbers": (lambda i, _, w: jnp.where(i[:, None] == jnp.arange(K), gates(i)[:, None], 0) @ w, "gather", (K, N), "i"),
    "selected ones": (lambda i, _, x: jnp.where(i == jnp.arange(K)[:, None], 1.0, 0.0) @ x, "scatter", (T, N), "i"),
    "two of each row": (lambda i, j, w: (jax.nn.one_hot(i, M) * gates(i)[:, None] + jax.nn.one_hot(j, M)) @ w, "gather", (M, N), "m"),
    "two of each column": (lambda i, j, x: (jax.nn.one_hot(i, M) + jax.nn.one_hot(j, M)).T @ x, "scatter", (T, N), "m"),
    "sum of two": (
        lambda i, j, w: (jax.nn.one_hot(pair(i, j), M) * gates(pair(i, j))[..., None]).sum(1) @ w, "gather", (M, N), "m",
    ),
    "sums of two": (
        lambda i, j, x: jnp.einsum("tkm,tk,tn->mn", jax.nn.one_hot(pair(i, j), M), gates(pair(i, j)), x),
        "scatter", (T, N), "m",
    ),
    "batches of rows": (
        lambda i, j, w: jnp.einsum("btm,bmn->btn", jax.nn.one_hot(pair(i, j).T, M), w), "gather", (2, M, N), "m",
    ),
    "batches of columns": (
        lambda i, j, w: jnp.einsum("bnm,btm->bnt", w, jax.nn.one_hot(pair(i, j).T, M)), "gather", (2, N, M), "m",
    ),
    "batches of sums": (
        lambda i, j, x: jnp.einsum("btm,btn->bmn", jax.nn.one_hot(pair(i, j).T, M), x), "scatter", (2, T, N), "m",
    ),
    "top-2 dispatch": (
        lambda i, j, x: jnp.einsum("tec,td->ecd", top_2(pair(i % 8, j % 8), pair(j, i), jnp.ones((T, 2))), x),
        "scatter", (T, N), "m",
    ),
    "top-2 combine": (
        lambda i, j, y: jnp.einsum("tec,ecd->td", top_2(pair(i % 8, j % 8), pair(j, i), gates(pair(i, j))), y),
        "gather", (8, M, N), "m",
    ),
    "combine, other order": (
        lambda e, c, y: jnp.einsum("tec,ced->dt", dispatch(e, c, y), y), "gather", (C, E, N), "ec",
    ),
}  # fmt: skip
"""Programs of two vectors of indices and an array; the op that each becomes; the array's shape; what indices number."""


EQUATIONS = {"scatter": "tk,tn->kn", "gather": "tk,kn->tn"}
ROWS = {"scatter": T, "gather": K}


def indices(r: np.random.Generator, names: str) -> list[np.ndarray]:
    """Some of the indices are outside."""
    ends = {"i": (K, K), "ec": (E, C), "m": (M, M)}[names]
    return [r.integers(-2, n + 2, T).astype(np.int32) for n in ends]


def text_of(form: str) -> str:
    f, _, shape, _ = FORMS[form]
    given = [jax.ShapeDtypeStruct((T,), np.int32)] * 2 + [jax.ShapeDtypeStruct(shape, np.float32)]
    return jax.jit(f, keep_unused=True).lower(*given).as_text()


def names_of(text: str, **options: Any) -> list[str]:
    return [op.name.removeprefix("stablehlo.") for op in walk(canonical(text, **options).block())]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sampled(1)
def test_the_same_as_the_product(form: str) -> None:
    """For finite numbers, and for one that is not: it meets the zeros of the other rows."""
    text, (_, becomes, shape, names) = text_of(form), FORMS[form]
    assert becomes in names_of(text)
    exe, r = shlo_jit.compile(text, cache=False), np.random.default_rng(len(form))
    for special, _ in itertools.product(SPECIAL, range(2)):
        x = r.standard_normal(shape, np.float32)
        x[r.random(shape) < 0.2] = -0.0
        if special is not None:
            x.flat[r.integers(x.size)] = special
        given = (*indices(r, names), x)
        (expected,) = evaluate(shlo_jit.parse(text), *given)
        got = exe(*given)
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)
        assert not np.signbit(got[expected == 0]).any(), "sums of products begin with 0"
        assert special is None or not np.isfinite(expected).all(), "the number has an effect"


@pytest.mark.parametrize("form", EQUATIONS)
@pytest.mark.parametrize("dtype", [np.float64, jnp.bfloat16, np.float16])
@pytest.mark.sampled(1)
def test_other_types(form: str, dtype: Any) -> None:
    """Sums of small types are in f32, and rounded once, as those of products are."""

    def f(i: Any, s: Any, x: Any) -> Any:
        return jnp.einsum(EQUATIONS[form], jax.nn.one_hot(i, K, dtype=dtype) * s[:, None], x)

    r = np.random.default_rng(3)
    s, x = (r.standard_normal(n).astype(dtype) for n in (T, (ROWS[form], N)))
    i = r.integers(-1, K + 1, T).astype(np.int32)
    with jax.enable_x64(True):
        text = jax.jit(f).lower(i, s, x).as_text()
    assert form in names_of(text)
    (expected,) = evaluate(shlo_jit.parse(text), i, s, x)
    got = shlo_jit.compile(text, cache=False)(i, s, x)
    assert got.dtype == expected.dtype == dtype
    tolerance = {np.float64: 1e-14, np.float16: 2e-3}.get(dtype, 2e-2)
    np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=tolerance, atol=tolerance)


def test_a_promise_leaves_the_product_out() -> None:
    text = text_of("combine")
    assert {"dot_general", "if"} <= {*names_of(text)}
    promised = {*names_of(text, assume_finite=True)}
    assert "gather" in promised and not promised & {"dot_general", "if"}


def test_a_constant_needs_no_test() -> None:
    w = np.arange(K * N, dtype=np.float32).reshape(K, N)
    f = jax.jit(lambda i: jax.nn.one_hot(i, K) @ w)
    text = f.lower(jax.ShapeDtypeStruct((T,), np.int32)).as_text()
    assert not {"dot_general", "if"} & {*names_of(text)}
    i = np.arange(-2, T - 2, dtype=np.int32)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(i), f(i))


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("form", EQUATIONS)
@pytest.mark.sampled(1)
def test_factors_that_are_not_finite_meet_zeros(form: str, special: float | None) -> None:
    """A row of zeros times NaN is a row of NaN."""
    def f(i: Any, s: Any, x: Any) -> Any:
        return jnp.einsum(EQUATIONS[form], jax.nn.one_hot(i, K) * s[:, None], x)

    r = np.random.default_rng(5)
    i, s = r.integers(-1, K, T).astype(np.int32), r.standard_normal(T, np.float32)
    if special is not None:
        s[7] = special
    x = r.standard_normal((ROWS[form], N), np.float32)
    text = jax.jit(f).lower(i, s, x).as_text()
    assert form in names_of(text)
    (expected,) = evaluate(shlo_jit.parse(text), i, s, x)
    np.testing.assert_allclose(shlo_jit.compile(text, cache=False)(i, s, x), expected, rtol=2e-6, atol=1e-6)


def test_selected_factors_meet_no_zeros() -> None:
    """A row of zeros that are selected stays zero beside a NaN."""
    f = jax.jit(lambda i, s, w: jnp.where(i[:, None] == jnp.arange(K), s[:, None], 0) @ w)
    i, s = np.arange(T, dtype=np.int32), np.ones(T, np.float32)
    s[[3, 21]] = np.nan, np.inf
    w = np.random.default_rng(6).standard_normal((K, N), np.float32)
    text = f.lower(i, s, w).as_text()
    names = names_of(text)
    assert "gather" in names and "multiply" in names
    (expected,) = evaluate(shlo_jit.parse(text), i, s, w)
    np.testing.assert_allclose(shlo_jit.compile(text, cache=False)(i, s, w), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    "f",
    [
        lambda i, w: (jax.nn.one_hot(i, K) + jax.nn.one_hot(i + 1, K)) @ w,  # two numbers in a row of few
        lambda i, w: (jax.nn.one_hot(i, K) + w[:, 0]) @ w,  # no zeros
        lambda i, w: (jax.nn.one_hot(i, K) * w[:, 0]) @ w,  # a factor that varies along the row, and may be infinite
        lambda i, w: (jnp.arange(K) <= i[:, None]).astype(np.float32) @ w,  # many numbers in a row
        lambda i, w: (w[:, :1].astype(np.int32) == 2 * jnp.arange(K)).astype(np.float32) @ w,  # no position
    ],
    ids=["sum", "dense", "factor", "range", "even"],
)
@pytest.mark.sampled(1)
def test_others_stay(f: Callable[..., Any]) -> None:
    given = jax.ShapeDtypeStruct((T,), np.int32), jax.ShapeDtypeStruct((K, N), np.float32)
    names = names_of(jax.jit(f, keep_unused=True).lower(*given).as_text())
    assert "dot_general" in names and not {"gather", "scatter", "if"} & {*names}


def test_products_of_products_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product would otherwise be followed along all paths through the ones before it."""

    def layers(x: Any, w: Any, e: Any) -> Any:
        for _ in range(12):
            x = x * jax.nn.sigmoid(x @ w) @ w
        return x + jax.nn.one_hot(e, K) @ w

    looked = 0

    def by_op(self: Any, place: Any, depth: int) -> Any:
        nonlocal looked
        looked += 1
        return found(self, place, depth)

    found = one_hot._Finder.by_op
    monkeypatch.setattr(one_hot._Finder, "by_op", by_op)
    x, w, e = np.zeros((T, K), np.float32), np.zeros((K, K), np.float32), np.zeros(T, np.int32)
    function = canonical(jax.jit(layers).lower(x, w, e).as_text())
    assert "stablehlo.gather" in {op.name for op in walk(function.block())} and 0 < looked < 20
