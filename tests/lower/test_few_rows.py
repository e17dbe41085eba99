"""A few rows against a matrix that is an argument: NumPy's results, and the same bits on any number of threads and as a
part of more rows."""

from __future__ import annotations

import re

import guarded
import ml_dtypes
import numpy as np
import pytest
from numpy.random import Generator

from shlo_jit import tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.gemm.policy import has_skinny_path
from shlo_jit.kernels.gemm.precision import GemmTypes, gemm_plan


def layer(m: int, k: int, n: int) -> str:
    """Returns relu(x @ w + b)."""
    x, w, bias, y = (f"tensor<{shape}xf32>" for shape in (f"{m}x{k}", f"{k}x{n}", f"{n}", f"{m}x{n}"))
    return f"""func.func @main(%x: {x}, %w: {w}, %b: {bias}) -> {y} {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({x}, {w}) -> {y}
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : ({bias}) -> {y}
  %2 = stablehlo.add %0, %1 : {y}
  %c = stablehlo.constant dense<0.0> : {y}
  %3 = stablehlo.maximum %2, %c : {y}
  return %3 : {y}
}}"""


def numbers(rng: Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("m", [2, 3, 6, 7, 8, 13, 16, 25, tuning.GEMM_SKINNY_ROWS, tuning.GEMM_SKINNY_ROWS + 3])
def test_as_numpy_and_the_same_on_any_number_of_threads(m: int) -> None:
    rng = np.random.default_rng(m)
    k, n = int(rng.integers(200, 700)), int(rng.integers(190, 400))
    x, w, bias = numbers(rng, m, k), numbers(rng, k, n), numbers(rng, n)
    one, three = (guarded.compile(layer(m, k, n), cache=False, threads=threads) for threads in (1, 3))
    found = one(x, w, bias)
    np.testing.assert_allclose(found, np.maximum(x.astype(np.float64) @ w + bias, 0), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(found, three(x, w, bias))


def test_rows_do_not_depend_on_each_other() -> None:
    """Up to `COMPUTED_OPERAND_ROWS` rows are added up in another order: a matrix is read in registers then."""
    rng, k, n = np.random.default_rng(0), 500, 300
    x, w, bias = numbers(rng, 40, k), numbers(rng, k, n), numbers(rng, n)
    whole = guarded.compile(layer(40, k, n), cache=False)(x, w, bias)
    for m in (9, 14, 17):
        np.testing.assert_array_equal(guarded.compile(layer(m, k, n), cache=False)(x[:m], w, bias), whole[:m])


@pytest.mark.skipif(
    not has_skinny_path(gemm_plan(GemmTypes("f32", "f32", "f32"), resolve())), reason="no masked stores"
)
def test_matrices_that_no_cache_keeps_are_read_row_by_row() -> None:
    n = tuning.GEMM_SKINNY_BYTES // 4 // 1024
    assert "_few" in guarded.compile(layer(16, 1024, n), cache=False).text("schedule")
    assert "_few" not in guarded.compile(layer(16, 1024, n + 1), cache=False).text("schedule")


def batched(batch: int, m: int, k: int, n: int, kind: str, is_transposed: bool) -> str:
    x, y = f"tensor<{batch}x{m}x{k}x{kind}>", f"tensor<{batch}x{m}x{n}x{kind}>"
    w = f"tensor<{batch}x{n}x{k}x{kind}>" if is_transposed else f"tensor<{batch}x{k}x{n}x{kind}>"
    dims = "[2] x [2]" if is_transposed else "[2] x [1]"
    return f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %0 = stablehlo.dot_general %x, %w, batching_dims = [0] x [0], contracting_dims = {dims} : ({x}, {w}) -> {y}
  return %0 : {y}
}}"""


@pytest.mark.parametrize("m", range(1, 10))
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
def test_matrices_of_floats_are_read_in_registers(m: int, is_transposed: bool, kind: str) -> None:
    rng = np.random.default_rng(m)
    batch, k, n = int(rng.integers(2, 5)), int(rng.integers(100, 300)), int(rng.integers(100, 300))
    dtype = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16}[kind]
    x, w = rng.standard_normal((batch, m, k)).astype(dtype), rng.standard_normal((batch, k, n)).astype(dtype)
    given = np.ascontiguousarray(w.transpose(0, 2, 1)) if is_transposed else w
    text = batched(batch, m, k, n, kind, is_transposed)
    one, *others = (guarded.compile(text, cache=False, threads=threads) for threads in (1, 2, 3, 8))
    assert ("computed in registers" in one.text("schedule")) == (m <= tuning.COMPUTED_OPERAND_ROWS)
    found = one(x, given)
    exact, rounding = x.astype(np.float64) @ w.astype(np.float64), float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=max(1e-4, rounding), atol=1e-4)
    for other in others:
        np.testing.assert_array_equal(found, other(x, given))


def test_matrices_that_the_program_computes_are_packed() -> None:
    """They are in a cache, and their products have the same bits as stages of other steps."""
    text = batched(2, 4, 128, 256, "f32", False)
    text = text.replace("  %0", "  %v = stablehlo.tanh %w : tensor<2x128x256xf32>\n  %0").replace("%x, %w, b", "%x, %v, b")
    assert "computed in registers" not in guarded.compile(text, cache=False).text("schedule")


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_long_rows_are_read_in_blocks(kind: str) -> None:
    """The vectors do not fit the first-level cache; what is fetched ahead lies within the next block of terms."""
    rng = np.random.default_rng(0)
    m, k, n = 8, 3000, 70
    dtype = np.float32 if kind == "f32" else ml_dtypes.bfloat16
    x, w = rng.integers(-3, 4, (2, m, k)).astype(dtype), rng.integers(-3, 4, (2, n, k)).astype(dtype)
    one, *others = (
        guarded.compile(batched(2, m, k, n, kind, True), cache=False, threads=threads) for threads in (1, 2, 3, 8)
    )
    assert "computed in registers" in one.text("schedule")
    exact = x.astype(np.float64) @ w.astype(np.float64).transpose(0, 2, 1)
    np.testing.assert_array_equal(one(x, w), exact.astype(dtype))
    for other in others:
        np.testing.assert_array_equal(one(x, w), other(x, w))


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_outputs_of_long_vectors_are_computed_together(m: int, kind: str) -> None:
    """Up to eight of the 13 outputs, so that some are left for a second time."""
    rng = np.random.default_rng(m)
    k, n = 9001, 13
    dtype = np.float32 if kind == "f32" else ml_dtypes.bfloat16
    x, w = rng.integers(-3, 4, (2, m, k)).astype(dtype), rng.integers(-3, 4, (2, n, k)).astype(dtype)
    text = batched(2, m, k, n, kind, True)
    one, *others = (guarded.compile(text, cache=False, threads=threads) for threads in (1, 2, 3, 8))
    short = batched(2, m, 600, 200, kind, True)
    sums = [
        len(re.findall(r"call <\d+ x float> @llvm\.(?:fma|x86\S+dpbf16ps)", exe.text("lowered")))
        for exe in (one, guarded.compile(short, cache=False))
    ]
    assert sums[0] > sums[1] > 0, sums
    exact = x.astype(np.float64) @ w.astype(np.float64).transpose(0, 2, 1)
    np.testing.assert_array_equal(one(x, w), exact.astype(dtype))
    for other in others:
        np.testing.assert_array_equal(one(x, w), other(x, w))


VECTOR = """func.func @main(%x: tensor<1x{k}x{kind}>, %w: tensor<{n}x{k}x{kind}>) -> tensor<1x{n}xf32> {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
    : (tensor<1x{k}x{kind}>, tensor<{n}x{k}x{kind}>) -> tensor<1x{n}xf32>
  return %0 : tensor<1x{n}xf32>
}}"""


@pytest.mark.parametrize("k", [64, 100, 1001, tuning.GEMM_VECTOR_ROW // 2 + 8])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_a_vector_by_rows_of_adjacent_terms(k: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are shorter and longer than those for which the following rows are prefetched."""
    for name in ("SMALL_PRODUCT", "SMALL_PRODUCT_STRIDED", "SMALL_VECTOR_PRODUCT"):  # it stays a product
        monkeypatch.setattr(tuning, name, 0)
    rng = np.random.default_rng(k)
    dtype, n = np.float32 if kind == "f32" else ml_dtypes.bfloat16, 203
    x, w = rng.integers(-3, 4, (1, k)).astype(dtype), rng.integers(-3, 4, (n, k)).astype(dtype)
    text = VECTOR.format(k=k, n=n, kind=kind)
    one, *others = (guarded.compile(text, cache=False, threads=threads) for threads in (1, 2, 3, 8))
    assert "matrix times 1 vector" in one.text("schedule")
    np.testing.assert_array_equal(one(x, w), x.astype(np.float32) @ w.astype(np.float32).T)
    for other in others:
        np.testing.assert_array_equal(one(x, w), other(x, w))


