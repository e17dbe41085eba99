"""Convolutions with a batch that is known only at the call."""

from __future__ import annotations

import re

import pytest
from any_size import check
from printed_codes import codes

import shlo_jit
from shlo_jit.sizes import Symbol

LAST, FIRST = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
SAME = "pad = [[1, 1], [1, 1]]"
CASES = {
    # input, kernel, result, dimension numbers, window, feature groups
    "features last": ("?x10x9x4", "3x3x4x8", "?x10x9x8", LAST, SAME, 1),
    "features first": ("?x4x10x9", "8x4x3x3", "?x8x10x9", FIRST, SAME, 1),
    "long lines": ("?x3x30x8", "3x3x8x40", "?x3x30x40", LAST, SAME, 1),
    "pixels": ("?x7x7x32", "1x1x32x48", "?x7x7x48", LAST, "", 1),
    "pixels, features first": ("?x32x7x7", "48x32x1x1", "?x48x7x7", FIRST, "", 1),
    "some pixels": ("?x8x8x4", "1x1x4x8", "?x4x4x8", LAST, "stride = [2, 2]", 1),
    "strides": ("?x11x11x4", "3x3x4x8", "?x6x6x8", LAST, f"stride = [2, 2], {SAME}", 1),
    "dilated kernel": ("?x9x9x4", "3x3x4x8", "?x5x5x8", LAST, "rhs_dilate = [2, 2]", 1),
    "dilated input": ("?x5x5x4", "3x3x4x8", "?x9x9x8", LAST, f"{SAME}, lhs_dilate = [2, 2]", 1),
    "phases without a tap": ("?x4x5x2", "2x2x2x3", "?x9x12x3", LAST, "lhs_dilate = [3, 3], pad = [[0, 0], [1, -1]]", 1),
    "phases of single taps": ("?x4x5x3", "2x2x3x4", "?x9x11x4", LAST, "lhs_dilate = [2, 2], pad = [[2, 1], [1, 2]]", 1),
    "reversed": ("?x6x6x2", "3x4x2x3", "?x6x4x3", LAST, "pad = [[1, 1], [1, 0]], reverse = [true, true]", 1),
    "all of an image": ("?x5x5x4", "5x5x4x8", "?x1x1x8", LAST, "", 1),
    "groups": ("?x6x6x8", "3x3x4x16", "?x6x6x16", LAST, SAME, 2),
    "depthwise, features last": ("?x6x9x20", "3x3x1x20", "?x6x9x20", LAST, SAME, 20),
    "depthwise, features first": ("?x20x6x19", "20x1x3x3", "?x20x6x19", FIRST, SAME, 20),
    "depthwise pixels": ("?x6x9x20", "1x1x1x20", "?x6x9x20", LAST, "", 20),
    "depthwise, several results": ("?x20x6x9", "40x1x3x3", "?x40x3x5", FIRST, f"stride = [2, 2], {SAME}", 20),
    "one dimension": ("?x30x4", "5x4x8", "?x26x8", "[b, 0, f]x[0, i, o]->[b, 0, f]", "", 1),
    "three dimensions": (
        "?x4x5x6x2", "2x3x2x2x8", "?x3x3x5x8", "[b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f]", "", 1),
    "no dimension": ("?x6", "6x4", "?x4", "[b, f]x[i, o]->[b, f]", "", 1),
    "result transposed": ("?x5x5x4", "3x3x4x8", "8x5x5x?", "[b, 0, 1, f]x[0, 1, i, o]->[f, 0, 1, b]", SAME, 1),
    "gradient of the kernel": (
        "?x9x9x4", "?x9x9x8", "3x3x4x8", "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", SAME, 1),
    "gradient of a kernel with strides": (
        "?x9x9x4", "?x5x5x8", "3x3x4x8", "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", f"{SAME}, rhs_dilate = [2, 2]", 1),
    "gradient of the kernel, features first": (
        "?x4x9x9", "?x8x9x9", "8x4x3x3", "[f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1]", SAME, 1),
}  # fmt: skip
RESULTS = {"i8": "i32", "f16": "f32"}
"""Element types of results that differ from the operands'."""


def tensor(shape: str, dtype: str) -> str:
    return f"tensor<{shape}x{dtype}>"


def convolution(name: str, dtype: str = "f32", counts: str = "") -> str:
    x, w, y, numbers, window, groups = CASES[name]
    a, b, c = tensor(x, dtype), tensor(w, dtype), tensor(y, RESULTS.get(dtype, dtype))
    counts = counts or f"feature_group_count = {groups} : i64, batch_group_count = 1 : i64"
    return f"""func.func @main(%x: {a}, %w: {b}) -> {c} {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{window}}} {{{counts}}} : ({a}, {b}) -> {c}
  return %r : {c}
}}"""


@pytest.mark.parametrize("name", CASES)
def test_one_code_is_equal_to_the_reference(name: str) -> None:
    check(convolution(name))


ALONG = """func.func @main(%x: tensor<?x4xf32>, %w: tensor<3x4x8xf32>) -> tensor<1x?x8xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %s = stablehlo.concatenate %one, %n1, %four, dim = 0
    : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
  %y = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<3xi32>) -> tensor<1x?x4xf32>
  %r = stablehlo.convolution(%y, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x?x4xf32>, tensor<3x4x8xf32>) -> tensor<1x?x8xf32>
  return %r : tensor<1x?x8xf32>
}"""


