"""Convolutions whose input is nearly all padding or holes: the elements that windows read are gathered."""

from __future__ import annotations

import numpy as np
import pytest
from alone import after, canonical

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.core import walk
from shlo_jit.passes.canonical.distant_windows import distant_windows
from shlo_jit.reference.interpreter import evaluate

RNG = np.random.default_rng(11)
FAR = 1 << 61
LAST, FIRST = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
NEAR = {
    # input, kernel, result, dimension numbers, window, groups
    "dilated kernel": (
        "2x5x4x2", "3x2x2x3", "2x5x3x3", LAST, "pad = [[600, 600], [0, 0]], rhs_dilate = [600, 1]", 1),
    "strides": ("1x5x4x2", "2x2x2x3", "1x3x3x3", LAST, "stride = [700, 1], pad = [[700, 800], [0, 0]]", 1),
    "holes": ("1x5x6x4", "3x2x2x6", "1x5x5x6", LAST,
              "stride = [400, 1], pad = [[1, 1], [0, 0]], lhs_dilate = [400, 1]", 2),
    "both dimensions": (
        "1x3x4x3", "2x3x3x2", "1x4x4x2", FIRST, "", 1),
    "negative padding": (
        "1x5x4x2", "2x2x2x3", "1x2x3x3", LAST, "stride = [900, 1], pad = [[-1, 905], [0, 0]], reverse = [true, false]",
        1),
}  # fmt: skip
NEAR["both dimensions"] = (
    "1x3x4x3", "2x3x2x2", "1x2x4x3", FIRST, "pad = [[500, 500], [400, 399]], rhs_dilate = [1000, 799]", 1)  # fmt: skip


def program(x: str, w: str, y: str, numbers: str, window: str, groups: int, dtype: str = "f32") -> str:
    a, b, c = (f"tensor<{s}x{dtype}>" for s in (x, w, y))
    counts = f"feature_group_count = {groups} : i64, batch_group_count = 1 : i64"
    return f"""func.func @main(%x: {a}, %w: {b}) -> {c} {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{window}}} {{{counts}}} : ({a}, {b}) -> {c}
  return %r : {c}
}}"""


def shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


@pytest.mark.parametrize("name", NEAR)
@pytest.mark.parametrize("dtype", ["f32", "i32", "complex<f32>"])
def test_equal_to_the_reference(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "CONV_DISTANT", 100)
    text = program(*NEAR[name], dtype)
    assert any(op.name == "stablehlo.gather" for op in walk(after(text, distant_windows).block()))
    number = {"f32": np.float32, "i32": np.int32, "complex<f32>": np.complex64}[dtype]
    x, w = (RNG.integers(-5, 6, shape(s)).astype(number) for s in NEAR[name][:2])
    if dtype == "f32":
        w[(0,) * w.ndim] = np.inf
    with np.errstate(invalid="ignore"):
        (want,) = evaluate(shlo_jit.parse(text), x, w)
    np.testing.assert_array_equal(np.asarray(shlo_jit.compile(text, cache=False)(x, w)), want)


def test_padding_that_no_memory_could_hold() -> None:
    line = "[b, 0, f]x[0, i, o]->[b, 0, f]"
    x, ones = np.arange(8, dtype=np.float32).reshape(1, 4, 2), np.ones((3, 2, 3), np.float32)
    text = program("1x4x2", "3x2x3", "1x4x3", line, f"pad = [[{FAR}, {FAR}]], rhs_dilate = [{FAR}]", 1)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, ones)[0, :, 0], [1, 5, 9, 13])
    ones[0] = np.nan
    assert np.isnan(shlo_jit.compile(text, cache=False)(x, ones)).all()
    text = program("1x4x2", "1x2x3", "1x3x3", line, f"stride = [{FAR}], pad = [[{FAR}, {FAR}]]", 1)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, ones[1:2])[0, :, 0], [0, 1, 0])


def test_usual_convolutions_stay_as_they_are() -> None:
    text = program("1x33x33x8", "3x3x8x8", "1x33x33x8", LAST, "pad = [[18, 18], [18, 18]], rhs_dilate = [18, 18]", 1)
    assert not any(op.name == "stablehlo.gather" for op in walk(canonical(text).block()))
