"""Windows over tensors whose batch is known only at the call."""

from __future__ import annotations

import pytest
from any_size import check
from printed_codes import codes

import shlo_jit
from shlo_jit.sizes import Symbol

BODIES = {"add": "0.0", "maximum": "0xFF800000"}
"""Ops that fold windows, and their initial values."""
CASES = {
    # input, result, window and its attributes
    "halves": ("?x8x8x20", "?x4x4x20", "[1, 2, 2, 1]", "window_strides = array<i64: 1, 2, 2, 1>"),
    "padded": (
        "?x9x9x3", "?x5x5x3", "[1, 3, 3, 1]",
        "window_strides = array<i64: 1, 2, 2, 1>, "
        "padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>"),
    "features first": (
        "?x3x9x19", "?x3x9x19", "[1, 1, 3, 3]", "padding = dense<[[0, 0], [0, 0], [1, 1], [1, 1]]> : tensor<4x2xi64>"),
    "dilated": (
        "?x5x3", "?x6x3", "[1, 4, 1]", "base_dilations = array<i64: 1, 2, 1>"),
    "dilated window": (
        "?x9x3", "?x5x3", "[1, 3, 1]", "window_dilations = array<i64: 1, 2, 1>"),
    "large": ("?x9x9x3", "?x1x1x3", "[1, 9, 9, 1]", ""),
    "sums so far": ("?x20", "?x20", "[1, 20]", "padding = dense<[[0, 0], [19, 0]]> : tensor<2x2xi64>"),
    "sums so far, from the end": (
        "?x20x70", "?x20x70", "[1, 20, 1]", "padding = dense<[[0, 0], [0, 19], [0, 0]]> : tensor<3x2xi64>"),
    "along the batch": ("?x5", "?x5", "[3, 1]", "padding = dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>"),
    "along the batch alone": ("?", "?", "[3]", "padding = dense<[[1, 1]]> : tensor<1x2xi64>"),
    "along the batch, dilated": (
        "?x5", "?x5", "[2, 1]", "window_dilations = array<i64: 2, 1>, "
        "padding = dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>"),
}  # fmt: skip


def tensor(shape: str, dtype: str = "f32") -> str:
    return f"tensor<{shape}x{dtype}>"


def window(x: str, y: str, name: str, size: str, attributes: str) -> str:
    """The op over %x, starting from %init."""
    extra = f", {attributes}" if attributes else ""
    return f""""stablehlo.reduce_window"(%x, %init) <{{window_dimensions = array<i64: {size.strip("[]")}>{extra}}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.{name} %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
  }}) : ({x}, tensor<f32>) -> {y}"""


def program(case: str, name: str) -> str:
    x, y, size, attributes = CASES[case]
    a, b = tensor(x), tensor(y)
    return f"""func.func @main(%x: {a}) -> {b} {{
  %init = stablehlo.constant dense<{BODIES[name]}> : tensor<f32>
  %r = {window(a, b, name, size, attributes)}
  return %r : {b}
}}"""


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("case", CASES)
def test_one_code_is_equal_to_the_reference(case: str, name: str) -> None:
    check(program(case, name))


@pytest.mark.parametrize("case", ["halves", "features first", "sums so far", "along the batch"])
def test_without_masks(case: str) -> None:
    check(program(case, "add"), target="x86-64-v3")


@pytest.mark.parametrize("hint", [2, 100_000])
@pytest.mark.parametrize("case", ["padded", "features first", "sums so far", "along the batch alone"])
def test_whatever_it_is_tuned_for(case: str, hint: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shlo_jit.tuning, "SYMBOLIC_SIZES", (Symbol(2, 1 << 20, hint),))
    check(program(case, "add"), sizes=(2, 33, 1100))


@pytest.mark.parametrize("name", BODIES)
def test_the_batch_in_the_lanes(name: str) -> None:
    check(
        f"""func.func @main(%x0: tensor<?x9x9xf32>) -> tensor<4x4x?xf32> {{
  %x = stablehlo.transpose %x0, dims = [1, 2, 0] : (tensor<?x9x9xf32>) -> tensor<9x9x?xf32>
  %init = stablehlo.constant dense<{BODIES[name]}> : tensor<f32>
  %r = {window("tensor<9x9x?xf32>", "tensor<4x4x?xf32>", name, "[3, 3, 1]", "window_strides = array<i64: 2, 2, 1>")}
  return %r : tensor<4x4x?xf32>
}}""",
        sizes=(2, 3, 1500),
    )


