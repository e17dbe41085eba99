"""Shapes that depend on data, and types with bounds."""

from __future__ import annotations

import numpy as np
import pytest
from refusing import refused

import shlo_jit

POSITIVE = """
func.func @main(%x: tensor<6xf32>) -> (tensor<?xi32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<6xf32>
  %p = stablehlo.compare GT, %x, %zero : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
  %i = stablehlo.convert %p : (tensor<6xi1>) -> tensor<6xi32>
  %c = stablehlo.constant dense<0> : tensor<i32>
  %n = stablehlo.reduce(%i init: %c) applies stablehlo.add across dimensions = [0]
    : (tensor<6xi32>, tensor<i32>) -> tensor<i32>
  %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %a = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %f = stablehlo.convert %a : (tensor<?xi32>) -> tensor<?xf32>
  return %a, %f : tensor<?xi32>, tensor<?xf32>
}
"""


def test_as_many_as_are_positive() -> None:
    executable = shlo_jit.compile(POSITIVE)
    for count in (0, 3, 6, 3, 1):
        x = np.where(np.arange(6) < count, 1, -1).astype(np.float32)
        indices, floats = executable(x)
        assert indices.tolist() == list(range(count))
        assert floats.dtype == np.float32
        assert floats.shape == (count,)


def test_sizes_that_depend_on_sizes() -> None:
    """The second size is known after the first part has run."""
    text = """
    func.func @main(%x: tensor<4xi32>) -> tensor<?xi32> {
      %c = stablehlo.constant dense<0> : tensor<i32>
      %n = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0]
        : (tensor<4xi32>, tensor<i32>) -> tensor<i32>
      %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %a = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      %m = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [0]
        : (tensor<?xi32>, tensor<i32>) -> tensor<i32>
      %t = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
      %b = stablehlo.dynamic_iota %t, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %b : tensor<?xi32>
    }
    """
    executable = shlo_jit.compile(text)
    for x in ([1, 1, 1, 1], [2, 0, 0, 0], [0, 0, 0, 0], [5, 1, 0, 0]):
        n = sum(x)
        assert executable(np.array(x, np.int32)).size == n * (n - 1) // 2


def test_effects_happen_once() -> None:
    """The part that computes sizes runs first, and contains no effects."""
    text = POSITIVE.replace(
        "  return",
        "  stablehlo.custom_call @seen(%n) {has_side_effect = true} : (tensor<i32>) -> ()\n  return",
    )
    seen: list[int] = []
    executable = shlo_jit.compile(text, custom_calls={"seen": lambda n: seen.append(int(n))})
    executable(np.ones(6, np.float32))
    executable(-np.ones(6, np.float32))
    assert seen == [6, 0]


BOUNDED = """
func.func @main(%x: tensor<?x3xf32, #stablehlo.bounds<4, ?>>) -> (tensor<?x3xf32, #stablehlo.bounds<4, ?>>, tensor<3xf32>) {
  %0 = stablehlo.abs %x : tensor<?x3xf32, #stablehlo.bounds<4, ?>>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0]
    : (tensor<?x3xf32, #stablehlo.bounds<4, ?>>, tensor<f32>) -> tensor<3xf32>
  return %0, %1 : tensor<?x3xf32, #stablehlo.bounds<4, ?>>, tensor<3xf32>
}
"""


@pytest.mark.parametrize("n", [0, 1, 4])
def test_bounds(n: int) -> None:
    absolute, sums = shlo_jit.compile(BOUNDED)(-np.ones((n, 3), np.float32))
    assert absolute.tolist() == np.ones((n, 3)).tolist()
    assert sums.tolist() == [n] * 3


def test_beyond_a_bound() -> None:
    with pytest.raises(ValueError) as refusal:
        shlo_jit.compile(BOUNDED)(np.ones((5, 3), np.float32))
    assert str(refusal.value).startswith("argument 0 (x): expected float32[<=4,3], got float32[5,3]")
    with refused(shlo_jit.VerifyError, "type", (2, 1), shows="dimension 0 is 5"):
        shlo_jit.refine(BOUNDED, [(5, 3)])


SET_SIZE = """
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<?xf32, #stablehlo.bounds<4>>, tensor<f32>, tensor<i32>) {
  %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<f32>) -> tensor<f32>
  %2 = stablehlo.get_dimension_size %0, dim = 0 : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<i32>
  return %0, %1, %2 : tensor<?xf32, #stablehlo.bounds<4>>, tensor<f32>, tensor<i32>
}
"""


@pytest.mark.parametrize("n", [0, 1, 3, 4])
def test_set_dimension_size(n: int) -> None:
    x = np.arange(1, 5, dtype=np.float32)
    part, total, size = shlo_jit.compile(SET_SIZE)(x, np.int32(n))
    assert part.tolist() == x[:n].tolist()
    assert total == x[:n].sum()
    assert size == n


