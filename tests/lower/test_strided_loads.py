"""Slices with strides along the lanes: whole vectors and shuffles, which access nothing outside the operand."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning

DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i1": np.bool_,
          "complex<f32>": np.complex64, "complex<f64>": np.complex128}  # fmt: skip


def program(rows: int, n: int, start: int, stride: int, dtype: str, turned: bool) -> str:
    """Returns every stride-th column of a matrix from `start` on, in reverse if `turned`."""
    x = f"tensor<{rows}x{n}x{dtype}>"
    y = f"tensor<{rows}x{len(range(start, n, stride))}x{dtype}>"
    turn = f"stablehlo.reverse %s, dims = [1] : {y}" if turned else f"stablehlo.reshape %s : ({y}) -> {y}"
    return f"""func.func @main(%x: {x}) -> {y} {{
    %s = stablehlo.slice %x [0:{rows}, {start}:{n}:{stride}] : ({x}) -> {y}
    %y = {turn}
    return %y : {y}
  }}"""


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) % 251 - 125).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("stride", [2, 3, 4, 5, 7, 8, 9])
@pytest.mark.sampled(5)
def test_every_so_many_elements(dtype: str, stride: int) -> None:
    for rows, n, start in [
        (3, 16 * stride + 1, 0),
        (2, 33 * stride, stride - 1),
        (1, 7 * stride + 2, 1),
        (5, 2 * stride, 1),
    ]:
        x = numbers((rows, n), dtype)
        for turned in (False, True):
            exe = shlo_jit.compile(program(rows, n, start, stride, dtype, turned))
            expected = x[:, start::stride]
            np.testing.assert_array_equal(exe(x), expected[:, ::-1] if turned else expected)


def test_strides_that_are_short_need_no_gather() -> None:
    assert gathers(tuning.STRIDED_LOAD) == 0
    assert gathers(tuning.STRIDED_LOAD + 1) > 0


def gathers(stride: int) -> int:
    exe = shlo_jit.compile(program(2, 64 * stride + 5, 3, stride, "f32", turned=False))
    return len(re.findall(r"call <\d+ x float> @llvm.masked.gather", exe.text("lowered")))


def test_within_a_pad() -> None:
    """Lanes without an element in the operand read nothing."""
    text = """func.func @main(%x: tensor<2x20xf32>, %z: tensor<f32>) -> tensor<2x25xf32> {
    %p = stablehlo.pad %x, %z, low = [0, 14], high = [0, 15], interior = [0, 0]
      : (tensor<2x20xf32>, tensor<f32>) -> tensor<2x49xf32>
    %y = stablehlo.slice %p [0:2, 0:49:2] : (tensor<2x49xf32>) -> tensor<2x25xf32>
    return %y : tensor<2x25xf32>
  }"""
    x = numbers((2, 20), "f32")
    expected = np.pad(x, ((0, 0), (14, 15)), constant_values=7)[:, ::2]
    np.testing.assert_array_equal(shlo_jit.compile(text)(x, np.float32(7)), expected)


def test_neighbours_of_one_row() -> None:
    """Reads both elements of pairs of a row."""
    text = """func.func @main(%x: tensor<7x46xf32>) -> tensor<7x23xf32> {
    %a = stablehlo.slice %x [0:7, 0:46:2] : (tensor<7x46xf32>) -> tensor<7x23xf32>
    %b = stablehlo.slice %x [0:7, 1:46:2] : (tensor<7x46xf32>) -> tensor<7x23xf32>
    %y = stablehlo.subtract %a, %b : tensor<7x23xf32>
    return %y : tensor<7x23xf32>
  }"""
    x = numbers((7, 46), "f32")
    np.testing.assert_array_equal(shlo_jit.compile(text)(x), x[:, ::2] - x[:, 1::2])
