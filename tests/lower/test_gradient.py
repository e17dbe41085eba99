"""The gradient of attention by blocks of rows: near that of JAX in f64, the same for any number of threads, and
matrices of weights take no memory."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import guarded
import numpy as np
import pytest
from printed_codes import codes, in_memory

import shlo_jit
from shlo_jit import tuning
from shlo_jit.runtime.executable import Executable

jax = pytest.importorskip("jax")
jnp = jax.numpy


@dataclass(frozen=True)
class Gradient:
    """Gradient of an attention with `heads` heads of m queries and n keys."""

    batch: int
    heads: int
    m: int
    n: int
    k: int
    depth: int
    dtype: str = "float32"
    mask: str = ""
    """`causal`, `added` (an operand), `dropped` (an operand, after the softmax), or empty."""
    heads_inside: bool = False
    """Whether operands and result are [batch, rows, heads, features] rather than [batch, heads, rows, features]."""
    is_linear: bool = False
    """Whether the loss is linear, so that the gradient does not wait for the result."""
    scale: float = 0.125
    as_matmul: bool = False
    """Whether q @ k^T is a matmul, as other frameworks write it, in place of an einsum."""
    with_result: bool = False
    """Whether the result and the gradient of the added mask are returned as well."""

    def operands(self, seed: int = 0, dtype: str | None = None) -> list[np.ndarray]:
        """Returns q, k, v, the factor of the result in the loss, and a mask."""
        rng, out = np.random.default_rng(seed), []
        for rows, columns in ((self.m, self.k), (self.n, self.k), (self.n, self.depth), (self.m, self.depth)):
            shape = (
                (self.batch, rows, self.heads, columns)
                if self.heads_inside
                else (self.batch, self.heads, rows, columns)
            )
            out.append(rng.standard_normal(shape))
        mask = rng.random((self.m, self.n)) > 0.2
        mask[:, 0] = True
        out.append(mask if self.mask == "dropped" else np.where(mask, 0.0, -30.0))
        kind = jnp.dtype(self.dtype)
        return [np.asarray(x) if x.dtype == bool else x.astype(kind).astype(jnp.dtype(dtype or kind)) for x in out]

    def loss(self, q: Any, k: Any, v: Any, w: Any, mask: Any) -> Any:
        names = "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd"
        if not self.heads_inside:
            names = "bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd"
        s = (q @ k.swapaxes(-1, -2) if self.as_matmul else jnp.einsum(names[0], q, k)) * self.scale
        if self.mask == "causal":
            s = jnp.where(jnp.arange(self.m)[:, None] >= jnp.arange(self.n), s, -1e30)
        elif self.mask == "added":
            s = s + mask
        p = jax.nn.softmax(s)
        if self.mask == "dropped":
            p = jnp.where(mask, p / 0.8, 0).astype(p.dtype)
        result = p @ v if self.as_matmul else jnp.einsum(names[1], p, v)
        y = result * w
        loss = (y if self.is_linear else y * y).astype(jnp.promote_types(y.dtype, jnp.float32)).sum()
        return (loss, result) if self.with_result else loss

    def gradient(self, *operands: Any) -> Any:
        if not self.with_result:
            return jax.grad(self.loss, (0, 1, 2))(*operands)
        *others, mask = operands
        spread = jnp.broadcast_to(mask, (self.batch, self.heads, self.m, self.n))
        found, result = jax.grad(self.loss, (0, 1, 2, 4), has_aux=True)(*others, spread)
        return (*found, result)

    def text(self) -> str:
        return jax.jit(self.gradient, keep_unused=True).lower(*self.operands()).as_text()

    def expected(self) -> list[np.ndarray]:
        with jax.enable_x64(True):
            return [np.asarray(x) for x in jax.jit(self.gradient)(*self.operands(dtype="float64"))]


def bits(results: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in results]


def check(case: Gradient, target: str = "native", *, forward: bool = True) -> None:
    """Checks that the gradient is planned as one step, and is about as near to the exact one as sums of products of the
    type allow."""
    exe = guarded.compile(case.text(), cache=False, target=target)
    counted = exe.text("plan").splitlines()[0]
    assert "1 gradient" in counted and ("1 attention" in counted) is forward, exe.text("plan")
    unit = {"float32": 2**-24, "float64": 2**-53, "bfloat16": 2**-8, "float16": 2**-11}[case.dtype]
    for found, wanted in zip(exe(*case.operands()), case.expected(), strict=True):
        error = np.abs(found.astype(np.float64) - wanted).max()
        assert error <= unit * (16 + case.n**0.5) * np.abs(wanted).max()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes weights of any size pay off, keeps none, and uses at least two blocks."""
    monkeypatch.setattr(tuning, "RECOMPUTED_ELEMENTS", 0)
    monkeypatch.setattr(tuning, "KEPT_WEIGHTS_BYTES", 0)
    monkeypatch.setattr(tuning, "GRADIENT_BLOCK_BYTES", 16 << 10)


