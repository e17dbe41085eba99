"""Products, reductions and conversions between element types: compiled against the reference interpreter.

A product forms its terms in the result's type: operands of another kind are converted before they are multiplied.
"""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir.types import DTYPES, DType
from shlo_jit.reference.interpreter import evaluate

OPERANDS = ["f32", "f64", "bf16", "f8E5M2", "i8", "i32", "ui16", "i1", "complex<f32>"]
RESULTS = ["f32", "f64", "f16", "i32", "ui8", "i64", "i4", "i1", "complex<f64>"]


def operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Returns numbers with fractions, of both signs if the type has them, whose sums and products no type rounds."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    low = 0 if dtype.kind == "u" else -4
    numbers = rng.integers(low, 5, shape) / (1 if dtype.is_integer else 2)
    return numbers.astype(dtype.numpy)


def product(kind: str, rows: int, source: str, target: str) -> str:
    a, b, c = f"tensor<{rows}x6x{source}>", f"tensor<6x{rows}x{source}>", f"tensor<{rows}x{rows}x{target}>"
    if kind == "dot":
        line = f"stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({a}, {b}) -> {c}"
    elif kind == "einsum":
        line = f'"stablehlo.einsum"(%a, %b) <{{einsum_config = "ij,jk->ik"}}> : ({a}, {b}) -> {c}'
    else:
        line = (
            "stablehlo.convolution(%a, %b) dim_numbers = [b, f]x[i, o]->[b, f], window = {} "
            f"{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({a}, {b}) -> {c}"
        )
    return f"func.func @main(%a: {a}, %b: {b}) -> {c} {{\n%0 = {line}\nreturn %0 : {c}\n}}"


def compare(text: str, *arrays: np.ndarray) -> None:
    got, (want,) = shlo_jit.compile(text, cache=False, threads=1)(*arrays), evaluate(shlo_jit.parse(text), *arrays)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want, text)


@pytest.mark.parametrize("target", RESULTS)
def test_products(target: str) -> None:
    rng = np.random.default_rng(1)
    functions, calls, parameters, names, arrays, results = [], [], [], [], [], []
    for source in OPERANDS:
        for kind, rows in (("dot", 3), ("dot", 40), ("einsum", 3), ("convolution", 20)):
            k = len(calls)
            text = product(kind, rows, source, target)
            a, b, c = f"tensor<{rows}x6x{source}>", f"tensor<6x{rows}x{source}>", f"tensor<{rows}x{rows}x{target}>"
            functions.append(text.replace("@main", f"private @f{k}"))
            calls.append(f"%r{k} = call @f{k}(%a{k}, %b{k}) : ({a}, {b}) -> {c}")
            parameters += [f"%a{k}: {a}", f"%b{k}: {b}"]
            names.append(f"%r{k}")
            results.append(c)
            arrays += [operand(rng, shape, DTYPES[source]) for shape in ((rows, 6), (6, rows))]
    head = f"func.func @main({', '.join(parameters)}) -> ({', '.join(results)}) {{\n"
    tail = f"\nreturn {', '.join(names)} : {', '.join(results)}\n}}\n"
    text = head + "\n".join(calls) + tail + "\n".join(functions)
    got, want = shlo_jit.compile(text, cache=False)(*arrays), evaluate(shlo_jit.parse(text), *arrays)
    for call, g, w in zip(calls, got, want, strict=True):
        np.testing.assert_array_equal(g, w, call)


@pytest.mark.parametrize("target", RESULTS)
def test_sums_of_one_operand(target: str) -> None:
    rng = np.random.default_rng(2)
    for source in OPERANDS:
        a, c = f"tensor<4x6x{source}>", f"tensor<4x{target}>"
        line = f'%0 = "stablehlo.unary_einsum"(%a) <{{einsum_config = "ij->i"}}> : ({a}) -> {c}'
        compare(
            f"func.func @main(%a: {a}) -> {c} {{\n{line}\nreturn %0 : {c}\n}}", operand(rng, (4, 6), DTYPES[source])
        )