CONSTANT_BYTES = """func.func @main(%x: tensor<1x512xi8>) -> tensor<1x512xi32> {{
  %w = stablehlo.constant dense<"0x{data}"> : tensor<512x512xi8>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [{d}]
    : (tensor<1x512xi8>, tensor<512x512xi8>) -> tensor<1x512xi32>
  return %0 : tensor<1x512xi32>
}}"""


@pytest.mark.skipif(not resolve().is_x86, reason="names targets of x86")
@pytest.mark.parametrize("d", [0, 1])
def test_constant_bytes_are_panels_where_instructions_sum_them(d: int) -> None:
    """Without such instructions, adjacent terms (`d` = 1) are read in registers."""
    w = np.random.default_rng(0).integers(-128, 128, (512, 512)).astype(np.int8)
    x = np.random.default_rng(1).integers(-128, 128, (1, 512)).astype(np.int8)
    text = CONSTANT_BYTES.format(data=w.tobytes().hex(), d=d)
    exact = x.astype(np.int32) @ (w.T if d else w).astype(np.int32)
    for name in ("x86-64-v3", "native"):
        exe = guarded.compile(text, cache=False, target=name)
        is_read = d == 1 and not resolve(name).sums_bytes
        assert ("computed in registers" in exe.text("schedule")) == is_read, name
        same = guarded.compile(text, cache=False, target=name, reproducible=True)
        assert ("computed in registers" in same.text("schedule")) == (d == 1), "steps depend on an instruction"
        np.testing.assert_array_equal(exe(x), exact)


