"""Regions with control flow, tensors and values from outside: compiled against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

IF = """%p = stablehlo.compare LT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %o = "stablehlo.if"(%p) ({
      %yes = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return %yes : tensor<f32>
    }, {
      %no = stablehlo.subtract %l, %r : tensor<f32>
      stablehlo.return %no : tensor<f32>
    }) : (tensor<i1>) -> tensor<f32>"""
CASE = """%k = stablehlo.convert %r : (tensor<f32>) -> tensor<i32>
    %o = "stablehlo.case"(%k) ({
      %first = stablehlo.maximum %l, %r : tensor<f32>
      stablehlo.return %first : tensor<f32>
    }, {
      %second = stablehlo.minimum %l, %r : tensor<f32>
      stablehlo.return %second : tensor<f32>
    }, {
      stablehlo.return %l : tensor<f32>
    }) : (tensor<i32>) -> tensor<f32>"""
WHILE = """%half = stablehlo.constant dense<0.5> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %size = stablehlo.abs %r : tensor<f32>
    %start = stablehlo.add %l, %size : tensor<f32>
    %o = stablehlo.while(%it = %start) : tensor<f32>
    cond {
      %more = stablehlo.compare GT, %it, %one : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %less = stablehlo.multiply %it, %half : tensor<f32>
      stablehlo.return %less : tensor<f32>
    }"""
LOOP_IN_BRANCH = f"""%zero = stablehlo.constant dense<0.0> : tensor<f32>
    %p = stablehlo.compare GT, %l, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %o = "stablehlo.if"(%p) ({{
      {WHILE.replace("%o", "%w")}
      stablehlo.return %w : tensor<f32>
    }}, {{
      stablehlo.return %r : tensor<f32>
    }}) : (tensor<i1>) -> tensor<f32>"""
TENSORS = """%x = stablehlo.reshape %l : (tensor<f32>) -> tensor<1xf32>
    %y = stablehlo.reshape %r : (tensor<f32>) -> tensor<1xf32>
    %both = stablehlo.concatenate %x, %y, dim = 0 : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
    %back = stablehlo.reverse %both, dims = [0] : tensor<2xf32>
    %wide = stablehlo.broadcast_in_dim %back, dims = [1] : (tensor<2xf32>) -> tensor<3x2xf32>
    %turned = stablehlo.transpose %wide, dims = [1, 0] : (tensor<3x2xf32>) -> tensor<2x3xf32>
    %part = stablehlo.slice %turned [0:2, 1:3] : (tensor<2x3xf32>) -> tensor<2x2xf32>
    %count = stablehlo.iota dim = 0 : tensor<2xf32>
    %dot = stablehlo.dot_general %part, %count, contracting_dims = [0] x [0] : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %o = stablehlo.reduce(%dot init: %z) applies stablehlo.maximum across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>"""
OUTSIDE = "%o = stablehlo.add %l, %s : tensor<f32>"
BODIES = {
    "if": IF, "case": CASE, "while": WHILE, "loop in branch": LOOP_IN_BRANCH, "tensors": TENSORS, "outside": OUTSIDE,
}  # fmt: skip
T = "tensor<4x6xf32>"
SCATTER = "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
OPS = {
    "map": ('"stablehlo.map"(%a, %b) <{dimensions = array<i64: 0, 1>}> BODY : (MAT, MAT) -> MAT', T),
    "rows": ('"stablehlo.reduce"(%a, %s) <{dimensions = array<i64: 1>}> BODY : (MAT, tensor<f32>) -> tensor<4xf32>', "tensor<4xf32>"),
    "columns": ('"stablehlo.reduce"(%a, %s) <{dimensions = array<i64: 0>}> BODY : (MAT, tensor<f32>) -> tensor<6xf32>', "tensor<6xf32>"),
    "window": (
        '"stablehlo.reduce_window"(%a, %s) <{window_dimensions = array<i64: 2, 3>, base_dilations = array<i64: 1, 2>, '
        "padding = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>}> BODY : (MAT, tensor<f32>) -> tensor<4x10xf32>", "tensor<4x10xf32>",
    ),
    "scatter": (f'"stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers = {SCATTER}}}> BODY : (MAT, tensor<5x1xi32>, tensor<5x6xf32>) -> MAT', T),
    "select_and_scatter": (
        '"stablehlo.select_and_scatter"(%a, %v, %s) <{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>, '
        "padding = dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>}> (LESS, BODY) : (MAT, tensor<3x3xf32>, tensor<f32>) -> MAT", T,
    ),
}  # fmt: skip
ARGUMENTS = f"%a: {T}, %b: {T}, %s: tensor<f32>, %i: tensor<5x1xi32>, %u: tensor<5x6xf32>, %v: tensor<3x3xf32>"


def region(body: str, result: str = "%o", kind: str = "f32") -> str:
    return f"{{\n  ^bb0(%l: tensor<f32>, %r: tensor<f32>):\n    {body}\n    stablehlo.return {result} : tensor<{kind}>\n  }}"


def agrees(text: str, arrays: list[np.ndarray]) -> None:
    want = evaluate(shlo_jit.parse(text), *arrays)[0]
    got = shlo_jit.compile(text, cache=False, threads=2)(*arrays)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.sampled(4)
def test_against_reference(op: str, body: str) -> None:
    line, result = OPS[op]
    text = region(BODIES[body])
    less = region(
        BODIES[body] + "\n    %q = stablehlo.compare LT, %o, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>", "%q", "i1"
    )
    line = line.replace("MAT", T).replace("(LESS, BODY)", f"({less}, {text})").replace("BODY", f"({text})")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) * 3 for s in ((4, 6), (4, 6), (), (5, 6), (3, 3))]
    arrays.insert(3, np.array([[0], [2], [0], [-1], [4]], np.int32))
    agrees(
        f"func.func @main({ARGUMENTS}) -> {result} {{\n  %0 = {line}\n  return %0 : {result}\n}}",
        [np.asarray(a) for a in arrays],
    )


@pytest.mark.parametrize("dimension", [0, 1])
def test_sort_by_the_result_of_a_loop(dimension: int) -> None:
    """Sorts by the number of times a value can be halved before it is odd; equal ones keep their order."""
    steps = """%n{x}0 = stablehlo.constant dense<0> : tensor<i32>
      %w{x}:2 = stablehlo.while(%i{x} = %{x}, %n{x} = %n{x}0) : tensor<i32>, tensor<i32>
      cond {{
        %one{x} = stablehlo.constant dense<1> : tensor<i32>
        %low{x} = stablehlo.and %i{x}, %one{x} : tensor<i32>
        %even{x} = stablehlo.compare NE, %low{x}, %one{x} : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %even{x} : tensor<i1>
      }} do {{
        %step{x} = stablehlo.constant dense<1> : tensor<i32>
        %half{x} = stablehlo.shift_right_logical %i{x}, %step{x} : tensor<i32>
        %more{x} = stablehlo.add %n{x}, %step{x} : tensor<i32>
        stablehlo.return %half{x}, %more{x} : tensor<i32>, tensor<i32>
      }}"""
    left, right = (steps.format(x=name) for name in "lr")
    t = "tensor<7x9xi32>"
    text = f"""func.func @main(%a: {t}, %b: {t}) -> {t} {{
  %0:2 = "stablehlo.sort"(%a, %b) <{{dimension = {dimension} : i64, is_stable = true}}> ({{
  ^bb0(%l: tensor<i32>, %r: tensor<i32>, %p: tensor<i32>, %q: tensor<i32>):
      {left}
      {right}
      %o = stablehlo.compare LT, %wl#1, %wr#1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %o : tensor<i1>
  }}) : ({t}, {t}) -> ({t}, {t})
  return %0#1 : {t}
}}"""
    x = np.random.default_rng(1).integers(1, 64, (7, 9)).astype(np.int32)
    agrees(text, [x, np.arange(63, dtype=np.int32).reshape(7, 9)])
