"""The interpreter on programs with known answers: the specification's examples, small types, quantized values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from refusing import refused

from shlo_jit.errors import UnsupportedError
from shlo_jit.reference.interpreter import evaluate, evaluate_op
from shlo_jit.text.parser import parse_module
from shlo_jit.verify.verifier import verify_module


def run(body: str, *arrays):
    """Returns the results of `func.func @main...` after verification."""
    module = parse_module(body)
    assert verify_module(module) == []
    return evaluate(module, *arrays)


def test_specification_example_of_reduce_window():
    (y,) = run(
        """func.func @main(%x: tensor<3x2xi64>, %v: tensor<i64>) -> tensor<2x2xi64> {
  %0 = "stablehlo.reduce_window"(%x, %v) ({
    ^bb0(%a: tensor<i64>, %b: tensor<i64>):
      %s = stablehlo.add %a, %b : tensor<i64>
      stablehlo.return %s : tensor<i64>
  }) {window_dimensions = array<i64: 2, 1>, window_strides = array<i64: 4, 1>, base_dilations = array<i64: 2, 1>,
      window_dilations = array<i64: 3, 1>, padding = dense<[[2, 1], [0, 0]]> : tensor<2x2xi64>}
      : (tensor<3x2xi64>, tensor<i64>) -> tensor<2x2xi64>
  return %0 : tensor<2x2xi64>
}""",
        np.asarray([[1, 2], [3, 4], [5, 6]]),
        np.asarray(0),
    )
    assert y.tolist() == [[0, 0], [3, 4]]


def test_specification_example_of_select_and_scatter():
    (y,) = run(
        """func.func @main(%x: tensor<4x2xi64>, %s: tensor<2x2xi64>, %v: tensor<i64>) -> tensor<4x2xi64> {
  %0 = "stablehlo.select_and_scatter"(%x, %s, %v) ({
    ^bb0(%a: tensor<i64>, %b: tensor<i64>):
      %c = stablehlo.compare GE, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }, {
    ^bb0(%a: tensor<i64>, %b: tensor<i64>):
      %c = stablehlo.add %a, %b : tensor<i64>
      stablehlo.return %c : tensor<i64>
  }) {window_dimensions = array<i64: 3, 1>, window_strides = array<i64: 2, 1>,
      padding = dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>}
      : (tensor<4x2xi64>, tensor<2x2xi64>, tensor<i64>) -> tensor<4x2xi64>
  return %0 : tensor<4x2xi64>
}""",
        np.asarray([[1, 5], [2, 5], [3, 6], [4, 4]]),
        np.asarray([[5, 6], [7, 8]]),
        np.asarray(0),
    )
    assert y.tolist() == [[0, 0], [0, 0], [5, 14], [7, 0]]


def test_specification_example_of_rng_bit_generator():
    state, bits = run(
        """func.func @main(%s: tensor<2xui64>) -> (tensor<2xui64>, tensor<2x2xui64>) {
  %0, %1 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY
      : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x2xui64>)
  return %0, %1 : tensor<2xui64>, tensor<2x2xui64>
}""",
        np.asarray([1, 2], np.uint64),
    )
    assert state.tolist() == [1, 6]
    assert bits.tolist() == [[9236835810183407956, 16087790271692313299], [18212823393184779219, 2658481902456610144]]


def test_specification_example_of_quantization():
    t = "tensor<2x!quant.uniform<i8:f32:0, {0.1:-30,0.5:-20}>>"
    q, x = run(
        f"""func.func @main(%x: tensor<2xf32>) -> ({t}, tensor<2xf32>) {{
  %0 = stablehlo.uniform_quantize %x : (tensor<2xf32>) -> {t}
  %1 = stablehlo.uniform_dequantize %0 : ({t}) -> tensor<2xf32>
  return %0, %1 : {t}, tensor<2xf32>
}}""",
        np.float32([4.0, 15.0]),
    )
    assert q.dtype == np.int8 and q.tolist() == [10, 10]
    np.testing.assert_allclose(x, [4.0, 15.0], rtol=1e-6)


def test_quantized_arithmetic_is_done_on_the_expressed_type():
    q = "!quant.uniform<i8:f32, 0.5:1>"
    (y,) = run(
        f"""func.func @main(%x: tensor<4x{q}>, %y: tensor<4x{q}>) -> tensor<4x!quant.uniform<i8:f32, 2.0>> {{
  %0 = "stablehlo.add"(%x, %y) : (tensor<4x{q}>, tensor<4x{q}>) -> tensor<4x!quant.uniform<i8:f32, 2.0>>
  return %0 : tensor<4x!quant.uniform<i8:f32, 2.0>>
}}""",
        np.int8([1, 3, 5, 127]),
        np.int8([1, 3, 6, 127]),
    )
    assert y.tolist() == [0, 1, 2, 63]


@pytest.mark.parametrize(("name", "dtype"), [("i4", ml_dtypes.int4), ("ui4", ml_dtypes.uint4), ("i2", ml_dtypes.int2)])
def test_narrow_integers_wrap(name, dtype):
    t = f"tensor<4x{name}>"
    x = np.asarray([1, -1, 1, 0]).astype(dtype)
    (y,) = run(f"func.func @main(%x: {t}) -> {t} {{\n %0 = stablehlo.add %x, %x : {t}\n return %0 : {t}\n}}", x)
    bits = int(name[-1])
    want = [(2 * int(v)) % (1 << bits) for v in x]
    assert [int(v) % (1 << bits) for v in y] == want and y.dtype == dtype


def test_bf16_is_computed_in_f32():
    t = "tensor<2xbf16>"
    x = np.asarray([1.0, 3.0], ml_dtypes.bfloat16)
    (y,) = run(f"func.func @main(%x: {t}) -> {t} {{\n %0 = stablehlo.exponential %x : {t}\n return %0 : {t}\n}}", x)
    assert y.tolist() == np.exp(np.float32([1, 3])).astype(ml_dtypes.bfloat16).tolist()


def test_a_long_sum_is_folded_in_pieces():
    text = """func.func @main(%x: tensor<5000xi32>, %v: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.reduce(%x init: %v) applies stablehlo.add across dimensions = [0]
      : (tensor<5000xi32>, tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}"""
    assert run(text, np.arange(5000, dtype=np.int32), np.int32(7))[0] == 5000 * 4999 // 2 + 7


def test_a_body_that_is_no_scalar_code():
    text = """func.func @main(%x: tensor<4xi32>, %v: tensor<i32>) -> tensor<i32> {
  %0 = "stablehlo.reduce"(%x, %v) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %c = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %d = "stablehlo.if"(%c) ({
        stablehlo.return %b : tensor<i32>
      }, {
        stablehlo.return %a : tensor<i32>
      }) : (tensor<i1>) -> tensor<i32>
      stablehlo.return %d : tensor<i32>
  }) {dimensions = array<i64: 0>} : (tensor<4xi32>, tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}"""
    assert run(text, np.int32([3, 9, -1, 4]), np.int32(-100))[0] == 9


def test_scatter_applies_updates_in_order():
    text = """func.func @main(%x: tensor<3xi32>, %i: tensor<4x1xi32>, %u: tensor<4xi32>) -> tensor<3xi32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %c = stablehlo.subtract %b, %a : tensor<i32>
      stablehlo.return %c : tensor<i32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>} : (tensor<3xi32>, tensor<4x1xi32>, tensor<4xi32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}"""
    (y,) = run(text, np.int32([1, 2, 3]), np.int32([[1], [1], [5], [0]]), np.int32([10, 100, 7, 4]))
    assert y.tolist() == [3, 100 - (10 - 2), 3]


def test_functions_composites_tuples_and_custom_calls():
    text = """
