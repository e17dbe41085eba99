"""Convolutions whose images are adjacent in the input and features in the kernel: gradients of kernels."""

from __future__ import annotations

import numpy as np
import pytest
from printed_codes import codes

import shlo_jit

CASES = {  # images, side, input features, output features, window, padding, window strides, dilation of the kernel
    "padded": (6, 9, 19, 21, 3, (1, 1), 1, 1),
    "not padded": (3, 11, 33, 32, 3, (0, 0), 1, 1),
    "of a convolution with strides": (4, 13, 14, 40, 3, (0, 1), 1, 2),
    "of one with dilation": (3, 15, 8, 70, 3, (1, 2), 2, 1),
    "one tap": (2, 8, 40, 5, 1, (0, 0), 1, 1),
    "several taps a task": (3, 10, 8, 16, 5, (2, 2), 1, 1),
}


def program(n: int, side: int, ci: int, co: int, taps: int, pad: tuple[int, int], stride: int, dilation: int) -> str:
    lines = (side + sum(pad) - (taps - 1) * stride - 1) // dilation + 1
    x, d, g = f"{n}x{side}x{side}x{ci}", f"{n}x{lines}x{lines}x{co}", f"{ci}x{taps}x{taps}x{co}"
    low, high = pad[0], (taps - 1) * stride + (lines - 1) * dilation + 1 - side - pad[0]
    x, d, g = (f"tensor<{s}xf32>" for s in (x, d, g))
    return f"""func.func @main(%x: {x}, %d: {d}) -> {g} {{
      %0 = stablehlo.convolution(%x, %d) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[b, 0, 1, f], window = {{stride = [{stride}, {stride}], pad = [[{low}, {high}], [{low}, {high}]], rhs_dilate = [{dilation}, {dilation}]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {d}) -> {g}
      return %0 : {g}
    }}"""


def meaning(x: np.ndarray, d: np.ndarray, taps: int, pad: int, stride: int, dilation: int) -> np.ndarray:
    n, side, _, ci = x.shape
    lines, co = d.shape[1], d.shape[3]
    wide = np.zeros((n, side + pad + 40, side + pad + 40, ci))
    wide[:, pad : pad + side, pad : pad + side] = x
    out = np.zeros((ci, taps, taps, co))
    for i, j in np.ndindex(taps, taps):
        rows, columns = (slice(at * stride, at * stride + lines * dilation, dilation) for at in (i, j))
        out[:, i, j] = np.einsum("nhwc,nhwo->co", wide[:, rows, columns], d)
    return out


@pytest.mark.parametrize("target", ["native", "x86-64-v3", "x86-64"])
@pytest.mark.parametrize("case", CASES)
def test_against_numpy(case: str, target: str) -> None:
    *_, taps, pad, stride, dilation = CASES[case]
    random = np.random.default_rng(0)
    text = program(*CASES[case])
    exe = shlo_jit.compile(text, cache=False, threads=1, target=target)
    x, d = (random.standard_normal(p.shape).astype(np.float32) for p in exe.inputs)
    found = exe(x, d)
    expected = meaning(x, d, taps, pad[0], stride, dilation)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())
    again = shlo_jit.compile(text, cache=False, threads=3, target=target)(x, d)
    np.testing.assert_array_equal(found, again)


def test_both_operands_are_read_in_place() -> None:
    found = shlo_jit.compile(program(*CASES["not padded"]), cache=False).text("schedule")
    assert codes(found, "strategy") == ["images-contiguous"]
    assert "weights" not in found and "copied" not in found
