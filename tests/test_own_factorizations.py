"""Factorizations as loops of core ops, which `reproducible=True` and machines without LAPACK have in place of its calls:
residuals and orthogonality of LAPACK's order, its results where they are unique, and the same bits everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import guarded
import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit.runtime import lapack

jax = pytest.importorskip("jax")
linalg = jax.lax.linalg
jnp = jax.numpy

DTYPES = ["float32", "float64", "complex64", "complex128"]
MOST = 10
"""Multiples of n and of the precision that residuals and orthogonality may have."""
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def wide_types():
    with jax.enable_x64(True):
        yield


def matrices(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def run(function: Function, *arrays: np.ndarray, compiler: Function = shlo_jit.compile, **options: Any) -> list[Any]:
    """The results of JAX's text, compiled with `reproducible`."""
    text = jax.jit(function).lower(*arrays).as_text()
    assert "custom_call @lapack_" in text or "custom_call @tridiagonal" in text
    found = compiler(text, cache=False, reproducible=True, **options)(*arrays)
    return [np.array(x) for x in (found if isinstance(found, tuple) else (found,))]


def adjoint(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128)


def check(*differences: np.ndarray, like: np.ndarray) -> None:
    """Checks that numbers are at most a few n times the precision of `like`, whose largest elements are about 1."""
    bound = MOST * max(like.shape[-2:]) * np.finfo(like.dtype).eps
    for difference in differences:
        assert np.abs(difference).max(initial=0) <= bound


def off_identity(q: np.ndarray) -> np.ndarray:
    """How far columns are from being orthonormal."""
    return adjoint(wide(q)) @ wide(q) - np.eye(q.shape[-1])


def low_rank(dtype: str) -> np.ndarray:
    return matrices(1, (24, 3), dtype) @ matrices(2, (3, 17), dtype) / 4


def repeated_columns(dtype: str) -> np.ndarray:
    return np.tile(matrices(0, (24, 12), dtype), 2)


SHAPES: dict[str, Function] = {
    "one": lambda dtype: matrices(0, (1, 1), dtype),
    "two": lambda dtype: matrices(0, (2, 2), dtype),
    "odd": lambda dtype: matrices(1, (2, 3, 7, 7), dtype),
    "even": lambda dtype: matrices(2, (18, 18), dtype),
    "tall": lambda dtype: matrices(3, (2, 21, 6), dtype),
    "flat": lambda dtype: matrices(4, (5, 33), dtype),
    "column": lambda dtype: matrices(5, (9, 1), dtype),
    "row": lambda dtype: matrices(6, (2, 1, 9), dtype),
    "low rank": low_rank,
    "repeated columns": repeated_columns,
    "zero": lambda dtype: np.zeros((6, 4), dtype),
    "identity": lambda dtype: np.eye(5, dtype=dtype),
}
SQUARE = {name: SHAPES[name] for name in ("one", "two", "odd", "even", "repeated columns", "identity")}