def test_a_float_is_cut_off_before_it_is_multiplied() -> None:
    x = np.array([[1.7, 300.0, -0.5]], np.float32)
    for target, want in (("i32", 1 + 300 * 300), ("i8", (1 + 127 * 127 + 128) % 256 - 128), ("i1", True)):
        text = (
            f"func.func @main(%a: tensor<1x3xf32>) -> tensor<1x1x{target}> {{\n"
            "%0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1] : (tensor<1x3xf32>, tensor<1x3xf32>) "
            f"-> tensor<1x1x{target}>\nreturn %0 : tensor<1x1x{target}>\n}}"
        )
        assert shlo_jit.compile(text, cache=False)(x).item() == want


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16"])
def test_reduce_precision(name: str) -> None:
    """Every exponent with no, one and two bits of mantissa; a NaN without mantissa is an infinity of its sign."""
    dtype = DTYPES[name].numpy
    x = np.concatenate([np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, 1.25, 2.5, 1e-40]),
                        np.random.default_rng(2).normal(0, 9, 20)]).astype(dtype)  # fmt: skip
    t = f"tensor<{len(x)}x{name}>"
    formats = [(e, m) for e in (1, 2, 5, 8) for m in (0, 1, 2)]
    lines = [f"%{i} = stablehlo.reduce_precision %a, format = e{e}m{m} : {t}" for i, (e, m) in enumerate(formats)]
    names = ", ".join(f"%{i}" for i in range(len(formats)))
    types = ", ".join([t] * len(formats))
    text = f"func.func @main(%a: {t}) -> ({types}) {{\n" + "\n".join(lines) + f"\nreturn {names} : {types}\n}}"
    got, want = shlo_jit.compile(text, cache=False)(x), evaluate(shlo_jit.parse(text), x)
    for (_, m), g, w in zip(formats, got, want, strict=True):
        np.testing.assert_array_equal(g.astype(np.float64), w.astype(np.float64))
        if m == 0:
            np.testing.assert_array_equal(g[:2].astype(np.float64), [np.inf, -np.inf])


REDUCED = [("f32", "f64"), ("bf16", "f32"), ("f16", "f32"), ("i8", "i32"), ("i16", "i64"), ("f8E4M3FN", "f32"), ("ui8", "ui32")]  # fmt: skip


@pytest.mark.parametrize(("source", "wide"), REDUCED)
@pytest.mark.parametrize("op", ["reduce", "reduce_window", "scatter", "select_and_scatter"])
def test_wider_bodies(op: str, source: str, wide: str) -> None:
    """A body may compute in a wider type than its operands have."""
    body = (
        f"^bb0(%l: tensor<{wide}>, %r: tensor<{wide}>):\n%o = stablehlo.add %l, %r : tensor<{wide}>\n"
        f"stablehlo.return %o : tensor<{wide}>\n"
    )
    x, z = f"tensor<5x7x{source}>", f"tensor<{source}>"
    if op == "reduce":
        result, types = f"tensor<5x{wide}>", [x, z]
        line = f'"stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 1>}}> ({{\n{body}}})'
    elif op == "reduce_window":
        result, types = f"tensor<4x6x{wide}>", [x, z]
        line = f'"stablehlo.reduce_window"(%a, %b) <{{window_dimensions = array<i64: 2, 2>}}> ({{\n{body}}})'
    elif op == "scatter":
        result, types = f"tensor<5x7x{wide}>", [x, "tensor<3x1xi32>", f"tensor<3x7x{source}>"]
        numbers = ("update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
                   "index_vector_dim = 1")  # fmt: skip
        line = f'"stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}> ({{\n{body}}})'
    else:
        result, types = f"tensor<5x7x{wide}>", [x, f"tensor<4x6x{source}>", z]
        select = (
            f"^bb0(%l: {z}, %r: {z}):\n%o = stablehlo.compare GE, %l, %r : ({z}, {z}) -> tensor<i1>\n"
            "stablehlo.return %o : tensor<i1>\n"
        )
        line = f'"stablehlo.select_and_scatter"(%a, %b, %c) <{{window_dimensions = array<i64: 2, 2>}}> ({{\n{select}}}, {{\n{body}}})'
    parameters = ", ".join(f"%{n}: {t}" for n, t in zip("abc", types, strict=False))
    text = f"func.func @main({parameters}) -> {result} {{\n%0 = {line} : ({', '.join(types)}) -> {result}\nreturn %0 : {result}\n}}"
    main = shlo_jit.parse(text).function("main")
    assert main is not None
    rng = np.random.default_rng(3)
    arrays = [operand(rng, a.tensor.extents, a.tensor.storage) for a in main.block().arguments]
    compare(text, *arrays)
