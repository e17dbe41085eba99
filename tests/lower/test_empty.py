"""Tensors without elements: every op with dimensions of extent 0, alone and fused, against the reference interpreter."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pytest
from element_cases import BITS, EQUAL, MOVES, NUMBERS, ORDERED, SUMS, Case, filled

import shlo_jit
from shlo_jit.ir.types import DTYPES, FunctionType, TensorType
from shlo_jit.reference.interpreter import evaluate

MORE = [
    Case("fft", "3x8xcomplex<f32>",
         "%0 = stablehlo.fft %a, type = FFT, length = [8] : (tensor<3x8xcomplex<f32>>) -> tensor<3x8xcomplex<f32>>", "3x8xcomplex<f32>"),
    Case("rfft", "3x8xf32", "%0 = stablehlo.fft %a, type = RFFT, length = [8] : (tensor<3x8xf32>) -> tensor<3x5xcomplex<f32>>",
         "3x5xcomplex<f32>"),
    Case("top_k", "3x7xE", "%0:2 = chlo.top_k(%a, k = 2) : tensor<3x7xE> -> (tensor<3x2xE>, tensor<3x2xi32>)", "3x2xE"),
    Case("cholesky", "2x3x3xE", "%0 = stablehlo.cholesky %a, lower = true : tensor<2x3x3xE>", "2x3x3xE"),
    Case("triangular_solve", "2x3x3xE 2x3x5xE",
         '%0 = "stablehlo.triangular_solve"(%a, %b) <{left_side = true, lower = true, unit_diagonal = false, '
         "transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : (tensor<2x3x3xE>, tensor<2x3x5xE>) -> tensor<2x3x5xE>", "2x3x5xE"),
    Case("rng_bit_generator", "2xui64",
         "%s, %0 = stablehlo.rng_bit_generator %a, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>)", "3x5xui32"),
    Case("dynamic_pad", "3x5xE xE",
         """%l = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
    %h = stablehlo.constant dense<[0, -1]> : tensor<2xi64>
    %i = stablehlo.constant dense<0> : tensor<2xi64>
    %0 = stablehlo.dynamic_pad %a, %b, %l, %h, %i
        : (tensor<3x5xE>, tensor<E>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<4x4xE>""", "4x4xE"),
    Case("quantize", "3x5xf32",
         """%q = stablehlo.uniform_quantize %a : (tensor<3x5xf32>) -> tensor<3x5x!quant.uniform<i8:f32, 0.5:3>>
    %p = stablehlo.add %q, %q : tensor<3x5x!quant.uniform<i8:f32, 0.5:3>>
    %0 = stablehlo.uniform_dequantize %p : (tensor<3x5x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<3x5xf32>""", "3x5xf32"),
    Case("quantized_dot", "3x5xf32 5x7xf32",
         """%q = stablehlo.uniform_quantize %a : (tensor<3x5xf32>) -> tensor<3x5x!quant.uniform<i8:f32, 0.5:3>>
    %p = stablehlo.uniform_quantize %b : (tensor<5x7xf32>) -> tensor<5x7x!quant.uniform<i8:f32, 0.5>>
    %d = stablehlo.dot_general %q, %p, contracting_dims = [1] x [0]
        : (tensor<3x5x!quant.uniform<i8:f32, 0.5:3>>, tensor<5x7x!quant.uniform<i8:f32, 0.5>>) -> tensor<3x7x!quant.uniform<i8:f32, 0.25>>
    %0 = stablehlo.uniform_dequantize %d : (tensor<3x7x!quant.uniform<i8:f32, 0.25>>) -> tensor<3x7xf32>""", "3x7xf32"),
    Case("batch_norm", "3x5xE 5xE 5xE",
         '%0, %m, %v = "stablehlo.batch_norm_training"(%a, %b, %c) <{epsilon = 1.0 : f32, feature_index = 1 : i64}> '
         ": (tensor<3x5xE>, tensor<5xE>, tensor<5xE>) -> (tensor<3x5xE>, tensor<5xE>, tensor<5xE>)", "3x5xE"),
    Case("log_softmax", "3x5xE",
         """%z = stablehlo.constant dense<0.0> : tensor<E>
    %e = stablehlo.exponential %a : tensor<3x5xE>
    %s = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1] : (tensor<3x5xE>, tensor<E>) -> tensor<3xE>
    %l = stablehlo.log %s : tensor<3xE>
    %b = stablehlo.broadcast_in_dim %l, dims = [0] : (tensor<3xE>) -> tensor<3x5xE>
    %0 = stablehlo.subtract %a, %b : tensor<3x5xE>""", "3x5xE"),
    Case("reduce_with_if", "3x5xE xE",
         """%0 = "stablehlo.reduce"(%a, %b) <{dimensions = array<i64: 1>}> ({
    ^bb0(%l: tensor<E>, %r: tensor<E>):
      %p = stablehlo.compare LT, %l, %r : (tensor<E>, tensor<E>) -> tensor<i1>
      %o = "stablehlo.if"(%p) ({
        stablehlo.return %l : tensor<E>
      }, {
        %n = stablehlo.negate %r : tensor<E>
        stablehlo.return %n : tensor<E>
      }) : (tensor<i1>) -> tensor<E>
      stablehlo.return %o : tensor<E>
    }) : (tensor<3x5xE>, tensor<E>) -> tensor<3xE>""", "3xE"),
    Case("ragged_dot", "9x3xE 5x3x4xE 5xi64",
         '%0 = "chlo.ragged_dot"(%a, %b, %c) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], '
         "rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}> "
         ": (tensor<9x3xE>, tensor<5x3x4xE>, tensor<5xi64>) -> tensor<9x4xE>", "9x4xE"),
    Case("reshape_of_nothing", "7x0xE", "%0 = stablehlo.reshape %a : (tensor<7x0xE>) -> tensor<0x3xE>", "0x3xE"),
]  # fmt: skip
"""Cases whose extents are all different, so that each can be made 0 separately."""
COLLECTIVES = [
    Case("all_reduce", "3x5xE",
         """%0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<0> : tensor<1x1xi64>}> ({
    ^bb0(%l: tensor<E>, %r: tensor<E>):
      %o = stablehlo.add %l, %r : tensor<E>
      stablehlo.return %o : tensor<E>
    }) : (tensor<3x5xE>) -> tensor<3x5xE>""", "3x5xE"),
    Case("all_to_all", "3x5xE",
         '%0 = "stablehlo.all_to_all"(%a) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, '
         "replica_groups = dense<0> : tensor<1x1xi64>}> : (tensor<3x5xE>) -> tensor<3x5xE>", "3x5xE"),
    Case("all_gather", "3x5xE",
         '%0 = "stablehlo.all_gather"(%a) <{all_gather_dim = 1 : i64, replica_groups = dense<0> : tensor<1x1xi64>}> '
         ": (tensor<3x5xE>) -> tensor<3x5xE>", "3x5xE"),
    Case("reduce_scatter", "3x5xE",
         """%0 = "stablehlo.reduce_scatter"(%a) <{scatter_dimension = 1 : i64, replica_groups = dense<0> : tensor<1x1xi64>}> ({
    ^bb0(%l: tensor<E>, %r: tensor<E>):
      %o = stablehlo.add %l, %r : tensor<E>
      stablehlo.return %o : tensor<E>
    }) : (tensor<3x5xE>) -> tensor<3x5xE>""", "3x5xE"),
]  # fmt: skip
"""Collectives of one process: the operand."""
SINGLE = [*MOVES, *EQUAL, *ORDERED, *SUMS, *NUMBERS, *MORE]
_DIMENSION = re.compile(r"(?<=[<x])\d+(?=x)")
_NUMBER = re.compile(r"(?<![\w%.#])-?\d+(?![\w.])")


def tensor_text(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"


def function(case: Case, dtype: str) -> str:
    """Returns the case as a function of its parameters."""
    texts = [f"tensor<{word.removeprefix('x')}>" for word in case.parameters.split()]
    parameters = ", ".join(f"%{name}: {t}" for name, t in zip("abcdefg", texts, strict=False))
    result = f"tensor<{case.result.removeprefix('x')}>"
    body = f"func.func @main({parameters}) -> {result} {{\n{case.body}\nreturn %0 : {result}\n}}"
    return filled(body, DTYPES[dtype])


def emptied(text: str) -> Iterator[str]:
    """Yields the valid variants of the function with some extents 0, in the types only, and in its other numbers
    too."""
    extents = sorted({int(m[0]) for m in _DIMENSION.finditer(text)} - {0})
    seen: set[str] = set()
    for count in range(1, 4):
        for chosen in itertools.combinations(extents, count):
            words = set(map(str, chosen))
            in_types = _DIMENSION.sub(lambda m, words=words: "0" if m[0] in words else m[0], text)
            words.discard("1")  # this number counts loops down
            everywhere = _NUMBER.sub(lambda m, words=words: "0" if m[0] in words else m[0], in_types)
            for found in (in_types, everywhere):
                if found not in seen and not shlo_jit.verify(found):
                    seen.add(found)
                    yield found
    if "0x" in text:
        yield text


def surrounded(text: str) -> str:
    """Returns the function between transposes, reshapes and elementwise ops, on both sides."""
    (main,) = shlo_jit.parse(text).functions()
    types = main.attributes["function_type"].type
    assert isinstance(types, FunctionType)
    parameters, lines = [], []
    inputs, ((shape, dtype),) = (
        [(t.extents, t.storage.name) for t in listed if isinstance(t, TensorType)]
        for listed in (types.inputs, types.results)
    )
    for i, (extents, d) in enumerate(inputs):
        turned, whole = tensor_text(extents[::-1], d), tensor_text(extents, d)
        flat = tensor_text((0, 7) if 0 in extents else (int(np.prod(extents)), 1), d)
        dims = ", ".join(map(str, range(len(extents))[::-1]))
        parameters.append(f"%p{i}: {turned}")
        lines += [
            f"%q{i} = stablehlo.transpose %p{i}, dims = [{dims}] : ({turned}) -> {whole}",
            f"%s{i} = stablehlo.reshape %q{i} : ({whole}) -> {flat}",
            f"%t{i} = stablehlo.select %yes, %s{i}, %s{i} : tensor<i1>, {flat}",
            f"%u{i} = stablehlo.reshape %t{i} : ({flat}) -> {whole}",
        ]
    given, listed = ", ".join(f"%u{i}" for i in range(len(inputs))), ", ".join(tensor_text(*t) for t in inputs)
    whole, other = tensor_text(shape, dtype), (0, 5, 3) if 0 in shape else (1, int(np.prod(shape)))
    flat, turned = tensor_text(other, dtype), tensor_text(other[::-1], dtype)
    dims = ", ".join(map(str, range(len(other))[::-1]))
    lines += [
        f"%r = func.call @inner({given}) : ({listed}) -> {whole}",
        f"%x = stablehlo.reshape %r : ({whole}) -> {flat}",
        f"%y = stablehlo.select %yes, %x, %x : tensor<i1>, {flat}",
        f"%z = stablehlo.transpose %y, dims = [{dims}] : ({flat}) -> {turned}",
    ]
    head = f"func.func @main({', '.join(['%yes: tensor<i1>', *parameters])}) -> {turned} {{\n"
    inner = text.replace("func.func @main", "func.func private @inner")
    return head + "\n".join(lines) + f"\nreturn %z : {turned}\n}}\n{inner}"


def arguments(text: str) -> list[np.ndarray]:
    main = shlo_jit.parse(text).function("main")
    assert main is not None
    rng = np.random.default_rng(1)
    types = [a.tensor for a in main.block().arguments]
    return [rng.integers(0, 2, t.extents).astype(t.storage.numpy) for t in types]


def together(texts: list[str]) -> tuple[str, list[np.ndarray]]:
    """Returns one program that calls the main function of each, and its arguments."""
    functions, calls, parameters, names, results, arrays = [], [], [], [], [], []
    for k, text in enumerate(texts):
        main = shlo_jit.parse(text).function("main")
        assert main is not None
        types = main.attributes["function_type"].type
        inputs = [tensor_text(t.extents, t.storage.name) for t in types.inputs]
        (output,) = [tensor_text(t.extents, t.storage.name) for t in types.results]
        given = [f"%p{len(parameters) + i}" for i in range(len(inputs))]
        parameters += [f"{name}: {t}" for name, t in zip(given, inputs, strict=True)]
        calls.append(f"%r{k} = func.call @main{k}({', '.join(given)}) : ({', '.join(inputs)}) -> {output}")
        functions.append(re.sub(r"@(main|inner)\b", rf"@\g<1>{k}", text))
        names.append(f"%r{k}")
        results.append(output)
        arrays += arguments(text)
    head = f"func.func @main({', '.join(parameters)}) -> ({', '.join(results)}) {{\n"
    tail = f"\nreturn {', '.join(names)} : {', '.join(results)}\n}}\n"
    return head + "\n".join(calls) + tail + "\n".join(functions), arrays


def check(texts: list[str]) -> None:
    text, arrays = together(texts)
    want = evaluate(shlo_jit.parse(text), *arrays)
    got = shlo_jit.compile(text, cache=False, threads=2)(*arrays)
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    for source, g, w in zip(texts, got, want, strict=True):
        assert g.shape == w.shape, source
        np.testing.assert_array_equal(g, w, source)


@pytest.mark.parametrize("fused", [False, True], ids=["alone", "fused"])
def test_every_op(fused: bool) -> None:
    texts = [text for case in SINGLE for text in emptied(function(case, "f32"))]
    assert len(texts) > 200
    check([surrounded(text) for text in texts] if fused else texts)


def test_collectives() -> None:
    texts = [text for case in COLLECTIVES for text in emptied(function(case, "f32"))]
    text, arrays = together(texts)
    for got, given in zip(shlo_jit.compile(text, cache=False)(*arrays), arrays, strict=True):
        assert got.shape == given.shape
        np.testing.assert_array_equal(got, given)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i32", "i4", "bf16", "i1", "complex<f32>", "f8E4M3FN"])
def test_every_type(dtype: str) -> None:
    chosen = [*MOVES, *EQUAL, *SUMS]
    chosen += (
        [] if dtype.startswith("complex") else [c for c in ORDERED if c.name != "sort_as_payload" or dtype != "i1"]
    )
    chosen += BITS if dtype in ("i32", "i4", "i1") else []
    chosen = [c for c in chosen if dtype[0] != "c" or not c.name.startswith("select_and_scatter")]
    texts = [text for case in chosen for text in emptied(function(case, dtype))]
    check(texts)
    check([surrounded(text) for text in texts])
