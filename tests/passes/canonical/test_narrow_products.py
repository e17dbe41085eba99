"""Products with few columns become convolutions with the same result."""

from __future__ import annotations

import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit.ir.core import walk


def text_of(lhs: str, rhs: str, result: str, dims: str) -> str:
    return f"""func.func @main(%x: tensor<{lhs}>, %w: tensor<{rhs}>) -> tensor<{result}> {{
      %0 = stablehlo.dot_general %x, %w, contracting_dims = {dims} : (tensor<{lhs}>, tensor<{rhs}>) -> tensor<{result}>
      return %0 : tensor<{result}>
    }}"""


@pytest.mark.parametrize(
    "lhs,rhs,result,dims,becomes_one",
    [
        ("70x32xf32", "32x3xf32", "70x3xf32", "[1] x [0]", True),
        ("7x10x17xf64", "2x17xf64", "7x10x2xf64", "[2] x [1]", True),
        ("64x20xf32", "20x4xf32", "64x4xf32", "[1] x [0]", True),
        ("128x40xf32", "40x8xf32", "128x8xf32", "[1] x [0]", True),
        ("200x50xf32", "50x10xf32", "200x10xf32", "[1] x [0]", True),
        ("127x40xf32", "40x8xf32", "127x8xf32", "[1] x [0]", False),  # few rows, and columns that must be packed
        ("63x16xf32", "16x3xf32", "63x3xf32", "[1] x [0]", False),  # few rows
        ("70x15xf32", "15x2xf32", "70x2xf32", "[1] x [0]", False),  # short ones
        ("64x16xf32", "16x4xf32", "64x4xf32", "[1] x [0]", False),  # short ones for four
        ("900x80xf32", "80x13xf32", "900x13xf32", "[1] x [0]", False),  # many columns
        ("1100x16xf32", "16x1xf32", "1100x1xf32", "[1] x [0]", False),  # a vector
        ("16x64xf32", "16x3xf32", "64x3xf32", "[0] x [0]", False),  # rows are not adjacent
        ("64x16xbf16", "16x3xbf16", "64x3xf32", "[1] x [0]", False),  # converted
    ],
)
def test_what_becomes_a_convolution(lhs: str, rhs: str, result: str, dims: str, becomes_one: bool) -> None:
    text = text_of(lhs, rhs, result, dims)
    names = {op.name for op in walk(canonical(text).block())}
    assert ("stablehlo.convolution" in names) == becomes_one
    assert ("stablehlo.dot_general" in names) != becomes_one
    if "bf16" in text:
        return
    generator = np.random.default_rng(0)
    dtype = np.float64 if lhs.endswith("f64") else np.float32
    sides = [generator.standard_normal([*map(int, t.split("x")[:-1])]).astype(dtype) for t in (lhs, rhs)]
    of_lhs, of_rhs = (int(d.strip("[] ")) for d in dims.split(" x "))
    expected = np.tensordot(*(s.astype(np.float64) for s in sides), axes=((of_lhs,), (of_rhs,)))
    bound = np.tensordot(*(np.abs(s.astype(np.float64)) for s in sides), axes=((of_lhs,), (of_rhs,)))
    for threads in (1, 3):
        got = shlo_jit.compile(text, cache=False, threads=threads)(*sides)
        assert (np.abs(got - expected) <= 3e-6 * bound).all()


@pytest.mark.parametrize("columns,becomes_one", [(9, True), (12, True), (13, False)])
def test_columns_that_are_constants_need_fewer_rows(columns: int, becomes_one: bool) -> None:
    text = f"""func.func @main(%x: tensor<64x60xf32>) -> tensor<64x{columns}xf32> {{
      %w = stablehlo.constant dense<0.5> : tensor<60x{columns}xf32>
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<64x60xf32>, tensor<60x{columns}xf32>) -> tensor<64x{columns}xf32>
      return %0 : tensor<64x{columns}xf32>
    }}"""
    assert ("stablehlo.convolution" in {op.name for op in walk(canonical(text).block())}) == becomes_one
    x = np.random.default_rng(0).integers(-8, 8, (64, 60)).astype(np.float32)
    expected = np.repeat(x.sum(1, keepdims=True) / 2, columns, 1)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x), expected)


@pytest.mark.parametrize("features", [1, 3, 4])
def test_single_pixels_with_a_few_features_stay(features: int) -> None:
    f = features
    text = f"""func.func @main(%x: tensor<2x9x8x20xf32>, %w: tensor<1x1x20x{f}xf32>) -> tensor<2x9x8x{f}xf32> {{
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
        : (tensor<2x9x8x20xf32>, tensor<1x1x20x{f}xf32>) -> tensor<2x9x8x{f}xf32>
      return %0 : tensor<2x9x8x{f}xf32>
    }}"""
    assert "stablehlo.convolution" in {op.name for op in walk(canonical(text).block())}
    generator = np.random.default_rng(0)
    x = generator.standard_normal((2, 9, 8, 20)).astype(np.float32)
    w = generator.standard_normal((1, 1, 20, f)).astype(np.float32)
    got = shlo_jit.compile(text, cache=False)(x, w)
    np.testing.assert_allclose(got, x @ w[0, 0], rtol=0, atol=1e-5)
