"""set_dimension_size of static shapes, compute_reshape_shape, cstr_reshapable and trace."""

from __future__ import annotations

import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit.errors import UnsupportedError

RESHAPE = """func.func @main(%n: index, %s: tensor<3xi32>) -> tensor<3xi32> {
  %r = "stablehlo.compute_reshape_shape"(%n, %s) : (index, tensor<3xi32>) -> tensor<3xi32>
  %w = "stablehlo.cstr_reshapable"(%n, %s) : (index, tensor<3xi32>) -> !shape.witness
  return %r : tensor<3xi32>
}"""


@pytest.mark.parametrize(
    ("count", "shape", "expected"),
    [
        (24, [4, -1, 2], [4, 3, 2]),
        (24, [-1, 24, 1], [1, 24, 1]),
        (0, [0, -1, 2], [0, -1, 2]),
        (8, [2, 2, 2], [2, 2, 2]),
    ],
)
def test_compute_reshape_shape(count: int, shape: list[int], expected: list[int]) -> None:
    got = shlo_jit.compile(RESHAPE, cache=False)(count, np.asarray(shape, np.int32))
    np.testing.assert_array_equal(got, expected)


def test_a_constraint_results_in_a_witness() -> None:
    text = RESHAPE.replace("!shape.witness", "tensor<3xi32>").replace("return %r", "return %w")
    (fault,) = shlo_jit.verify(shlo_jit.parse(text))
    assert fault.label == "type"
    assert "result #0 must be '!shape.witness', but got 'tensor<3xi32>'" in fault.message


def sized(result: int, to: int) -> str:
    return f"""func.func @main(%x: tensor<4x3xf32>) -> tensor<{result}x3xf32> {{
  "stablehlo.trace"(%x) {{tag = "x"}} : (tensor<4x3xf32>) -> ()
  %n = stablehlo.constant dense<{to}> : tensor<i32>
  %r = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4x3xf32>, tensor<i32>) -> tensor<{result}x3xf32>
  return %r : tensor<{result}x3xf32>
}}"""


def test_set_dimension_size() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for n in (4, 2, 0):
        np.testing.assert_array_equal(shlo_jit.compile(sized(n, n), cache=False)(x), x[:n])
    with refused(UnsupportedError, "dimension-size", (4, 8), shows="is 3"):
        shlo_jit.compile(sized(2, 3), cache=False)
