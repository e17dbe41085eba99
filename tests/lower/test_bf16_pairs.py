"""Products with weights that are rounded to bf16 in registers, two of which an instruction multiplies at a time."""

from __future__ import annotations

import guarded
import ml_dtypes
import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.codegen.target import resolve

BF16 = ml_dtypes.bfloat16

pytestmark = pytest.mark.skipif(
    not resolve().has_bf16_dot or not resolve().cpu.startswith("znver"), reason="needs a CPU with fast vdpbf16ps"
)


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "COMPUTED_OPERAND_BYTES", 0)


def product(rows: int, terms: int, outputs: int, element: str, by_output: bool) -> str:
    """Returns x @ bf16(weights * scales), with weights (outputs, terms) if `by_output`, else (terms, outputs)."""
    shape, at, axis = (f"{outputs}x{terms}", 1, 0) if by_output else (f"{terms}x{outputs}", 0, 1)
    x, q, w = f"tensor<{rows}x{terms}xbf16>", f"tensor<{shape}x{element}>", f"tensor<{shape}xbf16>"
    s, y = f"tensor<{outputs}xbf16>", f"tensor<{rows}x{outputs}xf32>"
    return f"""func.func @main(%x: {x}, %q: {q}, %s: {s}) -> {y} {{
  %0 = stablehlo.convert %q : ({q}) -> {w}
  %1 = stablehlo.broadcast_in_dim %s, dims = [{axis}] : ({s}) -> {w}
  %2 = stablehlo.multiply %0, %1 : {w}
  %3 = stablehlo.dot_general %x, %2, contracting_dims = [1] x [{at}] : ({x}, {w}) -> {y}
  return %3 : {y}
}}"""


def arrays(rows: int, terms: int, outputs: int, element: str, by_output: bool) -> list[np.ndarray]:
    r = np.random.default_rng(rows * terms + outputs)
    shape = (outputs, terms) if by_output else (terms, outputs)
    if element == "f8E4M3FN":
        q = r.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)
    else:
        q = r.integers(-8, 8, shape).astype({"i4": ml_dtypes.int4, "i8": np.int8}[element])
    x, s = r.standard_normal((rows, terms)).astype(BF16), r.standard_normal(outputs).astype(BF16)
    return [x, q, s]


def expected(x: np.ndarray, q: np.ndarray, s: np.ndarray, by_output: bool) -> tuple[np.ndarray, np.ndarray]:
    """The results in f64, and the sums of magnitudes."""
    w = q.astype(np.float32).astype(BF16) * (s[:, None] if by_output else s)
    w = np.asarray(w, np.float64).T if by_output else np.asarray(w, np.float64)
    x = x.astype(np.float64)
    return x @ w, np.abs(x) @ np.abs(w)


@pytest.mark.parametrize("by_output", [True, False])
@pytest.mark.parametrize("element", ["i8", "i4", "f8E4M3FN"])
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize(("terms", "outputs"), [(64, 64), (97, 50), (130, 98), (33, 32), (256, 33)])
def test_as_rounded_weights(rows: int, terms: int, outputs: int, element: str, by_output: bool) -> None:
    text, given = product(rows, terms, outputs, element, by_output), arrays(rows, terms, outputs, element, by_output)
    x, q, s = given
    want, magnitude = expected(x, q, s, by_output)
    exes = [guarded.compile(text, cache=False, threads=threads) for threads in (1, 2, 3, 8)]
    found = [np.asarray(exe(*given)) for exe in exes]
    assert np.all(np.abs(found[0] - want) <= 1e-6 * magnitude)
    assert all(np.array_equal(found[0], other) for other in found)


def test_schedule() -> None:
    exe = guarded.compile(product(1, 256, 256, "i8", True), cache=False)
    assert "[dot-products]" in exe.text("schedule")
    assert "[dot-products]" not in guarded.compile(
        product(1, 256, 256, "i8", True), cache=False, reproducible=True
    ).text("schedule")


@pytest.mark.parametrize("by_output", [True, False])
def test_weights_are_rounded_in_pairs(by_output: bool) -> None:
    text = shlo_jit.compile(product(1, 256, 256, "i8", by_output), cache=False).text("asm")
    assert text.count("vcvtne2ps2bf16") >= text.count("vdpbf16ps") > 0


@pytest.mark.parametrize("by_output", [True, False])
def test_infinities_and_nans(by_output: bool) -> None:
    x, q, s = arrays(2, 64, 64, "i8", by_output)
    x[0, 5], s[7], s[9], q[...] = np.inf, np.nan, np.inf, np.where(q == 0, 1, q)
    with np.errstate(invalid="ignore"):
        want, _ = expected(x, q, s, by_output)
    found = np.asarray(guarded.compile(product(2, 64, 64, "i8", by_output), cache=False)(x, q, s))
    assert np.array_equal(np.isnan(found), np.isnan(want)) and np.array_equal(np.isinf(found), np.isinf(want))
    assert np.array_equal(np.sign(found[np.isinf(found)]), np.sign(want[np.isinf(want)]))


@pytest.mark.parametrize("by_output", [True, False])
def test_subnormal_weights_are_zero_or_kept(by_output: bool) -> None:
    """The error that instructions make by flushing is below the smallest normal number for each term."""
    x, q, s = arrays(2, 70, 64, "i8", by_output)
    s[::2] = np.float32(2.0**-128).astype(BF16)
    want, magnitude = expected(x, q, s, by_output)
    found = np.asarray(guarded.compile(product(2, 70, 64, "i8", by_output), cache=False)(x, q, s))
    flushed = 2.0**-126 * np.abs(x.astype(np.float64)).sum(1, keepdims=True)
    assert np.all(np.abs(found - want) <= 1e-6 * magnitude + flushed)


@pytest.mark.parametrize("by_output", [True, False])
def test_what_weights_are_computed_from_keeps_subnormal_numbers(by_output: bool) -> None:
    text = product(2, 64, 64, "i8", by_output)
    w = "tensor<64x64xbf16>"
    text = text.replace(
        "%3 =",
        f"""%h = stablehlo.constant dense<8.507059e+37> : {w}
  %w = stablehlo.multiply %2, %h : {w}
  %3 =""",
    ).replace("dot_general %x, %2", "dot_general %x, %w")
    x, q, s = arrays(2, 64, 64, "i8", by_output)
    s[...] = np.float32(2.0**-130).astype(BF16)
    small = q.astype(np.float64) * 2.0**-130 * np.float64(np.float32(8.507059e37).astype(BF16))
    want = x.astype(np.float64) @ (small.T if by_output else small)
    found = np.asarray(guarded.compile(text, cache=False)(x, q, s))
    assert np.any(want)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
