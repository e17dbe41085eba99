"""Unsupported programs are refused with a documented exception and its location, and the process continues."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from refusing import refused

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
    "an op of another dialect": (
        "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  %0 = arith.addf %x, %x : tensor<2xf32>\n"
        "  return %0 : tensor<2xf32>\n}",
        shlo_jit.UnsupportedError, 2,
    ),
    "a tuple beside an unknown dimension": (
        "func.func @main(%x: tensor<?xf32>, %t: tuple<tensor<f32>>) -> tensor<?xf32> {\n"
        "  return %x : tensor<?xf32>\n}",
        shlo_jit.UnsupportedError, 1,
    ),
    "four spatial dimensions": (
        "func.func @main(%x: tensor<1x3x3x3x3x2xf32>, %w: tensor<2x1x1x1x2x2xf32>) -> tensor<1x2x3x3x3x2xf32> {\n"
        "  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, 2, 3, f]x[0, 1, 2, 3, i, o]->[b, 0, 1, 2, 3, f], "
        "window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        ": (tensor<1x3x3x3x3x2xf32>, tensor<2x1x1x1x2x2xf32>) -> tensor<1x2x3x3x3x2xf32>\n"
        "  return %0 : tensor<1x2x3x3x3x2xf32>\n}",
        shlo_jit.UnsupportedError, 2,
    ),
    "an entry without a body": ("func.func private @main(tensor<4xf32>) -> tensor<4xf32>", shlo_jit.UnsupportedError, 1),
    "an initial value with a shape": (
        "func.func @main(%x: tensor<4xf32>, %i: tensor<1xf32>) -> tensor<4xf32> {\n"
        '  %0 = "stablehlo.reduce_window"(%x, %i) <{window_dimensions = array<i64: 1>}> ({\n'
        "  ^bb0(%a: tensor<1xf32>, %b: tensor<1xf32>):\n"
        "    stablehlo.return %a : tensor<1xf32>\n"
        "  }) : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n}",
        shlo_jit.StableHLOError, 2,
    ),
    "an argument beyond the address space": (
        "func.func @main(%x: tensor<4611686018427387904xf32>) -> tensor<4611686018427387904xf32> {\n"
        "  return %x : tensor<4611686018427387904xf32>\n}",
        shlo_jit.UnsupportedError, 1,
    ),
    "a value beyond the address space": (
        "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
        "  %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<9223372036854775807x9223372036854775807xf32>\n"
        "  return %x : tensor<f32>\n}",
        shlo_jit.UnsupportedError, 2,
    ),
    "an empty tensor beyond the address space": (
        "func.func @main() -> tensor<4611686018427387904x0xf32> {\n"
        "  %0 = stablehlo.iota dim = 0 : tensor<4611686018427387904x0xf32>\n"
        "  return %0 : tensor<4611686018427387904x0xf32>\n}",
        shlo_jit.UnsupportedError, 2,
    ),
    "an alias that is none": (
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        '  %0 = "stablehlo.custom_call"(%x) {call_target_name = "f", output_operand_aliases = [#chlo<comparison_type FLOAT>]} '
        ": (tensor<4xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n}",
        shlo_jit.VerifyError, 2,
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
    with refused(shlo_jit.StableHLOError, "entry", shows="@other"):
        shlo_jit.compile(GOOD, entry="other", cache=False)


@pytest.mark.parametrize("source", [3, None, ["text"]])
def test_not_a_program(source: object) -> None:
    with pytest.raises(TypeError, match="text, a path, bytes, a Module"):
        shlo_jit.compile(source)


@pytest.mark.parametrize("compiles", [shlo_jit.compile, shlo_jit.parse])
def test_half_a_character(compiles: Any) -> None:
    with refused(shlo_jit.ParseError, "encoding", (2, 6), shows="D800") as caught:
        compiles(GOOD.replace("return", "// \ud800\n  return"))
    assert (caught.value.line, caught.value.column) == (2, 6)


SORTED = """
func.func @main(%x: tensor<f32>) -> tensor<1xf32> {{
  %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<{n}xf32>
  %1 = "stablehlo.sort"(%0) <{{dimension = 0 : i64}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }}) : (tensor<{n}xf32>) -> tensor<{n}xf32>
  %2 = stablehlo.slice %1 [0:1] : (tensor<{n}xf32>) -> tensor<1xf32>
  return %2 : tensor<1xf32>
}}"""
SPREAD = """
func.func @main(%x: tensor<f32>) -> tensor<{n}xf32> {{
  %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<{n}xf32>
  return %0 : tensor<{n}xf32>
}}"""


@pytest.mark.parametrize("text", [SORTED, SPREAD], ids=["scratch", "result"])
@pytest.mark.parametrize("times", [2, 100])
def test_more_memory_than_there_is(text: str, times: int) -> None:
    """The system may overcommit memory; the process must not find out by using it."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    exe = shlo_jit.compile(text.format(n=times * physical // 4), cache=False)
    with pytest.raises(MemoryError, match=r"\d+ bytes of memory"):
        exe(np.float32(1))
