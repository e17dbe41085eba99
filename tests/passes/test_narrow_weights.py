"""Constants do not grow when weights are prepared: what would be larger is computed at run time, with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from alone import after

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.core import Op, walk
from shlo_jit.passes.simplify import simplify

K, N = 192, 256
RNG = np.random.default_rng(5)
BYTES = RNG.integers(-128, 128, (K, N)).astype(np.int8)
SCALES = (RNG.random(N) + 0.5).astype(np.float32)
W, C = f"tensor<{K}x{N}xi8>", f"tensor<{K}x{N}xf32>"
CONVERT = f"%c = stablehlo.convert %w : ({W}) -> {C}"


def raw(array: np.ndarray) -> str:
    return f'dense<"0x{array.tobytes().hex()}">'


def dot(x: str, w: str, k: int, n: int) -> str:
    types = f"(tensor<3x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<3x{n}xf32>"
    return f"%d = stablehlo.dot_general {x}, {w}, contracting_dims = [1] x [0] : {types}"


def product(ops: str, name: str = "%c", k: int = K, n: int = N) -> str:
    """A program that multiplies its argument by weights computed from %w and %s."""
    return f"""func.func @main(%x: tensor<3x{k}xf32>) -> tensor<3x{n}xf32> {{
      %w = stablehlo.constant {raw(BYTES)} : {W}
      %s = stablehlo.constant {raw(SCALES)} : tensor<{N}xf32>
      {ops}
      {dot("%x", name, k, n)}
      return %d : tensor<3x{n}xf32>
    }}"""


def scaled(w: str) -> str:
    return f"""%b = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<{N}xf32>) -> {C}
      %m = stablehlo.multiply {w}, %b : {C}"""


ONES = f"tensor<{K}x{N}x1xi8>"
UNPACKED = f"tensor<{K}x{2 * N}xi8>"
NIBBLES = f"""%four = stablehlo.constant dense<4> : {W}
  %mask = stablehlo.constant dense<15> : {W}
  %low = stablehlo.and %w, %mask : {W}
  %high = stablehlo.shift_right_logical %w, %four : {W}
  %l = stablehlo.reshape %low : ({W}) -> {ONES}
  %h = stablehlo.reshape %high : ({W}) -> {ONES}
  %lh = stablehlo.concatenate %l, %h, dim = 2 : ({ONES}, {ONES}) -> tensor<{K}x{N}x2xi8>
  %u = stablehlo.reshape %lh : (tensor<{K}x{N}x2xi8>) -> {UNPACKED}
  %c = stablehlo.convert %u : ({UNPACKED}) -> tensor<{K}x{2 * N}xf32>"""

TABLE = raw(RNG.standard_normal(16).astype(np.float32))
LOOKUP = f"""%t = stablehlo.constant {TABLE} : tensor<16xf32>
  %i = stablehlo.constant {raw((BYTES & 15).astype(np.int8))} : {W}
  %c = "stablehlo.gather"(%t, %i) {{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1>}}
    : (tensor<16xf32>, {W}) -> {C}"""

GROWING = {
    "converted": (CONVERT, ()),
    "scaled": (f"{CONVERT}\n{scaled('%c')}", ("%m",)),
    "broadcast": (f"%c = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<{N}xf32>) -> {C}", ()),
    "unpacked nibbles": (NIBBLES, ("%c", K, 2 * N)),
    "the same constant twice": (
        f"""%two = stablehlo.add %w, %w : {W}
            %wide = stablehlo.concatenate %w, %two, dim = 1 : ({W}, {W}) -> tensor<{K}x{2 * N}xi8>
            %half = stablehlo.slice %wide [0:{K}, {N // 2}:{N + N // 2}] : (tensor<{K}x{2 * N}xi8>) -> {W}
            %c = stablehlo.convert %half : ({W}) -> {C}""",
        (),
    ),
    "looked up": (LOOKUP, ()),
}  # fmt: skip


@pytest.mark.parametrize("how", GROWING)
def test_constants_do_not_grow(how: str) -> None:
    ops, weights = GROWING[how]
    text = product(ops, *weights)
    exe: Any = shlo_jit.compile(text, cache=False)
    given = BYTES.nbytes + SCALES.nbytes
    assert exe.memory.constants <= given + (16 << 10), exe.text("plan")


@pytest.mark.parametrize("how", GROWING)
def test_the_bits_are_those_of_arguments(how: str) -> None:
    ops, weights = GROWING[how]
    text = product(ops, *weights)
    given = text.replace(f"%w = stablehlo.constant {raw(BYTES)} : {W}", "")
    given = given.replace(f"%s = stablehlo.constant {raw(SCALES)} : tensor<{N}xf32>", "")
    given = given.replace("@main(", f"@main(%w: {W}, %s: tensor<{N}xf32>, ")
    x = RNG.standard_normal((3, K)).astype(np.float32)
    found = shlo_jit.compile(text, cache=False)(x)
    assert found.tobytes() == shlo_jit.compile(given, cache=False)(BYTES, SCALES, x).tobytes()


def names(function: Op) -> list[str]:
    return [op.name.partition(".")[2] for op in walk(function.block())]


def constants(function: Op) -> list[str]:
    return sorted(str(op.result.tensor.dtype) for op in walk(function.block()) if op.name == "stablehlo.constant")


BEFORE_AFTER = {
    "operands of a wide result are computed": (
        f"""%t = stablehlo.transpose %w, dims = [1, 0] : ({W}) -> tensor<{N}x{K}xi8>
            %c = stablehlo.convert %t : (tensor<{N}x{K}xi8>) -> tensor<{N}x{K}xf32>""",
        ("%c", N, K),
        ["constant", "convert", "dot_general", "return"],
    ),
    "a narrow result with a wide one on the way": (
        f"""{CONVERT}
            %m = stablehlo.slice %c [0:{K}:4, 0:{N}] : ({C}) -> tensor<{K // 4}x{N}xf32>""",
        ("%m", K // 4, N),
        ["constant", "dot_general", "return"],
    ),
    "half of the bytes": (
        f"""{CONVERT}
            %m = stablehlo.slice %c [0:{K}:2, 0:{N}] : ({C}) -> tensor<{K // 2}x{N}xf32>""",
        ("%m", K // 2, N),
        ["constant", "convert", "slice", "dot_general", "return"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BEFORE_AFTER)
def test_before_and_after(what: str) -> None:
    ops, weights, want = BEFORE_AFTER[what]
    assert names(after(product(ops, *weights), simplify)) == want


def test_halves_that_are_twice_the_bytes_together() -> None:
    function = after(product(NIBBLES, "%c", K, 2 * N), simplify)
    assert "concatenate" in names(function) and "and" in names(function)
    found = [op.constant for op in walk(function.block()) if op.name == "stablehlo.constant"]
    assert sum(c.array.nbytes for c in found if not c.is_splat) == BYTES.nbytes


def test_sums_are_computed_though_their_operand_is_read_at_run_time() -> None:
    """Sums of columns correct zero points; the product reads the same converted weights."""
    i32 = f"tensor<{K}x{N}xi32>"
    text = f"""func.func @main(%x: tensor<3x{K}xi32>) -> (tensor<3x{N}xi32>, tensor<{N}xi32>) {{
      %w = stablehlo.constant {raw(BYTES)} : {W}
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %c = stablehlo.convert %w : ({W}) -> {i32}
      %r = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [0]
        : ({i32}, tensor<i32>) -> tensor<{N}xi32>
      %d = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0] : (tensor<3x{K}xi32>, {i32}) -> tensor<3x{N}xi32>
      return %d, %r : tensor<3x{N}xi32>, tensor<{N}xi32>
    }}"""
    function = after(text, simplify)
    assert "reduce" not in names(function) and "convert" in names(function)
    assert constants(function) == ["i32", "i8"]
    x = RNG.integers(-9, 9, (3, K)).astype(np.int32)
    product, sums = shlo_jit.compile(text, cache=False)(x)
    wide = BYTES.astype(np.int32)
    np.testing.assert_array_equal(sums, wide.sum(0, dtype=np.int32))
    np.testing.assert_array_equal(product, x @ wide)


def chain(length: int) -> str:
    """A program that multiplies by a constant after many ops, and reads the constant as well."""
    ops = [f"%w0 = stablehlo.convert %w : ({W}) -> {W}"]
    ops += [f"%w{i + 1} = stablehlo.{('negate', 'abs')[i % 2]} %w{i} : {W}" for i in range(length)]
    return f"""func.func @main(%x: tensor<3x{K}xi8>, %y: {W}) -> (tensor<3x{N}xi32>, {W}) {{
      %w = stablehlo.constant {raw(BYTES)} : {W}
      {chr(10).join(ops)}
      %d = stablehlo.dot_general %x, %w{length}, contracting_dims = [1] x [0]
        : (tensor<3x{K}xi8>, {W}) -> tensor<3x{N}xi32>
      %z = stablehlo.add %w, %y : {W}
      return %d, %z : tensor<3x{N}xi32>, {W}
    }}"""


@pytest.mark.parametrize("length", [1, 5, 30, 600])
def test_a_constant_that_others_read_is_not_kept_in_two_forms(length: int) -> None:
    """However many ops are between."""
    function = after(chain(length), simplify)
    assert constants(function) == ["i8"] and "negate" in names(function)


def test_large_temporary_results_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    ops, weights, _ = BEFORE_AFTER["a narrow result with a wide one on the way"]
    monkeypatch.setattr(tuning, "FOLD_TEMPORARY_BYTES", 4 * BYTES.nbytes - 1)
    assert "convert" in names(after(product(ops, *weights), simplify))
    monkeypatch.setattr(tuning, "FOLD_TEMPORARY_BYTES", 4 * BYTES.nbytes)
    assert "convert" not in names(after(product(ops, *weights), simplify))


def test_small_results_are_computed() -> None:
    small = product(
        f"""%b = stablehlo.slice %w [0:16, 0:{N}] : ({W}) -> tensor<16x{N}xi8>
            %c = stablehlo.convert %b : (tensor<16x{N}xi8>) -> tensor<16x{N}xf32>""",
        k=16,
    )
    assert names(after(small, simplify)) == ["constant", "dot_general", "return"]
