"""Programs whose results are wrong if an illegal fusion happens."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate


def test_a_reduction_whose_reader_waits_for_another_reader() -> None:
    """It cannot move into that reader: the other reader needs it earlier."""
    t = "tensor<32x48xf32>"
    text = f"""func.func @main(%x: {t}) -> {t} {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : ({t}, tensor<f32>) -> tensor<32xf32>
      %s = "stablehlo.sort"(%r) <{{dimension = 0 : i64}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }}) : (tensor<32xf32>) -> tensor<32xf32>
      %u = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<32xf32>) -> {t}
      %v = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<32xf32>) -> {t}
      %w = stablehlo.subtract %u, %v : {t}
      %y = stablehlo.add %x, %w : {t}
      return %y : {t}
    }}"""
    x = np.random.default_rng(1).integers(-9, 9, (32, 48)).astype(np.float32)
    (want,) = evaluate(shlo_jit.parse(text), x)
    np.testing.assert_array_equal(shlo_jit.compile(text)(x), want)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_loop_over_more_than_a_product_is_not_an_epilogue(transposed: bool) -> None:
    """Each element of the product is read several times, or in another order than it is computed."""
    dims, out = ([2, 1], "5x8x6") if transposed else ([1, 2], "5x6x8")
    text = f"""func.func @main(%x: tensor<6x16xf32>, %w: tensor<16x8xf32>, %z: tensor<{out}xf32>) -> tensor<{out}xf32> {{
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<6x16xf32>, tensor<16x8xf32>) -> tensor<6x8xf32>
      %1 = stablehlo.broadcast_in_dim %0, dims = {dims} : (tensor<6x8xf32>) -> tensor<{out}xf32>
      %2 = stablehlo.multiply %1, %z : tensor<{out}xf32>
      return %2 : tensor<{out}xf32>
    }}"""
    rng = np.random.default_rng(2)
    shapes = (6, 16), (16, 8), tuple(map(int, out.split("x")))
    arrays = [rng.integers(-9, 9, shape).astype(np.float32) for shape in shapes]
    (want,) = evaluate(shlo_jit.parse(text), *arrays)
    np.testing.assert_array_equal(shlo_jit.compile(text)(*arrays), want)
