"""Images that are enlarged by repeating pixels, as in decoders: the kernel that computes the image writes all copies of
a pixel."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

SIDE, CHANNELS, FEATURES = 9, 8, 24


def program(copies: tuple[int, int], dtype: str = "f32", window: int = 3, joined: bool = False) -> str:
    """Returns a convolution, a bias and relu, and each pixel `copies` times, down and to the right. `joined`: the
    features come after those of another image."""
    down, right = copies
    n, pad = SIDE, window // 2
    x, w = f"tensor<2x{n}x{n}x{CHANNELS}x{dtype}>", f"tensor<{window}x{window}x{CHANNELS}x{FEATURES}x{dtype}>"
    y, b = f"tensor<2x{n}x{n}x{FEATURES}x{dtype}>", f"tensor<{FEATURES}x{dtype}>"
    wide = f"tensor<2x{n}x{down}x{n}x{right}x{FEATURES}x{dtype}>"
    large = f"tensor<2x{n * down}x{n * right}x{FEATURES}x{dtype}>"
    both = large.replace(f"x{FEATURES}x{dtype}", f"x{2 * FEATURES}x{dtype}")
    end = f"return %6 : {large}"
    if joined:
        end = f"""%7 = stablehlo.concatenate %z, %6, dim = 3 : ({large}, {large}) -> {both}
      return %7 : {both}"""
    return f"""func.func @main(%x: {x}, %w: {w}, %b: {b}{f", %z: {large}" if joined else ""}) -> {both if joined else large} {{
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{pad = [[{pad}, {pad}], [{pad}, {pad}]]}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {y}
      %1 = stablehlo.broadcast_in_dim %b, dims = [3] : ({b}) -> {y}
      %2 = stablehlo.add %0, %1 : {y}
      %3 = stablehlo.constant dense<0.0> : {y}
      %4 = stablehlo.maximum %2, %3 : {y}
      %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1, 3, 5] : ({y}) -> {wide}
      %6 = stablehlo.reshape %5 : ({wide}) -> {large}
      {end}
    }}"""


def check(text: str) -> str:
    """Returns the plan of a program that equals the reference, on small whole numbers, with any number of threads."""
    rng = np.random.default_rng(0)
    arguments = [rng.integers(-3, 4, t.shape).astype(t.dtype) for t in shlo_jit.compile(text).inputs]
    (want,) = evaluate(shlo_jit.parse(text), *arguments)
    plan = ""
    for threads in (1, 2, 5):
        exe = shlo_jit.compile(text, threads=threads, cache=False)
        np.testing.assert_array_equal(np.asarray(exe(*arguments)), np.asarray(want))
        plan = exe.text("plan")
    return plan


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("copies", [(2, 2), (2, 1), (1, 2), (4, 1), (1, 3)], ids=str)
def test_copies_on_tiles(copies: tuple[int, int], dtype: str) -> None:
    plan = check(program(copies, dtype))
    assert "convolution and on its tiles" in plan and " loop " not in plan


@pytest.mark.parametrize("window", [1, 3])
def test_copies_in_a_concatenation(window: int) -> None:
    """Results are right; the loop is not an epilogue of the product, because each of its stores writes only a part."""
    assert "[not-each-element-once]" in check(program((2, 2), window=window, joined=True))


def test_too_many_copies_are_a_loop_of_their_own() -> None:
    plan = check(program((3, 2)))
    assert "no epilogue" in plan and " loop " in plan
