"""Regions that run for one element of the batch after the other: only for the elements that need it."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import plain_compile

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

X = np.array([1, -1, 2, -2, 3, 0], np.float32)


def positive(body: str) -> str:
    """A map of a body over the positive elements: it computes %r from %a."""
    return f"""func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {{
  %0 = "stablehlo.map"(%x) <{{dimensions = array<i64: 0>}}> ({{
  ^bb0(%a: tensor<f32>):
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %p = stablehlo.compare GT, %a, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %o = "stablehlo.if"(%p) ({{
      {body}
      stablehlo.return %r : tensor<f32>
    }}, {{
      stablehlo.return %a : tensor<f32>
    }}) : (tensor<i1>) -> tensor<f32>
    stablehlo.return %o : tensor<f32>
  }}) : (tensor<6xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}}"""


def test_effects_happen_for_the_elements_that_take_the_branch() -> None:
    seen: list[float] = []

    def note(x: np.ndarray) -> np.ndarray:
        seen.append(float(x))
        return np.asarray(2 * x)

    call = "%r = stablehlo.custom_call @note(%a) {has_side_effect = true} : (tensor<f32>) -> tensor<f32>"
    found = plain_compile(positive(call), cache=False, custom_calls={"note": note})(X)
    np.testing.assert_array_equal(found, np.where(X > 0, 2 * X, X))
    assert seen == [1, 2, 3]


def test_loops_of_inner_regions_end_where_the_branch_is_not_taken() -> None:
    """Doubling a number that is not positive never reaches a hundred."""
    body = """%t = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<3xf32>
      %r = "stablehlo.reduce"(%t, %z) <{dimensions = array<i64: 0>}> ({
      ^bb0(%b: tensor<f32>, %c: tensor<f32>):
        %l = stablehlo.constant dense<100.0> : tensor<f32>
        %w = stablehlo.while(%i = %a) : tensor<f32>
        cond {
          %q = stablehlo.compare LT, %i, %l : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %q : tensor<i1>
        } do {
          %d = stablehlo.add %i, %i : tensor<f32>
          stablehlo.return %d : tensor<f32>
        }
        %e = stablehlo.add %w, %b : tensor<f32>
        stablehlo.return %e : tensor<f32>
      }) : (tensor<3xf32>, tensor<f32>) -> tensor<f32>"""
    text = positive(body)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(X), evaluate(shlo_jit.parse(text), X)[0])


def test_every_element_draws_its_own_number() -> None:
    body = """%one = stablehlo.constant dense<1.0> : tensor<f32>
      %shape = stablehlo.constant dense<> : tensor<0xi64>
      %r = stablehlo.rng %z, %one, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<0xi64>) -> tensor<f32>"""
    found = plain_compile(positive(body), cache=False)(X)
    assert len(set(found[X > 0].tolist())) == 3
    assert ((found[X > 0] >= 0) & (found[X > 0] < 1)).all()


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (2, 3)])
def test_batches_of_any_shape(shape: tuple[int, ...]) -> None:
    t = "tensor<" + "".join(f"{n}x" for n in shape) + "f32>"
    text = f"""func.func @main(%x: {t}, %k: tensor<i32>) -> {t} {{
  %0 = "stablehlo.map"(%x) <{{dimensions = array<i64: {", ".join(map(str, range(len(shape))))}>}}> ({{
  ^bb0(%a: tensor<f32>):
    %b = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<3xf32>
    %i = stablehlo.iota dim = 0 : tensor<3xf32>
    %c = stablehlo.add %b, %i : tensor<3xf32>
    %d = stablehlo.dynamic_slice %c, %k, sizes = [1] : (tensor<3xf32>, tensor<i32>) -> tensor<1xf32>
    %e = stablehlo.reshape %d : (tensor<1xf32>) -> tensor<f32>
    stablehlo.return %e : tensor<f32>
  }}) : ({t}) -> {t}
  return %0 : {t}
}}"""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, np.int32(2)), x + np.float32(2))
