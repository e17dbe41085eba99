"""Convolutions with features first are written with features last: equal to the reference, without loops that only
move elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from alone import after

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.core import walk
from shlo_jit.passes.canonical.features_last import features_last
from shlo_jit.reference.interpreter import evaluate


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions have enough work."""
    monkeypatch.setattr(tuning, "FEATURES_LAST_WORK", 0)


RNG = np.random.default_rng(11)
FIRST = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
PAD = "pad = [[1, 1], [1, 1]]"
CASES = {
    # image, kernel, result, dimension numbers, window, groups of features, groups of the batch
    "first": ("2x3x5x4", "6x3x3x3", "2x6x5x4", FIRST, PAD, 1, 1),
    "one pixel": ("2x3x1x1", "6x3x3x3", "2x6x1x1", FIRST, PAD, 1, 1),
    "depthwise": ("1x4x5x5", "8x1x3x3", "1x8x5x5", FIRST, PAD, 4, 1),
    "groups": ("1x6x5x4", "4x3x2x3", "1x4x4x2", FIRST, "", 2, 1),
    "reversed, inputs first": (
        "2x3x5x4", "3x6x3x3", "2x6x5x4", "[b, f, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1]", PAD + ", reverse = [true, true]", 1, 1),
    "strides and dilations": (
        "1x3x9x8", "5x3x3x2", "1x5x3x9", FIRST, "stride = [2, 1], lhs_dilate = [1, 2], rhs_dilate = [2, 3], pad = [[0, 0], [0, -3]]",
        1, 1),
    "only the result": ("2x5x4x3", "3x3x3x6", "2x6x5x4", "[b, 0, 1, f]x[0, 1, i, o]->[b, f, 0, 1]", PAD, 1, 1),
    "features before the batch": ("3x2x5x4", "6x3x3x3", "6x2x5x4", "[f, b, 0, 1]x[o, i, 0, 1]->[f, b, 0, 1]", PAD, 1, 1),
    "gradient of a kernel": ("4x3x5x4", "4x6x5x4", "6x3x3x3", "[f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1]", PAD, 1, 1),
    "groups of the batch": ("4x3x5x4", "6x3x3x3", "2x6x5x4", FIRST, PAD, 1, 2),
    "a line": ("2x3x7", "4x3x2", "2x4x6", "[b, f, 0]x[o, i, 0]->[b, f, 0]", "", 1, 1),
    "a volume": ("1x2x3x4x3", "3x2x2x2x2", "1x3x2x3x2", "[b, f, 0, 1, 2]x[o, i, 0, 1, 2]->[b, f, 0, 1, 2]", "", 1, 1),
}  # fmt: skip

NUMPY = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "complex<f32>": np.complex64}


def text_of(name: str, dtype: str = "f32") -> str:
    x, w, y, numbers, window, groups, batches = CASES[name]
    a, b, c = (f"tensor<{s}x{dtype}>" for s in (x, w, y))
    counts = f"feature_group_count = {groups} : i64, batch_group_count = {batches} : i64"
    return f"""func.func @main(%x: {a}, %w: {b}) -> {c} {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{window}}} {{{counts}}} : ({a}, {b}) -> {c}
  return %r : {c}
}}"""


@pytest.mark.parametrize("name", CASES)
def test_features_are_last(name: str) -> None:
    (op,) = (o for o in walk(after(text_of(name), features_last).block()) if o.name == "stablehlo.convolution")
    d = op.attributes["dimension_numbers"]
    rank = op.result.tensor.rank
    assert (d.output_batch_dimension, d.output_feature_dimension) == (0, rank - 1)
    assert (d.input_batch_dimension, d.input_feature_dimension) == (0, rank - 1)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.sampled(12)
def test_equal_to_the_reference(name: str, dtype: str) -> None:
    text = text_of(name, dtype)
    program = shlo_jit.parse(text)
    shapes = [tuple(map(int, extents.split("x"))) for extents in CASES[name][:2]]
    arguments = [RNG.integers(-4, 5, shape).astype(NUMPY[dtype]) for shape in shapes]
    (want,) = evaluate(program, *arguments)
    for threads in (1, 3):
        found = shlo_jit.compile(text, cache=False, threads=threads)(*arguments)
        np.testing.assert_array_equal(np.asarray(found), want)


def test_a_single_feature_is_first_and_last() -> None:
    text = text_of("first").replace("6x3x3x3", "1x3x3x3").replace("2x6x5x4", "2x1x5x4")
    assert not any(o.name == "stablehlo.transpose" for o in walk(after(text, features_last).block()))


def test_small_convolutions_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transposes take as long as they do."""
    text = """func.func @main(%x: tensor<1x3x8xf32>, %w: tensor<4x3x3xf32>) -> tensor<1x4x6xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x3x8xf32>, tensor<4x3x3xf32>) -> tensor<1x4x6xf32>
      return %0 : tensor<1x4x6xf32>
    }"""
    for least, count in ((4 * 6 * 9, 1), (4 * 6 * 9 + 1, 0)):
        monkeypatch.setattr(tuning, "FEATURES_LAST_WORK", least)
        found = after(shlo_jit.parse(text), features_last)
        assert any(op.name == "stablehlo.transpose" for op in walk(found.block())) == bool(count)
