"""Before and after simplify, inline and canonical dots. Each pass leaves its own result unchanged when it runs
again."""

from __future__ import annotations

import numpy as np
import pytest
from alone import after

import shlo_jit
from shlo_jit.ir.core import Op, walk
from shlo_jit.ir.types import DTYPES
from shlo_jit.passes.canonical.canonical_dots import canonical_dots
from shlo_jit.passes.simplify import simplify


def names(function: Op) -> list[str]:
    return [o.name.partition(".")[2] for o in walk(function.block())]


def one(body: str, types: str = "(%x: tensor<4xf32>) -> tensor<4xf32>") -> str:
    return f"func.func @main{types} {{\n{body}\n}}"


CASES = {
    "reshape to the same type": ("%0 = stablehlo.reshape %x : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>", ["return"]),
    "two reshapes": (
        "%0 = stablehlo.reshape %x : (tensor<4xf32>) -> tensor<2x2xf32>\n"
        "%1 = stablehlo.reshape %0 : (tensor<2x2xf32>) -> tensor<4xf32>\nreturn %1 : tensor<4xf32>",
        ["return"],
    ),
    "times one": (
        "%c = stablehlo.constant dense<1.0> : tensor<4xf32>\n"
        "%0 = stablehlo.multiply %x, %c : tensor<4xf32>\nreturn %0 : tensor<4xf32>",
        ["return"],
    ),
    "plus zero stays: -0 + 0 is 0": (
        "%c = stablehlo.constant dense<0.0> : tensor<4xf32>\n"
        "%0 = stablehlo.add %x, %c : tensor<4xf32>\nreturn %0 : tensor<4xf32>",
        ["constant", "add", "return"],
    ),
    "plus -0": (
        "%c = stablehlo.constant dense<-0.0> : tensor<4xf32>\n"
        "%0 = stablehlo.add %c, %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>",
        ["return"],
    ),
    "the greatest of x and -infinity": (
        "%c = stablehlo.constant dense<0xFF800000> : tensor<4xf32>\n"
        "%0 = stablehlo.maximum %c, %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>",
        ["return"],
    ),
    "the greatest of x and x": ("%0 = stablehlo.maximum %x, %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>", ["return"]),
    "minus 0": (
        "%c = stablehlo.constant dense<0.0> : tensor<4xf32>\n"
        "%0 = stablehlo.subtract %x, %c : tensor<4xf32>\nreturn %0 : tensor<4xf32>",
        ["return"],
    ),
    "minus -0 stays: -0 - -0 is 0": (
        "%c = stablehlo.constant dense<-0.0> : tensor<4xf32>\n"
        "%0 = stablehlo.subtract %x, %c : tensor<4xf32>\nreturn %0 : tensor<4xf32>",
        ["constant", "subtract", "return"],
    ),
    "0 minus x stays": (
        "%c = stablehlo.constant dense<0.0> : tensor<4xf32>\n"
        "%0 = stablehlo.subtract %c, %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>",
        ["constant", "subtract", "return"],
    ),
    "the root of a complex constant stays: it is not exact": (
        "%c = stablehlo.constant dense<(1.0, 2.0)> : tensor<complex<f32>>\n"
        "%0 = stablehlo.sqrt %c : tensor<complex<f32>>\n%1 = stablehlo.real %0 : (tensor<complex<f32>>) -> tensor<f32>\n"
        "%2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<4xf32>\nreturn %2 : tensor<4xf32>",
        ["constant", "sqrt", "real", "broadcast_in_dim", "return"],
    ),
    "a part of a constant": (
        "%c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0]> : tensor<5xf32>\n"
        "%i = stablehlo.constant dense<1> : tensor<i32>\n"
        "%0 = stablehlo.dynamic_slice %c, %i, sizes = [4] : (tensor<5xf32>, tensor<i32>) -> tensor<4xf32>\n"
        "return %0 : tensor<4xf32>",
        ["constant", "return"],
    ),
    "equal ops": (
        "%0 = stablehlo.tanh %x : tensor<4xf32>\n%1 = stablehlo.tanh %x : tensor<4xf32>\n"
        "%2 = stablehlo.add %0, %1 : tensor<4xf32>\nreturn %2 : tensor<4xf32>",
        ["tanh", "add", "return"],
    ),
    "equal reductions": (
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        + "".join(
            f"%{k} = stablehlo.reduce(%x init: %z) applies stablehlo.{op} across dimensions = [0]"
            " : (tensor<4xf32>, tensor<f32>) -> tensor<f32>\n"
            for k, op in enumerate(("add", "add", "maximum"))
        )
        + "%3 = stablehlo.subtract %0, %1 : tensor<f32>\n%4 = stablehlo.add %3, %2 : tensor<f32>\n"
        "%5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<4xf32>\nreturn %5 : tensor<4xf32>",
        ["constant", "reduce", "add", "return", "reduce", "maximum", "return", "subtract", "add",
         "broadcast_in_dim", "return"],
    ),
    "dead ops": ("%0 = stablehlo.tanh %x : tensor<4xf32>\nreturn %x : tensor<4xf32>", ["return"]),
    "constants": (
        "%a = stablehlo.constant dense<2.0> : tensor<f32>\n%b = stablehlo.constant dense<3.0> : tensor<f32>\n"
        "%0 = stablehlo.multiply %a, %b : tensor<f32>\n"
        "%1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
        "%2 = stablehlo.add %x, %1 : tensor<4xf32>\nreturn %2 : tensor<4xf32>",
        ["constant", "add", "return"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_simplify(case: str) -> None:
    body, want = CASES[case]
    assert names(after(one(body), simplify)) == want
    assert names(after(one(body), simplify, simplify)) == want


def test_invariant_state_leaves_the_loop() -> None:
    body = """
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %n = stablehlo.constant dense<10> : tensor<i32>
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %c : tensor<i32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>"""
    function = after(one(body), simplify)
    assert function.block().terminator.operands == function.block().arguments


def test_folded_values_have_the_bits_of_run_time() -> None:
    text = one(
        "%a = stablehlo.constant dense<[1.5, -0.0, 3.0e38, 1.0e-45]> : tensor<4xf32>\n"
        "%b = stablehlo.constant dense<[7.0, 2.0, 10.0, 0.5]> : tensor<4xf32>\n"
        "%0 = stablehlo.divide %a, %b : tensor<4xf32>\n%1 = stablehlo.multiply %a, %b : tensor<4xf32>\n"
        "return %0, %1 : tensor<4xf32>, tensor<4xf32>",
        "() -> (tensor<4xf32>, tensor<4xf32>)",
    )
    assert names(after(text, simplify)) == ["constant", "constant", "return"]
    open_text = one(
        "%0 = stablehlo.divide %a, %b : tensor<4xf32>\n%1 = stablehlo.multiply %a, %b : tensor<4xf32>\n"
        "return %0, %1 : tensor<4xf32>, tensor<4xf32>",
        "(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)",
    )
    a = np.array([1.5, -0.0, 3.0e38, 1.0e-45], np.float32)
    b = np.array([7.0, 2.0, 10.0, 0.5], np.float32)
    folded = shlo_jit.compile(text, cache=False)()
    computed = shlo_jit.compile(open_text, cache=False)(a, b)
    assert [f.tobytes() for f in folded] == [c.tobytes() for c in computed]


def test_calls_are_inlined() -> None:
    text = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = call @twice(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func private @twice(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
    assert names(after(text)) == ["add", "add", "return"]


def test_narrow_products_accumulate_in_f32() -> None:
    t = "tensor<16x16xbf16>"
    body = f"%0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}\nreturn %0 : {t}"
    function = after(one(body, f"(%x: {t}) -> {t}"), canonical_dots)
    assert names(function) == ["dot_general", "convert", "return"]
    assert function.block().ops[0].result.tensor.storage.name == "f32"


def test_a_transposed_operand_is_read_in_place() -> None:
    t = "tensor<20x15xf32>"
    body = (
        f"%0 = stablehlo.transpose %x, dims = [1, 0] : ({t}) -> tensor<15x20xf32>\n"
        f"%1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] : ({t}, tensor<15x20xf32>) -> tensor<20x20xf32>\n"
        "return %1 : tensor<20x20xf32>"
    )
    function = after(one(body, f"(%x: {t}) -> tensor<20x20xf32>"), canonical_dots, simplify)
    assert "transpose" not in names(function)


@pytest.mark.parametrize(
    ("first", "between", "second", "left"),
    [
        ([1, 0, 2], None, [1, 0, 2], set()),
        ([1, 2, 0], None, [1, 0, 2], {"transpose"}),
        ([0, 2, 1], (1, 3, 5, 4), [0, 1, 3, 2], {"reshape"}),
        ([0, 2, 1], (3, 1, 5, 1, 4), [3, 0, 4, 1, 2], {"reshape"}),
        ([0, 2, 1], (3, 5, 2, 2), [0, 2, 1, 3], {"transpose", "reshape"}),
    ],
)
def test_transposes_of_transposes(
    first: list[int], between: tuple[int, ...] | None, second: list[int], left: set[str]
) -> None:
    """They are merged or removed, also around a reshape that only adds dimensions of extent 1."""

    def t(shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}xf32>"

    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    moved = x.transpose(first)
    shaped = moved if between is None else moved.reshape(between)
    want = shaped.transpose(second)
    body = f"%0 = stablehlo.transpose %x, dims = {first} : ({t(x.shape)}) -> {t(moved.shape)}\n"
    if between is not None:
        body += f"%1 = stablehlo.reshape %0 : ({t(moved.shape)}) -> {t(shaped.shape)}\n"
    body += f"%2 = stablehlo.transpose %{0 if between is None else 1}, dims = {second} : "
    body += f"({t(shaped.shape)}) -> {t(want.shape)}\nreturn %2 : {t(want.shape)}"
    text = one(body, f"(%x: {t(x.shape)}) -> {t(want.shape)}")
    found = names(after(text, simplify))
    assert set(found) - {"return"} == left
    assert found.count("transpose") == (2 if between == (3, 5, 2, 2) else len(left & {"transpose"}))
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x), want)


@pytest.mark.parametrize("reducer", ["add", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["i8", "ui8", "i32"])
def test_integers_of_constants_are_reduced(reducer: str, dtype: str) -> None:
    """Of any number of elements, since weights are summed for zero points; with the same bits as at run time."""
    rng = np.random.default_rng(3)
    data = rng.integers(0, 128, (300, 5))
    t, r = f"tensor<300x5x{dtype}>", f"tensor<5x{dtype}>"
    rows = ", ".join(f"[{', '.join(map(str, row))}]" for row in data)
    sums = f"""%i = stablehlo.constant dense<7> : tensor<{dtype}>
%0 = stablehlo.reduce(%c init: %i) applies stablehlo.{reducer} across dimensions = [0] : ({t}, tensor<{dtype}>) -> {r}
return %0 : {r}"""
    text = one(f"%c = stablehlo.constant dense<[{rows}]> : {t}\n{sums}", f"() -> {r}")
    assert names(after(text, simplify)) == ["constant", "return"]
    computed = shlo_jit.compile(one(sums, f"(%c: {t}) -> {r}"), cache=False)(data.astype(DTYPES[dtype].numpy))
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(), computed)


@pytest.mark.parametrize("reducer", ["add", "maximum", "minimum", "and"])
@pytest.mark.parametrize("shape, dimension, left", [("5x0", 1, "5x"), ("0x3", 1, "0x"), ("0", 0, "")])
def test_empty_constants_are_reduced(reducer: str, shape: str, dimension: int, left: str) -> None:
    t, r = f"tensor<{shape}xi32>", f"tensor<{left}i32>"
    text = one(
        f"%i = stablehlo.constant dense<7> : tensor<i32>\n"
        f"%0 = stablehlo.reduce(%c init: %i) applies stablehlo.{reducer} across dimensions = [{dimension}]"
        f" : ({t}, tensor<i32>) -> {r}\nreturn %0 : {r}",
        f"(%c: {t}) -> {r}",
    )
    found = shlo_jit.compile(text, cache=False)(np.zeros([int(n) for n in shape.split("x")], np.int32))
    np.testing.assert_array_equal(found, np.full(found.shape, 7))


def test_each_body_counts_its_own_iota() -> None:
    """An iota of the function that a loop reads, and an equal one in its body: one op in each block."""
    text = one("""%i = stablehlo.iota dim = 0 : tensor<4xi32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %w:2 = stablehlo.while(%k = %zero, %s = %i) : tensor<i32>, tensor<4xi32>
    cond {
      %n = stablehlo.constant dense<9> : tensor<i32>
      %go = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %k, %one : tensor<i32>
      %j = stablehlo.iota dim = 0 : tensor<4xi32>
      %a = stablehlo.multiply %s, %i : tensor<4xi32>
      %b = stablehlo.subtract %a, %j : tensor<4xi32>
      stablehlo.return %next, %b : tensor<i32>, tensor<4xi32>
    }
    return %w#1 : tensor<4xi32>""", "() -> tensor<4xi32>")
    function = after(text, simplify)
    (loop,) = (op for op in function.block().ops if op.name == "stablehlo.while")
    body = loop.block(1)
    assert [op.name for op in function.block().ops].count("stablehlo.iota") == 1
    (own,) = (op for op in body.ops if op.name == "stablehlo.iota")
    assert all(own.result in op.operands for op in body.ops if op.name.endswith(("multiply", "subtract")))
