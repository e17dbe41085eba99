"""Products with few results and many terms: the terms are split, and every number of threads gives the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import guarded
import ml_dtypes
import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.passes.canonical.long_products import parts_of
from shlo_jit.text.parser import parse_module

THREADS = (1, 2, 3, 8, 64)
EPSILON = {"f32": 2.0**-24, "f64": 2.0**-53, "bf16": 2.0**-8, "f16": 2.0**-11}
NUMPY = {"f32": np.dtype("f4"), "f64": np.dtype("f8"), "i8": np.dtype("i1"), "f16": np.dtype("f2"),
         "bf16": np.dtype(ml_dtypes.bfloat16), "i32": np.dtype("i4")}  # fmt: skip


def t(shape: Sequence[int], dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, dtype)))}>"


class Long(NamedTuple):
    """A product of [m, k] and [k, n], stored in other orders if `lhs` or `rhs` say so: names of dimensions. Several
    contracted dimensions are `k` and `j`."""

    sizes: dict[str, int]
    lhs: str = "mk"
    rhs: str = "kn"
    dtype: str = "f32"
    result: str = ""

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(self.sizes[d] for d in self.lhs), tuple(self.sizes[d] for d in self.rhs)

    @property
    def text(self) -> str:
        a, b = (t(shape, self.dtype) for shape in self.shapes)
        c = t((self.sizes["m"], self.sizes["n"]), self.result or self.dtype)
        summed = [d for d in self.lhs if d in self.rhs]
        numbers = " x ".join(str([side.index(d) for d in summed]) for side in (self.lhs, self.rhs))
        return f"""func.func @main(%a: {a}, %b: {b}) -> {c} {{
          %0 = stablehlo.dot_general %a, %b, contracting_dims = {numbers} : ({a}, {b}) -> {c}
          return %0 : {c}
        }}"""

    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(sum(map(ord, self.lhs + self.rhs)))
        if self.dtype == "i8":
            return [rng.integers(-128, 128, shape).astype("i1") for shape in self.shapes]
        return [rng.standard_normal(shape).astype(NUMPY[self.dtype]) for shape in self.shapes]

    def check(self, found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        """Asserts the usual bound of a sum, or equality for integers."""
        how = f"{self.lhs},{self.rhs}->mn"
        if self.dtype == "i8":
            assert np.array_equal(found, np.einsum(how, a.astype("i8"), b.astype("i8")).astype("i4"))
            return
        x, y = a.astype("f8"), b.astype("f8")
        terms = a.size // self.sizes["m"]
        # a part is one sum, and the parts are added up
        longest = terms // tuning.MAX_TASKS + tuning.MAX_TASKS + tuning.SPLIT_TERMS * 4
        bound = np.einsum(how, abs(x), abs(y)) * EPSILON["f64" if self.dtype == "f64" else "f32"] * longest
        exact = np.einsum(how, x, y)
        if self.result or self.dtype in ("bf16", "f16"):
            bound += abs(exact) * EPSILON[self.result or self.dtype]
        assert (abs(found.astype("f8") - exact) <= bound).all()


PRODUCTS = {
    "rows by columns": Long({"m": 17, "n": 40, "k": 12288}),
    "gradient of weights": Long({"m": 33, "n": 20, "k": 8192}, "km", "kn"),
    "both along the terms": Long({"m": 20, "n": 24, "k": 8192}, "mk", "nk"),
    "columns along the terms": Long({"m": 24, "n": 20, "k": 8192}, "km", "nk"),
    "pixels of a batch": Long({"m": 16, "n": 32, "j": 8, "k": 1024}, "jkm", "jkn"),
    "one row": Long({"m": 1, "n": 64, "k": 65536}),
    "four rows": Long({"m": 4, "n": 48, "k": 32768}),
    "one column": Long({"m": 48, "n": 1, "k": 65536}, "km", "kn"),
    "many rows": Long({"m": 200, "n": 10, "k": 12288}, "km", "kn"),
    "terms left over": Long({"m": 130, "n": 128, "k": 8209}),
    "terms left over of a gradient": Long({"m": 130, "n": 128, "k": 8209}, "km", "kn"),
    "a prime number of terms": Long({"m": 24, "n": 40, "k": 12289}),
    "a prime number of terms of a gradient": Long({"m": 33, "n": 20, "k": 12289}, "km", "kn"),
    "a prime number of terms of f64": Long({"m": 16, "n": 24, "k": 12289}, dtype="f64"),
    "f64": Long({"m": 16, "n": 24, "k": 8192}, dtype="f64"),
    "bf16": Long({"m": 24, "n": 32, "k": 8192}, dtype="bf16"),
    "f16 into f32": Long({"m": 24, "n": 32, "k": 8192}, dtype="f16", result="f32"),
    "bytes": Long({"m": 24, "n": 32, "k": 8192}, dtype="i8", result="i32"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PRODUCTS)
def test_every_number_of_threads_gives_the_same_bits(name: str) -> None:
    product = PRODUCTS[name]
    arrays = product.arrays()
    found = {n: np.asarray(guarded.compile(product.text, threads=n, cache=False)(*arrays)) for n in THREADS}
    product.check(found[1], *arrays)
    for result in found.values():
        assert result.tobytes() == found[1].tobytes()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_terms_are_split(name: str) -> None:
    product = PRODUCTS[name]
    plan = shlo_jit.compile(product.text, threads=1, cache=False).text("core")
    (line,) = [line for line in plan.splitlines() if "dot_general" in line and "batching_dims" in line]
    assert line
    assert "stablehlo.reduce" in plan


@pytest.mark.sampled(1)
@pytest.mark.parametrize("side, bits", [("lhs", 8), ("rhs", 8), ("rhs", 4)])
@pytest.mark.parametrize("m", [2, 12, 40])
def test_operands_computed_on_the_way_and_an_epilogue(side: str, bits: int, m: int) -> None:
    k, n = 8192 * 4, 32
    shape = (m, k) if side == "lhs" else (k, n)
    a, b, c, w, f = t((m, k), "f32"), t((k, n), "f32"), t((m, n), "f32"), t(shape, f"i{bits}"), t(shape, "f32")
    given = b if side == "lhs" else a
    text = f"""func.func @main(%x: {given}, %w: {w}, %s: {t((shape[1],), "f32")}, %bias: {t((n,), "f32")}) -> {c} {{
      %f = stablehlo.convert %w : ({w}) -> {f}
      %t = stablehlo.broadcast_in_dim %s, dims = [1] : ({t((shape[1],), "f32")}) -> {f}
      %d = stablehlo.multiply %f, %t : {f}
      %0 = stablehlo.dot_general {"%d, %x" if side == "lhs" else "%x, %d"}, contracting_dims = [1] x [0]
        : ({a}, {b}) -> {c}
      %v = stablehlo.broadcast_in_dim %bias, dims = [1] : ({t((n,), "f32")}) -> {c}
      %1 = stablehlo.add %0, %v : {c}
      %2 = stablehlo.tanh %1 : {c}
      return %2 : {c}
    }}"""
    rng = np.random.default_rng(bits)
    x = rng.standard_normal((k, n) if side == "lhs" else (m, k)).astype("f4")
    weights = rng.integers(-8, 8, shape).astype(np.int8 if bits == 8 else ml_dtypes.int4)
    scales = rng.uniform(1e-4, 1e-3, shape[1]).astype("f4")
    bias = rng.standard_normal(n).astype("f4")
    results = [np.asarray(guarded.compile(text, threads=i, cache=False)(x, weights, scales, bias)) for i in THREADS]
    dense = weights.astype("f8") * scales.astype("f8")
    exact = np.tanh((dense @ x if side == "lhs" else x.astype("f8") @ dense) + bias)
    assert np.allclose(results[0], exact, rtol=1e-4, atol=1e-4)
    assert {r.tobytes() for r in results} == {results[0].tobytes()}


def parts(m: int, n: int, k: int) -> int:
    module = parse_module(Long({"m": m, "n": n, "k": k}).text, "main")
    (op,) = [op for f in module.functions() for op in f.block().ops if op.name == "stablehlo.dot_general"]
    return parts_of(op)


def test_parts_are_worth_a_task() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2000):
        m, n = (int(2 ** rng.uniform(0, 10)) for _ in "mn")
        k = int(2 ** rng.uniform(0, 20))
        count = parts(m, n, k)
        assert count >= 1
        if count > 1:
            assert k // count >= tuning.SPLIT_TERMS
            assert m * n * (k // count) >= tuning.LEAST_TASK_OF_MANY // 2
            assert -(-m // tuning.SPLIT_TILE) * -(-n // tuning.SPLIT_TILE) <= tuning.MAX_TASKS // 4


def test_products_with_tasks_of_their_own_stay_whole() -> None:
    assert parts(64, 64, 100_000) >= 32
    assert parts(1024, 1024, 100_000) == 1
    assert parts(64, 64, 1024) == 1
    assert parts(1, 1024, 4096) == 1, "a token's keys in a language model"
    assert parts(0, 64, 100_000) == 1


def test_numbers_that_are_not_finite_stay_in_their_row_and_column() -> None:
    product = Long({"m": 24, "n": 32, "k": 8192})
    a, b = product.arrays()
    a[3, 5000], b[100, 7] = np.inf, np.nan
    found = np.asarray(guarded.compile(product.text, threads=3, cache=False)(a, b))
    finite = np.isfinite(found)
    assert not finite[3].any() and not finite[:, 7].any()
    assert finite[np.arange(24) != 3][:, np.arange(32) != 7].all()


def test_reproducible_products_stay_whole() -> None:
    text = PRODUCTS["rows by columns"].text
    plan = shlo_jit.compile(text, threads=1, cache=False, reproducible=True).text("core")
    assert "stablehlo.reduce" not in plan
