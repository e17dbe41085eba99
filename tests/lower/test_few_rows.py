"""A few rows against a matrix that is an argument: NumPy's results, and the same bits on any number of threads and as a
part of more rows."""

from __future__ import annotations

import guarded
import numpy as np
import pytest
from numpy.random import Generator

from shlo_jit import tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.gemm.policy import has_skinny_path
from shlo_jit.kernels.gemm.precision import GemmTypes, gemm_plan


def layer(m: int, k: int, n: int) -> str:
    """Returns relu(x @ w + b)."""
    x, w, bias, y = (f"tensor<{shape}xf32>" for shape in (f"{m}x{k}", f"{k}x{n}", f"{n}", f"{m}x{n}"))
    return f"""func.func @main(%x: {x}, %w: {w}, %b: {bias}) -> {y} {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({x}, {w}) -> {y}
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : ({bias}) -> {y}
  %2 = stablehlo.add %0, %1 : {y}
  %c = stablehlo.constant dense<0.0> : {y}
  %3 = stablehlo.maximum %2, %c : {y}
  return %3 : {y}
}}"""


def numbers(rng: Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("m", [2, 3, 6, 7, 8, 13, 16, 25, tuning.GEMM_SKINNY_ROWS, tuning.GEMM_SKINNY_ROWS + 3])
def test_as_numpy_and_the_same_on_any_number_of_threads(m: int) -> None:
    rng = np.random.default_rng(m)
    k, n = int(rng.integers(200, 700)), int(rng.integers(190, 400))
    x, w, bias = numbers(rng, m, k), numbers(rng, k, n), numbers(rng, n)
    one, three = (guarded.compile(layer(m, k, n), cache=False, threads=threads) for threads in (1, 3))
    found = one(x, w, bias)
    np.testing.assert_allclose(found, np.maximum(x.astype(np.float64) @ w + bias, 0), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(found, three(x, w, bias))


def test_rows_do_not_depend_on_each_other() -> None:
    rng, k, n = np.random.default_rng(0), 500, 300
    x, w, bias = numbers(rng, 40, k), numbers(rng, k, n), numbers(rng, n)
    whole = guarded.compile(layer(40, k, n), cache=False)(x, w, bias)
    for m in (2, 5, 14, 17):
        np.testing.assert_array_equal(guarded.compile(layer(m, k, n), cache=False)(x[:m], w, bias), whole[:m])


@pytest.mark.skipif(
    not has_skinny_path(gemm_plan(GemmTypes("f32", "f32", "f32"), resolve())), reason="no masked stores"
)
def test_matrices_that_no_cache_keeps_are_read_row_by_row() -> None:
    n = tuning.GEMM_SKINNY_BYTES // 4 // 1024
    assert "_few" in guarded.compile(layer(16, 1024, n), cache=False).text("schedule")
    assert "_few" not in guarded.compile(layer(16, 1024, n + 1), cache=False).text("schedule")
