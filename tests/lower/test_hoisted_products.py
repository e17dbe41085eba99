"""Products of one slice per iteration that are computed before their loop: which ones, and that results are the
reference's."""

from __future__ import annotations

import numpy as np
import pytest
from random_check import check

import shlo_jit
from shlo_jit import tuning

INDEX = {"forwards": "%i", "backwards": "%back", "the same": "%zero", "beyond": "%far"}


def program(
    turns: int, taken: str = "forwards", dtype: str = "f32", rows: int = 3, slices: int = 12, matrix: str = "%w"
) -> str:
    """Returns a recurrence over `slices` slices [rows, 20] of x and a matrix [20, 20]."""
    state, all_of_it, square = (f"tensor<{s}x{dtype}>" for s in (f"{rows}x20", f"{slices}x{rows}x20", "20x20"))
    return f"""func.func @main(%x: {all_of_it}, %w: {square}, %h: {state}) -> {state} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %last = stablehlo.constant dense<{slices - 1}> : tensor<i32>
      %y0, %y = stablehlo.while(%i = %zero, %c = %h) : tensor<i32>, {state}
      cond {{
        %turns = stablehlo.constant dense<{turns}> : tensor<i32>
        %less = stablehlo.compare LT, %i, %turns : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %less : tensor<i1>
      }} do {{
        %back = stablehlo.subtract %last, %i : tensor<i32>
        %far = stablehlo.add %i, %last : tensor<i32>
        %v = stablehlo.sine %w : {square}
        %s = stablehlo.dynamic_slice %x, {INDEX[taken]}, %zero, %zero, sizes = [1, {rows}, 20]
          : ({all_of_it}, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x{rows}x20x{dtype}>
        %t = stablehlo.reshape %s : (tensor<1x{rows}x20x{dtype}>) -> {state}
        %p = stablehlo.dot_general %t, {matrix}, contracting_dims = [1] x [1] : ({state}, {square}) -> {state}
        %q = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0] : ({state}, {square}) -> {state}
        %sum = stablehlo.add %p, %q : {state}
        %n = stablehlo.tanh %sum : {state}
        %one = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %j, %n : tensor<i32>, {state}
      }}
      return %y : {state}
    }}"""


def is_hoisted(text: str) -> bool:
    """Whether a product precedes the loop."""
    core = shlo_jit.compile(text, cache=False).text("core")
    return "dot_general" in core[: core.index("while")]


@pytest.mark.parametrize("taken", INDEX)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
def test_results(taken: str, dtype: str) -> None:
    import ml_dtypes

    rng = np.random.default_rng(0)
    numpy_type = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]
    text = program(13, taken, dtype)
    assert is_hoisted(text)
    shapes = [(12, 3, 20), (20, 20), (3, 20)]
    check(text, [(rng.standard_normal(shape) / 4).astype(numpy_type) for shape in shapes])


@pytest.mark.parametrize(
    "text",
    [
        program(11),  # a slice is not needed
        program(13, matrix="%v"),  # computed in the loop
        program(13, rows=tuning.HOISTED_ROWS + 1),
    ],
    ids=["fewer turns", "matrix of the loop", "many rows"],
)
def test_what_stays(text: str) -> None:
    assert not is_hoisted(text)


def test_results_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_hoisted(program(13))
    monkeypatch.setattr(tuning, "HOISTED_BYTES", 12 * 3 * 20 * 4 - 1)
    assert not is_hoisted(program(13))
