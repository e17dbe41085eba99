"""custom_call of LAPACK routines, as JAX emits them: against JAX itself, and the two cases without SciPy."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit.runtime import lapack

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.xla
linalg = jax.lax.linalg

DTYPES = ["float32", "float64", "complex64", "complex128"]
TOLERANCE = {"float32": 2e-4, "complex64": 2e-4, "float64": 1e-11, "complex128": 1e-11}


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


def hermitian(x: np.ndarray) -> np.ndarray:
    return x @ x.conj().swapaxes(-1, -2) + 2 * np.eye(x.shape[-1], dtype=x.dtype)


def agrees(function, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Checks that the function, compiled from JAX's text, returns JAX's results."""
    text = jax.jit(function).lower(*arrays).as_text()
    assert "custom_call @lapack_" in text
    got = shlo_jit.compile(text)(*arrays)
    got = got if isinstance(got, tuple) else (got,)
    expected = jax.tree_util.tree_leaves(jax.jit(function)(*arrays))
    assert len(got) == len(expected)
    tolerance = TOLERANCE[str(arrays[0].dtype)]
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype
        np.testing.assert_allclose(g, e, rtol=tolerance, atol=10 * tolerance)
    return got


GENERAL = {
    "qr": lambda x: linalg.qr(x, full_matrices=False),
    "qr_full": linalg.qr,
    "qr_pivoting": lambda x: linalg.qr(x, pivoting=True),
    "svd": lambda x: linalg.svd(x, full_matrices=False),
    "svd_full": linalg.svd,
    "svd_values": lambda x: linalg.svd(x, compute_uv=False),
    "svd_qr": lambda x: linalg.svd(x, algorithm=linalg.SvdAlgorithm.QR),
    "lu": linalg.lu,
}
SQUARE = {
    "eig": linalg.eig,
    "eig_right": lambda x: linalg.eig(x, compute_left_eigenvectors=False),
    "schur": linalg.schur,
    "hessenberg": linalg.hessenberg,
}
POSITIVE = {
    "cholesky": lambda x: linalg.cholesky(x, symmetrize_input=False),
    "eigh_lower": lambda x: linalg.eigh(x, symmetrize_input=False),
    "eigh_upper": lambda x: linalg.eigh(x, lower=False, symmetrize_input=False),
    "tridiagonal": lambda x: linalg.tridiagonal(x, lower=True),
}


@pytest.mark.parametrize(
    "shape,dtype",
    [((5, 3), "float32"), ((2, 3, 3, 6), "float64"), ((2, 3, 3, 6), "complex64"), ((5, 3), "complex128")],
)
@pytest.mark.parametrize("name", GENERAL)
@pytest.mark.sampled(4)
def test_general_matrices(name: str, shape: tuple[int, ...], dtype: str) -> None:
    agrees(GENERAL[name], matrices(1, shape, dtype))


