"""cholesky and triangular_solve against numpy in float64, over types, orders, batches and every option."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir.types import DTYPES

DTYPE_NAMES = ["f32", "f64", "complex<f32>", "complex<f64>"]
TOLERANCE = {"f32": 2e-4, "complex<f32>": 2e-4, "f64": 1e-11, "complex<f64>": 1e-11, "f16": 2e-2, "bf16": 1e-1}


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + dtype + ">"


def random(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return x


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def positive(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = random(seed, shape, dtype)
    return (x @ x.conj().swapaxes(-1, -2) / shape[-1] + np.eye(shape[-1])).astype(DTYPES[dtype].numpy)


def cholesky(a: np.ndarray, dtype: str, lower: bool, threads: int | None = None) -> np.ndarray:
    t = tensor(a.shape, dtype)
    text = f"""func.func @main(%a: {t}) -> {t} {{
      %0 = stablehlo.cholesky %a, lower = {str(lower).lower()} : {t}
      return %0 : {t}
    }}"""
    return shlo_jit.compile(text, threads=threads)(a)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 7, 7), (2, 2, 16, 16), (33, 33), (65, 65), (200, 200)])
@pytest.mark.sampled(4)
def test_cholesky(shape: tuple[int, ...], dtype: str, lower: bool) -> None:
    a = positive(1, shape, dtype)
    # the other triangle must not matter
    other = np.triu(a, 1) if lower else np.tril(a, -1)
    got = cholesky(a + 3 * other, dtype, lower)
    want = np.linalg.cholesky(wide(a))
    want = want if lower else want.conj().swapaxes(-1, -2)
    assert got.dtype == a.dtype
    np.testing.assert_allclose(got, want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert not np.any(np.triu(got, 1) if lower else np.tril(got, -1))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_cholesky_of_short_floats(dtype: str) -> None:
    a = positive(2, (4, 4), dtype)
    got = cholesky(a, dtype, True)
    np.testing.assert_allclose(wide(got), np.linalg.cholesky(wide(a)), atol=TOLERANCE[dtype])


def test_a_matrix_that_is_not_positive_definite_gives_nan() -> None:
    a = np.stack([np.eye(40), -np.eye(40), np.zeros((40, 40))]).astype(np.float32)
    a[0, 39, 39] = 4
    got = cholesky(a, "f32", True)
    assert np.isnan(got[1:]).all()
    np.testing.assert_array_equal(got[0], np.sqrt(a[0]))


@pytest.mark.parametrize("shape", [(300, 300), (20, 30, 30), (50, 100, 100)])
def test_same_bits_for_any_number_of_threads(shape: tuple[int, ...]) -> None:
    a = positive(3, shape, "f32")
    one, two, five = (cholesky(a, "f32", True, threads) for threads in (1, 2, 5))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, five)


OPTIONS = list(itertools.product([True, False], [True, False], [True, False], ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]))


def solve(a: np.ndarray, b: np.ndarray, dtype: str, options: tuple) -> np.ndarray:
    left, lower, unit, transpose = options
    ta, tb = tensor(a.shape, dtype), tensor(b.shape, dtype)
    text = f"""func.func @main(%a: {ta}, %b: {tb}) -> {tb} {{
      %0 = "stablehlo.triangular_solve"(%a, %b) <{{left_side = {str(left).lower()}, lower = {str(lower).lower()},
        unit_diagonal = {str(unit).lower()}, transpose_a = #stablehlo<transpose {transpose}>}}> : ({ta}, {tb}) -> {tb}
      return %0 : {tb}
    }}"""
    return shlo_jit.compile(text)(a, b)


def check_solve(dtype: str, batch: tuple[int, ...], n: int, m: int, options: tuple) -> None:
    left, lower, unit, transpose = options
    a = random(4, (*batch, n, n), dtype) / max(1, n) + 2 * np.eye(n)
    b = random(5, (*batch, n, m) if left else (*batch, m, n), dtype)
    a, b = a.astype(DTYPES[dtype].numpy), b.astype(DTYPES[dtype].numpy)
    got = solve(a, b, dtype, options)
    matrix = np.tril(wide(a)) if lower else np.triu(wide(a))
    if unit:
        matrix = matrix * (1 - np.eye(n)) + np.eye(n)
    if transpose != "NO_TRANSPOSE":
        matrix = matrix.swapaxes(-1, -2)
    if transpose == "ADJOINT":
        matrix = matrix.conj()
    back = matrix @ wide(got) if left else wide(got) @ matrix
    assert got.dtype == b.dtype
    np.testing.assert_allclose(back, wide(b), rtol=10 * TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
def test_triangular_solve(dtype: str, options: tuple) -> None:
    check_solve(dtype, (2,), 7, 5, options)


@pytest.mark.parametrize("dtype", [*DTYPE_NAMES, "bf16"])
@pytest.mark.parametrize("n,m", [(1, 1), (3, 70), (64, 16), (100, 130), (65, 1)])
def test_triangular_solve_sizes(n: int, m: int, dtype: str) -> None:
    check_solve(dtype, (), n, m, (True, True, False, "NO_TRANSPOSE"))
    check_solve(dtype, (3,), n, m, (False, True, False, "ADJOINT"))


def test_division_by_a_large_complex_number() -> None:
    a, b = np.array([[3e30 + 4e30j]], np.complex64), np.array([[5e30 + 0j]], np.complex64)
    got = solve(a, b, "complex<f32>", (True, True, False, "NO_TRANSPOSE"))
    np.testing.assert_allclose(got, [[0.6 - 0.8j]], rtol=1e-6)


def test_empty() -> None:
    assert cholesky(np.zeros((0, 3, 3), np.float32), "f32", True).shape == (0, 3, 3)
    assert cholesky(np.zeros((2, 0, 0), np.float32), "f32", True).shape == (2, 0, 0)
    options = (True, True, False, "NO_TRANSPOSE")
    assert solve(np.zeros((3, 3), np.float32), np.zeros((3, 0), np.float32), "f32", options).shape == (3, 0)
    assert solve(np.zeros((0, 0), np.float32), np.zeros((0, 3), np.float32), "f32", options).shape == (0, 3)
