"""Values that are recomputed where they are read, and values that are materialized because recomputing is expensive."""

from __future__ import annotations

import numpy as np
from printed_codes import codes

import shlo_jit


def steps(exe: shlo_jit.Executable) -> int:
    return int(exe.text("plan").split()[0])


def broadcast_exponential(dim: int) -> shlo_jit.Executable:
    """x[i, j] + exp(b), with b along one of the dimensions."""
    b = f"tensor<{(70, 90)[dim]}xf32>"
    return shlo_jit.compile(f"""func.func @main(%x: tensor<70x90xf32>, %b: {b}) -> tensor<70x90xf32> {{
    %e = stablehlo.exponential %b : {b}
    %w = stablehlo.broadcast_in_dim %e, dims = [{dim}] : ({b}) -> tensor<70x90xf32>
    %y = stablehlo.add %x, %w : tensor<70x90xf32>
    return %y : tensor<70x90xf32>
  }}""")


def test_an_expensive_op_is_not_recomputed_for_every_row() -> None:
    rows, columns = broadcast_exponential(0), broadcast_exponential(1)
    assert steps(rows) == 1  # once per row in any case
    assert steps(columns) == 2
    assert "recomputed-in-inner-loop" in codes(columns.text("plan"))
    assert " 70 times" in columns.text("plan")
    x, b = np.random.default_rng(0).random((2, 70, 90), np.float32)
    np.testing.assert_allclose(rows(x, b[:, 0].copy()), x + np.exp(b[:, :1]), rtol=1e-6)
    np.testing.assert_allclose(columns(x, b[0]), x + np.exp(b[0]), rtol=1e-6)


def differences(points: str, more: str = "") -> str:
    """Weighted sums of all differences of points, with weights computed from the differences, too."""
    return f"""func.func @main({points}) -> tensor<40x3xf32> {{
    {more}
    %d = stablehlo.subtract %a, %b : tensor<40x40x3xf32>
    %q = stablehlo.multiply %d, %d : tensor<40x40x3xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [2]
      : (tensor<40x40x3xf32>, tensor<f32>) -> tensor<40x40xf32>
    %one = stablehlo.constant dense<1.0> : tensor<40x40xf32>
    %t = stablehlo.add %s, %one : tensor<40x40xf32>
    %r = stablehlo.rsqrt %t : tensor<40x40xf32>
    %w = stablehlo.broadcast_in_dim %r, dims = [0, 1] : (tensor<40x40xf32>) -> tensor<40x40x3xf32>
    %p = stablehlo.multiply %d, %w : tensor<40x40x3xf32>
    %y = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<40x40x3xf32>, tensor<f32>) -> tensor<40x3xf32>
    return %y : tensor<40x3xf32>
  }}"""


def test_values_with_small_inputs_are_recomputed() -> None:
    spread = "\n".join(
        f"%{name} = stablehlo.broadcast_in_dim %x, dims = [{dim}, 2] : (tensor<40x3xf32>) -> tensor<40x40x3xf32>"
        for name, dim in (("a", 0), ("b", 1))
    )
    exe = shlo_jit.compile(differences("%x: tensor<40x3xf32>", spread))
    written = shlo_jit.compile(differences("%a: tensor<40x40x3xf32>, %b: tensor<40x40x3xf32>"))
    assert "40x40x3xf32" not in exe.text("plan")
    assert "writes  %d 40x40x3xf32" in written.text("plan")
    x = np.random.default_rng(0).standard_normal((40, 3), np.float32)
    a, b = (np.ascontiguousarray(np.broadcast_to(v, (40, 40, 3))) for v in (x[:, None], x[None]))
    d = (a - b).astype(np.float64)
    expected = (d / np.sqrt((d * d).sum(-1, keepdims=True) + 1)).sum(1)
    np.testing.assert_allclose(exe(x), expected, atol=1e-5)
    np.testing.assert_allclose(written(a, b), expected, atol=1e-5)


def test_an_iota_is_not_counted_as_an_input() -> None:
    """Distances of elements, for a result and for a sum."""
    exe = shlo_jit.compile("""func.func @main(%x: tensor<50xi32>) -> (tensor<50x50xi32>, tensor<50xi32>) {
    %i = stablehlo.iota dim = 0 : tensor<50x50xi32>
    %k = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<50xi32>) -> tensor<50x50xi32>
    %d = stablehlo.subtract %i, %k : tensor<50x50xi32>
    %y = stablehlo.abs %d : tensor<50x50xi32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %q = stablehlo.multiply %d, %d : tensor<50x50xi32>
    %s = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<50x50xi32>, tensor<i32>) -> tensor<50xi32>
    return %y, %s : tensor<50x50xi32>, tensor<50xi32>
  }""")
    x = np.random.default_rng(0).integers(0, 50, 50).astype(np.int32)
    d = np.arange(50, dtype=np.int32)[:, None] - x
    apart, total = exe(x)
    np.testing.assert_array_equal(apart, abs(d))
    np.testing.assert_array_equal(total, (d * d).sum(0))
