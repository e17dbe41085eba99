"""Operators that programs seldom have, compared with PyTorch: special functions, modes, places of elements, maxima of a
number of positions."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F
from agreement import agree

from shlo_jit.torch.dynamo import backend

INF, NAN = math.inf, math.nan


def test_most_frequent_elements_and_places_of_nonzero_ones():
    x = torch.tensor([[3, 1, 3, 1, 2], [5, 5, 4, 4, 4], [9, 8, 7, 6, 5]])
    y = torch.tensor([[NAN, 2.0, 2.0], [-3.0, 4.0, 1.0]])
    agree(
        [
            lambda x, y: torch.mode(x),
            lambda x, y: torch.mode(x, 0, keepdim=True),
            lambda x, y: torch.mode(y),
            lambda x, y: torch.nonzero_static(x - 5, size=20),
            lambda x, y: torch.nonzero_static(x == 4, size=2, fill_value=7),
            lambda x, y: torch.nonzero_static(x == 40, size=3),
            lambda x, y: torch.nonzero_static(x[0, 0], size=1),
            lambda x, y: torch.nonzero_static(x[:0], size=2),
            lambda x, y: torch.lcm(x, x.flip(1) - 4),
        ],
        x,
        y,
    )


def test_maxima_of_a_number_of_positions():
    x = torch.randn(2, 3, 5, 7, 6)
    x[0, 1, 2, 3, 4], x[1, 1] = NAN, -INF
    agree(
        [
            lambda x: F.adaptive_max_pool2d(x[:, 0], (3, 4), return_indices=True),
            lambda x: F.adaptive_max_pool2d(x[0, 1], (1, 2))[0],
            lambda x: F.adaptive_max_pool2d(x[0, 2], (9, 6)),
            lambda x: F.adaptive_max_pool3d(x, (2, 3, 4), return_indices=True),
            lambda x: F.adaptive_max_pool1d(x[1, 1, 0], 4),
        ],
        x,
    )


def test_special_functions_at_poles_and_below_zero():
    x = torch.tensor([0.0, -0.0, -1.0, -2.5, -7.7, -20.25, 0.3, 1.0, 9.5, INF, -INF, NAN])
    s = torch.tensor([0.5, 1.0, 1.5, 2.0, 7.0, 30.0])[:, None]
    agree([lambda x, s: torch.digamma(x)], x, s, rtol=1e-5, atol=1e-5)
    # At infinity the sums are zero; ATen's are NaN.
    x = torch.where(x == INF, 30.0, x)
    agree(
        [
            lambda x, s: torch.digamma((x.nan_to_num(3.0, 2.0, 1.0)).long()),
            *(lambda x, s, n=n: torch.polygamma(n, x.double()) for n in range(1, 5)),
            lambda x, s: torch.special.zeta(s, x),
            lambda x, s: torch.special.zeta(s.double(), x.double()),
        ],
        x,
        s,
        rtol=1e-5,
        atol=1e-5,
    )


def test_the_next_float_of_16_bits():
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 1.0, INF, NAN, 2.0, 0.0, -3.0], dtype=torch.bfloat16)
    y = torch.tensor([1.0, -1.0, 2.0, 2.0, -INF, 0.0, 1.0, NAN, -0.0, -3.0], dtype=torch.bfloat16)
    agree([torch.nextafter, lambda x, y: torch.nextafter(x, y).view(torch.int16)[:6]], x, y)


def test_sums_of_three_factors_and_slopes():
    x, y = torch.randn(4, 3), torch.randn(4, 5)
    w = torch.randn(2, 3, 5)
    agree([lambda x, y, w: F.bilinear(x, y, w, torch.ones(2)), lambda x, y, w: F.rrelu(x)], x, y, w)

    def drawn(x):
        return F.rrelu(x, 0.25, 0.5, training=True), torch.normal(2.0, 0.5, (400,))

    slopes, normal = torch.compile(drawn, backend=backend, options={"fallback": False})(torch.linspace(-1, 1, 400))
    ratio = slopes / torch.linspace(-1, 1, 400)
    assert ratio[:200].min() >= 0.25 and ratio[:200].max() < 0.5 and ratio[:200].std() > 0.05
    assert (ratio[200:] == 1).all()
    assert abs(normal.mean() - 2) < 0.15 and abs(normal.std() - 0.5) < 0.1
