"""Products of converted bytes: computed on the bytes, equal to the reference even with overflow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit.ir.core import walk
from shlo_jit.ir.types import DTYPES
from shlo_jit.reference.interpreter import evaluate

RNG = np.random.default_rng(7)
M, K, N = 19, 37, 40


@dataclass(frozen=True)
class Operand:
    """Ops that compute `%{name}` from the argument `%{name}0`, a tensor of `shape` and `dtype`."""

    shape: tuple[int, ...]
    dtype: str
    ops: str
    made: tuple[int, ...] = ()
    """Shape of the result, if it differs."""
    arguments: tuple[tuple[tuple[int, ...], str], ...] = ()
    """Shapes and types of `%{name}1` and so on."""


def kind(shape: Sequence[int], dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, dtype)))}>"


def filled(text: str, name: str, operand: Operand, wide: str) -> str:
    full = kind(operand.made or operand.shape, wide)
    return text.format(n=name, own=kind(operand.shape, operand.dtype), t=full, wide=wide)


def text_of(lhs: Operand, rhs: Operand, wide: str = "i32", result: str = "i32") -> str:
    arguments, body = [], ""
    for name, operand in (("x", lhs), ("y", rhs)):
        kinds = [(operand.shape, operand.dtype), *operand.arguments]
        arguments += [f"%{name}{i}: {kind(*of)}" for i, of in enumerate(kinds)]
        body += "".join(f"  {line.strip()}\n" for line in filled(operand.ops, name, operand, wide).splitlines())
    (m, _), (_, n) = lhs.made or lhs.shape, rhs.made or rhs.shape
    types = [kind(o.made or o.shape, wide) for o in (lhs, rhs)]
    out = kind((m, n), result)
    return f"""func.func @main({", ".join(arguments)}) -> {out} {{
{body}  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({", ".join(types)}) -> {out}
  return %r : {out}
}}"""


def numbers(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Returns random numbers, including extreme values."""
    d = DTYPES[dtype]
    if d.kind == "b":
        return RNG.integers(0, 2, shape).astype(bool)
    low = 0 if d.kind == "u" else -(2 ** (d.bits - 1))
    data = RNG.integers(low, low + 2**d.bits, shape)
    ends = RNG.random(shape)
    return np.where(ends < 0.2, low, np.where(ends > 0.8, low + 2**d.bits - 1, data)).astype(d.numpy)


def products(text: str) -> list[tuple[str, ...]]:
    """Returns the element types of the matrix products."""
    found = [op for op in walk(canonical(text).block()) if op.name == "stablehlo.dot_general"]
    return [tuple(o.tensor.storage.name for o in op.operands) for op in found if op.operands[0].tensor.rank > 1]


def check(text: str, *operands: Operand) -> None:
    assert not shlo_jit.verify(text), [str(d) for d in shlo_jit.verify(text)]
    arrays = [numbers(*of) for o in operands for of in ((o.shape, o.dtype), *o.arguments)]
    (expected,) = evaluate(shlo_jit.parse(text), *arrays)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(*arrays), expected)


CONVERT = "%{n} = stablehlo.convert %{n}0 : ({own}) -> {t}"
LESS = """%{n}w = stablehlo.convert %{n}0 : ({own}) -> {t}
%{n}z = stablehlo.constant dense<{zero}> : {t}
%{n} = stablehlo.subtract %{n}w, %{n}z : {t}"""
MORE = """%{n}w = stablehlo.convert %{n}0 : ({own}) -> {t}
%{n}z = stablehlo.constant dense<{zero}> : {t}
%{n} = stablehlo.add %{n}z, %{n}w : {t}"""
LESS_EACH = """%{n}w = stablehlo.convert %{n}0 : ({own}) -> {t}
%{n}z = stablehlo.broadcast_in_dim %{n}1, dims = [DIMS] : (OF) -> {t}
%{n} = stablehlo.OP %{n}w, %{n}z : {t}"""


def with_zero(ops: str, zero: int) -> str:
    return ops.replace("{zero}", str(zero))


def each(dims: str, of: str, op: str = "subtract") -> str:
    return LESS_EACH.replace("DIMS", dims).replace("OF", of).replace("OP", op)


LEFT = {
    "plain": Operand((M, K), "ui8", CONVERT),
    "signed": Operand((M, K), "i8", CONVERT),
    "i4": Operand((M, K), "i4", CONVERT),
    "i1": Operand((M, K), "i1", CONVERT),
    "zero": Operand((M, K), "ui8", with_zero(LESS, 131)),
    "added": Operand((M, K), "i8", with_zero(MORE, -1000)),
    "a row": Operand((M, K), "ui8", each("0, 1", f"tensor<{M}x1xi32>"), arguments=(((M, 1), "i32"),)),
    "one": Operand((M, K), "i8", each("", "tensor<i32>", "add"), arguments=(((), "i32"),)),
    "moved": Operand((K, M), "ui8", """%{n}w = stablehlo.convert %{n}0 : ({own}) -> tensor<37x19x{wide}>
        %{n} = stablehlo.transpose %{n}w, dims = [1, 0] : (tensor<37x19x{wide}>) -> {t}""", (M, K)),
}  # fmt: skip
RIGHT = {
    "plain": Operand((K, N), "i8", CONVERT),
    "unsigned": Operand((K, N), "ui8", CONVERT),
    "zero": Operand((K, N), "i8", with_zero(LESS, -77)),
    "a column": Operand((K, N), "ui8", each("1", f"tensor<{N}xi32>"), arguments=(((N,), "i32"),)),
}


