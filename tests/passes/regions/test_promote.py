"""Bodies that compute on wider elements than the operands of their op: compiled results equal the reference's."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

BODIES = {
    "add": ("%o = stablehlo.add %l, %r : tensor<W>", "%o"),
    "subtract": ("%o = stablehlo.subtract %l, %r : tensor<W>", "%o"),
    "first": ("", "%l"),
    "second": ("", "%r"),
}
OPS = {
    "reduce": """%0 = "stablehlo.reduce"(%x, %z) ({BODY}) {dimensions = array<i64: 1>}
      : (tensor<4x5xN>, tensor<N>) -> tensor<4xW>""",
    "reduce_long": """%y = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<4x5xN>) -> tensor<4x5x40xN>
    %0 = "stablehlo.reduce"(%y, %z) ({BODY}) {dimensions = array<i64: 1, 2>} : (tensor<4x5x40xN>, tensor<N>) -> tensor<4xW>""",
    "reduce_window": """%0 = "stablehlo.reduce_window"(%x, %z) ({BODY}) {window_dimensions = array<i64: 2, 3>}
      : (tensor<4x5xN>, tensor<N>) -> tensor<3x3xW>""",
    "scatter": """%0 = "stablehlo.scatter"(%x, %i, %u) ({BODY}) {scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
      : (tensor<4x5xN>, tensor<3x1xi32>, tensor<3x5xN>) -> tensor<4x5xW>""",
    "select_and_scatter": """%0 = "stablehlo.select_and_scatter"(%x, %s, %z) ({
    ^bb0(%a: tensor<N>, %b: tensor<N>):
      %p = stablehlo.compare GE, %a, %b : (tensor<N>, tensor<N>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }, {BODY}) {window_dimensions = array<i64: 2, 2>} : (tensor<4x5xN>, tensor<3x4xN>, tensor<N>) -> tensor<4x5xW>""",
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("narrow,wide", [("f32", "f64"), ("i8", "i32"), ("bf16", "f32"), ("ui8", "ui16")])
@pytest.mark.sampled(5)
def test_wider_bodies(op: str, body: str, narrow: str, wide: str) -> None:
    lines, returned = BODIES[body]
    region = f"{{\n    ^bb0(%l: tensor<W>, %r: tensor<W>):\n      {lines}\n      stablehlo.return {returned} : tensor<W>\n    }}"
    text = OPS[op].replace("{BODY}", region)
    result = text.rsplit("-> ", 1)[1]
    arguments = "%x: tensor<4x5xN>, %z: tensor<N>, %i: tensor<3x1xi32>, %u: tensor<3x5xN>, %s: tensor<3x4xN>"
    text = f"func.func @main({arguments}) -> {result} {{\n    {text}\n    return %0 : {result}\n}}"
    text = (
        text.replace("xN>", f"x{narrow}>")
        .replace("<N>", f"<{narrow}>")
        .replace("xW>", f"x{wide}>")
        .replace("<W>", f"<{wide}>")
    )
    exe = shlo_jit.compile(text, cache=False)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4 if narrow[0] != "u" else 0, 5, p.shape).astype(p.dtype) for p in exe.inputs]
    arrays[2] = np.array([[1], [1], [3]], np.int32)
    (want,) = evaluate(shlo_jit.parse(text), *arrays)
    assert exe(*arrays).tobytes() == want.tobytes()


@pytest.mark.parametrize("element", ["f32", "i2", "bf16", "complex<f64>"])
def test_windows_of_scalars(element: str) -> None:
    t = f"tensor<{element}>"
    text = f"""func.func @main(%x: {t}, %z: {t}) -> {t} {{
      %0 = "stablehlo.reduce_window"(%x, %z) <{{window_dimensions = array<i64>}}> ({{
      ^bb0(%a: {t}, %b: {t}):
        %o = stablehlo.add %a, %b : {t}
        stablehlo.return %o : {t}
      }}) : ({t}, {t}) -> {t}
      return %0 : {t}
    }}"""
    exe = shlo_jit.compile(text, cache=False)
    one = np.ones((), exe.inputs[0].dtype)
    assert exe(one, one).tobytes() == evaluate(shlo_jit.parse(text), one, one)[0].tobytes()


def test_a_body_that_returns_a_value_from_outside() -> None:
    text = """func.func @main(%x: tensor<4x4xf32>, %z: tensor<f32>) -> tensor<4x4xf32> {
      %0 = stablehlo.reduce(%x init: %z) across dimensions = [] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf32>
      reducer(%a: tensor<f32>, %b: tensor<f32>) {
        stablehlo.return %z : tensor<f32>
      }
      return %0 : tensor<4x4xf32>
    }"""
    got = shlo_jit.compile(text, cache=False)(np.zeros((4, 4), np.float32), np.float32(3))
    assert got.tolist() == [[3.0] * 4] * 4