func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %0 = func.call @twice(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.composite "my.twice" %0 {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>
  %t = stablehlo.tuple %0, %1 : tuple<tensor<2xf32>, tensor<2xf32>>
  %2 = stablehlo.get_tuple_element %t[1] : (tuple<tensor<2xf32>, tensor<2xf32>>) -> tensor<2xf32>
  %3 = stablehlo.custom_call @half(%2) : (tensor<2xf32>) -> tensor<2xf32>
  return %0, %2, %3 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}
func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}"""
    module = parse_module(text)
    x = np.float32([1, 2])
    results = evaluate(module, x, custom_calls={"half": lambda a: a / 2})
    assert [r.tolist() for r in results] == [[2, 4], [4, 8], [2, 4]]
    with refused(UnsupportedError, "no-reference", (7, 8), shows="half"):
        evaluate(module, x)


def test_custom_calls_with_a_known_meaning():
    text = """func.func @main(%x: tensor<2xf32>, %p: tensor<i1>) -> tensor<2xf32> {
  stablehlo.custom_call @shape_assertion(%p) {has_side_effect = true} : (tensor<i1>) -> ()
  %0 = stablehlo.custom_call @Sharding(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.custom_call @mhlo.erf(%0) : (tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}"""
    (y,) = run(text, np.float32([0.0, 1.0]), np.True_)
    np.testing.assert_allclose(y, [0.0, 0.8427008], rtol=1e-6)


def test_one_op_for_the_constant_folder():
    module = parse_module("func.func @main(%x: tensor<2xi32>) { %0 = stablehlo.negate %x : tensor<2xi32>  return }")
    op = module.function("main").block().ops[0]
    assert evaluate_op(op, np.int32([1, -(2**31)]))[0].tolist() == [-1, -(2**31)]


def test_maximum_and_minimum_of_zeros_and_nan():
    t = "tensor<4xf32>"
    text = f"""func.func @main(%x: {t}, %y: {t}) -> ({t}, {t}) {{
  %0 = stablehlo.maximum %x, %y : {t}
  %1 = stablehlo.minimum %x, %y : {t}
  return %0, %1 : {t}, {t}
}}"""
    high, low = run(text, np.float32([0.0, -0.0, np.nan, 1]), np.float32([-0.0, 0.0, 1, np.nan]))
    assert np.signbit(high[:2]).tolist() == [False, False] and np.signbit(low[:2]).tolist() == [True, True]
    assert np.isnan(high[2:]).all() and np.isnan(low[2:]).all()
