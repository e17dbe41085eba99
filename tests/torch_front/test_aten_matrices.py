"""Functions of matrices that call LAPACK, compared with PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("scipy", reason="SciPy, which has LAPACK, is not installed")
from agreement import agree

TOLERANCE = {"rtol": 1e-8, "atol": 1e-8}


def test_pseudoinverses():
    x = torch.randn(2, 5, 3).double()
    x[1, :, 2] = x[1, :, 0] * 2  # of rank 2
    agree(
        [
            torch.linalg.pinv,
            lambda x: torch.linalg.pinv(x.mT),
            lambda x: torch.linalg.pinv(x, rtol=0.3),
            lambda x: torch.linalg.pinv(x, atol=1.0, rtol=0.1),
            lambda x: torch.linalg.pinv(x, atol=0.5),
            lambda x: torch.linalg.pinv(x.mT @ x, hermitian=True),
            lambda x: torch.pinverse(x[0]),
            lambda x: torch.linalg.pinv(x[:, :0]),
        ],
        x,
        **TOLERANCE,
    )


def test_roots_and_polar_factors():
    x = torch.randn(2, 4, 4).double()
    sqrth, polar = (getattr(torch.ops.aten, name, None) for name in ("linalg_matrix_sqrth", "linalg_polar"))
    if sqrth is None or polar is None:
        pytest.skip("this version of PyTorch does not have these operators")
    agree([polar, lambda x: polar(x + 1j * x.mT), lambda x: polar(x[..., :2])], x, **TOLERANCE)
    agree([lambda x: sqrth(x.mT @ x)], x, **TOLERANCE)


def test_eigenvalues_of_general_matrices():
    x = torch.tensor([[[0.0, -2.0, 0.3], [1.0, 0.5, 0.0], [0.2, 0.1, 4.0]]]).double()

    def rebuilt(x):
        values, vectors = torch.linalg.eig(x)
        return vectors @ torch.diag_embed(values) @ torch.linalg.inv(vectors), values

    agree([rebuilt, torch.linalg.eigvals, lambda x: rebuilt(x + 1j), lambda x: rebuilt(x.float())[1]], x)


def test_products_with_orthogonal_factors():
    x, wide = torch.randn(2, 5, 3).double(), torch.randn(2, 5, 5).double()
    agree(
        [
            lambda x, y, left=left, transpose=transpose: torch.ormqr(*torch.geqrf(x), y, left, transpose)
            for left in (True, False)
            for transpose in (True, False)
        ],
        x,
        wide,
        **TOLERANCE,
    )