@pytest.mark.parametrize("lhs,rhs", [*itertools.product(LEFT, RIGHT)])
def test_bytes_are_found(lhs: str, rhs: str) -> None:
    text = text_of(LEFT[lhs], RIGHT[rhs])
    ((a, b),) = products(text)
    assert a in ("i8", "ui8") and b in ("i8", "ui8")
    check(text, LEFT[lhs], RIGHT[rhs])


@pytest.mark.parametrize(
    "wide,result,found",
    [
        ("i16", "i32", True), ("i16", "i16", True), ("i32", "ui32", True), ("ui32", "ui32", True),
        ("i64", "i64", True), ("i64", "i32", True), ("ui16", "i32", False),
    ],
)  # fmt: skip
def test_other_widths(wide: str, result: str, found: bool) -> None:
    """The operands' byte types, and the type of the sums."""
    text = text_of(LEFT["signed"], RIGHT["plain"], wide, result)
    assert (products(text) == [("i8", "i8")]) == found
    check(text, LEFT["signed"], RIGHT["plain"])


def test_a_zero_point_that_overflows_a_narrow_type_is_not_found() -> None:
    """The sum of i16 wraps, while that of i32 would not."""
    lhs = Operand((M, K), "i8", with_zero(MORE, 32700))
    text = text_of(lhs, RIGHT["plain"], "i16", "i32")
    assert products(text) != [("i8", "i8")]
    check(text, lhs, RIGHT["plain"])


def test_a_zero_point_along_contracting_dimensions_is_not_found() -> None:
    lhs = Operand((M, K), "i8", each("1", f"tensor<{K}xi32>"), arguments=(((K,), "i32"),))
    text = text_of(lhs, RIGHT["plain"])
    assert products(text) != [("i8", "i8")]
    check(text, lhs, RIGHT["plain"])


@pytest.mark.parametrize("zero,number", [("a row", 5), ("one", -3), ("zero", 7)])
def test_a_number_added_to_a_zero_point(zero: str, number: int) -> None:
    """x - z + 5 is recognized as bytes only if z is a number, too."""
    more = f"\n%{{n}}c = stablehlo.constant dense<{number}> : {{t}}\n%{{n}} = stablehlo.add %{{n}}s, %{{n}}c : {{t}}"
    lhs = LEFT[zero]
    lhs = replace(lhs, ops=lhs.ops.replace("%{n} =", "%{n}s =") + more)
    text = text_of(lhs, RIGHT["plain"])
    assert products(text) == [("ui8", "i8") if zero == "zero" else ("i32", "i32")]
    check(text, lhs, RIGHT["plain"])


@pytest.mark.parametrize("low,high", [(-128, 127), (0, 255), (-200, 55), (900, 1155)])
@pytest.mark.parametrize("is_spread", [False, True])
def test_constants_are_bytes_if_their_elements_fit(low: int, high: int, is_spread: bool) -> None:
    """With one zero point for all elements, or one for each column."""
    data = RNG.integers(low, high + 1, (K, N))
    data[0], data[1] = low, high
    if is_spread:
        data += 300 * np.arange(N)
    rows = ", ".join(f"[{', '.join(map(str, row))}]" for row in data)
    rhs = Operand((K, N), "i8", f"%{{n}} = stablehlo.constant dense<[{rows}]> : {{t}}")
    text = text_of(LEFT["zero"], rhs)
    assert products(text)[0][1] in ("i8", "ui8")
    check(text, LEFT["zero"], rhs)


def test_sums_that_might_not_fit_32_bits_use_64() -> None:
    """i64 sums of many extreme bytes."""
    for depth, found in ((60_000, True), (70_000, False)):
        lhs, rhs = Operand((6, depth), "ui8", CONVERT), Operand((depth, 24), "i8", CONVERT)
        text = text_of(lhs, rhs, "i64", "i64")
        assert (products(text) == [("ui8", "i8")]) == found
        x, y = np.full((6, depth), 255, np.uint8), np.full((depth, 24), -128, np.int8)
        got = shlo_jit.compile(text, cache=False)(x, y)
        assert (got == -255 * 128 * depth).all()