@pytest.mark.parametrize(
    "shape,dtype",
    [((6, 6), "float32"), ((2, 3, 4, 4), "float64"), ((2, 3, 4, 4), "complex64"), ((6, 6), "complex128")],
)
@pytest.mark.parametrize("name", SQUARE)
def test_square_matrices(name: str, shape: tuple[int, ...], dtype: str) -> None:
    agrees(SQUARE[name], matrices(2, shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", POSITIVE)
def test_positive_matrices(name: str, dtype: str) -> None:
    agrees(POSITIVE[name], hermitian(matrices(3, (2, 3, 4, 4), dtype)))


def test_large_matrix() -> None:
    agrees(POSITIVE["cholesky"], hermitian(matrices(3, (150, 150), "float64")))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose,conjugate", [(False, False), (True, False), (True, True)])
@pytest.mark.sampled(4)
def test_triangular_solve(left: bool, transpose: bool, conjugate: bool, dtype: str) -> None:
    a = matrices(4, (2, 4, 4), dtype) + 4 * np.eye(4, dtype=dtype)
    b = matrices(5, (2, 4, 3) if left else (2, 3, 4), dtype)
    for lower in (True, False):
        for unit in (True, False):
            agrees(
                lambda a, b, lower=lower, unit=unit: linalg.triangular_solve(
                    a, b, left_side=left, lower=lower, transpose_a=transpose, conjugate_a=conjugate,
                    unit_diagonal=unit,
                ),
                a,
                b,
            )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_tridiagonal_solve(dtype: str) -> None:
    dl, d, du = (matrices(k, (2, 6), dtype) for k in (6, 7, 8))
    dl[..., 0] = du[..., -1] = 0
    agrees(linalg.tridiagonal_solve, dl, d + 5, du, matrices(9, (2, 6, 3), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left,transpose", [(True, False), (False, True)])
def test_ormqr(left: bool, transpose: bool, dtype: str) -> None:
    from jax._src.lax.linalg import geqrf, ormqr

    def function(x, c):
        a, taus = geqrf(x)
        return ormqr(a, taus, c, left=left, transpose=transpose)

    agrees(function, matrices(10, (2, 5, 4), dtype), matrices(11, (2, 5, 3) if left else (2, 3, 5), dtype))


def test_bad_matrices_give_nan() -> None:
    x = np.stack([-np.eye(3), np.eye(3)]).astype(np.float32)
    (got,) = agrees(POSITIVE["cholesky"], x)
    assert np.isnan(got[0]).any() and not np.isnan(got[1]).any()
    for name in ("svd_values", "eig_right"):
        x = matrices(12, (3, 3), "float32")
        x[1, 1] = np.nan
        got = agrees({**GENERAL, **SQUARE}[name], x)
        assert np.isnan(got[0]).all()


def test_no_matrix_at_all() -> None:
    (got,) = agrees(POSITIVE["cholesky"], np.zeros((0, 3, 3), np.float32))
    assert got.shape == (0, 3, 3)


TEXT = """
func.func @main(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>) {
  %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%x) {mhlo.backend_config = {uplo = 76 : ui8},
    operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]}
    : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>)
  return %0#0, %0#1 : tensor<2x2xf32>, tensor<i32>
}"""


def test_object_code_holds_no_address(tmp_path) -> None:
    """Another process, with LAPACK at another address, loads the program from the cache."""
    script = f"import numpy as np, shlo_jit; print(shlo_jit.compile('''{TEXT}''')(4 * np.eye(2, dtype='f4'))[0][1])"
    environment = {"SHLO_JIT_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[0. 2.]"
    assert list(tmp_path.iterdir())


GENERAL_EIGENVALUES = """
func.func @main(%x: tensor<2x2xf32>) -> tensor<2xf32> {
  %0:5 = stablehlo.custom_call @lapack_sgeev_ffi(%x) {mhlo.backend_config = {compute_left = 78 : ui8,
    compute_right = 78 : ui8}} : (tensor<2x2xf32>)
    -> (tensor<2xf32>, tensor<2xf32>, tensor<2x2xcomplex<f32>>, tensor<2x2xcomplex<f32>>, tensor<i32>)
  return %0#0 : tensor<2xf32>
}"""


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack, "is_available", lambda: False)
    with refused(shlo_jit.StableHLOError, "lapack-missing", (3, 10), shows="pip install scipy"):
        shlo_jit.compile(GENERAL_EIGENVALUES, cache=False)


def test_missing_option() -> None:
    with refused(shlo_jit.StableHLOError, "target", (3, 10), shows="'uplo'"):
        shlo_jit.compile(TEXT.replace("uplo = 76 : ui8", ""), cache=False)


# JAX up to 0.4.30: options, sizes and workspace lengths are constant operands, workspaces are results.
OLD_QR = """
func.func @main(%x: tensor<2x5x3xf32>) -> (tensor<2x5x3xf32>, tensor<2xi32>, tensor<2xi32>) {
  %batch = stablehlo.constant dense<2> : tensor<i32>
  %m = stablehlo.constant dense<5> : tensor<i32>
  %n = stablehlo.constant dense<3> : tensor<i32>
  %work = stablehlo.constant dense<96> : tensor<i32>
  %0:4 = stablehlo.custom_call @lapack_sgeqrf(%batch, %m, %n, %work, %x) {
    operand_layouts = [dense<> : tensor<0xindex>, dense<> : tensor<0xindex>, dense<> : tensor<0xindex>,
      dense<> : tensor<0xindex>, dense<[1, 2, 0]> : tensor<3xindex>],
    result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>,
      dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>]}
    : (tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<2x5x3xf32>)
    -> (tensor<2x5x3xf32>, tensor<2x3xf32>, tensor<2xi32>, tensor<96xf32>)
  %1:3 = stablehlo.custom_call @lapack_sorgqr(%batch, %m, %n, %n, %work, %0#0, %0#1) {
    operand_layouts = [dense<> : tensor<0xindex>, dense<> : tensor<0xindex>, dense<> : tensor<0xindex>,
      dense<> : tensor<0xindex>, dense<> : tensor<0xindex>, dense<[1, 2, 0]> : tensor<3xindex>,
      dense<[1, 0]> : tensor<2xindex>],
    result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>]}
    : (tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<2x5x3xf32>, tensor<2x3xf32>)
    -> (tensor<2x5x3xf32>, tensor<2xi32>, tensor<96xf32>)
  return %1#0, %0#2, %1#1 : tensor<2x5x3xf32>, tensor<2xi32>, tensor<2xi32>
}"""


def test_old_qr_gives_its_status() -> None:
    x = matrices(13, (2, 5, 3), "float32")
    q, first, second = shlo_jit.compile(OLD_QR, cache=False)(x)
    np.testing.assert_allclose(np.abs(q), np.abs(np.linalg.qr(x)[0]), rtol=1e-4, atol=1e-5)
    assert not first.any() and not second.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_perturbed_tridiagonal_solve(dtype: str) -> None:
    """The result is JAX's for a regular matrix; a singular one gives finite numbers."""
    solve = linalg.tridiagonal_solve
    dl, d, du = (matrices(k, (2, 6), dtype) for k in (6, 7, 8))
    dl[..., 0] = du[..., -1] = 0
    b = matrices(9, (2, 6, 3), dtype)
    text = jax.jit(lambda *x: solve(*x, perturb_singular=True)).lower(dl, d, du, b).as_text()
    exe = shlo_jit.compile(text, cache=False)
    want = jax.jit(lambda *x: solve(*x, perturb_singular=True))(dl, d + 5, du, b)
    np.testing.assert_allclose(exe(dl, d + 5, du, b), want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    zero = np.zeros_like(d)
    assert np.isfinite(exe(zero, zero, zero, b / 8)).all()
    assert np.isfinite(exe(dl, zero, du, b)).all()
