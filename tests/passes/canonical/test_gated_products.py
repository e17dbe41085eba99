"""Rows meet only the groups whose gate is not zero, with the results of all products: for gates of any kind, and for
numbers that are not finite, or so large that products overflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit.ir.core import walk
from shlo_jit.ops.grouped import grouped_of
from shlo_jit.reference.interpreter import evaluate

jax = pytest.importorskip("jax")
jnp = jax.numpy
T, E, D, F = 20, 5, 64, 72


def masked(g: Any) -> Any:
    """Gates of the larger half of the groups of a row."""
    return jnp.where(g > 1, g, 0)


def network(x: Any, w: Any, v: Any, b: Any) -> Any:
    """Two layers of each group, with a logistic gate and a bias."""
    return jnp.einsum("tef,edf->ted", jax.nn.silu(jnp.einsum("td,edf->tef", x, w) + b), v)


def vector_of_groups(g: Any, x: Any, w: Any, v: Any, b: Any) -> Any:
    y = jax.vmap(lambda w, v, b: jnp.tanh(x @ w + b) @ v.T)(w, v, b)
    return (y * masked(g).T[:, :, None]).sum(0)


FORMS: dict[str, Callable[..., Any]] = {
    "argument": lambda g, x, w, v, b: jnp.einsum("te,td,edf->tf", g, x, w),
    "computed": lambda g, x, w, v, b: jnp.einsum("te,td,edf->tf", masked(g), x, w),
    "other order": lambda g, x, w, v, b: jnp.einsum("fed,td,te->ft", w.transpose(2, 0, 1), x, masked(g)),
    "one-hot": lambda g, x, w, v, b: jnp.einsum("te,td,edf->tf", jax.nn.one_hot(g.argmax(-1), E), x, w),
    "batches": lambda g, x, w, v, b: jnp.einsum(
        "bse,bsd,edf->bsf", masked(g).reshape(2, -1, E), x.reshape(2, -1, D), w
    ),
    "after the product": lambda g, x, w, v, b: (jnp.einsum("td,edf->tef", x, w) * masked(g)[..., None]).sum(1),
    "selected": lambda g, x, w, v, b: jnp.where((g > 1)[..., None], jnp.einsum("td,edf->tef", x, w), 0).sum(1),
    "layers": lambda g, x, w, v, b: jnp.einsum("te,ted->td", masked(g), network(x, w, v, b)),
    "vector of groups": vector_of_groups,
}  # fmt: skip


def given(r: np.random.Generator, kind: str = "few") -> list[np.ndarray]:
    """Gates of which few, none or all are not zero, rows, matrices and biases."""
    gates = r.random((T, E), np.float32) + {"few": 0.4, "none": 0, "all": 1.1}[kind]
    gates[gates < 1] = 0
    x, w, v, b = (r.standard_normal(s, np.float32) for s in ((T, D), (E, D, F), (E, D, F), (E, F)))
    return [gates, x, w, v, b]


def text_of(form: str, dtype: Any = np.float32) -> str:
    arguments = [jax.ShapeDtypeStruct(a.shape, dtype) for a in given(np.random.default_rng(0))]
    return jax.jit(FORMS[form], keep_unused=True).lower(*arguments).as_text()


def groups_in(text: str, **options: Any) -> int:
    return sum(grouped_of(op) is not None for op in walk(canonical(text, **options).block()))


def check(text: str, arguments: list[np.ndarray], tolerance: float = 2e-5) -> None:
    """Compares with the program as written, in guarded memory, and for several numbers of threads."""
    with np.errstate(all="ignore"):
        (expected,) = evaluate(shlo_jit.parse(text), *arguments)
    got = guarded.compile(text, threads=1)(*arguments)
    wide = expected.astype(np.float64)
    finite = np.abs(wide[np.isfinite(wide)])
    np.testing.assert_allclose(got.astype(np.float64), wide, rtol=0, atol=tolerance * max(1.0, finite.max(initial=0)))
    for threads in (2, 3, 8):
        again = shlo_jit.compile(text, threads=threads, cache=False)(*arguments)
        assert again.tobytes() == got.tobytes(), threads


@pytest.mark.parametrize("kind", ["few", "none", "all"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sampled(3)
def test_the_same_as_all_products(form: str, kind: str) -> None:
    text = text_of(form)
    assert groups_in(text) == (2 if form in ("layers", "vector of groups") else 1)
    check(text, given(np.random.default_rng(len(form)), kind))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sampled(2)
def test_numbers_that_are_not_finite_meet_gates_of_zero(form: str, number: float) -> None:
    """A gate of zero times a NaN, an infinity, or a product that overflows is no zero."""
    r, text = np.random.default_rng(3), text_of(form)
    for i, where in ((1, (4, 5)), (2, (2, 5, 7))):
        arguments = given(r)
        arguments[i][where] = number
        if number == 3e38:
            arguments[1][:, 5] = 9
        check(text, arguments)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_gates_that_are_not_finite(number: float) -> None:
    arguments = given(np.random.default_rng(4))
    arguments[0][3, 1] = number
    check(text_of("argument"), arguments)


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.bfloat16, 2e-2), (np.float64, 1e-12)])
def test_other_types(dtype: Any, tolerance: float) -> None:
    with jax.enable_x64(True):
        text = text_of("computed", dtype)
    assert groups_in(text) == 1
    check(text, [a.astype(dtype) for a in given(np.random.default_rng(5))], tolerance)


def test_a_promise_leaves_the_test_out() -> None:
    text = text_of("layers")
    names = [op.name for op in walk(canonical(text, assume_finite=True).block())]
    assert names.count("stablehlo.if") == 1 and "stablehlo.abs" not in names


@pytest.mark.parametrize(
    "f",
    [
        lambda g, x, w, v, b: jnp.einsum("te,td,edf->tf", jax.nn.softmax(g), x, w),  # gates that are never zero
        lambda g, x, w, v, b: jnp.einsum("te,ef->tf", masked(g), w[:, 0]),  # a product of the gates themselves
        lambda g, x, w, v, b: (jnp.einsum("td,edf->tef", x, w), jnp.einsum("te,td,edf->tef", g, x, w).sum(1)),
    ],
    ids=["softmax", "matrix", "needed elsewhere"],
)
@pytest.mark.sampled(1)
def test_others_stay(f: Callable[..., Any]) -> None:
    arguments = [jax.ShapeDtypeStruct(a.shape, np.float32) for a in given(np.random.default_rng(0))]
    assert not groups_in(jax.jit(f, keep_unused=True).lower(*arguments).as_text())
