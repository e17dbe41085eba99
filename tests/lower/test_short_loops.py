"""Short innermost loops: lanes run across points, pixels and pairs, and sums over pairs share the work of a pair."""

from __future__ import annotations

from typing import Any

import guarded
import ml_dtypes
import numpy as np
import pytest
import random_check
from printed_codes import codes

import shlo_jit
from shlo_jit import tuning
from shlo_jit.reference.interpreter import evaluate

DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}


def t(*shape: int, dtype: str) -> str:
    return "tensor<" + "x".join(map(str, (*shape, dtype))) + ">"


def pairs(n: int, m: int, k: int, dtype: str, rest: str, result: str) -> str:
    """Differences %d of n and m points of k coordinates, weights %w of the pairs, and what is computed from them."""
    x, y, all_, pair, one = (t(*s, dtype=dtype) for s in ((n, k), (m, k), (n, m, k), (n, m), ()))
    return f"""func.func @main(%x: {x}, %y: {y}) -> {result} {{
  %zero = stablehlo.constant dense<0.0> : {one}
  %one = stablehlo.constant dense<1.0> : {pair}
  %a = stablehlo.broadcast_in_dim %x, dims = [0, 2] : ({x}) -> {all_}
  %b = stablehlo.broadcast_in_dim %y, dims = [1, 2] : ({y}) -> {all_}
  %d = stablehlo.subtract %a, %b : {all_}
  %q = stablehlo.multiply %d, %d : {all_}
  %s = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [2] : ({all_}, {one}) -> {pair}
  %t = stablehlo.add %s, %one : {pair}
  %u = stablehlo.sqrt %t : {pair}
  %w = stablehlo.divide %one, %u : {pair}
  %v = stablehlo.broadcast_in_dim %w, dims = [0, 1] : ({pair}) -> {all_}
  %f = stablehlo.multiply %d, %v : {all_}
  {rest}
}}"""


def directions(n: int, m: int, k: int, dtype: str) -> str:
    result = t(n, m, k, dtype=dtype)
    return pairs(n, m, k, dtype, f"return %f : {result}", result)


def forces(n: int, m: int, k: int, dtype: str, fold: str = "add", over: int = 1) -> str:
    """Sums over the second or first point of each pair, and over both kinds of points in one program."""
    all_, out = t(n, m, k, dtype=dtype), t(m if over == 0 else n, k, dtype=dtype)
    start = f"%start = stablehlo.constant dense<0.5> : tensor<{dtype}>"
    total = f"""%r = stablehlo.reduce(%f init: %start) applies stablehlo.{fold} across dimensions = [{over}]
    : ({all_}, tensor<{dtype}>) -> {out}
  return %r : {out}"""
    return pairs(n, m, k, dtype, f"{start}\n  {total}", out)


def scaled(n: int, k: int, dtype: str) -> str:
    """Rows of k elements by k numbers."""
    x, c = t(n, k, dtype=dtype), t(k, dtype=dtype)
    return f"""func.func @main(%x: {x}, %c: {c}) -> {x} {{
  %b = stablehlo.broadcast_in_dim %c, dims = [1] : ({c}) -> {x}
  %d = stablehlo.subtract %x, %b : {x}
  %q = stablehlo.divide %d, %b : {x}
  return %q : {x}
}}"""


def gathered(n: int, m: int, k: int, dtype: str) -> str:
    """Differences of points whose numbers are given, by their length."""
    x, rows, one, i = t(n, k, dtype=dtype), t(m, k, dtype=dtype), t(m, dtype=dtype), f"tensor<{m}x1xi32>"
    take = f"""<{{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, {k}>}}> : ({x}, {i}) -> {rows}"""
    return f"""func.func @main(%x: {x}, %i: {i}, %j: {i}) -> {rows} {{
  %zero = stablehlo.constant dense<0.0> : tensor<{dtype}>
  %one = stablehlo.constant dense<1.0> : {one}
  %a = "stablehlo.gather"(%x, %i) {take}
  %b = "stablehlo.gather"(%x, %j) {take}
  %d = stablehlo.subtract %a, %b : {rows}
  %q = stablehlo.multiply %d, %d : {rows}
  %s = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [1] : ({rows}, tensor<{dtype}>) -> {one}
  %t = stablehlo.add %s, %one : {one}
  %u = stablehlo.sqrt %t : {one}
  %v = stablehlo.divide %one, %u : {one}
  %e = stablehlo.exponential %v : {one}
  %w = stablehlo.broadcast_in_dim %e, dims = [0] : ({one}) -> {rows}
  %f = stablehlo.multiply %d, %w : {rows}
  return %f : {rows}
}}"""


def product(n: int, k: int, m: int, dtype: str) -> str:
    x, y, z = t(n, k, dtype=dtype), t(k, m, dtype=dtype), t(n, m, dtype=dtype)
    return f"""func.func @main(%x: {x}, %y: {y}) -> {z} {{
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({x}, {y}) -> {z}
  return %z : {z}
}}"""


