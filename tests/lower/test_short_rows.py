"""Row batching: reductions of many short rows combine their lanes together, with the bits of separate rows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from printed_codes import codes

import shlo_jit
from shlo_jit import tuning
from tests.lower.test_selection import program

DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "i8": np.int8}
ROWS = ((37,), (16,), (5, 19), (3, 2, 40))


def reduction(shape: tuple[int, ...], dtype: str, op: str, after: str = "") -> str:
    """Returns a reduction of the last dimension; `after` are ops on the result %r and the initial value %s."""
    kept = "x".join(map(str, [*shape[:-1], dtype]))
    x = "x".join(map(str, [*shape, dtype]))
    start = "1" if dtype.startswith("i") else "0.5"
    result = "%r" if not after else "%y"
    return f"""func.func @main(%x: tensor<{x}>) -> tensor<{kept}> {{
  %s = stablehlo.constant dense<{start}> : tensor<{dtype}>
  %r = stablehlo.reduce(%x init: %s) applies stablehlo.{op} across dimensions = [{len(shape) - 1}]
    : (tensor<{x}>, tensor<{dtype}>) -> tensor<{kept}>
  {after.format(t=f"tensor<{kept}>", e=f"tensor<{dtype}>")}
  return {result} : tensor<{kept}>
}}"""


def elements(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Returns elements, some of them equal, and for floats a few NaN."""
    random = np.random.default_rng(seed)
    x = (np.round(random.standard_normal(shape) * 8) / 4).astype(DTYPES[dtype])
    if not dtype.startswith("i"):
        x[random.random(shape) < 0.01] = np.nan
    return x


def run(text: str, x: np.ndarray, threads: int = 1) -> list[bytes]:
    found = shlo_jit.compile(text, threads=threads, cache=False)(x)
    return [np.asarray(f).tobytes() for f in (found if isinstance(found, tuple) else (found,))]


def notes(text: str) -> str:
    return shlo_jit.compile(text, cache=False).text("schedule")


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("n", [9, 12, 16, 17, 40])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.sampled(5)
def test_bits_are_those_of_rows_one_by_one(
    rows: tuple[int, ...], n: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = elements((*rows, n), dtype, n)
    texts = [reduction(x.shape, dtype, op) for op in ("add", "maximum")]
    texts.append(program(x.shape, x.ndim - 1, dtype, "jax", results="vw"))
    together = [run(text, x) for text in texts]
    monkeypatch.setattr(tuning, "ROW_BATCH_OPS", 0)
    assert together == [run(text, x) for text in texts]


@pytest.mark.parametrize("n", [9, 16, 33])
def test_selected_elements(n: int) -> None:
    """Includes numbers of rows that several threads share, in tasks that end between vectors of rows."""
    x = elements((30_011, n), "f32", n)
    text = program(x.shape, 1, "f32", "jax")
    expected = np.where(np.isnan(x), np.inf, x).argmax(1).astype(np.int32).tobytes()
    assert run(text, x) == run(text, x, threads=2) == [expected]


def test_what_is_computed_from_the_result_is_computed_in_lanes() -> None:
    x = elements((50, 16), "f32", 1)
    after = "%b = stablehlo.broadcast_in_dim %s, dims = [] : ({e}) -> {t}\n  %y = stablehlo.multiply %r, %b : {t}"
    text = reduction(x.shape, "f32", "maximum", after)
    assert "short-rows" in codes(notes(text))
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x), np.maximum(x.max(1), 0.5) * np.float32(0.5))


def test_rows_that_are_not_batched() -> None:
    """There are few rows, or long ones."""
    for shape in ((3, 16), (64, 1000)):
        assert "short-rows" not in codes(notes(reduction(shape, "f32", "maximum")))
