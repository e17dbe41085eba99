"""What cannot be compiled is refused with a documented exception at its place, and the process goes on."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit

CASES = {
    "syntax": ("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x tensor<4xf32>\n}", shlo_jit.ParseError, 2),
    "undefined value": (
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %y : tensor<4xf32>\n}", shlo_jit.ParseError, 2,
    ),
    "unknown op": (
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        '  %0 = "stablehlo.ad"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>\n'
        "  return %0 : tensor<4xf32>\n}",
        shlo_jit.StableHLOError, 2,
    ),
    "type mismatch": (
        "func.func @main(%x: tensor<4xf32>, %y: tensor<4xi32>) -> tensor<4xf32> {\n"
        '  %0 = "stablehlo.add"(%x, %y) : (tensor<4xf32>, tensor<4xi32>) -> tensor<4xf32>\n'
        "  return %0 : tensor<4xf32>\n}",
        shlo_jit.VerifyError, 2,
    ),
    "unknown custom call": (
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %0 = stablehlo.custom_call @nobody_knows(%x) : (tensor<4xf32>) -> tensor<4xf32>\n"
        "  return %0 : tensor<4xf32>\n}",
        shlo_jit.UnsupportedError, 2,
    ),
    "dynamic shape": (
        "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n  return %x : tensor<?xf32>\n}",
        shlo_jit.UnsupportedError, 1,
    ),
    "four spatial dimensions": (
        "func.func @main(%x: tensor<1x3x3x3x3x2xf32>, %w: tensor<1x1x1x1x2x2xf32>) -> tensor<1x3x3x3x3x2xf32> {\n"
        "  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, 2, 3, f]x[0, 1, 2, 3, i, o]->[b, 0, 1, 2, 3, f], "
        "window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        ": (tensor<1x3x3x3x3x2xf32>, tensor<1x1x1x1x2x2xf32>) -> tensor<1x3x3x3x3x2xf32>\n"
        "  return %0 : tensor<1x3x3x3x3x2xf32>\n}",
        shlo_jit.UnsupportedError, 2,
    ),
}  # fmt: skip
GOOD = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}"


@pytest.mark.parametrize("case", CASES)
def test_refused_at_its_line(case: str) -> None:
    text, kind, line = CASES[case]
    with pytest.raises(kind) as caught:
        shlo_jit.compile(text, cache=False)
    first = caught.value.diagnostics[0]
    assert first.line == line
    assert 1 <= first.column <= len(text.splitlines()[line - 1]) + 1
    assert first.source_line == text.splitlines()[line - 1]
    assert "^" in str(caught.value)
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(shlo_jit.compile(GOOD, cache=False)(x), x)


def test_missing_entry() -> None:
    with pytest.raises(shlo_jit.StableHLOError, match="no function @other; the program has @main"):
        shlo_jit.compile(GOOD, entry="other", cache=False)


@pytest.mark.parametrize("source", [3, None, ["text"]])
def test_not_a_program(source: object) -> None:
    with pytest.raises(TypeError, match="StableHLO text, a path or a Module"):
        shlo_jit.compile(source)
