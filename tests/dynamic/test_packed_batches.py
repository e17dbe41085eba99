"""Programs for any batch that read packed constants."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning

RAW = np.random.default_rng(4).integers(0, 16, (5, 37), np.uint8)
WEIGHTS = ((RAW.astype(np.int8) ^ 8) - 8).astype(np.float32)


@pytest.mark.parametrize("dynamic", ["specialize", "symbolic"])
def test_any_batch(dynamic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "INLINE_CONSTANT_BYTES", 0)
    monkeypatch.setattr(tuning, "FOLD_ELEMENTS", 0)
    monkeypatch.setattr(tuning, "FOLD_BYTES", -1 << 40)
    text = f"""func.func @main(%x: tensor<?x5xf32>) -> tensor<?x37xf32> {{
      %w = stablehlo.constant dense<"0x{RAW.tobytes().hex()}"> : tensor<5x37xi4>
      %c = stablehlo.convert %w : (tensor<5x37xi4>) -> tensor<5x37xf32>
      %d = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0]
        : (tensor<?x5xf32>, tensor<5x37xf32>) -> tensor<?x37xf32>
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x5xf32>) -> tensor<i32>
      %m = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %k = stablehlo.constant dense<37> : tensor<1xi32>
      %shape = stablehlo.concatenate %m, %k, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %row = stablehlo.slice %w [2:3, 0:37] : (tensor<5x37xi4>) -> tensor<1x37xi4>
      %line = stablehlo.reshape %row : (tensor<1x37xi4>) -> tensor<37xi4>
      %f = stablehlo.convert %line : (tensor<37xi4>) -> tensor<37xf32>
      %b = stablehlo.dynamic_broadcast_in_dim %f, %shape, dims = [1] : (tensor<37xf32>, tensor<2xi32>) -> tensor<?x37xf32>
      %y = stablehlo.add %b, %d : tensor<?x37xf32>
      return %y : tensor<?x37xf32>
    }}"""
    exe = shlo_jit.compile(text, cache=False, dynamic=dynamic)
    for batch in (1, 3, 20):
        x = np.random.default_rng(batch).integers(-5, 5, (batch, 5)).astype(np.float32)
        np.testing.assert_array_equal(exe(x), x @ WEIGHTS + WEIGHTS[2])
