"""Convolutions of a dilated input, split into convolutions of the input: equal to the reference."""

from __future__ import annotations

import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit.ir.core import walk
from shlo_jit.reference.interpreter import evaluate

RNG = np.random.default_rng(7)
LAST, FIRST = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
CASES = {
    # input, kernel, result, dimension numbers, window, groups
    "both": ("2x5x6x3", "3x3x3x4", "2x11x13x4", LAST, "pad = [[2, 2], [2, 2]], lhs_dilate = [2, 2]", 1),
    "one, the other has strides": (
        "1x5x9x3", "2x3x3x4", "1x14x3x4", LAST, "stride = [1, 3], pad = [[1, 1], [1, -1]], lhs_dilate = [3, 1]", 1),
    "features first": ("2x3x5x4", "4x3x4x3", "2x4x8x7", FIRST, "pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]", 1),
    "groups": ("2x5x6x4", "3x2x2x6", "2x8x13x6", LAST, "pad = [[1, 0], [2, 1]], lhs_dilate = [2, 2]", 2),
    "reversed": (
        "1x5x6x2", "3x4x2x3", "1x8x10x3", LAST,
        "pad = [[0, 1], [2, 0]], lhs_dilate = [2, 2], reverse = [true, true]", 1),
    "phases without a tap": (
        "1x4x5x2", "1x2x2x3", "1x10x12x3", LAST, "lhs_dilate = [3, 3], pad = [[0, 0], [1, -1]]", 1),
    "cut off": ("1x6x6x2", "3x3x2x3", "1x5x7x3", LAST, "lhs_dilate = [2, 2], pad = [[-3, -1], [-1, -1]]", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["f32", "i32", "complex<f32>"])
@pytest.mark.sampled(4)
def test_equal_to_the_reference(name: str, dtype: str) -> None:
    x, w, y, numbers, window, groups = CASES[name]
    a, b, c = (f"tensor<{s}x{dtype}>" for s in (x, w, y))
    counts = f"feature_group_count = {groups} : i64, batch_group_count = 1 : i64"
    text = f"""func.func @main(%x: {a}, %w: {b}) -> {c} {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{window}}} {{{counts}}} : ({a}, {b}) -> {c}
  return %r : {c}
}}"""
    inner = [o for o in walk(canonical(text).block()) if o.name == "stablehlo.convolution"]
    assert inner
    assert all(set(o.ints("lhs_dilation", (1, 1))) == {1} for o in inner)
    number = {"f32": np.float32, "i32": np.int32, "complex<f32>": np.complex64}[dtype]
    args = [RNG.integers(-5, 6, tuple(map(int, s.split("x")))).astype(number) for s in (x, w)]
    (want,) = evaluate(shlo_jit.parse(text), *args)
    np.testing.assert_array_equal(np.asarray(shlo_jit.compile(text, cache=False)(*args)), want)