def numbers(*shape: int, dtype: str, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).integers(-9, 10, shape)
    return np.where(x == 0, 3, x).astype(DTYPES[dtype])


def check(text: str, *arguments: np.ndarray) -> Any:
    """Compares results in guarded memory with the reference's, and the bits for several threads. Returns the codes of
    the schedule."""
    module = shlo_jit.parse(text)
    wants = [np.asarray(w) for w in evaluate(module, *arguments)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "PARALLEL_WORK", 1 << 8)
        patch.setattr(tuning, "TASK_WORK", 1 << 7)
        found = []
        for threads in (1, 3):
            exe = guarded.compile(text, threads=threads, cache=False)
            got = guarded.outputs(exe(*arguments))
            if arguments[0].dtype == DTYPES["bf16"]:  # the order of a sum moves roundings of the whole result
                for g, w in zip(got, wants, strict=True):
                    np.testing.assert_allclose(g.astype(np.float32), w.astype(np.float32), 0.03, 0.05)
            else:
                random_check.judge(module, list(arguments), got, wants)
            found.append([x.tobytes() for x in got])
    assert found[0] == found[1]
    return codes(exe.text("schedule"))


EXTENTS = [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", EXTENTS)
@pytest.mark.sampled(4)
def test_directions_of_pairs(k: int, dtype: str) -> None:
    for n, m in ((5, 37), (1, 64), (33, 19)):
        found = check(directions(n, m, k, dtype), numbers(n, k, dtype=dtype), numbers(m, k, dtype=dtype, seed=1))
        assert "short-loop-unrolled" in found or "interleaved-results" in found or k != 3 or m < 32


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", EXTENTS)
@pytest.mark.sampled(4)
def test_forces_of_pairs(k: int, dtype: str) -> None:
    for n, m in ((13, 37), (9, 64), (33, 5), (2, 100)):
        for fold, over in (("add", 1), ("add", 0), ("maximum", 1)):
            check(forces(n, m, k, dtype, fold, over), numbers(n, k, dtype=dtype), numbers(m, k, dtype=dtype, seed=1))


def test_rows_of_components_run_together() -> None:
    assert "shared-by-rows" in check(forces(40, 61, 3, "f32"), numbers(40, 3, dtype="f32"), numbers(61, 3, dtype="f32"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", EXTENTS)
@pytest.mark.sampled(4)
def test_rows_by_numbers(k: int, dtype: str) -> None:
    for n in (1, 15, 64, 161):
        check(scaled(n, k, dtype), numbers(n, k, dtype=dtype), numbers(k, dtype=dtype, seed=1))


def test_lanes_run_across_pixels() -> None:
    assert "short-loop-unrolled" in check(scaled(161, 3, "f32"), numbers(161, 3, dtype="f32"), numbers(3, dtype="f32"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", EXTENTS)
@pytest.mark.sampled(4)
def test_gathered_pairs(k: int, dtype: str) -> None:
    for n, m in ((20, 161), (3, 33), (7, 5)):
        i, j = (np.random.default_rng(s).integers(-2, n + 2, (m, 1)).astype(np.int32) for s in (0, 1))
        check(gathered(n, m, k, dtype), numbers(n, k, dtype=dtype), i, j)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (4, 4), (2, 2), (5, 4), (4, 5)])
@pytest.mark.sampled(4)
def test_products_with_small_matrices(shape: tuple[int, int], dtype: str) -> None:
    k, m = shape
    for n in (1, 33, 161):
        check(product(n, k, m, dtype), numbers(n, k, dtype=dtype), numbers(k, m, dtype=dtype, seed=1))


@pytest.mark.parametrize("exponent", [1.0, 2.0, -1.0, 0.5])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_powers_with_known_exponents(exponent: float, dtype: str) -> None:
    kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -2.0, 3.0, 1.7, 1e-3], kind)
    text = f"""func.func @main(%x: tensor<9x{dtype}>) -> tensor<9x{dtype}> {{
  %c = stablehlo.constant dense<{exponent:e}> : tensor<9x{dtype}>
  %y = stablehlo.power %x, %c : tensor<9x{dtype}>
  return %y : tensor<9x{dtype}>
}}"""
    exe = shlo_jit.compile(text, cache=False)
    with np.errstate(all="ignore"):
        exact = np.array([float(v) ** exponent if v > 0 else np.float64(v) ** np.float64(exponent) for v in x], kind)
    if exponent == 0.5:
        exact[1], exact[3] = 0.0, np.inf  # as in C, where a power is not a square root
    found, known = exe(x), ~np.isnan(exact)
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(exact[known]))
    assert dtype == "f16" or "pow" not in exe.text("lowered")