def prefetches(batch: int, m: int, k: int, n: int, kind: str, is_transposed: bool) -> int:
    exe = guarded.compile(batched(batch, m, k, n, kind, is_transposed), cache=False)
    assert "computed in registers" in exe.text("schedule")
    return exe.text("lowered").count("call void @llvm.prefetch")


@pytest.mark.parametrize(
    ("m", "k", "n", "kind", "is_transposed", "is_sequential"),
    [
        (1, 160, 200, "bf16", True, True),  # one output after the other
        (3, 160, 200, "f32", True, True),
        (8, 160, 200, "f32", True, False),  # two outputs together, whose rows are apart
        (8, 64, 200, "f32", True, True),  # two short rows
        (3, 200, 64, "f32", False, True),  # a unit has all outputs of a row
        (3, 200, 64, "bf16", False, False),
    ],
)
def test_hardware_prefetches_what_is_read_in_order(
    m: int, k: int, n: int, kind: str, is_transposed: bool, is_sequential: bool
) -> None:
    assert (prefetches(3, m, k, n, kind, is_transposed) == 0) == is_sequential


HALVES = """func.func @main(%x: tensor<{m}x{k}xf32>, %q: tensor<24x{h}xui8>) -> tensor<{m}x24xf32> {{
  %four = stablehlo.constant dense<4> : tensor<24x{h}xui8>
  %mask = stablehlo.constant dense<15> : tensor<24x{h}xui8>
  %low = stablehlo.and %q, %mask : tensor<24x{h}xui8>
  %high = stablehlo.shift_right_logical %q, %four : tensor<24x{h}xui8>
  %both = stablehlo.concatenate %low, %high, dim = 1 : (tensor<24x{h}xui8>, tensor<24x{h}xui8>) -> tensor<24x{k}xui8>
  %w = stablehlo.convert %both : (tensor<24x{k}xui8>) -> tensor<24x{k}xf32>
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
    : (tensor<{m}x{k}xf32>, tensor<24x{k}xf32>) -> tensor<{m}x24xf32>
  return %y : tensor<{m}x24xf32>
}}"""


