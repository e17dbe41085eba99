"""Gathers from arrays that fit registers: looked up there, not in memory, with the same elements as from memory."""

from __future__ import annotations

import guarded
import ml_dtypes
import numpy as np
import pytest

import shlo_jit

TYPES = {
    "f32": np.float32,
    "i32": np.int32,
    "ui32": np.uint32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i16": np.int16,
    "i8": np.int8,
    "f64": np.float64,
}


def text_of(size: int, dtype: str, count: int, index: str) -> str:
    return f"""func.func @main(%t: tensor<{size}x{dtype}>, %i: tensor<{count}x{index}>) -> tensor<{count}x{dtype}> {{
      %0 = stablehlo.reshape %i : (tensor<{count}x{index}>) -> tensor<{count}x1x{index}>
      %1 = "stablehlo.gather"(%t, %0) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}}>
        : (tensor<{size}x{dtype}>, tensor<{count}x1x{index}>) -> tensor<{count}x{dtype}>
      return %1 : tensor<{count}x{dtype}>
    }}"""


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 2, 7, 15, 16, 17, 31, 32, 33])
def test_elements_are_those_of_memory(size: int, dtype: str) -> None:
    """Indices outside are clamped. No byte next to the table is touched."""
    rng = np.random.default_rng(size)
    table = rng.integers(0, 100, size).astype(TYPES[dtype])
    for index, kind in (("i32", np.int32), ("ui8", np.uint8), ("i64", np.int64)):
        i = rng.integers(0 if index[0] == "u" else -3, size + 3, 77).astype(kind)
        i[:2] = np.iinfo(kind).min, np.iinfo(kind).max
        got = np.asarray(guarded.compile(text_of(size, dtype, 77, index))(table, i))
        np.testing.assert_array_equal(got, table[np.clip(i, 0, size - 1)])


def test_a_table_of_16_is_in_a_register() -> None:
    exe = shlo_jit.compile(text_of(16, "f32", 4096, "i32"), target="x86_64-linux:znver4")
    asm = exe.text("asm")
    assert "vperm" in asm and "gather" not in asm.replace("loop_gather", "")
