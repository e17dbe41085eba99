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
    """Small convolutions have enough work and features."""
    monkeypatch.setattr(tuning, "FEATURES_LAST_WORK", 0)
    monkeypatch.setattr(tuning, "FEATURES_LAST_LANES", 1)


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
    "gradient of a kernel, many features": (
        "2x9x6x7", "2x5x6x7", "5x9x3x3", "[f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1]", PAD, 1, 1),
    "gradient of a kernel, strides": (
        "3x8x13x13", "3x20x6x6", "20x8x3x3", "[f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1]", "rhs_dilate = [2, 2]", 1, 1),
    "gradient of a kernel, a line": ("2x17x40", "2x33x40", "33x17x3", "[f, b, 0]x[i, o, 0]->[f, b, 0]", "pad = [[1, 1]]", 1, 1),
    "groups of the batch": ("4x3x5x4", "6x3x3x3", "2x6x5x4", FIRST, PAD, 1, 2),
    "a line": ("2x3x7", "4x3x2", "2x4x6", "[b, f, 0]x[o, i, 0]->[b, f, 0]", "", 1, 1),
    "a volume": ("1x2x3x4x3", "3x2x2x2x2", "1x3x2x3x2", "[b, f, 0, 1, 2]x[o, i, 0, 1, 2]->[b, f, 0, 1, 2]", "", 1, 1),
}  # fmt: skip

IMAGES_LAST = [name for name in CASES if name.startswith("gradient of a kernel,")]
"""Gradients of kernels with enough images and window positions to fill tiles with images as rows."""

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
    has_images_last = name in IMAGES_LAST
    assert (d.input_batch_dimension, d.input_feature_dimension) == ((rank - 1, 0) if has_images_last else (0, rank - 1))
    if name.startswith("gradient"):
        assert (d.kernel_input_feature_dimension, d.kernel_output_feature_dimension) == (0, rank - 1)


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


def depthwise(x: str, features: int, extent: int) -> str:
    """A depthwise convolution of square images, and its type."""
    t = f"tensor<1x{features}x{extent}x{extent}xf32>"
    return f"""stablehlo.convolution(%{x}, %w) dim_numbers = {FIRST}, window = {{{PAD}}}
      {{feature_group_count = {features} : i64, batch_group_count = 1 : i64}}
      : ({t}, tensor<{features}x1x3x3xf32>) -> {t}"""


def kept_first(lines: str, features: int, extent: int) -> list[bool]:
    """Whether each convolution of a program has features first after the pass."""
    t, w = f"tensor<1x{features}x{extent}x{extent}xf32>", f"tensor<{features}x1x3x3xf32>"
    text = f"""func.func @main(%x: {t}, %w: {w}, %v: tensor<{features}x{features}x1x1xf32>) -> {t} {{
      {lines}
      return %y : {t}
    }}"""
    ops = walk(after(text, features_last).block())
    numbers = [o.attributes["dimension_numbers"] for o in ops if o.name == "stablehlo.convolution"]
    return [d.output_feature_dimension == 1 for d in numbers]


def test_lone_depthwise_convolutions_of_large_planes_or_few_features_keep_them_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning, "FEATURES_LAST_LANES", 8)
    assert kept_first(f"%y = {depthwise('x', 64, 112)}", 64, 112) == [True]
    assert kept_first(f"%y = {depthwise('x', 4, 16)}", 4, 16) == [True]
    assert kept_first(f"%y = {depthwise('x', 64, 28)}", 64, 28) == [False]
    twice = f"%0 = {depthwise('x', 4, 16)}\n%1 = stablehlo.tanh %0 : tensor<1x4x16x16xf32>\n%y = {depthwise('1', 4, 16)}"
    assert kept_first(twice, 4, 16) == [True, True]


@pytest.mark.parametrize("between", ["tanh", "cholesky"])
def test_depthwise_convolutions_that_meet_others_have_the_same_layout(
    between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transposes cancel out across a tanh, but not across a decomposition."""
    monkeypatch.setattr(tuning, "FEATURES_LAST_LANES", 8)
    t, v = "tensor<1x4x16x16xf32>", "tensor<4x4x1x1xf32>"
    lines = f"""%0 = {depthwise("x", 4, 16)}
      %1 = stablehlo.{between} %0 : {t}
      %y = stablehlo.convolution(%1, %v) dim_numbers = {FIRST}, window = {{}}
        {{feature_group_count = 1 : i64, batch_group_count = 1 : i64}} : ({t}, {v}) -> {t}"""
    assert kept_first(lines, 4, 16) == [between == "cholesky", False]
