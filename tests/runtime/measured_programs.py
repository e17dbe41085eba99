"""Programs that tests measure: a product followed by a loop nest, and a loop that runs iteration by iteration, since
its counter is not a scalar."""

from __future__ import annotations

import numpy as np

LAYER = """func.func @main(%x: tensor<64x784xf32>, %w: tensor<784x10xf32>, %b: tensor<10xf32>) -> tensor<64x10xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<64x784xf32>, tensor<784x10xf32>) -> tensor<64x10xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<10xf32>) -> tensor<64x10xf32>
  %2 = stablehlo.add %0, %1 : tensor<64x10xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%2 init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<64x10xf32>, tensor<f32>) -> tensor<64xf32>
  %3 = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<64xf32>) -> tensor<64x10xf32>
  %4 = stablehlo.subtract %2, %3 : tensor<64x10xf32>
  return %4 : tensor<64x10xf32>
}"""

LOOP = """func.func @main(%x: tensor<64xf32>, %n: tensor<i32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<1xi32>, tensor<64xf32> cond {
    %k = stablehlo.reshape %i : (tensor<1xi32>) -> tensor<i32>
    %p = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<1xi32>
    %b = stablehlo.cosine %a : tensor<64xf32>
    stablehlo.return %j, %b : tensor<1xi32>, tensor<64xf32>
  }
  return %r#1 : tensor<64xf32>
}"""


def layer_arguments() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape, np.float32) for shape in ((64, 784), (784, 10), (10,))]
