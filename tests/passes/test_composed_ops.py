"""Composites that represent CHLO ops become those ops again; any other is replaced by its decomposition."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir.core import Op, walk
from shlo_jit.passes.frontend.inline import inline_all
from shlo_jit.reference.interpreter import evaluate

ERF = """
func.func private @erf_impl(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.tanh %x : tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.composite "NAME" %x {decomposition = @erf_impl VERSION} : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
"""
TOP_K = """
func.func private @impl(%x: tensor<2x8xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>) {
  %places = stablehlo.iota dim = 1 : tensor<2x8xi32>
  %s:2 = "stablehlo.sort"(%x, %places) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %g = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  }) : (tensor<2x8xf32>, tensor<2x8xi32>) -> (tensor<2x8xf32>, tensor<2x8xi32>)
  %v = stablehlo.slice %s#0 [0:2, 0:3] : (tensor<2x8xf32>) -> tensor<2x3xf32>
  %i = stablehlo.slice %s#1 [0:2, 0:3] : (tensor<2x8xi32>) -> tensor<2x3xi32>
  return %v, %i : tensor<2x3xf32>, tensor<2x3xi32>
}
func.func @main(%x: tensor<2x8xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>) {
  %r:2 = stablehlo.composite "chlo.top_k" %x {composite_attributes = {ATTRIBUTES}, decomposition = @impl,
    version = 1 : i32} : (tensor<2x8xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>)
  return %r#0, %r#1 : tensor<2x3xf32>, tensor<2x3xi32>
}
"""


def inlined(text: str) -> list[Op]:
    module = shlo_jit.parse(text)
    main = module.function("main")
    assert main is not None
    return [*walk(inline_all(module, main).block())]


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("chlo.erf", ", version = 1 : i32", "chlo.erf"),
        ("chlo.erf", ", version = 2 : i32", "stablehlo.tanh"),
        ("chlo.erf", "", "stablehlo.tanh"),
        ("chlo.nothing_known", ", version = 1 : i32", "stablehlo.tanh"),
        ("my.erf", ", version = 1 : i32", "stablehlo.tanh"),
        ("stablehlo.negate", ", version = 1 : i32", "stablehlo.tanh"),
    ],
)
def test_which_composites_are_ops(name: str, version: str, expected: str) -> None:
    ops = inlined(ERF.replace("NAME", name).replace("VERSION", version))
    assert [op.name for op in ops[:-1]] == [expected]


def test_attributes_are_the_ops() -> None:
    (op, _) = inlined(TOP_K.replace("ATTRIBUTES", "k = 3 : i64"))
    assert (op.name, op.int("k"), len(op.results)) == ("chlo.top_k", 3, 2)


@pytest.mark.parametrize("attributes", ["k = 4 : i64", "k = -1 : i64", ""])
def test_an_invalid_op_becomes_its_decomposition(attributes: str) -> None:
    assert "stablehlo.sort" in [op.name for op in inlined(TOP_K.replace("ATTRIBUTES", attributes))]


def test_the_values_are_those_of_the_decomposition() -> None:
    text = TOP_K.replace("ATTRIBUTES", "k = 3 : i64")
    x = np.array([[1, np.nan, -0.0, 0.0, 7, 7, -np.inf, 2], [3, 3, 3, 3, 3, 3, 3, 3]], np.float32)
    for found, expected in zip(shlo_jit.compile(text)(x), evaluate(shlo_jit.parse(text), x), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_user_implementation_takes_precedence() -> None:
    text = ERF.replace("NAME", "chlo.erf").replace("VERSION", ", version = 1 : i32")
    twice = shlo_jit.compile(text, composites={"chlo.erf": lambda x: x * 2})
    np.testing.assert_array_equal(twice(np.arange(4, dtype=np.float32)), np.arange(4, dtype=np.float32) * 2)
