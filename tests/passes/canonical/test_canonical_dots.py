"""Products in the form of the GEMM kernel: transposes of products, and products that are reductions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.core import walk
from shlo_jit.reference.interpreter import evaluate

RNG = np.random.default_rng(5)
TRANSPOSED = [
    # operands, dimensions of the product, permutation, result, whether the operands can be swapped
    ("9x16", "9x24", "contracting_dims = [0] x [0]", "16x24", [1, 0], True),
    ("3x16x9", "3x24x9", "batching_dims = [0] x [0], contracting_dims = [2] x [2]", "3x16x24", [0, 2, 1], True),
    ("3x2x8x9", "3x2x30x9", "batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]", "3x2x8x30", [1, 0, 3, 2],
     True),
    ("4x5x9", "9x24", "contracting_dims = [2] x [0]", "4x5x24", [2, 0, 1], True),
    ("4x5x9", "9x24", "contracting_dims = [2] x [0]", "4x5x24", [1, 0, 2], False),
]  # fmt: skip
SMALL = [
    ("300", "300", "contracting_dims = [0] x [0]", ""),
    ("5x3x4", "5x4x3", "batching_dims = [0] x [0], contracting_dims = [2] x [1]", "5x3x3"),
    ("4x3x5", "2x4x3", "batching_dims = [1] x [2], contracting_dims = [0] x [1]", "3x5x2"),
    ("70x2x40", "40x70x2", "batching_dims = [1] x [2], contracting_dims = [0, 2] x [1, 0]", "2"),
    ("33x1", "1x20", "contracting_dims = [1] x [0]", "33x20"),
    ("500x3", "3x3", "contracting_dims = [1] x [0]", "500x3"),
    ("3x500", "2x3", "contracting_dims = [0] x [1]", "500x2"),
]


def kind(shape: str, dtype: str = "f32") -> str:
    return f"tensor<{'x'.join(filter(None, (shape, dtype)))}>"


def shape_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, text.split("x"))))


def program(
    lhs: str, rhs: str, numbers: str, product: str, dtype: str, rest: str = "return %0 : ", result: str = ""
) -> str:
    a, b, c = kind(lhs, dtype), kind(rhs, dtype), kind(product, dtype)
    body = f"%0 = stablehlo.dot_general %x, %y, {numbers} : ({a}, {b}) -> {c}\n"
    return f"func.func @main(%x: {a}, %y: {b}) -> {result or c} {{\n{body}{rest}{result or c}\n}}"


def ops(text: str) -> set[str]:
    return {o.name.partition(".")[2] for o in walk(canonical(text).block())}


@pytest.mark.parametrize("case", TRANSPOSED, ids=lambda c: f"{c[0]}-{c[1]}-{c[4]}")
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_transpose_of_a_product(case: tuple, dtype: str) -> None:
    lhs, rhs, numbers, product, order, exchanged = case
    result = kind("x".join(str(shape_of(product)[d]) for d in order), dtype)
    rest = f"%1 = stablehlo.transpose %0, dims = {order} : ({kind(product, dtype)}) -> {result}\nreturn %1 : "
    text = program(lhs, rhs, numbers, product, dtype, rest, result)
    assert ("transpose" not in ops(text)) is exchanged
    plain = shlo_jit.compile(program(lhs, rhs, numbers, product, dtype), cache=False)
    number = np.float32 if dtype == "f32" else ml_dtypes.bfloat16
    x, y = (RNG.normal(size=shape_of(s)).astype(number) for s in (lhs, rhs))
    got = shlo_jit.compile(text, cache=False)(x, y)
    np.testing.assert_array_equal(got, np.asarray(plain(x, y)).transpose(order))


@pytest.mark.parametrize("columns", [30, 3])
def test_rows_that_are_copied_take_the_order_of_the_result(columns: int) -> None:
    """20 positions with 2 groups of 4 heads each, where the product is larger than its operands."""
    rows, other, product, result = "3x20x2x4x9", f"3x2x{columns}x9", f"3x2x20x4x{columns}", f"3x2x4x20x{columns}"
    rest = f"%1 = stablehlo.transpose %0, dims = [0, 1, 3, 2, 4] : ({kind(product)}) -> {kind(result)}\nreturn %1 : "
    numbers = "batching_dims = [0, 2] x [0, 1], contracting_dims = [4] x [3]"
    text = program(rows, other, numbers, product, "f32", rest, kind(result))
    (shape,) = (o.result.tensor.extents for o in walk(canonical(text).block()) if o.name == "stablehlo.dot_general")
    assert shape == shape_of(result if columns == 30 else product)
    x, y = (RNG.normal(size=shape_of(s)).astype(np.float32) for s in (rows, other))
    plain = shlo_jit.compile(program(rows, other, numbers, product, "f32"), cache=False)
    np.testing.assert_array_equal(
        shlo_jit.compile(text, cache=False)(x, y), np.asarray(plain(x, y)).transpose(0, 1, 3, 2, 4)
    )


def test_a_transpose_after_elementwise_ops() -> None:
    """Elementwise ops are repeated on the product with swapped operands."""
    rest = f"""%c = stablehlo.constant dense<0.5> : {kind("3x16x24")}
      %s = stablehlo.multiply %0, %c : {kind("3x16x24")}
      %n = stablehlo.negate %s : {kind("3x16x24")}
      %1 = stablehlo.transpose %n, dims = [0, 2, 1] : ({kind("3x16x24")}) -> {kind("3x24x16")}
      return %1 : """
    numbers = "batching_dims = [0] x [0], contracting_dims = [2] x [2]"
    text = program("3x16x9", "3x24x9", numbers, "3x16x24", "f32", rest, kind("3x24x16"))
    assert "transpose" not in ops(text)
    x, y = (RNG.normal(size=s).astype(np.float32) for s in ((3, 16, 9), (3, 24, 9)))
    plain = np.asarray(shlo_jit.compile(program("3x16x9", "3x24x9", numbers, "3x16x24", "f32"), cache=False)(x, y))
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, y), -(plain * np.float32(0.5)).swapaxes(1, 2))


def test_dimensions_of_one_that_are_dropped_before_a_product() -> None:
    """Operands are read before the dimensions are dropped, also if one is dropped amid rows, or if a matrix is
    transposed first."""
    lhs, rhs, product = "1x3x16x9", "3x9x1x24", "3x16x24"
    lines = f"""%a = stablehlo.reshape %x : ({kind(lhs)}) -> {kind("3x16x9")}
      %b = stablehlo.reshape %y : ({kind(rhs)}) -> {kind("3x9x24")}
      %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] :
        ({kind("3x16x9")}, {kind("3x9x24")}) -> {kind(product)}"""
    text = f"func.func @main(%x: {kind(lhs)}, %y: {kind(rhs)}) -> {kind(product)} {{\n{lines}\nreturn %0 : {kind(product)}\n}}"
    (dot,) = (o for o in walk(canonical(text).block()) if o.name == "stablehlo.dot_general")
    assert [o.op for o in dot.operands] == [None, None]
    x, y = (RNG.normal(size=shape_of(s)).astype(np.float32) for s in (lhs, rhs))
    got = shlo_jit.compile(text, cache=False)(x, y)
    np.testing.assert_allclose(got, np.einsum("bmk,bkn->bmn", x[0], y[:, :, 0]), rtol=1e-5, atol=1e-5)


def test_copies_keep_what_is_adjacent() -> None:
    """Groups and positions of queries are both contracted: the copy keeps lines of features as they are."""
    lhs, rhs = "2x10x3x4x40", "2x3x10x4x24"
    numbers = "batching_dims = [0, 2] x [0, 1], contracting_dims = [3, 1] x [3, 2]"
    text = program(lhs, rhs, numbers, "2x3x40x24", "f32")
    (moved, *_) = (o for o in walk(canonical(text).block()) if o.name == "stablehlo.transpose")
    assert moved.ints("permutation")[-1] == len(shape_of(lhs)) - 1
    x, y = (RNG.normal(size=shape_of(s)).astype(np.float32) for s in (lhs, rhs))
    got = shlo_jit.compile(text, cache=False)(x, y)
    np.testing.assert_allclose(got, np.einsum("btkgs,bktgn->bksn", x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [tuning.ADJACENT_ROWS, tuning.ADJACENT_ROWS - 1])
def test_rows_become_adjacent_elements(rows: int) -> None:
    """Values times weights, heads after rows: the operands are swapped, and a transpose of whole runs remains."""
    product, result = f"3x{rows}x40", kind(f"40x3x{rows}")
    rest = f"%1 = stablehlo.transpose %0, dims = [2, 0, 1] : ({kind(product)}) -> {result}\nreturn %1 : "
    numbers = "batching_dims = [1] x [0], contracting_dims = [0] x [2]"
    text = program(f"50x3x{rows}", "3x40x50", numbers, product, "f32", rest, result)
    (shape,) = (o.result.tensor.extents for o in walk(canonical(text).block()) if o.name == "stablehlo.dot_general")
    assert shape == ((3, 40, rows) if rows == tuning.ADJACENT_ROWS else (3, rows, 40))
    x, y = (RNG.normal(size=s).astype(np.float32) for s in ((50, 3, rows), (3, 40, 50)))
    plain = shlo_jit.compile(program(f"50x3x{rows}", "3x40x50", numbers, product, "f32"), cache=False)(x, y)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, y), np.asarray(plain).transpose(2, 0, 1))


def test_a_product_with_other_readers_stays() -> None:
    a, c, d = kind("16x9"), kind("16x16"), kind("16x16")
    text = f"""func.func @main(%x: {a}, %y: {a}) -> ({c}, {d}) {{
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : ({a}, {a}) -> {c}
  %1 = stablehlo.transpose %0, dims = [1, 0] : ({c}) -> {d}
  return %0, %1 : {c}, {d}
}}"""
    assert "transpose" in ops(text)


@pytest.mark.parametrize("case", SMALL, ids=lambda c: f"{c[0]}-{c[1]}")
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "i32"])
def test_small_products_are_reductions(case: tuple, dtype: str) -> None:
    lhs, rhs, numbers, product = case
    text = program(lhs, rhs, numbers, product, dtype)
    assert "dot_general" not in ops(text)
    number = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i32": np.int32}[dtype]
    x, y = (RNG.integers(-4, 5, shape_of(s)).astype(number) for s in (lhs, rhs))
    (want,) = evaluate(shlo_jit.parse(text), x, y)
    np.testing.assert_array_equal(np.asarray(shlo_jit.compile(text, cache=False)(x, y)), want)


@pytest.mark.parametrize(("lhs", "rhs", "product"), [("500x5", "5x3", "500x3"), ("500x3", "3x5", "500x5")])
def test_more_terms_or_columns_of_many_rows_stay_a_product(lhs: str, rhs: str, product: str) -> None:
    assert "dot_general" in ops(program(lhs, rhs, "contracting_dims = [1] x [0]", product, "f32"))


@pytest.mark.parametrize(
    ("lhs", "rhs", "product", "dtype", "small"),
    [
        ("8x16", "16x16", "8x16", "f32", True),
        ("8x16", "16x17", "8x17", "f32", False),
        ("8x16", "16x16", "8x16", "bf16", False),
        ("8x8", "8x8", "8x8", "bf16", True),
        ("8x9", "13x9", "8x13", "f32", False),  # columns are not adjacent, and terms do not fill a vector twice
        ("8x9", "9x13", "8x13", "f32", True),
        ("4x100", "5x100", "4x5", "f32", True),
        ("1x128", "128x128", "1x128", "f32", True),
        ("1x129", "129x128", "1x128", "f32", False),
        ("128x128", "128x1", "128x1", "bf16", True),
    ],
)
def test_how_small_a_product_is_a_reduction(lhs: str, rhs: str, product: str, dtype: str, small: bool) -> None:
    """The number of multiply-adds decides if the columns are adjacent."""
    last = shape_of(lhs)[1] == shape_of(rhs)[1] != shape_of(rhs)[0]
    text = program(lhs, rhs, f"contracting_dims = [1] x [{int(last)}]", product, dtype)
    assert ("dot_general" not in ops(text)) is small
    number = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}[dtype]
    x, y = (RNG.normal(size=shape_of(s)).astype(number) for s in (lhs, rhs))
    exact = x.astype(np.float64) @ (y.astype(np.float64).T if last else y.astype(np.float64))
    got = np.asarray(shlo_jit.compile(text, cache=False)(x, y)).astype(np.float64)
    bound = np.abs(x).astype(np.float64) @ np.abs(y.T if last else y).astype(np.float64)
    rounding = 2.0**-24 * shape_of(lhs)[1] + (2.0**-8 if dtype == "bf16" else 0)
    assert (np.abs(got - exact) <= bound * rounding).all()


def test_the_type_of_a_product_that_is_read_through_a_transpose() -> None:
    """The transpose moves a dimension of extent 1: the operand's own dimensions give the type of the product."""
    text = """func.func @main(%q: tensor<1x4x32xf32>, %k: tensor<2x64x32xf32>) -> tensor<2x2x64xf32> {
  %0 = stablehlo.reshape %q : (tensor<1x4x32xf32>) -> tensor<1x2x2x32xf32>
  %1 = stablehlo.transpose %0, dims = [1, 2, 0, 3] : (tensor<1x2x2x32xf32>) -> tensor<2x2x1x32xf32>
  %2 = stablehlo.reshape %1 : (tensor<2x2x1x32xf32>) -> tensor<2x2x32xf32>
  %3 = stablehlo.dot_general %2, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : (tensor<2x2x32xf32>, tensor<2x64x32xf32>) -> tensor<2x2x64xf32>
  return %3 : tensor<2x2x64xf32>
}"""
    q, k = (RNG.standard_normal(shape).astype(np.float32) for shape in ((1, 4, 32), (2, 64, 32)))
    (want,) = evaluate(shlo_jit.parse(text), q, k)
    np.testing.assert_allclose(shlo_jit.compile(text, cache=False)(q, k), want, rtol=1e-5, atol=1e-5)
