"""IEEE-754's maximum and minimum of all kinds of numbers: zeros are ordered, and any NaN wins."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

NANS = {"f32": (0x7FC00000, 0x7F800001), "f64": (0x7FF8 << 48, (0x7FF0 << 48) | 1)}
"""Bits of a quiet and of a signaling NaN."""
NUMPY = {"f32": np.float32, "f64": np.float64}


def kinds(dtype: str) -> np.ndarray:
    """Returns numbers of all kinds, of either sign."""
    t, bits = NUMPY[dtype], {"f32": np.uint32, "f64": np.uint64}[dtype]
    nans = np.array(NANS[dtype], bits).view(t)
    tiny = np.finfo(t).smallest_subnormal
    positive = np.concatenate([np.array([0, tiny, 1, 2, np.finfo(t).max, np.inf], t), nans])
    return np.concatenate([positive, -positive])


def agree(got: np.ndarray, expected: np.ndarray) -> None:
    """Checks that numbers are equal, with equal signs, and that NaNs are in the same places."""
    np.testing.assert_array_equal(got, expected)
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[there]), np.signbit(expected[there]))


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("which", ["maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_all_pairs(dtype: str, which: str, target: str) -> None:
    values = kinds(dtype)
    x, y = (np.ascontiguousarray(side) for side in np.meshgrid(values, values))
    t = f"tensor<{len(values)}x{len(values)}x{dtype}>"
    text = f"""func.func @main(%x: {t}, %y: {t}) -> {t} {{
      %0 = stablehlo.{which} %x, %y : {t}
      return %0 : {t}
    }}"""
    (expected,) = evaluate(shlo_jit.parse(text), x, y)
    agree(shlo_jit.compile(text, cache=False, target=target)(x, y), expected)


@pytest.mark.parametrize("which", ["maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("dimension", [0, 1])
def test_of_rows_and_columns(dtype: str, which: str, dimension: int) -> None:
    """One special number among ordinary ones, or two, in any place."""
    n, is_maximum = 67, which == "maximum"
    generator, values = np.random.default_rng(0), kinds(dtype)
    infinity = {"f32": ("0x7F800000", "0xFF800000"), "f64": ("0x7FF0000000000000", "0xFFF0000000000000")}
    t, r = f"tensor<{n}x{n}x{dtype}>", f"tensor<{n}x{dtype}>"
    text = f"""func.func @main(%x: {t}) -> {r} {{
      %i = stablehlo.constant dense<{infinity[dtype][is_maximum]}> : tensor<{dtype}>
      %0 = stablehlo.reduce(%x init: %i) applies stablehlo.{which} across dimensions = [{dimension}]
        : ({t}, tensor<{dtype}>) -> {r}
      return %0 : {r}
    }}"""
    function = shlo_jit.compile(text, cache=False)
    for _ in range(20):
        x = np.zeros((n, n), NUMPY[dtype]) * generator.choice([-1, 1], (n, n)).astype(NUMPY[dtype])
        for _ in range(n):
            x[generator.integers(n), generator.integers(n)] = generator.choice(values)
        (expected,) = evaluate(shlo_jit.parse(text), x)
        agree(function(x), expected)