# ---------------------------------------------------------------------- residuals
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.sampled(8)
def test_singular_values(name: str, full: bool, dtype: str) -> None:
    x = SHAPES[name](dtype)
    u, s, vt = run(lambda x: linalg.svd(x, full_matrices=full), x)
    k, size = min(x.shape[-2:]), max(1, np.abs(x).max()) * max(x.shape[-2:]) ** 0.5
    residual = wide(u)[..., :k] * s[..., None, :] @ wide(vt)[..., :k, :] - x
    values = s - np.linalg.svd(x.astype(np.complex128), compute_uv=False)
    check(residual / size, values / size, off_identity(u), off_identity(adjoint(vt)), like=x)
    assert (np.diff(s) <= 0).all() and (s >= 0).all()
    (only,) = run(lambda x: linalg.svd(x, compute_uv=False), x)
    check((only - s) / size, like=x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", SQUARE)
@pytest.mark.sampled(8)
def test_hermitian_eigenvalues(name: str, lower: bool, dtype: str) -> None:
    x = SQUARE[name](dtype)
    x = x + adjoint(x)
    other = np.triu(x, 1) if lower else np.tril(x, -1)
    v, w = run(lambda x: linalg.eigh(x, lower=lower, symmetrize_input=False), x + 100 * other)
    size = max(1, np.abs(x).max()) * x.shape[-1] ** 0.5
    residual = wide(x) @ wide(v) - wide(v) * w[..., None, :]
    check(residual / size, (w - np.linalg.eigvalsh(wide(x))) / size, off_identity(v), like=x)
    assert (np.diff(w) >= 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", ["largest", "smallest"])
def test_extreme_numbers(scale: str, dtype: str) -> None:
    """Squares of the elements overflow, or underflow."""
    x = matrices(7, (6, 6), dtype)
    x = x / np.abs(x).max()
    kind = np.finfo(dtype)
    factor = np.array(2.0 ** (kind.maxexp - 8 if scale == "largest" else kind.minexp + 40), kind.dtype)
    for function in (lambda x: linalg.svd(x, compute_uv=False), lambda x: linalg.eigh(x)[1]):
        (got,) = run(function, x * factor)
        (want,) = run(function, x)
        check(got / factor - want, like=x)
    q, r = run(linalg.qr, x * factor)
    check(q @ (r / factor) - x, off_identity(q), like=x)


# ---------------------------------------------------------------------- where LAPACK's results are unique
UNIQUE: dict[str, Function] = {
    "qr": lambda x: linalg.qr(x, full_matrices=False),
    "qr_full": linalg.qr,
    "qr_pivoting": lambda x: linalg.qr(x, pivoting=True),
    "lu": linalg.lu,
    "solve": lambda x: jnp.linalg.solve(x @ adjoint(x) + 3 * jnp.eye(x.shape[-2], dtype=x.dtype), x),
}
UNIQUE_OF_SQUARE: dict[str, Function] = {
    "cholesky": lambda x: linalg.cholesky(x @ adjoint(x) + jnp.eye(x.shape[-1], dtype=x.dtype)),
    "hessenberg": linalg.hessenberg,
    "tridiagonal": lambda x: linalg.tridiagonal(x + adjoint(x), lower=True),
    "tridiagonal_upper": lambda x: linalg.tridiagonal(x + adjoint(x), lower=False),
    "inverse": lambda x: jnp.linalg.inv(x + 9 * jnp.eye(x.shape[-1], dtype=x.dtype)),
}


def agrees(function: Function, *arrays: np.ndarray) -> None:
    """Checks that results are those of JAX, but for rounding."""
    size = 1 + max(np.abs(x).max(initial=0) for x in arrays)
    for got, want in zip(run(function, *arrays), jax.tree.leaves(jax.jit(function)(*arrays)), strict=True):
        want = np.asarray(want)
        assert got.dtype == want.dtype and got.shape == want.shape
        difference = wide(got) - wide(want)
        check(difference / max(size, np.abs(want).max(initial=0)) / 4, like=arrays[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 6, 6), (5, 3), (2, 3, 7)])
@pytest.mark.parametrize("name", [*UNIQUE, *UNIQUE_OF_SQUARE])
@pytest.mark.sampled(8)
def test_unique_results(name: str, shape: tuple[int, ...], dtype: str) -> None:
    if name in UNIQUE_OF_SQUARE:
        shape = (*shape[:-1], shape[-2])
    agrees({**UNIQUE, **UNIQUE_OF_SQUARE}[name], matrices(11, shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tridiagonal_systems(dtype: str) -> None:
    dl, d, du = (matrices(k, (2, 6), dtype) for k in (6, 7, 8))
    dl[..., 0] = du[..., -1] = 0
    b = matrices(9, (2, 6, 3), dtype)
    agrees(linalg.tridiagonal_solve, dl, d, du, b)  # rows are exchanged
    agrees(lambda *x: linalg.tridiagonal_solve(*x, perturb_singular=True), dl, d + 5, du, b)
    zero = np.zeros_like(d)
    (found,) = run(lambda *x: linalg.tridiagonal_solve(*x, perturb_singular=True), zero, zero, zero, b / 8)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_products_with_reflectors(left: bool, transpose: bool, dtype: str) -> None:
    from jax._src.lax.linalg import geqrf, ormqr

    def function(x: Any, c: Any) -> Any:
        return ormqr(*geqrf(x), c, left=left, transpose=transpose)

    agrees(function, matrices(10, (2, 5, 4), dtype), matrices(11, (2, 5, 3) if left else (2, 3, 5), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose,conjugate", [(False, False), (True, False), (True, True)])
def test_triangular_systems(left: bool, transpose: bool, conjugate: bool, dtype: str) -> None:
    a = matrices(4, (2, 4, 4), dtype) + 4 * np.eye(4, dtype=dtype)
    b = matrices(5, (2, 4, 3) if left else (2, 3, 4), dtype)

    def function(a: Any, b: Any) -> Any:
        return [
            linalg.triangular_solve(
                a, b, left_side=left, lower=lower, transpose_a=transpose, conjugate_a=conjugate, unit_diagonal=unit
            )
            for lower in (True, False)
            for unit in (True, False)
        ]

    agrees(function, a, b)


ALL: dict[str, Function] = {
    **UNIQUE,
    **UNIQUE_OF_SQUARE,
    "svd": lambda x: linalg.svd(x, full_matrices=False),
    "svd_values": lambda x: linalg.svd(x, compute_uv=False),
    "eigh": lambda x: linalg.eigh(x + adjoint(x)),
}


@pytest.mark.parametrize("name", ALL)
def test_numbers_that_are_no_numbers(name: str) -> None:
    """The results of a matrix with NaN are NaN where JAX has NaN everywhere; the other matrices are as without it."""
    x = matrices(12, (3, 4, 4), "float32")
    good = run(ALL[name], x)
    x[1, 2, 2] = np.nan
    wanted = [np.asarray(v) for v in jax.tree.leaves(jax.jit(ALL[name])(x))]
    for got, want, usual in zip(run(ALL[name], x), wanted, good, strict=True):
        assert (got[[0, 2]] == usual[[0, 2]]).all()
        if np.isnan(want[1]).all():
            assert np.isnan(got[1]).all()


def test_status() -> None:
    """Matrices that have no factorization: not positive definite, singular."""
    (found,) = run(linalg.cholesky, np.stack([-np.eye(3), np.eye(3)]))
    assert np.isnan(found[0]).any() and (found[1] == np.eye(3)).all()
    text = """
    func.func @main(%x: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3xi32>, tensor<i32>) {
      %0:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%x) : (tensor<3x3xf32>)
        -> (tensor<3x3xf32>, tensor<3xi32>, tensor<i32>)
      return %0#0, %0#1, %0#2 : tensor<3x3xf32>, tensor<3xi32>, tensor<i32>
    }"""
    x = np.array([[0, 2, 1], [4, 4, 8], [2, 2, 4]], np.float32)
    for given in (x.T, x):  # without layouts, rows in memory are columns
        found = shlo_jit.compile(text, cache=False, reproducible=True)(given)
        for got, want in zip(found, shlo_jit.compile(text, cache=False)(given), strict=True):
            assert (np.asarray(got) == np.asarray(want)).all()


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (2, 0, 3), (2, 3, 0)])
def test_no_elements(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    functions = [linalg.lu, linalg.qr, linalg.svd]
    if shape[-1] == shape[-2]:
        functions += [linalg.eigh, linalg.cholesky]
    for function in functions:
        text = jax.jit(function).lower(x).as_text()
        found = shlo_jit.compile(text, cache=False, reproducible=True)(x)
        found = found if isinstance(found, tuple) else (found,)
        for got, want in zip(found, jax.tree.leaves(jax.jit(function)(x)), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


# ---------------------------------------------------------------------- the same bits
def same(found: list[Any], other: list[Any]) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(found, other, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("shape", [(2, 2), (9, 9), (24, 17), (3, 40), (5, 1)])
@pytest.mark.parametrize("name", ALL)
@pytest.mark.sampled(12)
def test_same_bits(name: str, shape: tuple[int, ...], dtype: str) -> None:
    if name in (*UNIQUE_OF_SQUARE, "eigh"):
        shape = (shape[0], shape[0])
    x = matrices(13, (5, *shape), dtype)
    whole = run(ALL[name], x, threads=1)
    for threads in (2, 3, 8):
        assert same(run(ALL[name], x, threads=threads), whole)
    assert same(run(ALL[name], x, target="x86-64-v3"), whole)
    for alone in (x[2:3], x[2]):
        assert same(run(ALL[name], alone), [v[2] for v in whole])


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_memory(threads: int) -> None:
    for function in ALL.values():
        run(function, matrices(14, (2, 5, 5), "float32"), compiler=guarded.compile, threads=threads)


# ---------------------------------------------------------------------- without LAPACK
def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack, "is_available", lambda: False)
    x = matrices(15, (6, 4), "float64")
    q, r = shlo_jit.compile(jax.jit(lambda x: linalg.qr(x, full_matrices=False)).lower(x).as_text(), cache=False)(x)
    check(np.asarray(q) @ np.asarray(r) - x, off_identity(np.asarray(q)), like=x)


def test_general_eigenvalues_are_refused() -> None:
    text = jax.jit(jnp.linalg.eigvals).lower(matrices(16, (4, 4), "float32")).as_text()
    line = next(i for i, words in enumerate(text.splitlines(), 1) if "custom_call @lapack_sgeev" in words)
    with refused(shlo_jit.StableHLOError, "not-reproducible", shows="lapack_sgeev_ffi") as caught:
        shlo_jit.compile(text, cache=False, reproducible=True)
    assert caught.value.diagnostics[0].line == line
