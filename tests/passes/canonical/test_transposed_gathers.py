"""Transposes of gathers are folded into gathers if the order of the dimensions allows it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit.ir.core import walk
from shlo_jit.reference.interpreter import evaluate

TABLE, INDICES = (5, 3, 2), (4, 6)


def text_of(order: tuple[int, ...], read: str) -> str:
    """Slices of 3 x 2 of a table for 4 x 6 indices: dimensions 1 and 3 of the result are slice dimensions."""
    shape = (4, 3, 6, 2)
    t, i, g = (f"tensor<{'x'.join(map(str, n))}x{d}>" for n, d in ((TABLE, "f32"), (INDICES, "i32"), (shape, "f32")))
    r = f"tensor<{'x'.join(str(shape[d]) for d in order)}xf32>"
    results = {"transpose": "%1", "gather too": "%1, %0"}[read]
    types = {"transpose": r, "gather too": f"{r}, {g}"}[read]
    return f"""func.func @main(%x: {t}, %i: {i}) -> ({types}) {{
  %0 = "stablehlo.gather"(%x, %i) {{dimension_numbers = #stablehlo.gather<offset_dims = [1, 3],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>,
    slice_sizes = array<i64: 1, 3, 2>, indices_are_sorted = false}} : ({t}, {i}) -> {g}
  %1 = stablehlo.transpose %0, dims = {[*order]} : ({g}) -> {r}
  return {results} : {types}
}}"""


def ops_of(text: str) -> list[str]:
    names = [op.name.removeprefix("stablehlo.") for op in walk(canonical(text).block())]
    return [name for name in names if name in ("gather", "transpose")]


@pytest.mark.parametrize("order", [p for p in permutations(range(4)) if p != (0, 1, 2, 3)])
def test_which_orders_a_gather_has(order: tuple[int, ...]) -> None:
    text = text_of(order, "transpose")
    keeps = order.index(0) < order.index(2) and order.index(1) < order.index(3)
    assert ops_of(text) == (["gather"] if keeps else ["gather", "transpose"])
    generator = np.random.default_rng(0)
    x = generator.standard_normal(TABLE, np.float32)
    i = generator.integers(-2, 7, INDICES).astype(np.int32)  # some of them out of bounds
    (expected,) = evaluate(shlo_jit.parse(text), x, i)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, i), expected)


def test_a_gather_with_other_readers_stays() -> None:
    assert ops_of(text_of((1, 0, 2, 3), "gather too")) == ["gather", "transpose"]


def test_the_operand_of_a_product_stays() -> None:
    text = """func.func @main(%x: tensor<9x8xf32>, %i: tensor<7xi32>, %w: tensor<7x4xf32>) -> tensor<8x4xf32> {
      %0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
        slice_sizes = array<i64: 1, 8>, indices_are_sorted = false}
        : (tensor<9x8xf32>, tensor<7xi32>) -> tensor<7x8xf32>
      %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<7x8xf32>) -> tensor<8x7xf32>
      %2 = stablehlo.dot %1, %w : (tensor<8x7xf32>, tensor<7x4xf32>) -> tensor<8x4xf32>
      return %2 : tensor<8x4xf32>
    }"""
    gather = next(op for op in walk(canonical(text).block()) if op.name == "stablehlo.gather")
    assert gather.result.tensor.shape == (7, 8)
