"""gather: indices that the loops compute."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_indices_that_vary_only_from_dimension_to_dimension(target: str) -> None:
    """The index is an iota along the index dimension: every lane reads the same place."""
    text = """
func.func @main(%x: tensor<8x20xf32>) -> tensor<6x21xf32> {
  %i = stablehlo.iota dim = 0 : tensor<2x21xi32>
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1],
      start_index_map = [0, 1], index_vector_dim = 0>, slice_sizes = array<i64: 6, 1>}>
      : (tensor<8x20xf32>, tensor<2x21xi32>) -> tensor<6x21xf32>
  return %0 : tensor<6x21xf32>
}"""
    x = np.random.default_rng(0).standard_normal((8, 20)).astype(np.float32)
    got = shlo_jit.compile(text, cache=False, target=target)(x)
    assert np.array_equal(got, np.broadcast_to(x[:6, 1:2], (6, 21)))