def test_running_sums_of_columns() -> None:
    attributes = "padding = dense<[[6, 0], [0, 0]]> : tensor<2x2xi64>"
    check(
        f"""func.func @main(%x0: tensor<?x7xf32>) -> tensor<7x?xf32> {{
  %x = stablehlo.transpose %x0, dims = [1, 0] : (tensor<?x7xf32>) -> tensor<7x?xf32>
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %r = {window("tensor<7x?xf32>", "tensor<7x?xf32>", "add", "[7, 1]", attributes)}
  return %r : tensor<7x?xf32>
}}""",
        sizes=(2, 3, 64, 65, 200),
    )


def test_places_of_maxima() -> None:
    """Several operands, and a body that compares."""
    check(
        """func.func @main(%x: tensor<?x8x8x4xf32>, %i: tensor<?x8x8x4xi32>)
    -> (tensor<?x4x4x4xf32>, tensor<?x4x4x4xi32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = "stablehlo.reduce_window"(%x, %i, %low, %zero) <{
      window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%a: tensor<f32>, %j: tensor<i32>, %b: tensor<f32>, %k: tensor<i32>):
      %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %m = stablehlo.select %c, %a, %b : tensor<i1>, tensor<f32>
      %n = stablehlo.select %c, %j, %k : tensor<i1>, tensor<i32>
      stablehlo.return %m, %n : tensor<f32>, tensor<i32>
  }) : (tensor<?x8x8x4xf32>, tensor<?x8x8x4xi32>, tensor<f32>, tensor<i32>)
    -> (tensor<?x4x4x4xf32>, tensor<?x4x4x4xi32>)
  return %r#0, %r#1 : tensor<?x4x4x4xf32>, tensor<?x4x4x4xi32>
}""",
        high=50,
    )


GRADIENTS = {
    # operand, source, window, strides, padding
    "halves": ("?x8x8x20", "?x4x4x20", "1, 2, 2, 1", "1, 2, 2, 1", "[[0, 0], [0, 0], [0, 0], [0, 0]]"),
    "windows that meet": ("?x9x9x3", "?x5x5x3", "1, 3, 3, 1", "1, 2, 2, 1", "[[0, 0], [1, 1], [1, 1], [0, 0]]"),
    "features first": ("?x3x9x9", "?x3x5x5", "1, 1, 3, 3", "1, 1, 2, 2", "[[0, 0], [0, 0], [1, 1], [1, 1]]"),
}


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_of_pooling(case: str, target: str) -> None:
    x, y, size, strides, padding = GRADIENTS[case]
    a, b, pairs = tensor(x), tensor(y), f"tensor<{len(x.split('x'))}x2xi64>"
    check(
        f"""func.func @main(%x: {a}, %s: {b}) -> {a} {{
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.select_and_scatter"(%x, %s, %init) <{{window_dimensions = array<i64: {size}>,
      window_strides = array<i64: {strides}>, padding = dense<{padding}> : {pairs}}}> ({{
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %c = stablehlo.compare GE, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }}, {{
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %c = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %c : tensor<f32>
  }}) : ({a}, {b}, tensor<f32>) -> {a}
  return %r : {a}
}}""",
        target,
    )


def test_a_window_that_may_not_fit_is_for_fixed_sizes() -> None:
    text = f"""func.func @main(%x: tensor<?x5xf32>) -> tensor<?x5xf32> {{
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %r = {window("tensor<?x5xf32>", "tensor<?x5xf32>", "add", "[3, 1]", "")}
  return %r : tensor<?x5xf32>
}}"""
    plan = shlo_jit.compile(text, dynamic="symbolic").text("plan", [(4, 5)])
    first = plan.splitlines()[0]
    assert "reduce_window in line 3" in first and codes(first) == ["comparison-unknown"]