CASES = {
    "blocks": Gradient(2, 4, 100, 100, 32, 32),
    "one block": Gradient(1, 8, 14, 40, 32, 32),
    "odd extents": Gradient(2, 4, 57, 129, 31, 40),
    "rows that fall together": Gradient(1, 8, 64, 128, 64, 64),
    "causal": Gradient(1, 8, 90, 90, 16, 24, mask="causal"),
    "added mask": Gradient(2, 4, 65, 66, 16, 24, mask="added"),
    "dropped": Gradient(2, 4, 65, 66, 16, 24, mask="dropped"),
    "heads inside": Gradient(2, 4, 70, 50, 32, 32, heads_inside=True),
    "bf16": Gradient(2, 4, 60, 96, 32, 32, "bfloat16", "causal"),
    "bf16, heads inside": Gradient(2, 4, 61, 43, 32, 32, "bfloat16", heads_inside=True),
    "f16": Gradient(2, 4, 40, 40, 32, 32, "float16"),
    "one head": Gradient(1, 1, 300, 200, 32, 24, mask="causal"),
    "few heads": Gradient(1, 3, 401, 150, 40, 40, heads_inside=True),
    "few heads, bf16": Gradient(2, 1, 300, 290, 32, 32, "bfloat16"),
    "as matmul": Gradient(2, 4, 70, 60, 32, 32, as_matmul=True),
    "as matmul, batch of one": Gradient(1, 8, 70, 60, 32, 32, mask="causal", as_matmul=True),
    "one head, as matmul": Gradient(1, 1, 300, 200, 32, 32, as_matmul=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.sampled(4)
def test_near_the_exact_gradient(case: Gradient) -> None:
    check(case)


@pytest.mark.parametrize("kept", [0, 1 << 30])
def test_kept_or_computed_again(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exponentials have the same bits in both cases."""
    case = Gradient(2, 4, 80, 80, 32, 32, mask="causal")
    again = bits(shlo_jit.compile(case.text(), cache=False)(*case.operands()))
    monkeypatch.setattr(tuning, "KEPT_WEIGHTS_BYTES", kept)
    exe = shlo_jit.compile(case.text(), cache=False)
    assert ("2x4x80x80" in in_memory(exe.text("plan"))) is bool(kept)
    check(case)
    assert bits(exe(*case.operands())) == again


def test_a_linear_loss_needs_no_result() -> None:
    """Nothing is computed twice: the row program includes the softmax."""
    check(Gradient(2, 4, 60, 70, 16, 24, is_linear=True), forward=False)


@pytest.mark.parametrize("heads", [2, 8])
@pytest.mark.parametrize("heads_inside", [False, True])
def test_the_result_and_the_gradient_of_a_mask(heads: int, heads_inside: bool) -> None:
    """The gradient of scores is in memory because it is a result; the result comes from the same rows."""
    check(Gradient(1, heads, 200, 70, 16, 24, mask="added", is_linear=True, scale=1.0, with_result=True,
                   heads_inside=heads_inside), forward=False)  # fmt: skip


@dataclass(frozen=True)
class Grouped:
    """Gradient of attention as JAX writes it, with heads of queries that share keys and values."""

    batch: int
    m: int
    heads: int
    shared: int
    dtype: str = "float32"

    def operands(self, dtype: str | None = None) -> list[np.ndarray]:
        rng = np.random.default_rng(3)
        shapes = [(self.batch, self.m, n, 32) for n in (self.heads, self.shared, self.shared)]
        return [
            rng.standard_normal(s).astype(jnp.dtype(self.dtype)).astype(jnp.dtype(dtype or self.dtype)) for s in shapes
        ]

    @staticmethod
    def gradient(*operands: Any) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            return (y * y).astype(jnp.promote_types(y.dtype, jnp.float32)).sum()

        return jax.grad(loss, (0, 1, 2))(*operands)


@pytest.mark.parametrize(
    "case",
    [Grouped(1, 90, 8, 2), Grouped(2, 80, 6, 3), Grouped(2, 70, 4, 1), Grouped(1, 90, 8, 2, "bfloat16")],
    ids=str,
)
def test_grouped_queries(case: Grouped) -> None:
    """Rows of all queries that share keys are summed by one task, and nothing of the size of the scores is in
    memory."""
    text = jax.jit(case.gradient).lower(*case.operands()).as_text()
    exe = guarded.compile(text, cache=False)
    assert "1 attention" in exe.text("plan") and "1 gradient" in exe.text("plan"), exe.text("plan")
    with jax.enable_x64(True):
        expected = [np.asarray(x) for x in jax.jit(case.gradient)(*case.operands("float64"))]
    unit = {"float32": 2**-24, "bfloat16": 2**-8}[case.dtype]
    for found, wanted in zip(exe(*case.operands()), expected, strict=True):
        assert np.abs(found.astype(np.float64) - wanted).max() <= unit * 40 * np.abs(wanted).max()


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v2"])
def test_other_targets(target: str) -> None:
    check(Gradient(1, 2, 257, 67, 16, 32, mask="causal"), target)
    check(Gradient(2, 4, 57, 67, 16, 32, mask="causal"), target)
    check(Gradient(2, 4, 30, 40, 16, 24, "bfloat16"), target)


def test_threads_do_not_change_the_bits() -> None:
    case = Gradient(3, 4, 100, 90, 32, 32, mask="causal")
    values = case.operands()
    found = [bits(shlo_jit.compile(case.text(), cache=False, threads=n)(*values)) for n in (1, 2, 5)]
    assert found[0] == found[1] == found[2]


def test_nor_where_few_heads_are_cut_by_rows() -> None:
    case = Gradient(1, 2, 500, 90, 32, 32, mask="causal")
    values = case.operands()
    exes = [shlo_jit.compile(case.text(), cache=False, threads=n) for n in (1, 2, 5)]
    assert codes(exes[0].text("schedule"), "sums") == ["sums-in-parts"]
    found = [bits(exe(*values)) for exe in exes]
    assert found[0] == found[1] == found[2]


def test_weights_take_no_memory() -> None:
    case = Gradient(1, 8, 512, 512, 32, 32)
    exe = guarded.plain_compile(case.text(), cache=False, threads=2)
    assert isinstance(exe, Executable)
    assert exe.memory_analysis().temp_size_in_bytes < 8 * 512 * 512 * 4 / 2


def test_special_values_stay_in_their_rows() -> None:
    """A NaN in a query causes NaN in its row of the gradient of queries, and in those of keys and values, but not in
    other rows."""
    case = Gradient(2, 4, 50, 40, 16, 24)
    q, k, v, w, mask = case.operands()
    q[1, 2, 20, 0] = np.nan
    dq, dk, dv = shlo_jit.compile(case.text(), cache=False)(q, k, v, w, mask)
    assert np.isnan(dq[1, 2, 20]).all() and np.isnan(dk[1, 2]).all() and np.isnan(dv[1, 2]).all()
    assert np.isfinite(np.delete(dq[1, 2], 20, 0)).all()
    assert all(np.isfinite(x[0]).all() and np.isfinite(x[1, :2]).all() for x in (dq, dk, dv))


def test_exported(tmp_path: Path) -> None:
    case = Gradient(2, 4, 50, 60, 16, 32, mask="causal")
    shlo_jit.export(case.text(), tmp_path / "gradient.o")
    values = case.operands()
    assert bits(shlo_jit.load(tmp_path / "gradient.o")(*values)) == bits(
        shlo_jit.compile(case.text(), cache=False)(*values)
    )


@pytest.mark.slow
def test_random_shapes() -> None:
    pick = random.Random(0)
    for _ in range(40):
        m, n = (pick.choice([2, 13, 15, 30, 65, 140]) for _ in range(2))
        k, depth = (pick.choice([7, 16, 40]) for _ in range(2))
        dtype, mask = pick.choice(["float32", "bfloat16", "float16"]), pick.choice(["", "added", "causal", "dropped"])
        check(Gradient(2, 4, m, max(n, 16), k, depth, dtype, mask, pick.random() < 0.5))
