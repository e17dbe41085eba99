"""Programs at which LLVM's value numbering would end the process."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

import shlo_jit
from shlo_jit.codegen import optimize, value_numbering
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.routine import FINAL
from shlo_jit.kernels.target import Target

SHIFTS = (22, 10, 28, 26, 30, 12, 14, 8, 24, 0, 18, 6, 4, 16, 20, 2)
"""Positions of the fields of a word, in the order of the terms."""


def scrambled_fields() -> str:
    """Returns a product with fields of two bits, in no regular order, times scales. The sums of its nested loops return
    to NewGVN's first class after the other values have left it."""
    shifts = ", ".join(str(s) for s in SHIFTS)
    return f"""
func.func @main(%x: tensor<2x32768xf32>, %w: tensor<16x5x64x2xui32>, %s: tensor<5x16x16x64xf32>) -> tensor<2x5xf32> {{
  %shifts = stablehlo.constant dense<[{shifts}]> : tensor<16xui32>
  %c = stablehlo.broadcast_in_dim %shifts, dims = [1] : (tensor<16xui32>) -> tensor<16x16x5x64x2xui32>
  %v = stablehlo.broadcast_in_dim %w, dims = [0, 2, 3, 4] : (tensor<16x5x64x2xui32>) -> tensor<16x16x5x64x2xui32>
  %t = stablehlo.shift_right_logical %v, %c : tensor<16x16x5x64x2xui32>
  %three = stablehlo.constant dense<3> : tensor<16x16x5x64x2xui32>
  %f = stablehlo.and %t, %three : tensor<16x16x5x64x2xui32>
  %o = stablehlo.transpose %f, dims = [2, 0, 4, 1, 3] : (tensor<16x16x5x64x2xui32>) -> tensor<5x16x2x16x64xui32>
  %n = stablehlo.convert %o : (tensor<5x16x2x16x64xui32>) -> tensor<5x16x2x16x64xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0, 1, 3, 4] : (tensor<5x16x16x64xf32>) -> tensor<5x16x2x16x64xf32>
  %m = stablehlo.multiply %n, %b : tensor<5x16x2x16x64xf32>
  %k = stablehlo.reshape %m : (tensor<5x16x2x16x64xf32>) -> tensor<5x32768xf32>
  %y = stablehlo.dot_general %x, %k, contracting_dims = [1] x [1] : (tensor<2x32768xf32>, tensor<5x32768xf32>) -> tensor<2x5xf32>
  return %y : tensor<2x5xf32>
}}"""


@pytest.mark.parametrize("threads", [1, 2])
def test_values_return_to_the_first_class(threads: int) -> None:
    r = np.random.default_rng(0)
    w = r.integers(0, 1 << 32, (16, 5, 64, 2), np.uint32)
    scales = r.integers(1, 4, (5, 16, 16, 64)).astype(np.float32)
    x = r.integers(-4, 5, (2, 32768)).astype(np.float32)
    fields = w[:, None] >> np.array(SHIFTS, np.uint32).reshape(1, 16, 1, 1, 1) & 3
    weights = fields.transpose(2, 0, 4, 1, 3) * scales[:, :, None].astype(np.float64)
    expected = x @ weights.reshape(5, 32768).T
    found = shlo_jit.compile(scrambled_fields(), threads=threads, cache=False)(x, w, scales)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-2)


def function_of(blocks: int) -> str:
    """Returns a function of a chain of branches."""
    parts = [f"b{i}:\n  store volatile i64 {i}, ptr %p\n  br label %b{i + 1}" for i in range(blocks - 2)]
    return "\n".join(
        ["define void @f(ptr %p) {", "entry:", "  br label %b0", *parts, f"b{blocks - 2}:", "  ret void", "}"]
    )


def test_only_modules_of_small_functions_are_numbered() -> None:
    limit = value_numbering.MAX_BLOCKS
    assert value_numbering.suits("\n".join([function_of(limit), function_of(limit).replace("@f", "@g")]))
    assert not value_numbering.suits(function_of(limit + 1))
    assert not value_numbering.suits(function_of(3).replace("{", FINAL + " {", 1))


def test_no_code_of_the_unreached_block_is_left() -> None:
    text = function_of(4)
    assert llvm.parse_assembly(value_numbering.guarded(text), llvm.create_context()).get_function("f").blocks
    assert "never" in value_numbering.guarded(text)
    assert "never" not in str(optimize.optimize(text, resolve()))


def test_repeated_loads_are_read_once() -> None:
    """Value numbering has an effect: a load that a store to another array separates from its like is dropped."""
    text = """
define void @f(ptr noalias %p, ptr noalias %q) {
entry:
  %a = load i64, ptr %p, align 8
  store i64 %a, ptr %q, align 8
  br label %next
next:
  %b = load i64, ptr %p, align 8
  %r = getelementptr i64, ptr %q, i64 1
  store i64 %b, ptr %r, align 8
  ret void
}"""
    target: Target = resolve()
    assert str(optimize.optimize(text, target)).count("load i64") == 1