@pytest.mark.parametrize("n", [-1, 5])
def test_invalid_sizes_of_a_dimension(n: int) -> None:
    with refused(shlo_jit.VerifyError, "dimension-size", (3, 8), shows=f"{n} ") as e:
        shlo_jit.compile(SET_SIZE)(np.zeros(4, np.float32), np.int32(n))
    assert e.value.line == 3


def test_sizes_set_in_functions_and_regions() -> None:
    """A slice of a tensor keeps its size through a call, a branch and a loop."""
    part = "tensor<?xf32, #stablehlo.bounds<4>>"
    text = f"""
    func.func @main(%x: tensor<4xf32>, %n: tensor<i32>, %p: tensor<i1>) -> ({part}, tensor<i32>, tensor<f32>) {{
      %0 = call @cut(%x, %n) : (tensor<4xf32>, tensor<i32>) -> {part}
      %1 = "stablehlo.if"(%p) ({{
        %2 = stablehlo.negate %0 : {part}
        stablehlo.return %2 : {part}
      }}, {{
        stablehlo.return %0 : {part}
      }}) : (tensor<i1>) -> {part}
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %3:2 = stablehlo.while(%i = %zero, %a = %1) : tensor<i32>, {part}
      cond {{
        %size = stablehlo.get_dimension_size %a, dim = 0 : ({part}) -> tensor<i32>
        %4 = stablehlo.compare LT, %i, %size : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %4 : tensor<i1>
      }} do {{
        %one = stablehlo.constant dense<1> : tensor<i32>
        %5 = stablehlo.add %i, %one : tensor<i32>
        %6 = stablehlo.add %a, %a : {part}
        stablehlo.return %5, %6 : tensor<i32>, {part}
      }}
      %c = stablehlo.constant dense<1.0> : tensor<f32>
      %7 = stablehlo.reduce(%3#1 init: %c) applies stablehlo.multiply across dimensions = [0]
        : ({part}, tensor<f32>) -> tensor<f32>
      return %3#1, %3#0, %7 : {part}, tensor<i32>, tensor<f32>
    }}
    func.func private @cut(%x: tensor<4xf32>, %n: tensor<i32>) -> {part} {{
      %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> {part}
      return %0 : {part}
    }}
    """
    executable = shlo_jit.compile(text)
    x = np.arange(1, 5, dtype=np.float32)
    for n in (0, 1, 2, 4):
        for p in (True, False):
            want = x[:n] * 2**n * (-1 if p else 1)
            got, turns, product = executable(x, np.int32(n), np.bool_(p))
            assert (got.shape, got.tolist(), int(turns)) == ((n,), want.tolist(), n)
            assert product == np.prod(want)


def test_a_size_within_a_loop() -> None:
    """A size that is not known before the loop."""
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<f32> {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %0:2 = stablehlo.while(%i = %zero, %a = %c) : tensor<i32>, tensor<f32>
      cond {
        %four = stablehlo.constant dense<4> : tensor<i32>
        %1 = stablehlo.compare LT, %i, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %2 = stablehlo.add %i, %one : tensor<i32>
        %3 = stablehlo.set_dimension_size %x, %i, dim = 0
          : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
        %4 = stablehlo.reduce(%3 init: %a) applies stablehlo.add across dimensions = [0]
          : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<f32>) -> tensor<f32>
        stablehlo.return %2, %4 : tensor<i32>, tensor<f32>
      }
      return %0#1 : tensor<f32>
    }
    """
    x = np.array([1, 2, 3, np.nan], np.float32)
    assert shlo_jit.compile(text)(x) == 1 + (1 + 2) + (1 + 2 + 3)
    unbounded = text.replace(", #stablehlo.bounds<4>", "")
    assert shlo_jit.compile(unbounded)(x) == 10  # the operand's extent is a bound


def test_a_state_that_grows_without_a_bound() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %s = stablehlo.concatenate %x, %x, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      %0:2 = stablehlo.while(%i = %zero, %a = %s) : tensor<i32>, tensor<?xf32>
      cond {
        %ten = stablehlo.constant dense<3> : tensor<i32>
        %1 = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %2 = stablehlo.add %i, %one : tensor<i32>
        %3 = stablehlo.concatenate %a, %x, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
        stablehlo.return %2, %3 : tensor<i32>, tensor<?xf32>
      }
      return %0#1 : tensor<?xf32>
    }
    """
    with pytest.raises(shlo_jit.UnsupportedError) as refusal:
        shlo_jit.compile(text)(np.ones(2, np.float32))
    assert (refusal.value.line, refusal.value.diagnostics[0].message) == (
        5,
        "while: state 1 (%a) has 4 in dimension 0 before the first iteration, and 6 after it: a state whose sizes "
        "change between iterations needs a bound (#stablehlo.bounds<...>), and is stored in a buffer of that "
        "size; argument 0 (%x) has 2 in dimension 0",
    )
