"""Arguments of programs with unknown dimensions that are given as constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shlo_jit

X, W = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((3, 8), (8, 5)))
PRODUCT = """
func.func @main(%n: tensor<i32>, %x: tensor<?x8xf32>, %w: tensor<8x?xf32>) -> tensor<?x?xf32> {
  %0 = call @f(%x, %w) : (tensor<?x8xf32>, tensor<8x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
func.func private @f(%x: tensor<?x8xf32>, %w: tensor<8x?xf32>) -> tensor<?x?xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
"""
REPEATED = """
func.func @main(%n: tensor<i32>, %x: tensor<f32>) -> tensor<?xf32> {
  %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %0 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
BOUNDED = """
func.func @main(%x: tensor<?xf32, #stablehlo.bounds<8>>, %w: tensor<?xf32, #stablehlo.bounds<8>>)
    -> tensor<?xf32, #stablehlo.bounds<8>> {
  %0 = stablehlo.add %x, %w : tensor<?xf32, #stablehlo.bounds<8>>
  return %0 : tensor<?xf32, #stablehlo.bounds<8>>
}
"""


@pytest.mark.parametrize("dynamic", ["specialize", "symbolic"])
@pytest.mark.parametrize("constants", [{"w": W}, {"n": 7, "w": W}, {"x": X}, {"n": 7, "x": X, "w": W}])
def test_arrays_have_the_unknown_dimensions(constants: dict[str, Any], dynamic: str) -> None:
    arrays = {"n": np.int32(7), "x": X, "w": W}
    for _ in range(2):
        exe = shlo_jit.compile(PRODUCT, constants=constants, dynamic=dynamic)
        assert [port.name for port in exe.inputs] == [name for name in arrays if name not in constants]
        found = exe(*(array for name, array in arrays.items() if name not in constants))
        np.testing.assert_allclose(found, X @ W, rtol=1e-5, atol=1e-5)
        assert str(exe).startswith("<Dyn") == (not {"x", "w"} <= {*constants})


def test_several_shapes_read_one_constant() -> None:
    exe = shlo_jit.compile(PRODUCT, constants={"w": W, "n": 1})
    for rows in (1, 2, 3):
        np.testing.assert_allclose(exe(X[:rows]), X[:rows] @ W, rtol=1e-5, atol=1e-5)


def test_a_constant_can_be_a_size() -> None:
    for n in (3, np.int32(3), np.array(4, np.int32)):
        exe = shlo_jit.compile(REPEATED, constants={"n": n})
        assert exe.outputs[0].shape == (int(n),)
        np.testing.assert_array_equal(exe(2.0), [2.0] * int(n))


def test_bounds_hold() -> None:
    five = np.ones(5, np.float32)
    np.testing.assert_array_equal(shlo_jit.compile(BOUNDED, constants={"w": five})(five), 2 * five)
    with pytest.raises(ValueError, match=r"argument 1 \(w\): expected float32\[<=8\], got float32\[9\]"):
        shlo_jit.compile(BOUNDED, constants={"w": np.ones(9, np.float32)})


@pytest.mark.parametrize("array", [X, W[0], np.ones((2, 5, 1), np.float32)])
def test_other_shapes_are_refused(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"argument 2 \(w\): expected float32\[8,\?\], got"):
        shlo_jit.compile(PRODUCT, constants={"w": array})


def test_quantized_arguments_are_given_as_they_are_stored() -> None:
    text = """
    func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5:3>>, %y: tensor<4x!quant.uniform<i8:f32, 0.5:3>>)
        -> tensor<4xf32> {
      %0 = stablehlo.add %x, %y : tensor<4x!quant.uniform<i8:f32, 0.5:3>>
      %1 = stablehlo.uniform_dequantize %0 : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4xf32>
      return %1 : tensor<4xf32>
    }
    """
    x, y = np.array([1, 2, 3, 4], np.int8), np.array([5, -6, 7, 8], np.int8)
    want = shlo_jit.compile(text)(x, y)
    np.testing.assert_array_equal(shlo_jit.compile(text, constants={"y": y})(x), want)


CALLED = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @f(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @f(%x: tensor<4xf32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @g(%x, %w) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @g(%x: tensor<4xf32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.subtract %x, %w : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def test_other_functions_may_call_the_entry() -> None:
    ones = np.ones(4, np.float32)
    np.testing.assert_array_equal(shlo_jit.compile(CALLED, entry="f", constants={"w": ones})(3 * ones), 2 * ones)
    np.testing.assert_array_equal(shlo_jit.compile(CALLED, entry="g", constants={0: ones})(3 * ones), -2 * ones)
    with pytest.raises(shlo_jit.StableHLOError, match="no function @h"):
        shlo_jit.compile(CALLED, entry="h", constants={0: ones})


@pytest.mark.parametrize("dynamic", [False, True])
def test_invalid_programs_are_refused_as_without_constants(dynamic: bool) -> None:
    extent = "?" if dynamic else "4"
    text = CALLED.replace("4x", f"{extent}x").replace("stablehlo.subtract %x, %w", "stablehlo.subtract %x, %w, %x")
    with pytest.raises(shlo_jit.StableHLOError) as without:
        shlo_jit.compile(text, entry="f")
    with pytest.raises(shlo_jit.StableHLOError) as caught:
        shlo_jit.compile(text, entry="f", constants={"w": np.ones(4, np.float32)})
    assert str(caught.value) == str(without.value)
