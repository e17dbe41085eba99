"""Rolls by an amount that depends on data: runs of vectors that may lie outside of an operand."""

from __future__ import annotations

import guarded
import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate


def rolled(n: int, dtype: str, reversed_too: bool = False) -> str:
    """Two copies of an array, read from a start that is known only in the call, and combined with the array."""
    t, twice = f"tensor<{n}x{dtype}>", f"tensor<{2 * n}x{dtype}>"
    turn = f"%r = stablehlo.reverse %w, dims = [0] : {t}" if reversed_too else f"%r = stablehlo.negate %w : {t}"
    return f"""func.func @main(%x: {t}, %i: tensor<i32>) -> {t} {{
  %c = stablehlo.concatenate %x, %x, dim = 0 : ({t}, {t}) -> {twice}
  %w = stablehlo.dynamic_slice %c, %i, sizes = [{n}] : ({twice}, tensor<i32>) -> {t}
  {turn}
  %m = stablehlo.maximum %x, %r : {t}
  return %m : {t}
}}"""


def in_rows(rows: int, n: int) -> str:
    """The same along both dimensions of a matrix, with elements from padding outside."""
    t, p = f"tensor<{rows}x{n}xf32>", f"tensor<{3 * rows}x{3 * n}xf32>"
    return f"""func.func @main(%x: {t}, %i: tensor<i32>) -> {t} {{
  %z = stablehlo.constant dense<0.5> : tensor<f32>
  %p = stablehlo.pad %x, %z, low = [{rows}, {n}], high = [{rows}, {n}], interior = [0, 0]
    : ({t}, tensor<f32>) -> {p}
  %w = stablehlo.dynamic_slice %p, %i, %i, sizes = [{rows}, {n}]
    : ({p}, tensor<i32>, tensor<i32>) -> {t}
  %m = stablehlo.add %x, %w : {t}
  return %m : {t}
}}"""


PROGRAMS = {
    "f32": (rolled(600, "f32"), (600,), np.float32),
    "short": (rolled(37, "f32"), (37,), np.float32),
    "bytes": (rolled(517, "i8"), (517,), np.int8),
    "f64": (rolled(129, "f64"), (129,), np.float64),
    "reversed": (rolled(600, "f32", True), (600,), np.float32),
    "tasks": (rolled(300_000, "f32"), (300_000,), np.float32),
    "padded": (in_rows(7, 90), (7, 90), np.float32),
}


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_start(name: str, threads: int) -> None:
    text, shape, dtype = PROGRAMS[name]
    x = np.random.default_rng(5).integers(-90, 90, shape).astype(dtype)
    exe, module = guarded.compile(text, threads=threads, cache=False), shlo_jit.parse(text)
    n = shape[-1]
    for start in (-5, 0, 1, 15, 16, 17, n // 2, n - 16, n - 1, n, n + 1, 2 * n - 3, 3 * n):
        given = [x, np.array(start, np.int32)]
        (want,) = evaluate(module, *given)
        assert np.asarray(exe(*given)).tobytes() == np.asarray(want).tobytes(), start


def test_starts_are_compared_in_narrow_lanes() -> None:
    """The range of a start is known, so that masks need no lanes of 64 bits."""
    lowered = shlo_jit.compile(rolled(4096, "f32"), cache=False).text("lowered")
    assert "x i64>" not in lowered
