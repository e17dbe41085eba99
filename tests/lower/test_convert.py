"""Float to integer: truncated, saturated at both ends, 0 for NaN; vectors and the scalars that remain of them."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir.types import DTYPES, storage_range

INTEGERS = ["i2", "ui2", "i4", "ui4", "i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64"]


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", ["f32", "f64", "bf16"])
def test_ends_of_the_range(source: str, target: str) -> None:
    float_type, integer = DTYPES[source].numpy, DTYPES[target].numpy
    low, high = storage_range(DTYPES[target])
    near = [float(n + d) for n in (low, high, 0) for d in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]
    edges = [np.nextafter(np.float32(n), np.float32(to)) for n in (low, high + 1) for to in (-np.inf, np.inf)]
    x = (
        np.array([*near, *map(float, edges), np.nan, np.inf, -np.inf, -0.0, 1e30, -1e30])
        .astype(np.float64)
        .astype(float_type)
    )
    n = len(x)
    text = f"""func.func @main(%x: tensor<{n}x{source}>) -> tensor<{n}x{target}> {{
  %r = stablehlo.convert %x : (tensor<{n}x{source}>) -> tensor<{n}x{target}>
  return %r : tensor<{n}x{target}>
}}"""
    expected = [0 if np.isnan(v) else low if v <= low else high if v >= high else int(v) for v in x.astype(np.float64)]
    got = shlo_jit.compile(text, cache=False)(x)
    assert got.dtype == integer
    assert [int(v) for v in got] == expected
