"""Convolutions of bytes: rewritten as products, equal to the reference, and unchanged if that does not pay off."""

from __future__ import annotations

import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit.ir.core import walk
from shlo_jit.ir.types import DTYPES
from shlo_jit.reference.interpreter import evaluate

RNG = np.random.default_rng(3)
PLAIN = "feature_group_count = 1 : i64, batch_group_count = 1 : i64"
CASES = [
    # input, kernel, result, dimension numbers, window
    ("2x9x8x5", "3x2x5x8", "2x7x7x8", "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", ""),
    ("2x9x8x5", "3x2x5x9", "2x4x6x9", "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
     "stride = [3, 2], pad = [[2, 1], [3, 2]]"),
    ("2x5x9x8", "8x5x3x2", "2x8x11x12", "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]",
     "pad = [[2, 2], [3, 3]], rhs_dilate = [1, 2]"),
    ("9x2x5x8", "5x3x2x8", "8x14x2x8", "[0, b, f, 1]x[i, 0, 1, o]->[f, 1, b, 0]",
     "pad = [[1, 0], [-1, 1]], lhs_dilate = [1, 2]"),
    ("2x9x8x5", "3x2x5x8", "2x7x7x8", "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "reverse = [true, true]"),
    ("3x6x16", "1x16x32", "3x6x32", "[b, 0, f]x[0, i, o]->[b, 0, f]", ""),
    ("3x16", "16x32", "3x32", "[b, f]x[i, o]->[b, f]", ""),
]  # fmt: skip


def text_of(case: tuple[str, ...], lhs: str, rhs: str, groups: str = PLAIN, acc: str = "i32") -> str:
    x, w, y, numbers, window = case
    a, b, c = f"tensor<{x}x{lhs}>", f"tensor<{w}x{rhs}>", f"tensor<{y}x{acc}>"
    return f"""func.func @main(%x: {a}, %w: {b}) -> {c} {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{window}}} {{{groups}}} : ({a}, {b}) -> {c}
  return %r : {c}
}}"""


def numbers(shape: str, dtype: str) -> np.ndarray:
    d = DTYPES[dtype]
    low = 0 if d.kind == "u" else -(2 ** (d.bits - 1))
    data = RNG.integers(low, low + 2**d.bits, tuple(map(int, shape.split("x"))))
    return data.astype(d.numpy)


def names(text: str) -> set[str]:
    return {op.name for op in walk(canonical(text).block())}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["i8", "ui8", "i4"])
def test_product(case: tuple[str, ...], dtype: str) -> None:
    acc = "ui32" if dtype == "ui8" else "i32"
    text = text_of(case, dtype, dtype, acc=acc)
    diagnostics = shlo_jit.verify(text)
    assert not diagnostics, [str(d) for d in diagnostics]
    assert "stablehlo.dot_general" in names(text) and "stablehlo.convolution" not in names(text)
    x, w = numbers(case[0], dtype), numbers(case[1], dtype)
    (expected,) = evaluate(shlo_jit.parse(text), x, w)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, w), expected)


GROUPED = [
    # case as above, feature groups, batch groups
    (("2x6x7x8", "3x2x2x16", "2x4x6x16", "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", ""), 4, 1),
    (("2x8x7x6", "16x4x3x2", "2x16x5x3", "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]",
      "stride = [1, 2], pad = [[0, 0], [1, 0]], reverse = [true, false]"), 2, 1),
    (("1x9x12", "2x1x24", "1x8x24", "[b, 0, f]x[0, i, o]->[b, 0, f]", ""), 12, 1),
    (("1x9x96", "2x2x96", "1x8x96", "[b, 0, f]x[0, i, o]->[b, 0, f]", ""), 48, 1),
    (("6x5x4x4", "2x2x4x12", "2x4x3x12", "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", ""), 1, 3),
    (("5x4x6x4", "12x2x2x4", "12x4x2x5", "[0, f, b, 1]x[o, 0, 1, i]->[f, 0, b, 1]", "pad = [[0, 0], [1, 1]]"), 1, 3),
]  # fmt: skip


@pytest.mark.parametrize("case,features,batches", GROUPED)
def test_groups(case: tuple[str, ...], features: int, batches: int) -> None:
    text = text_of(case, "i8", "i8", f"feature_group_count = {features} : i64, batch_group_count = {batches} : i64")
    x, w = numbers(case[0], "i8"), numbers(case[1], "i8")
    assert "stablehlo.convolution" not in names(text)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, w), evaluate(shlo_jit.parse(text), x, w)[0])


def test_depthwise_stays() -> None:
    depthwise = ("1x6x6x16", "3x3x1x16", "1x4x4x16", "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "")
    text = text_of(depthwise, "i8", "i8", PLAIN.replace("feature_group_count = 1", "feature_group_count = 16"))
    x, w = numbers(depthwise[0], "i8"), numbers(depthwise[1], "i8")
    assert "stablehlo.convolution" in names(text)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, w), evaluate(shlo_jit.parse(text), x, w)[0])
