"""Heads of queries that share keys and values. These are neither copied for each head nor concatenated in memory, and
scores of many rows are not in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest
from printed_codes import in_memory

import shlo_jit
from shlo_jit import tuning
from shlo_jit.runtime.executable import Executable

jax = pytest.importorskip("jax")
jnp = jax.numpy
HEADS, SHARED, DEPTH = 8, 2, 32
"""Heads of queries, and of keys and values."""


def softmax(scores: Any) -> Any:
    rows, keys = scores.shape[-2:]
    seen = jnp.arange(rows)[:, None] + (keys - rows) >= jnp.arange(keys)
    return jax.nn.softmax(jnp.where(seen, scores / DEPTH**0.5, -1e30))


def repeated(q: Any, k: Any, v: Any) -> Any:
    """Heads first; keys and values are broadcast to the heads of queries, as torch exports them."""
    batch, _, keys, _ = k.shape
    shape = batch, SHARED, HEADS // SHARED, keys, DEPTH
    k, v = (jnp.broadcast_to(x[:, :, None], shape).reshape(batch, HEADS, keys, DEPTH) for x in (k, v))
    return jnp.einsum("bhqk,bhkd->bhqd", softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k)), v)


def rows_first(q: Any, k: Any, v: Any) -> Any:
    """Heads come after rows, and are repeated there."""
    k, v = (jnp.repeat(x, HEADS // SHARED, axis=2) for x in (k, v))
    return jnp.einsum("bhqk,bkhd->bqhd", softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)), v)


def groups(q: Any, k: Any, v: Any) -> Any:
    """Queries are in groups that share a head."""
    batch, rows = q.shape[:2]
    q = q.reshape(batch, rows, SHARED, HEADS // SHARED, DEPTH)
    weights = softmax(jnp.einsum("bqsgd,bksd->bsgqk", q, k))
    return jnp.einsum("bsgqk,bksd->bqsgd", weights, v).reshape(batch, rows, HEADS, DEPTH)


def library(q: Any, k: Any, v: Any) -> Any:
    """The form that JAX writes; the transpose follows a multiplication."""
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


FORMS: dict[str, tuple[Callable[..., Any], bool]] = {
    "repeated": (repeated, True),
    "rows first": (rows_first, False),
    "groups": (groups, False),
    "library": (library, False),
}
"""Maps each form to whether heads come first."""


def operands(rows: int, keys: int, heads_first: bool, dtype: str = "float32", batch: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(batch, rows, HEADS, DEPTH), (batch, keys, SHARED, DEPTH), (batch, keys, SHARED, DEPTH)]
    found = [rng.standard_normal(shape).astype(jnp.dtype(dtype)) for shape in shapes]
    return [np.ascontiguousarray(x.swapaxes(1, 2)) for x in found] if heads_first else found


def exact(function: Callable[..., Any], values: list[np.ndarray]) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(function)(*(x.astype(np.float64) for x in values)))


def near(found: Any, wanted: np.ndarray, dtype: str = "float32") -> None:
    bound = {"float32": 1e-5, "bfloat16": 4e-2}[dtype]
    np.testing.assert_allclose(np.asarray(found).astype(np.float64), wanted, bound, bound)


def text_of(function: Callable[..., Any], values: list[np.ndarray]) -> str:
    return jax.jit(function).lower(*values).as_text()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", FORMS)
def test_many_rows(form: str, dtype: str) -> None:
    """Attention by blocks of rows uses keys and values in place; queries whose rows are outside heads are copied."""
    function, heads_first = FORMS[form]
    values = operands(70, 70, heads_first, dtype)
    exe = guarded.compile(text_of(function, values), cache=False)
    plan = exe.text("plan")
    assert "1 attention" in plan.splitlines()[0] and "70x70x" not in in_memory(plan)
    assert ("1 loop" in plan.splitlines()[0]) is not heads_first and "2 loop" not in plan.splitlines()[0]
    near(exe(*values), exact(function, values), dtype)


def test_repeated_matrices_are_not_in_memory() -> None:
    values = operands(64, 1024, True, batch=1)
    exe = guarded.plain_compile(text_of(repeated, values), cache=False, threads=2)
    assert isinstance(exe, Executable)
    assert exe.memory_analysis().temp_size_in_bytes < HEADS * 1024 * DEPTH * 4


@pytest.mark.parametrize("form", ["repeated", "groups"])
def test_one_row_and_a_cache(form: str) -> None:
    """The cache is not concatenated with the newest row, and nothing repeated is in memory."""
    function, heads_first = FORMS[form]
    q, k, v = operands(1, 300, heads_first)
    _, new_k, new_v = operands(1, 1, heads_first)
    axis = 2 if heads_first else 1

    def decode(q: Any, k: Any, v: Any, new_k: Any, new_v: Any) -> Any:
        return function(q, jnp.concatenate([k, new_k], axis), jnp.concatenate([v, new_v], axis))

    values = [q, k, v, new_k, new_v]
    exe = guarded.compile(text_of(decode, values), cache=False)
    plan = exe.text("plan")
    assert plan.count("segments  %") == 2 and "loop" not in plan.splitlines()[0]
    near(exe(*values), exact(decode, values))


def test_gradient_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient keeps the order of the forward product: no matrix of scores is copied into another one."""
    monkeypatch.setattr(tuning, "RECOMPUTED_ELEMENTS", 0)
    monkeypatch.setattr(tuning, "KEPT_WEIGHTS_BYTES", 0)
    monkeypatch.setattr(tuning, "ATTENTION_LEAST_TASKS", 1)

    def gradient(*values: Any) -> Any:
        return jax.grad(lambda *x: (groups(*x) ** 2).sum(), (0, 1, 2))(*values)

    values = operands(70, 70, False)
    exe = guarded.compile(text_of(gradient, values), cache=False)
    plan = exe.text("plan")
    assert "1 gradient" in plan.splitlines()[0] and "70x70x" not in in_memory(plan)
    with jax.enable_x64(True):
        wanted = jax.jit(gradient)(*(x.astype(np.float64) for x in values))
    for found, exact_one in zip(exe(*values), wanted, strict=True):
        np.testing.assert_allclose(found, np.asarray(exact_one), 1e-4, 1e-4)


def test_threads_do_not_change_the_bits() -> None:
    values = operands(70, 70, False)
    found = {
        np.asarray(shlo_jit.compile(text_of(groups, values), cache=False, threads=n)(*values)).tobytes()
        for n in (1, 2, 5)
    }
    assert len(found) == 1