def test_windows_along_the_batch_are_for_fixed_sizes() -> None:
    plan = shlo_jit.compile(ALONG, dynamic="symbolic").text("plan", [(64, 4), (3, 4, 8)])
    first = plan.splitlines()[0]
    assert "convolution in line 9" in first and codes(first) == ["windows-unknown"]


@pytest.mark.parametrize("name", ["pixels", "no dimension"])
def test_pointwise_convolutions_are_products(name: str) -> None:
    x, w, *_ = CASES[name]
    shapes = [tuple(64 if e == "?" else int(e) for e in shape.split("x")) for shape in (x, w)]
    plan = shlo_jit.compile(convolution(name), dynamic="symbolic").text("plan", shapes)
    assert "dot_general" in plan
    assert "convolution" not in plan


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16", "i8", "i32", "complex<f32>"])
@pytest.mark.parametrize("name", ["features last", "pixels", "groups", "depthwise, features first"])
def test_of_every_type(name: str, dtype: str) -> None:
    check(convolution(name, dtype), high=2)


@pytest.mark.parametrize("name", ["features first", "long lines", "depthwise, features last", "gradient of the kernel"])
def test_without_masks(name: str) -> None:
    check(convolution(name), target="x86-64-v3")


@pytest.mark.parametrize("hint", [2, 1000])
@pytest.mark.parametrize("name", ["features last", "long lines", "groups", "gradient of the kernel"])
def test_whatever_it_is_tuned_for(name: str, hint: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shlo_jit.tuning, "SYMBOLIC_SIZES", (Symbol(2, 1 << 20, hint),))
    check(convolution(name), sizes=(2, 33, 70))


def test_groups_of_the_batch() -> None:
    """The gradient of a grouped kernel: the batch is contracted, and the former features are groups."""
    a, b, c = (tensor(s, "f32") for s in ("?x6x6x8", "?x6x6x4", "3x3x2x4"))
    numbers, counts = "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", "batch_group_count = 4 : i64"
    check(f"""func.func @main(%x: {a}, %w: {b}) -> {c} {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{SAME}}}
    {{feature_group_count = 1 : i64, {counts}}} : ({a}, {b}) -> {c}
  return %r : {c}
}}""")


EPILOGUE = """func.func @main(%x: {t}, %w: {w}, %b: tensor<8xf32>) -> {t} {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{pad = [[1, 1], [1, 1]]}}
    {{feature_group_count = {groups} : i64, batch_group_count = 1 : i64}} : ({t}, {w}) -> {t}
  %m = stablehlo.get_dimension_size %x, dim = 0 : ({t}) -> tensor<i32>
  %o = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
  %e = stablehlo.constant dense<{extents}> : tensor<3xi32>
  %s = stablehlo.concatenate %o, %e, dim = 0 : (tensor<1xi32>, tensor<3xi32>) -> tensor<4xi32>
  %c = stablehlo.dynamic_broadcast_in_dim %b, %s, dims = [{feature}] : (tensor<8xf32>, tensor<4xi32>) -> {t}
  %0 = stablehlo.add %r, %c : {t}
  %n = stablehlo.constant dense<0.0> : tensor<f32>
  %z = stablehlo.dynamic_broadcast_in_dim %n, %s, dims = [] : (tensor<f32>, tensor<4xi32>) -> {t}
  %1 = stablehlo.maximum %0, %z : {t}
  %2 = stablehlo.add %1, %x : {t}
  return %2 : {t}
}}"""


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize(("shape", "numbers", "feature"), [("?x9x9x8", LAST, 3), ("?x8x9x9", FIRST, 1)])
def test_an_epilogue_runs_on_the_tiles(shape: str, numbers: str, feature: int, groups: int) -> None:
    inputs = 8 // groups
    kernel = f"3x3x{inputs}x8" if numbers == LAST else f"8x{inputs}x3x3"
    text = EPILOGUE.format(
        t=tensor(shape, "f32"),
        w=tensor(kernel, "f32"),
        extents=list(map(int, shape.split("x")[1:])),
        numbers=numbers,
        feature=feature,
        groups=groups,
    )
    check(text)
    shapes = [tuple(64 if e == "?" else int(e) for e in s.split("x")) for s in (shape, kernel, "8")]
    schedule = shlo_jit.compile(text, dynamic="symbolic").text("schedule", shapes=shapes)
    assert re.search("epilogue +on the product's tiles", schedule)


def test_convolutions_in_a_loop() -> None:
    """The table that a convolution reads is on the stack, once for all iterations."""
    t, w = "tensor<?x5x5x2xf32>", "tensor<3x3x2x2xf32>"
    check(f"""func.func @main(%x: {t}, %w: {w}) -> {t} {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, {t}
  cond {{
    %n = stablehlo.constant dense<3> : tensor<i32>
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %y = stablehlo.convolution(%v, %w) dim_numbers = {LAST}, window = {{{SAME}}}
      {{feature_group_count = 1 : i64, batch_group_count = 1 : i64}} : ({t}, {w}) -> {t}
    stablehlo.return %j, %y : tensor<i32>, {t}
  }}
  return %r#1 : {t}
}}""")
