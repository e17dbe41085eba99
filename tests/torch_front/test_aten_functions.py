"""Bessel functions, orthogonal polynomials, distributions and functions of matrices, compared with PyTorch in f64, on
both sides of the limits of their approximations."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F
from agreement import agree

INF, NAN = math.inf, math.nan
special = torch.special


def test_bessel_functions():
    x = torch.cat([torch.linspace(-30, 30, 201).double(), torch.tensor([0.0, 1e-6, 2.0, 5.0, 8.0, INF, NAN])])
    positive = x.abs()
    first = [
        special.bessel_j0, special.bessel_j1, special.spherical_bessel_j0,
        special.modified_bessel_i0, special.modified_bessel_i1,
    ]  # fmt: skip
    second = [
        special.bessel_y0, special.bessel_y1, special.modified_bessel_k0, special.modified_bessel_k1,
        special.scaled_modified_bessel_k0, special.scaled_modified_bessel_k1,
    ]  # fmt: skip
    agree([*(lambda x, p, f=f: f(x) for f in first), *(lambda x, p, f=f: f(p) for f in second)], x, positive)
    agree([lambda x, f=f: f(x) for f in second], torch.tensor([-0.0, -1.0, -INF, NAN]).double())
    agree([special.airy_ai], torch.tensor([-25.0, -2.09, -2.0, 0.0, 1.5, 2.09, 2.1, 8.0, 9.0, 110.0, INF, NAN]).double())


def test_orthogonal_polynomials():
    x = torch.tensor([-3.0, -1.0, -0.75, -0.0, 0.0, 0.3, 0.5, 1.0, 1.25]).double()[:, None]
    n = torch.tensor([-2.0, 0.0, 1.0, 2.0, 3.7, 5.0, 8.0, 9.0, 40.0])
    kinds = [
        *(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"),
        "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    ]  # fmt: skip
    functions = [getattr(special, kind) for kind in kinds]
    agree([lambda x, n, f=f: f(x, n.double()) for f in functions], x, n)
    agree([lambda x, n, f=f: f(x, n.long()) for f in functions], x[1:].float(), n[:7], rtol=1e-4, atol=1e-4)
    agree([lambda x, n, f=f: f(x, 3) for f in functions], x, n)
    agree([lambda x, n, f=f: f(0.25, n) for f in functions], x, n, rtol=1e-4, atol=1e-4)
    # Before 2.14, PyTorch returns numbers from memory that it has not written.
    compiled = torch.compile(lambda x: [f(x, 3) for f in functions], backend="shlo_jit", options={"fallback": False})
    assert all(y.isnan().all() for y in compiled(torch.tensor([NAN, NAN])))
    hermite = [special.hermite_polynomial_h, special.hermite_polynomial_he]
    agree([lambda x, n, f=f: f(x, n) for f in hermite], torch.tensor([0.1, 0.2, 0.3]), torch.tensor([129.0, INF, NAN]))


def test_functions_of_distributions():
    x = torch.cat([torch.linspace(-28, 28, 113), torch.tensor([-INF, 100.0, 1e5, INF, NAN])]).double()
    p = torch.tensor([0.0, 1e-300, 1e-20, 1e-5, 0.13, 0.14, 0.5, 0.86, 0.87, 1 - 1e-9, 1.0, -0.1, 1.1, NAN]).double()
    agree([special.erfcx, special.log_ndtr], x)
    agree([special.ndtri], p)
    a = torch.tensor([0.0, 1e-3, 0.5, 1.0, 2.5, 30.0, 400.0, 5e4, INF, -1.0, NAN]).double()[:, None]
    y = torch.tensor([0.0, 1e-6, 0.4, 1.0, 1.1, 3.0, 29.0, 35.0, 395.0, 4.99e4, INF, -1.0]).double()
    agree([special.gammainc, special.gammaincc], a, y, rtol=1e-7, atol=1e-9)
    agree([special.gammainc, special.gammaincc], a.float(), y.float())


def test_fractions_and_exponents():
    x = torch.tensor([0.0, -0.0, 1.0, -0.75, 1e30, 1e-40, -1e-45, 3.4e38, INF, -INF, NAN])
    # The exponents of infinities and NaN are not defined.
    agree([torch.frexp, lambda x: torch.frexp(x.double() * 1e-280), lambda x: torch.frexp(x.bfloat16())], x[:8])
    agree([lambda x: torch.frexp(x)[0]], x)


def test_histograms_with_limits():
    x = torch.tensor([0.5, -1.0, 2.0, 2.0, 0.25, 7.0, 3.5, -4.0])
    w = torch.arange(8.0)
    agree(
        [
            lambda x, w: torch.histogram(x, 5),
            lambda x, w: torch.histogram(x, 4, range=(-1.0, 2.0)),
            lambda x, w: torch.histogram(x, 3, weight=w, density=True),
            lambda x, w: torch.histogram(x, torch.tensor([-1.0, 0.0, 0.25, 2.0, 7.0]), weight=w),
            lambda x, w: torch.histogram(x[:1], 2),
        ],
        x,
        w,
    )


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_volumes_at_places_of_a_grid(padding):
    x = torch.randn(2, 3, 4, 5, 6)
    grid = torch.rand(2, 3, 2, 4, 3) * 5 - 2.5
    grid[0, 0, 0, 0] = torch.tensor([-1.0, 1.0, 0.0])
    agree(
        [
            lambda x, grid, mode=mode, align=align: F.grid_sample(x, grid, mode, padding, align)
            for mode in ("bilinear", "nearest")
            for align in (False, True)
        ],
        x,
        grid,
        rtol=1e-4,
        atol=1e-5,
    )


def test_elements_in_other_shapes():
    def resized(x, *shape):
        return torch.ops.aten.resize(x, shape)

    agree([lambda x: resized(x, 2, 3), lambda x: resized(x, 4, 3), lambda x: resized(x, 20)[:12]], torch.randn(3, 4))


def test_exponentials_of_matrices():
    x = torch.randn(2, 3, 3).double()
    sizes = torch.tensor([1e-8, 0.3, 5.0, 40.0]).double()[:, None, None, None]
    agree([lambda x, s: torch.matrix_exp(x * s), lambda x, s: torch.matrix_exp(x[0, :0, :0])], x, sizes)
    agree([lambda x, s: torch.matrix_exp(x.to(torch.complex128) * 1j)], x, sizes)
    agree([torch.matrix_exp], torch.tensor([[INF, 1.0], [0.0, 1.0]]))
    agree([torch.matrix_exp], torch.tensor([[-9e3, 1.0], [0.0, -1e30]]))
