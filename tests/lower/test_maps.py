"""Index maps at the edges: where pads begin and end, where starts are clamped, which types indices may have."""

from __future__ import annotations

import itertools

import guarded
import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate


def check(text: str, *arguments: np.ndarray) -> None:
    """Checks that the compiled program, in guarded memory, equals the reference interpreter."""
    wants = evaluate(shlo_jit.parse(text), *arguments)
    for got, want in zip(guarded.outputs(guarded.compile(text, cache=False)(*arguments)), wants, strict=True):
        np.testing.assert_array_equal(got, want, text)


def test_pads_of_each_side() -> None:
    x = np.arange(1, 36, dtype=np.float32).reshape(5, 7)
    for low, high in itertools.product((-2, 0, 3), repeat=2):
        n, m = 5 + low + high, 7 + high
        # One dimension is padded on both sides, the other only at its end.
        check(
            f"""func.func @main(%x: tensor<5x7xf32>, %v: tensor<f32>) -> tensor<{n}x{m}xf32> {{
              %a = stablehlo.negate %x : tensor<5x7xf32>
              %0 = stablehlo.pad %a, %v, low = [{low}, 0], high = [{high}, {high}], interior = [0, 0]
                : (tensor<5x7xf32>, tensor<f32>) -> tensor<{n}x{m}xf32>
              return %0 : tensor<{n}x{m}xf32>
            }}""",
            x, np.float32(-1),
        )  # fmt: skip


INDEX_VALUES = {
    "i8": [-128, -1, 0, 3, 127],
    "ui8": [0, 3, 127, 128, 199, 255],
    "i32": [-(2**31), -1, 0, 199, 2**31 - 1],
    "ui32": [0, 199, 200, 2**31, 2**32 - 1],
    "i64": [-(2**63), -1, 0, 199, 2**63 - 1],
    "ui64": [0, 199, 2**32, 2**63, 2**63 + 1, 2**64 - 1],
}


@pytest.mark.parametrize("dtype", INDEX_VALUES)
def test_indices_of_every_type(dtype: str) -> None:
    """Gathers and slices clamp the indices, scatters skip those outside."""
    values = INDEX_VALUES[dtype]
    indices = np.array(values, dtype.replace("ui", "uint") if dtype[0] == "u" else dtype.replace("i", "int"))
    k = len(values)
    x, u = np.arange(200, dtype=np.float32), np.arange(k, dtype=np.float32) + 1000
    text = f"""func.func @main(%x: tensor<200xf32>, %i: tensor<{k}x1x{dtype}>, %u: tensor<{k}xf32>)
        -> (tensor<{k}xf32>, tensor<{k}x3xf32>, tensor<200xf32>, tensor<200xf32>) {{
      %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}}>
        : (tensor<200xf32>, tensor<{k}x1x{dtype}>) -> tensor<{k}xf32>
      %1 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 3>}}>
        : (tensor<200xf32>, tensor<{k}x1x{dtype}>) -> tensor<{k}x3xf32>
      %2 = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) : (tensor<200xf32>, tensor<{k}x1x{dtype}>, tensor<{k}xf32>) -> tensor<200xf32>
      %w = stablehlo.broadcast_in_dim %u, dims = [0] : (tensor<{k}xf32>) -> tensor<{k}x3xf32>
      %3 = "stablehlo.scatter"(%x, %i, %w) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) : (tensor<200xf32>, tensor<{k}x1x{dtype}>, tensor<{k}x3xf32>) -> tensor<200xf32>
      return %0, %1, %2, %3 : tensor<{k}xf32>, tensor<{k}x3xf32>, tensor<200xf32>, tensor<200xf32>
    }}"""
    check(text, x, indices.reshape(k, 1), u)
    for value in indices:
        check(
            f"""func.func @main(%x: tensor<200xf32>, %i: tensor<{dtype}>, %w: tensor<4xf32>)
                -> (tensor<4xf32>, tensor<200xf32>) {{
              %0 = stablehlo.dynamic_slice %x, %i, sizes = [4] : (tensor<200xf32>, tensor<{dtype}>) -> tensor<4xf32>
              %1 = stablehlo.dynamic_update_slice %x, %w, %i
                : (tensor<200xf32>, tensor<4xf32>, tensor<{dtype}>) -> tensor<200xf32>
              return %0, %1 : tensor<4xf32>, tensor<200xf32>
            }}""",
            x, np.asarray(value), np.full(4, -1, np.float32),
        )  # fmt: skip


@pytest.mark.parametrize("vector_dim", [0, 1, 2, 3])
@pytest.mark.parametrize("batch_dim", [0, 1, 2])
def test_batches_of_gathers_and_scatters(vector_dim: int, batch_dim: int) -> None:
    """Index vectors may be along any dimension, and so may the batches."""
    extents = [2, 4, 3]
    extents[batch_dim] = 5  # as many as the operand has
    whole = [*extents[:vector_dim], 2, *extents[vector_dim:]]
    batching = batch_dim if batch_dim < vector_dim else batch_dim + 1
    n = len(extents)
    types = [
        f"tensor<{'x'.join(map(str, shape))}x{t}>"
        for shape, t in (((5, 6, 8), "f32"), (whole, "i32"), (extents, "f32"))
    ]
    rng = np.random.default_rng(vector_dim * n + batch_dim)
    i = rng.integers(-2, 9, whole).astype(np.int32)
    x, u = rng.integers(0, 99, (5, 6, 8)).astype(np.float32), rng.integers(0, 99, extents).astype(np.float32)
    check(
        f"""func.func @main(%x: {types[0]}, %i: {types[1]}, %u: {types[2]}) -> ({types[2]}, {types[0]}) {{
          %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1, 2],
            operand_batching_dims = [0], start_indices_batching_dims = [{batching}], start_index_map = [2, 1],
            index_vector_dim = {vector_dim}>, slice_sizes = array<i64: 1, 1, 1>}}> : ({types[0]}, {types[1]}) -> {types[2]}
          %1 = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
            inserted_window_dims = [1, 2], input_batching_dims = [0], scatter_indices_batching_dims = [{batching}],
            scatter_dims_to_operand_dims = [2, 1], index_vector_dim = {vector_dim}>}}> ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
          }}) : ({types[0]}, {types[1]}, {types[2]}) -> {types[0]}
          return %0, %1 : {types[2]}, {types[0]}
        }}""",
        x, i, u,
    )  # fmt: skip
