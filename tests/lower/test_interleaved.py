"""Results of few columns: lanes run along the rows, and their vectors are shuffled into runs."""

from __future__ import annotations

import re

import guarded
import ml_dtypes
import numpy as np
import pytest

import shlo_jit

DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i32": np.int32}


def minus_sum(rows: int, k: int, dtype: str) -> str:
    """Returns rows of k elements minus their sums."""
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
@pytest.mark.sampled(4)
def test_rows_of_few_elements(k: int, dtype: str) -> None:
    for rows in (32, 40, 64 * 5 + 1, 70_003):
        x = np.random.default_rng(k).integers(-5, 6, (rows, k)).astype(DTYPES[dtype])
        exe = shlo_jit.compile(minus_sum(rows, k, dtype), threads=2)
        if rows >= 64 and k != 4:  # 4 elements are vectorized along the row or across rows, by the lanes of a register
            assert ("interleaves" in exe.text("schedule")) == (k < 4)
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


VECTORS = 6
"""Operands that are contiguous along the lanes, so that lanes do not run along the short dimension."""


def rows_of_middle(k: int, dtype: str, n: int) -> str:
    """Returns elements over a middle dimension minus the largest, these minus their sums, and the sums."""
    t, r, w, one = (
        f"tensor<2x20x{n}x{k}x{dtype}>",
        f"tensor<2x{n}x{k}x{dtype}>",
        f"tensor<{n}x{dtype}>",
        f"tensor<{dtype}>",
    )
    low, zero = ("-100.0", "0.0") if "f" in dtype else ("-100", "0")
    vectors = "".join(
        f"""
    %b{i} = stablehlo.broadcast_in_dim %w{i}, dims = [2] : ({w}) -> {t}
    %y{i + 1} = stablehlo.{"add" if i % 2 else "maximum"} %y{i}, %b{i} : {t}"""
        for i in range(VECTORS)
    )
    return f"""func.func @main(%y0: {t}, {", ".join(f"%w{i}: {w}" for i in range(VECTORS))}) -> ({t}, {t}, {r}) {{
    %low = stablehlo.constant dense<{low}> : {one}
    %zero = stablehlo.constant dense<{zero}> : {one}{vectors}
    %m = stablehlo.reduce(%y{VECTORS} init: %low) applies stablehlo.maximum across dimensions = [1] : ({t}, {one}) -> {r}
    %mb = stablehlo.broadcast_in_dim %m, dims = [0, 2, 3] : ({r}) -> {t}
    %d = stablehlo.subtract %y{VECTORS}, %mb : {t}
    %s = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [1] : ({t}, {one}) -> {r}
    %sb = stablehlo.broadcast_in_dim %s, dims = [0, 2, 3] : ({r}) -> {t}
    %z = stablehlo.subtract %d, %sb : {t}
    return %d, %z, %s : {t}, {t}, {r}
  }}"""


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("k", [2, 3])
def test_elements_of_rows_between_the_lanes(k: int, dtype: str) -> None:
    """Rows between the lanes advance along the reduced dimension together."""
    for n in (128, 131):
        r = np.random.default_rng(k)
        shapes = ((2, 20, n, k), *[(n,)] * VECTORS)
        x, *w = (r.integers(-1, 2, shape).astype(DTYPES[dtype]) for shape in shapes)
        exe = guarded.compile(rows_of_middle(k, dtype, n), cache=False)
        assert "row batch" in exe.text("schedule")
        y = x
        for i, v in enumerate(w):
            y = y + v[:, None] if i % 2 else np.maximum(y, v[:, None])
        d = y - y.max(1, keepdims=True)
        s = d.astype(np.float64).sum(1).astype(x.dtype)
        for got, want in zip(exe(x, *w), (d, d - s[:, None], s), strict=True):
            np.testing.assert_array_equal(got, want)


def test_values_kept_from_pass_to_pass_have_a_row_for_each_between_the_lanes() -> None:
    """Both of the last passes of a softmax need its exponentials."""
    t, small = "tensor<40x96x3xf32>", "tensor<96x3xf32>"
    text = f"""func.func @main(%x: {t}, %w: tensor<96xf32>) -> ({t}, {small}) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %v = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<96xf32>) -> {t}
    %a = stablehlo.add %x, %v : {t}
    %e = stablehlo.exponential %a : {t}
    %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0] : ({t}, tensor<f32>) -> {small}
    %b = stablehlo.broadcast_in_dim %s, dims = [1, 2] : ({small}) -> {t}
    %y = stablehlo.divide %e, %b : {t}
    return %y, %s : {t}, {small}
  }}"""
    exe = guarded.compile(text, cache=False)
    schedule = exe.text("schedule")
    assert "row batch" in schedule and "row buffer" in schedule
    r = np.random.default_rng(0)
    x, w = (r.standard_normal(shape).astype(np.float32) for shape in ((40, 96, 3), (96,)))
    y, s = exe(x, w)
    e = np.exp((x + w[:, None]).astype(np.float64))
    np.testing.assert_allclose(s, e.sum(0), rtol=1e-6)
    np.testing.assert_allclose(y, e / e.sum(0), rtol=1e-6)
