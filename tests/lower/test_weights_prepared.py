"""Constant weights are prepared and packed when the program is compiled, with the results of weights that are
arguments. Exported libraries contain them too."""

from __future__ import annotations

from pathlib import Path

import guarded
import numpy as np
import pytest
from printed_codes import codes

import shlo_jit


def dense(array: np.ndarray) -> str:
    kinds = {"float32": "f32", "int8": "i8"}
    shape = "x".join(map(str, array.shape))
    return f'dense<"0x{array.tobytes().hex()}"> : tensor<{shape}x{kinds[array.dtype.name]}>'


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


W = weights(300, 200)
PREPARED = {
    "as it is": ("", "%w", W),
    "transposed": ("%v = stablehlo.transpose %w, dims = [1, 0] : (tensor<300x200xf32>) -> tensor<200x300xf32>", "%v", W.T),
    "scaled": (
        """%s = stablehlo.constant dense<0.5> : tensor<300x200xf32>
           %v = stablehlo.multiply %w, %s : tensor<300x200xf32>""",
        "%v",
        W * np.float32(0.5),
    ),
    "a slice": ("%v = stablehlo.slice %w [10:300:2, 0:177] : (tensor<300x200xf32>) -> tensor<145x177xf32>", "%v", W[10::2, :177]),
    "rounded": (
        """%h = stablehlo.convert %w : (tensor<300x200xf32>) -> tensor<300x200xbf16>
           %v = stablehlo.convert %h : (tensor<300x200xbf16>) -> tensor<300x200xf32>""",
        "%v",
        ((W.view(np.uint32) + 0x7FFF + ((W.view(np.uint32) >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32),
    ),
}  # fmt: skip


@pytest.mark.parametrize("m", [1, 3, 40, 170])
@pytest.mark.parametrize("how", PREPARED)
def test_products(how: str, m: int) -> None:
    ops, name, b = PREPARED[how]
    k, n = b.shape
    text = f"""func.func @main(%x: tensor<{m}x{k}xf32>) -> tensor<{m}x{n}xf32> {{
      %w = stablehlo.constant {dense(W)}
      {ops}
      %y = stablehlo.dot_general %x, {name}, contracting_dims = [1] x [0]
        : (tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32>
      return %y : tensor<{m}x{n}xf32>
    }}"""
    exe = guarded.compile(text)
    plan = exe.text("schedule")
    assert "constant-operand" in codes(plan) and "loop" not in plan, plan
    x = weights(m, k)
    want = x.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(x).astype(np.float64) @ np.abs(b).astype(np.float64) * 3e-6
    assert (np.abs(exe(x) - want) <= bound).all()
    assert exe(x).tobytes() == shlo_jit.compile(text, threads=3)(x).tobytes()


def test_one_that_is_read_elsewhere_is_not_kept_twice_for_a_vector() -> None:
    """An example is a table of embeddings whose transpose computes the logits."""
    table = weights(2000, 64)
    text = f"""func.func @main(%i: tensor<1x1xi32>, %x: tensor<1x64xf32>) -> (tensor<1x64xf32>, tensor<1x2000xf32>) {{
      %w = stablehlo.constant {dense(table)}
      %row = "stablehlo.gather"(%w, %i) {{dimension_numbers = #stablehlo.gather<offset_dims = [1],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 64>}}
        : (tensor<2000x64xf32>, tensor<1x1xi32>) -> tensor<1x64xf32>
      %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
        : (tensor<1x64xf32>, tensor<2000x64xf32>) -> tensor<1x2000xf32>
      return %row, %y : tensor<1x64xf32>, tensor<1x2000xf32>
    }}"""
    exe = guarded.compile(text)
    assert "constant-operand" not in codes(exe.text("schedule"))
    x = weights(1, 64)
    row, y = exe(np.full((1, 1), 7, np.int32), x)
    np.testing.assert_array_equal(row, table[7:8])
    np.testing.assert_allclose(y, x @ table.T, rtol=1e-4, atol=1e-4)


CONVOLUTION = """func.func @main(%x: tensor<2x9x9x6xf32>{argument}) -> tensor<2x{side}x{side}x40xf32> {{
  {constant}
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{pad = [[{pad}, {pad}], [{pad}, {pad}]], reverse = [{reverse}, false]}}
    {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}
    : (tensor<2x9x9x6xf32>, {kernel}) -> tensor<2x{side}x{side}x40xf32>
  return %y : tensor<2x{side}x{side}x40xf32>
}}"""


@pytest.mark.parametrize("reverse", ["false", "true"])
@pytest.mark.parametrize(("window", "groups", "pad"), [(3, 1, 1), (3, 2, 1), (1, 1, 0), (2, 1, 0)])
def test_convolutions_have_the_bits_of_kernels_that_are_arguments(
    window: int, groups: int, pad: int, reverse: str
) -> None:
    kernel = weights(window, window, 6 // groups, 40)
    shape = dict(side=9 + 2 * pad - window + 1, pad=pad, reverse=reverse, groups=groups)
    shape["kernel"] = f"tensor<{window}x{window}x{6 // groups}x40xf32>"
    fixed = guarded.compile(
        CONVOLUTION.format(argument="", constant=f"%w = stablehlo.constant {dense(kernel)}", **shape)
    )
    given = guarded.compile(CONVOLUTION.format(argument=f", %w: {shape['kernel']}", constant="", **shape))
    assert "constant-operand" in codes(fixed.text("schedule"))
    x = weights(2, 9, 9, 6)
    assert fixed(x).tobytes() == given(x, kernel).tobytes()


def test_exported_libraries_have_the_panels(tmp_path: Path) -> None:
    text = f"""func.func @main(%x: tensor<40x300xf32>) -> tensor<40x200xf32> {{
      %w = stablehlo.constant {dense(W)}
      %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<40x300xf32>, tensor<300x200xf32>) -> tensor<40x200xf32>
      return %y : tensor<40x200xf32>
    }}"""
    exe = shlo_jit.compile(text)
    shlo_jit.export(text, tmp_path / "weights.so")
    library = shlo_jit.load(tmp_path / "weights.so")
    x = weights(40, 300)
    assert library(x).tobytes() == exe(x).tobytes()