@pytest.mark.parametrize("zero", [0, 200])
@pytest.mark.parametrize("threads", [1, 2])
def test_long_sums_wrap(zero: int, threads: int) -> None:
    depth = 70_000
    lhs, rhs = Operand((6, depth), "ui8", with_zero(LESS, zero)), Operand((depth, 33), "i8", with_zero(LESS, -zero))
    text = text_of(lhs, rhs)
    assert products(text) == [("ui8", "i8")]
    x, y = numbers((6, depth), "ui8") | np.uint8(128), numbers((depth, 33), "i8") | np.int8(64)
    expected = ((x.astype(np.int64) - zero) @ (y.astype(np.int64) + zero)).astype(np.int32)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False, threads=threads)(x, y), expected)


def test_random_shapes_and_batches() -> None:
    for _ in range(12):
        b, m, k, n = (int(RNG.integers(1, high)) for high in (4, 70, 90, 70))
        m, n = m + 3, n + 3
        a, c = (("ui8", "i8"), ("i8", "ui8"), ("ui8", "ui8"), ("i8", "i8"))[RNG.integers(4)]
        zx, zy = (int(z) for z in RNG.integers(-130, 260, 2))
        text = f"""func.func @main(%x: tensor<{b}x{m}x{k}x{a}>, %y: tensor<{b}x{n}x{k}x{c}>) -> tensor<{b}x{m}x{n}xi32> {{
  %0 = stablehlo.convert %x : (tensor<{b}x{m}x{k}x{a}>) -> tensor<{b}x{m}x{k}xi32>
  %1 = stablehlo.constant dense<{zx}> : tensor<{b}x{m}x{k}xi32>
  %2 = stablehlo.subtract %0, %1 : tensor<{b}x{m}x{k}xi32>
  %3 = stablehlo.convert %y : (tensor<{b}x{n}x{k}x{c}>) -> tensor<{b}x{n}x{k}xi32>
  %4 = stablehlo.constant dense<{zy}> : tensor<{b}x{n}x{k}xi32>
  %5 = stablehlo.subtract %3, %4 : tensor<{b}x{n}x{k}xi32>
  %6 = stablehlo.dot_general %2, %5, batching_dims = [0] x [0], contracting_dims = [2] x [2]
       : (tensor<{b}x{m}x{k}xi32>, tensor<{b}x{n}x{k}xi32>) -> tensor<{b}x{m}x{n}xi32>
  return %6 : tensor<{b}x{m}x{n}xi32>
}}"""
        x, y = numbers((b, m, k), a), numbers((b, n, k), c)
        expected = (x.astype(np.int32) - zx) @ (y.astype(np.int32) - zy).transpose(0, 2, 1)
        np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, y), expected)


CONVOLUTION = """func.func @main(%x: tensor<2x9x8x5x{a}>, %w: tensor<3x2x{i}x12x{b}>) -> tensor<2x{h}x8x12xi32> {{
  %0 = stablehlo.convert %x : (tensor<2x9x8x5x{a}>) -> tensor<2x9x8x5xi32>
  %1 = stablehlo.constant dense<{zx}> : tensor<2x9x8x5xi32>
  %2 = stablehlo.subtract %0, %1 : tensor<2x9x8x5xi32>
  %3 = stablehlo.convert %w : (tensor<3x2x{i}x12x{b}>) -> tensor<3x2x{i}x12xi32>
  %4 = stablehlo.constant dense<{zw}> : tensor<3x2x{i}x12xi32>
  %5 = stablehlo.subtract %3, %4 : tensor<3x2x{i}x12xi32>
  %6 = stablehlo.convolution(%2, %5) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{pad = [[1, 1], [1, 0]]{window}}} {{feature_group_count = 1 : i64, batch_group_count = 1 : i64}}
    : (tensor<2x9x8x5xi32>, tensor<3x2x{i}x12xi32>) -> tensor<2x{h}x8x12xi32>
  return %6 : tensor<2x{h}x8x12xi32>
}}"""


@pytest.mark.parametrize("zx,zw", [(0, 0), (128, 0), (0, -9), (77, 200)])
@pytest.mark.parametrize("a,b", [("ui8", "i8"), ("i8", "ui8")])
def test_convolutions(zx: int, zw: int, a: str, b: str) -> None:
    """Padding is zero after the zero point was subtracted, so it must fit the type of the input."""
    text = CONVOLUTION.format(a=a, b=b, zx=zx, zw=zw, i=5, h=5, window=", stride = [2, 1]")
    assert not shlo_jit.verify(text), [str(d) for d in shlo_jit.verify(text)]
    names = {op.name for op in walk(canonical(text).block())}
    assert ("stablehlo.convolution" in names) == (a == "i8" and zx == 128)
    x, w = numbers((2, 9, 8, 5), a), numbers((3, 2, 5, 12), b)
    (expected,) = evaluate(shlo_jit.parse(text), x, w)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, w), expected)


def test_x86_64_v3_and_amx_take_them() -> None:
    """Code for other targets is compiled; only the first may run here."""
    text = text_of(LEFT["zero"], RIGHT["zero"])
    arrays = numbers((M, K), "ui8"), numbers((K, N), "i8")
    (expected,) = evaluate(shlo_jit.parse(text), *arrays)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False, target="x86-64-v3")(*arrays), expected)