@pytest.mark.parametrize("k", [1024, 2048, 4096, 8192, 16384])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 8])
@pytest.mark.sampled(10)
def test_halves_of_bytes_are_far_apart(m: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms of a byte are computed together although they are half a row apart, also if rows are read in blocks."""
    monkeypatch.setattr(tuning, "PACKED_FIELDS_BYTES", 0)
    monkeypatch.setattr(tuning, "COMPUTED_OPERAND_BYTES", 0)
    rng = np.random.default_rng(k + m)
    x = rng.integers(-8, 9, (m, k)).astype(np.float32)
    q = rng.integers(0, 256, (24, k // 2)).astype(np.uint8)
    exe = guarded.compile(HALVES.format(m=m, k=k, h=k // 2), threads=2)
    assert "computed in registers" in exe.text("schedule")
    np.testing.assert_array_equal(exe(x, q), x @ np.concatenate([q & 15, q >> 4], -1).astype(np.float32).T)


SCALED = """func.func @main(%x: tensor<{m}x1024xf32>, %q: tensor<24x32x16xui8>, %s: tensor<24x64x{t}>) -> tensor<{m}x24xf32> {{
  %four = stablehlo.constant dense<4> : tensor<24x32x16xui8>
  %mask = stablehlo.constant dense<15> : tensor<24x32x16xui8>
  %low = stablehlo.and %q, %mask : tensor<24x32x16xui8>
  %high = stablehlo.shift_right_logical %q, %four : tensor<24x32x16xui8>
  %both = stablehlo.concatenate %low, %high, dim = 1
    : (tensor<24x32x16xui8>, tensor<24x32x16xui8>) -> tensor<24x64x16xui8>
  %f = stablehlo.convert %both : (tensor<24x64x16xui8>) -> tensor<24x64x16xf32>
  %c = stablehlo.convert %s : (tensor<24x64x{t}>) -> tensor<24x64xf32>
  %b = stablehlo.broadcast_in_dim %c, dims = [0, 1] : (tensor<24x64xf32>) -> tensor<24x64x16xf32>
  %g = stablehlo.multiply %f, %b : tensor<24x64x16xf32>
  %w = stablehlo.reshape %g : (tensor<24x64x16xf32>) -> tensor<24x1024xf32>
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
    : (tensor<{m}x1024xf32>, tensor<24x1024xf32>) -> tensor<{m}x24xf32>
  return %y : tensor<{m}x24xf32>
}}"""


@pytest.mark.parametrize("t", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("m", [1, 2, 8])
@pytest.mark.sampled(9)
def test_halves_of_bytes_with_scales_of_their_own(m: int, t: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of scales is that of one half."""
    monkeypatch.setattr(tuning, "PACKED_FIELDS_BYTES", 0)
    monkeypatch.setattr(tuning, "COMPUTED_OPERAND_BYTES", 0)
    rng = np.random.default_rng(m)
    x = rng.integers(-8, 9, (m, 1024)).astype(np.float32)
    q = rng.integers(0, 256, (24, 32, 16)).astype(np.uint8)
    s = (2.0 ** rng.integers(-2, 3, (24, 64))).astype({"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[t])
    exe = guarded.compile(SCALED.format(m=m, t=t), threads=2)
    assert "computed in registers" in exe.text("schedule")
    w = np.concatenate([q & 15, q >> 4], 1).astype(np.float32) * s.astype(np.float32)[:, :, None]
    np.testing.assert_array_equal(exe(x, q, s), x @ w.reshape(24, 1024).T)
