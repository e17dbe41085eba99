"""Results of few columns: lanes run along the rows, and their vectors are shuffled into runs."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import shlo_jit

DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i32": np.int32}


def minus_sum(rows: int, k: int, dtype: str) -> str:
    """Rows of k elements minus their sums."""
    t, r = f"tensor<{rows}x{k}x{dtype}>", f"tensor<{rows}x{dtype}>"
    return f"""func.func @main(%x: {t}) -> {t} {{
    %zero = stablehlo.constant dense<0> : tensor<{dtype}>
    %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : ({t}, tensor<{dtype}>) -> {r}
    %w = stablehlo.broadcast_in_dim %s, dims = [0] : ({r}) -> {t}
    %y = stablehlo.subtract %x, %w : {t}
    return %y : {t}
  }}""".replace("dense<0>", "dense<0.0>" if "f" in dtype else "dense<0>")


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_rows_of_few_elements(k: int, dtype: str) -> None:
    for rows in (32, 40, 64 * 5 + 1, 70_003):
        x = np.random.default_rng(k).integers(-5, 6, (rows, k)).astype(DTYPES[dtype])
        exe = shlo_jit.compile(minus_sum(rows, k, dtype), threads=2)
        assert ("interleaves" in exe.text("schedule")) == (k < 4) or rows < 64
        np.testing.assert_array_equal(exe(x), x - x.sum(1, dtype=x.dtype, keepdims=True))


def test_nothing_is_scattered() -> None:
    exe = shlo_jit.compile(minus_sum(1000, 3, "f32"))
    assert not re.search(r"call void @llvm.masked.scatter", exe.text("lowered"))


def test_products_of_many_small_matrices_with_vectors() -> None:
    """The short variable is one of the rows, around the sums."""
    text = """func.func @main(%a: tensor<207x3x3xf32>, %x: tensor<207x3xf32>) -> (tensor<207x3xf32>, tensor<207xf32>) {
    %y = stablehlo.dot_general %a, %x, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : (tensor<207x3x3xf32>, tensor<207x3xf32>) -> tensor<207x3xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<207x3xf32>, tensor<f32>) -> tensor<207xf32>
    return %y, %s : tensor<207x3xf32>, tensor<207xf32>
  }"""
    exe = shlo_jit.compile(text)
    assert "interleaves" in exe.text("schedule")
    a, x = (np.random.default_rng(0).integers(-9, 9, s).astype(np.float32) for s in ((207, 3, 3), (207, 3)))
    y, s = exe(a, x)
    np.testing.assert_array_equal(y, (a @ x[..., None])[..., 0])
    np.testing.assert_array_equal(s, y.sum(1))


def test_a_donated_operand_is_overwritten() -> None:
    exe = shlo_jit.compile(minus_sum(500, 3, "f32"), donate=[0])
    x = np.random.default_rng(0).integers(-9, 9, (500, 3)).astype(np.float32)
    expected = x - x.sum(1, keepdims=True)
    np.testing.assert_array_equal(exe(x), expected)
