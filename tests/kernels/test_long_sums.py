"""Tests of how long sums of products round: blocks of terms are added up, so the error does not grow with their number."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit

LONGEST = 4608
"""Terms of the sums. One chain of them has an error of 5.8e-7 in f32, blocks of 128 terms one of 2.2e-7."""
ERROR = 2.6e-7


def error(found: np.ndarray, exact: np.ndarray) -> float:
    """The norm of the errors, divided by that of the results."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rows", [64, 200])
@pytest.mark.parametrize("is_constant", [False, True], ids=["argument", "constant"])
def test_products(rows: int, is_constant: bool) -> None:
    a, b = random(rows, LONGEST), random(LONGEST, 96)[:, ::-1].copy()
    exe = shlo_jit.compile(
        f"""func.func @main(%a: tensor<{rows}x{LONGEST}xf32>, %b: tensor<{LONGEST}x96xf32>) -> tensor<{rows}x96xf32> {{
          %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
            : (tensor<{rows}x{LONGEST}xf32>, tensor<{LONGEST}x96xf32>) -> tensor<{rows}x96xf32>
          return %0 : tensor<{rows}x96xf32>
        }}""",
        constants={"b": b} if is_constant else None,
    )
    found = exe(a) if is_constant else exe(a, b)
    assert error(found, a.astype(np.float64) @ b.astype(np.float64)) < ERROR


@pytest.mark.parametrize("window, features", [(3, 512), (1, LONGEST), (48, 2)], ids=["runs", "one run", "short runs"])
def test_convolutions(window: int, features: int) -> None:
    size = window + 15
    x, w = random(2, size, size, features), random(window, window, features, 64)[..., ::-1].copy()
    exe = shlo_jit.compile(
        f"""func.func @main(%x: tensor<2x{size}x{size}x{features}xf32>, %w: tensor<{window}x{window}x{features}x64xf32>)
            -> tensor<2x16x16x64xf32> {{
          %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
            window = {{stride = [1, 1], pad = [[0, 0], [0, 0]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
            : (tensor<2x{size}x{size}x{features}xf32>, tensor<{window}x{window}x{features}x64xf32>) -> tensor<2x16x16x64xf32>
          return %0 : tensor<2x16x16x64xf32>
        }}"""
    )
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (window, window), (1, 2))
    exact = np.einsum("bhwfij,ijfo->bhwo", windows, w.astype(np.float64), optimize=True)
    assert error(exe(x, w), exact) < ERROR
