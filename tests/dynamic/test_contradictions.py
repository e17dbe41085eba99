"""Contradictory shapes: the op and its line, the shapes that it needs, and the arguments' shapes are reported."""

from __future__ import annotations

import numpy as np
import pytest
from refusing import refused

import shlo_jit

ADD = """
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.add %x, %y : tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
ADD_AFTER = """
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %1 = stablehlo.tanh %x : tensor<?xf32>
  %2 = stablehlo.concatenate %y, %y, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %0 = stablehlo.add %1, %2 : tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
DOT = """
func.func @main(%x: tensor<2x?xf32>, %y: tensor<?x2xf32>) -> tensor<2x2xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<2x?xf32>, tensor<?x2xf32>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}
"""
CONCAT = """
func.func @main(%x: tensor<2x?xf32>, %y: tensor<2x?xf32>) -> tensor<4x?xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<2x?xf32>, tensor<2x?xf32>) -> tensor<4x?xf32>
  return %0 : tensor<4x?xf32>
}
"""
WHILE = """
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<?xf32>
  cond {
    %ten = stablehlo.constant dense<3> : tensor<i32>
    %1 = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %2, %y : tensor<i32>, tensor<?xf32>
  }
  return %0#1 : tensor<?xf32>
}
"""
CALL = """
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = call @f(%x, %y) : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
func.func private @f(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.multiply %a, %b : tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
CALL_STATIC = """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = call @f(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
func.func private @f(%a: tensor<?xf32>) -> tensor<5xf32> {
  %0 = stablehlo.constant dense<1.0> : tensor<5xf32>
  %1 = stablehlo.multiply %a, %0 : (tensor<?xf32>, tensor<5xf32>) -> tensor<5xf32>
  return %1 : tensor<5xf32>
}
"""
DBID = """
func.func @main(%x: tensor<?xf32>, %y: tensor<2x?xf32>) -> tensor<2x?xf32> {
  %n = stablehlo.get_dimension_size %y, dim = 1 : (tensor<2x?xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %two = stablehlo.constant dense<2> : tensor<1xi32>
  %s = stablehlo.concatenate %two, %n1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %0 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1] : (tensor<?xf32>, tensor<2xi32>) -> tensor<2x?xf32>
  %1 = stablehlo.add %0, %y : tensor<2x?xf32>
  return %1 : tensor<2x?xf32>
}
"""
DRESHAPE = """
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<2x?xf32> {
  %n = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %two = stablehlo.constant dense<2> : tensor<1xi32>
  %s = stablehlo.concatenate %two, %n1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %0 = stablehlo.dynamic_reshape %x, %s : (tensor<?xf32>, tensor<2xi32>) -> tensor<2x?xf32>
  return %0 : tensor<2x?xf32>
}
"""
ASSERT = """
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %m = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %eq = stablehlo.compare EQ, %n, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%eq, %n, %m) {error_message = "x has {0}, y has {1}", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
  return %x : tensor<?xf32>
}
"""
RESULT = """
func.func @main(%x: tensor<?xf32>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %x : (tensor<?xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
SELECT = """
func.func @main(%p: tensor<?xi1>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.select %p, %x, %y : tensor<?xi1>, tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
BOUNDS_BETWEEN = """
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32, #stablehlo.bounds<4>> {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32, #stablehlo.bounds<4>>
  return %0 : tensor<?xf32, #stablehlo.bounds<4>>
}
"""
WHILE_VARYING = """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<?xf32>
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
CASES = [
    (ADD, [(3,), (4,)], shlo_jit.VerifyError, 3,
        "add C1: 'stablehlo.add' op requires the same shape for all operands and results, got "
        "'tensor<3xf32>', 'tensor<4xf32>'; argument 0 (%x) has 3 in dimension 0, argument 1 (%y) has 4 in "
        "dimension 0"),
    (ADD_AFTER, [(3,), (4,)], shlo_jit.VerifyError, 5,
        "add C1: 'stablehlo.add' op requires the same shape for all operands and results, got "
        "'tensor<3xf32>', 'tensor<8xf32>'; argument 0 (%x) has 3 in dimension 0, argument 1 (%y) has 4 in "
        "dimension 0"),
    (DOT, [(2, 3), (4, 2)], shlo_jit.VerifyError, 3,
        "dot_general C10: 'stablehlo.dot_general' op contracting dimension sizes must match for lhs and rhs; "
        "argument 0 (%x) has 3 in dimension 1, argument 1 (%y) has 4 in dimension 0"),
    (CONCAT, [(2, 3), (2, 4)], shlo_jit.VerifyError, 3,
        "concatenate C2: 'stablehlo.concatenate' op shapes of operand (0) and (1) do not match at non-concat "
        "index: (2, 3) != (2, 4) at non-concat index 1; argument 0 (%x) has 3 in dimension 1, argument 1 (%y)"
        " has 4 in dimension 1"),
    (WHILE, [(3,), (4,)], shlo_jit.UnsupportedError, 4,
        "while: state 1 (%a) has 3 in dimension 0 before the first iteration, and 4 after it: a state whose "
        "sizes change between iterations needs a bound (#stablehlo.bounds<...>), and is stored in a buffer"
        " of that size; argument 0 (%x) has 3 in dimension 0, argument 1 (%y) has 4 in dimension 0"),
    (CALL, [(3,), (4,)], shlo_jit.VerifyError, 7,
        "multiply C1: 'stablehlo.multiply' op requires the same shape for all operands and results, got "
        "'tensor<3xf32>', 'tensor<4xf32>'; argument 0 (%x) has 3 in dimension 0, argument 1 (%y) has 4 in "
        "dimension 0"),
    (CALL_STATIC, [(3,)], shlo_jit.VerifyError, 8,
        "multiply C1: 'stablehlo.multiply' op requires the same shape for all operands and results, got "
        "'tensor<3xf32>', 'tensor<5xf32>'; argument 0 (%x) has 3 in dimension 0"),
    (DBID, [(3,), (2, 4)], shlo_jit.VerifyError, 7,
        "dynamic_broadcast_in_dim C5: 'stablehlo.dynamic_broadcast_in_dim' op size of operand dimension 0 (3)"
        " is not equal to 1 or value of shape at index 1 (4); argument 0 (%x) has 3 in dimension 0, argument "
        "1 (%y) has 4 in dimension 1"),
    (DRESHAPE, [(3,), (4,)], shlo_jit.VerifyError, 7,
        "dynamic_reshape C2: 'stablehlo.dynamic_reshape' op output_shape is incompatible with input type of "
        "operation: input has 3 elements, but output_shape has 8; argument 0 (%x) has 3 in dimension 0, "
        "argument 1 (%y) has 4 in dimension 0"),
    (ASSERT, [(3,), (4,)], shlo_jit.VerifyError, 6,
        "x has 3, y has 4; argument 0 (%x) has 3 in dimension 0, argument 1 (%y) has 4 in dimension 0"),
    (RESULT, [(3,)], shlo_jit.VerifyError, 3,
        "tanh C1: 'stablehlo.tanh' op requires the same shape for all operands and results, got "
        "'tensor<3xf32>', 'tensor<4xf32>'; argument 0 (%x) has 3 in dimension 0"),
    (SELECT, [(2,), (3,), (3,)], shlo_jit.VerifyError, 3,
        "select C1: 'stablehlo.select' op requires the same shape for all operands, got 'tensor<2xi1>' and "
        "'tensor<3xf32>'; argument 0 (%p) has 2 in dimension 0, argument 1 (%x) has 3 in dimension 0, "
        "argument 2 (%y) has 3 in dimension 0"),
    (BOUNDS_BETWEEN, [(3,), (4,)], shlo_jit.VerifyError, 3,
        "stablehlo.concatenate: the result cannot be 'tensor<?xf32, #stablehlo.bounds<4>>' and "
        "'tensor<7xf32>' (dimension 0 is 7, and at most 4); argument 0 (%x) has 3 in dimension 0, argument 1 "
        "(%y) has 4 in dimension 0"),
    (WHILE_VARYING, [(3,)], shlo_jit.UnsupportedError, 4,
        "while: state 1 (%a) has 3 in dimension 0 before the first iteration, and 6 after it: a state whose "
        "sizes change between iterations needs a bound (#stablehlo.bounds<...>), and is stored in a buffer"
        " of that size; argument 0 (%x) has 3 in dimension 0"),
]  # fmt: skip


def arrays(shapes: list[tuple[int, ...]], text: str) -> list[np.ndarray]:
    """Ones, as booleans if the first argument is boolean."""
    return [
        np.ones(s, bool if i == 0 and "xi1>" in text.split(",", maxsplit=1)[0] else np.float32)
        for i, s in enumerate(shapes)
    ]


@pytest.mark.parametrize(("text", "shapes", "error", "line", "message"), CASES)
def test_contradictions(
    text: str, shapes: list[tuple[int, ...]], error: type[shlo_jit.StableHLOError], line: int, message: str
) -> None:
    with pytest.raises(error) as called:
        shlo_jit.compile(text)(*arrays(shapes, text))
    with pytest.raises(error) as refined:
        shlo_jit.refine(text, shapes)
    for refusal in (called, refined):
        (diagnostic,) = refusal.value.diagnostics
        assert (diagnostic.line, diagnostic.message) == (line, message)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_sizes_0_and_1_are_not_special(n: int) -> None:
    """Nothing is broadcast implicitly."""
    if n != 1:
        with refused(shlo_jit.VerifyError, "C1", (3, 8), shows=f"argument 0 (%x) has {n} "):
            shlo_jit.compile(ADD)(np.ones(n, np.float32), np.ones(1, np.float32))
    assert shlo_jit.compile(ADD)(np.ones(n, np.float32), np.ones(n, np.float32)).shape == (n,)


def test_values_that_contradict_shapes() -> None:
    text = """
    func.func @main(%n: tensor<i32>, %x: tensor<?xf32>) -> tensor<?x2xf32> {
      %0 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %two = stablehlo.constant dense<2> : tensor<1xi32>
      %s = stablehlo.concatenate %0, %two, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %1 = stablehlo.dynamic_reshape %x, %s : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x2xf32>
      return %1 : tensor<?x2xf32>
    }
    """
    with pytest.raises(shlo_jit.VerifyError) as refusal:
        shlo_jit.compile(text)(np.int32(3), np.ones(5, np.float32))
    assert (refusal.value.line, refusal.value.diagnostics[0].message) == (
        6,
        "dynamic_reshape C2: 'stablehlo.dynamic_reshape' op output_shape is incompatible with input type of operation: "
        "input has 5 elements, but output_shape has 6; argument 0 (%n) is 3, argument 1 (%x) has 5 in dimension 0",
    )


def test_through_functions_and_regions() -> None:
    """The reported arguments are those of `main`, for a value in a region of a function that it calls."""
    text = """
    func.func @main(%p: tensor<i1>, %x: tensor<?xf32>, %y: tensor<?xf32>, %z: tensor<?xf32>) -> tensor<?xf32> {
      %0 = call @f(%p, %y, %x) : (tensor<i1>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }
    func.func private @f(%p: tensor<i1>, %a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
      %0 = "stablehlo.if"(%p) ({
        %1 = stablehlo.add %a, %b : tensor<?xf32>
        stablehlo.return %1 : tensor<?xf32>
      }, {
        stablehlo.return %b : tensor<?xf32>
      }) : (tensor<i1>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }
    """
    x, y = np.ones(3, np.float32), np.ones(4, np.float32)
    with pytest.raises(shlo_jit.VerifyError) as refusal:
        shlo_jit.compile(text)(np.True_, x, y, np.ones(9, np.float32))
    assert refusal.value.line == 8
    assert refusal.value.diagnostics[0].message.endswith(
        "; argument 1 (%x) has 3 in dimension 0, argument 2 (%y) has 4 in dimension 0"
    )


def test_many_arguments() -> None:
    """Only some are named, including those with different sizes."""
    names = [f"%x{i}" for i in range(9)]
    arguments = ", ".join(f"{name}: tensor<?x2xf32>" for name in names)
    types = ", ".join(["tensor<?x2xf32>"] * 9)
    text = f"""
    func.func @main({arguments}) -> tensor<?x18xf32> {{
      %0 = stablehlo.concatenate {", ".join(names)}, dim = 1 : ({types}) -> tensor<?x18xf32>
      return %0 : tensor<?x18xf32>
    }}
    """
    with pytest.raises(shlo_jit.VerifyError) as refusal:
        shlo_jit.refine(text, [(1, 2)] * 8 + [(2, 2)])
    _, *notes = refusal.value.diagnostics[0].message.split("; ")
    ones = [f"argument {i} (%x{i}) has 1 in dimension 0" for i in range(5)]
    assert notes == [", ".join([*ones, "argument 8 (%x8) has 2 in dimension 0", "3 more"])]
