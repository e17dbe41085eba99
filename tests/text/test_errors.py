"""Syntax errors: message, line and column."""

from __future__ import annotations

import time

import pytest

from shlo_jit import verify
from shlo_jit.errors import ParseError
from shlo_jit.text.parser import parse_module

HEADER = "func.func @f(%x: tensor<3xf32>, %m: tensor<3x3xf32>, %s: tensor<f32>) {\n"

# line of the program after the header; column and a part of the message
CASES = [
    ("%0 = stablehlo.add %x, %y : tensor<3xf32>", 24, "use of undeclared SSA value name '%y'"),
    ("%x = stablehlo.add %x, %x : tensor<3xf32>", 1, "redefinition of SSA value '%x'"),
    ("%0, %1 = stablehlo.add %x, %x : tensor<3xf32>", 1, "operation defines 1 results but was provided 2 to bind"),
    ("%0 = stablehlo.add %x, %m : tensor<3xf32>", 24,
     "use of value '%m' expects different type than prior uses: 'tensor<3xf32>' vs 'tensor<3x3xf32>'"),
    ("%0 = stablehlo.add %x %x : tensor<3xf32>", 23, "expected ',', found '%x'"),
    ("%0 = stablehlo.add %x : tensor<3xf32>", 23, "expected ','"),
    ("%0 = stablehlo.add %x, %x : (tensor<3xf32>) -> tensor<3xf32>", 29, "2 operands present, but expected 1"),
    ('"builtin.module"() : () -> ()', 1, "a module must have one region with one block"),
    ("%0 = stablehlo.add %x, %x : tensor<3xfoo>", 38, "unknown element type 'foo'"),
    ("%0 = stablehlo.add %x, %x : tensr<3xf32>", 29, "expected non-function type, found unknown type 'tensr'"),
    ("%0 = stablehlo.add %x, %x : !foo", 29, "type alias '!foo' is not defined"),
    ("%0 = stablehlo.add %x, %x : !stablehlo.foo", 29, "unknown type `foo` in dialect `stablehlo`"),
    ("%0 = stablehlo.add %x, %x : !chlo.foo<2>", 29, "unknown type `foo` in dialect `chlo`"),
    ("%0 = stablehlo.abs %x {a = #stablehlo.foo<1>} : tensor<3xf32>", 28, "unknown attribute `foo` in dialect `stablehlo`"),
    ("%0 = stablehlo.abs %x {a = #stablehlo<foo BAR>} : tensor<3xf32>", 39, "unknown attribute `foo` in dialect `stablehlo`"),
    ("%0 = stablehlo.abs %d : tensor<?x3xf32, #stablehlo.bounds<3>>", 40,
     "Bounds length is 1, expected to be equal to rank(2) of the tensor"),
    ("%0 = stablehlo.abs %d : tensor<?x3xf32, #stablehlo.type_extensions<bounds = [2, 3]>>", 40,
     "Static dimension 1 cannot have a bound"),
    ("%0 = stablehlo.add %x, %x : tensor<99999999999999999999xf32>", 36, "must fit 64 bits"),
    (f"%0 = stablehlo.add %x, %x : tensor<{'1x' * 65}f32>", 166, "a tensor may have at most 64 dimensions, found 65"),
    ("%0 = stablehlo.foo %x : tensor<3xf32>", 6, "expected an operation, found 'stablehlo.foo'"),
    ("%0 = stablehlo.compare LTT, %x, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>", 24,
     "expected ::mlir::stablehlo::ComparisonDirection to be one of: EQ, NE, GE, GT, LE, LT, found 'LTT'"),
    ("%0 = stablehlo.select %s, %x, %x : tensor<f32>", 36, "expected functional type or list of two types"),
    ("%0 = stablehlo.transpose %m, dim = [1, 0] : (tensor<3x3xf32>) -> tensor<3x3xf32>", 30, "expected 'dims'"),
    ("%0 = stablehlo.slice %x [0] : (tensor<3xf32>) -> tensor<1xf32>", 25, "expected '[', found '[0]'"),
    ("%0 = stablehlo.slice %x [0:a] : (tensor<3xf32>) -> tensor<1xf32>", 28, "expected an integer, found 'a'"),
    ("%0 = stablehlo.reduce_precision %x, format = f16 : tensor<3xf32>", 46,
     "expected exponent mantissa in format e#m#, saw f16"),
    ("%0 = stablehlo.reduce(%x init: %s) applies stablehlo.subtract across dimensions = [0]"
     " : (tensor<3xf32>, tensor<f32>) -> tensor<f32>", 44, "expected the inner-op to be a commutative binary-op"),
    ("%0 = stablehlo.convolution(%m, %m) dim_numbers = [b, f]x[i, o]->[b], window = {}"
     " : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>", 65, "Expected dimensions f not specified"),
    ("%0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<3xf32>", 31, "expected 3 elements, found 2"),
    ("%0 = stablehlo.constant dense<[[1.0], [2.0, 3.0]]> : tensor<3x1xf32>", 32,
     "inferred shape of elements literal does not match type ([3, 1])"),
    ("%0 = stablehlo.constant dense<1> : tensor<3xf32>", 31,
     "expected floating-point elements of type f32, but parsed '1'"),
    ("%0 = stablehlo.constant dense<[1, 2.5]> : tensor<2xi32>", 35, "expected integer elements of type i32"),
    ("%0 = stablehlo.constant dense<300> : tensor<i8>", 31, "integer constant out of range for type i8: 300"),
    ("%0 = stablehlo.constant dense<-1> : tensor<ui8>", 31, "integer constant out of range for type ui8: -1"),
    ("%0 = stablehlo.constant dense<> : tensor<2xi32>", 25, "parsed zero elements, but type expected at least 2"),
    ("%0 = stablehlo.constant dense<\"0x00\"> : tensor<2xf32>", 31, "elements hex data size is invalid"),
    ("%0 = stablehlo.constant dense<\"0xzz\"> : tensor<2xf32>", 31, "hex digits"),
    ("%0 = stablehlo.constant dense<1> : tensor<?xi32>", 25, "elements literal type must have static shape"),
    ("%0 = stablehlo.constant dense<1.0> : tensor<2xcomplex<f32>>", 31, "expected a complex number"),
    ("%0 = stablehlo.constant 1 : i32", 25, "expected a 'dense' literal as the value of a constant"),
    ("%0 = stablehlo.abs %x {a = 1, a = 2} : tensor<3xf32>", 31, "duplicate key 'a' in dictionary attribute"),
    ("%0 = stablehlo.abs %x {a = 300 : i8} : tensor<3xf32>", 28, "integer constant out of range for attribute"),
    ("%0 = stablehlo.abs %x {a = array<i8: 300>} : tensor<3xf32>", 28, "'300' is not an element of type i8"),
    ("%0 = stablehlo.abs %x {a = #foo} : tensor<3xf32>", 28, "attribute alias '#foo' is not defined"),
    ("%0 = stablehlo.abs %x {a = #stablehlo<precision FOO>} : tensor<3xf32>", 49,
     "expected ::mlir::stablehlo::Precision to be one of: DEFAULT, HIGH, HIGHEST"),
    ("%0 = stablehlo.abs %x {a = #stablehlo.channel_handle<handle = 1>} : tensor<3xf32>", 53, "has no field 'type'"),
    ("%0 = stablehlo.abs %x {a = @} : tensor<3xf32>", 28, "expected attribute value, found the invalid character '@'"),
    ('%0 = stablehlo.abs %x {a = "foo} : tensor<3xf32>', 28, "a string that is not closed"),
    ("%0 = stablehlo.abs %x \x00 : tensor<3xf32>", 23, "the invalid character '\\x00'"),
    ('%0 = "stablehlo.add"(%x, %x) : (tensor<3xf32>) -> tensor<3xf32>', 22, "got 2 operands and 1 types"),
    ('%0 = "add"(%x) : (tensor<3xf32>) -> tensor<3xf32>', 6, '"add" is not the name of an operation'),
    ('%0 = "stablehlo.abs"(%x) {a = [1, {b = <} : (tensor<3xf32>) -> tensor<3xf32>', 40, "expected attribute value"),
    ("^bb0:\n^bb0:", 1, "expected '}' or"),
]  # fmt: skip


def refusal(text: str | bytes) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_module(text, "t.mlir")
    return caught.value


@pytest.mark.parametrize(("line", "column", "message"), CASES[:-1])
def test_message_and_place(line: str, column: int, message: str) -> None:
    error = refusal(HEADER + line + "\n  return\n}\n")
    assert message in error.diagnostics[0].message
    assert (error.line, error.column) == (2, column)
    assert error.diagnostics[0].file == "t.mlir"
    assert error.diagnostics[0].source_line == line


def test_text_with_caret() -> None:
    error = refusal(HEADER + "  %0 = stablehlo.add %x, %y : tensor<3xf32>\n}")
    assert str(error) == (
        "t.mlir:2:26: error: use of undeclared SSA value name '%y'\n"
        "    %0 = stablehlo.add %x, %y : tensor<3xf32>\n"
        "                           ^^\n"
        "  hint: values that are defined here: %x, %m, %s"
    )


def test_an_op_without_a_pretty_form() -> None:
    text = (
        "func.func @main(%a: tensor<?xf32>, %s: tensor<1xi64>) {\n  %0 = chlo.dynamic_reshape %a, %s : tensor<?xf32>\n}"
    )
    (found,) = verify(text)
    assert found.hint.startswith('chlo.dynamic_reshape has the generic form only: "chlo.dynamic_reshape"(...)')


def test_grammar_adds_what_else_is_possible() -> None:
    error = refusal(HEADER + "  %0 = stablehlo.add %x, %x foo tensor<3xf32>\n}")
    assert error.diagnostics[0].message == "expected ':', found 'foo' (the grammar also allows '{')"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("func.func @f() {\n", (1, 17), "the region at line 1 is not closed"),
        ("module {\n  func.func @f(", (2, 16), "found the end of the text"),
        ("}", (1, 1), "expected operation name in quotes or an operation"),
        ("func.func @f() {\n  return\n}}", (3, 2), "expected operation name in quotes or an operation"),
        ("func.func @f(%a: tensor<f32>, %a: tensor<f32>) {\n}", (1, 31), "redefinition of SSA value '%a'"),
        ("func.func @f() {\n^a:\n  return\n^a:\n  return\n}", (4, 1), "block '^a' is defined twice"),
        ('func.func @f() {\n  "a.b"() ({\n    %0 = stablehlo.replica_id : tensor<ui32>\n  }) : () -> ()\n'
         "  return %0 : tensor<ui32>\n}", (5, 10), "use of undeclared SSA value name '%0'"),
        ("func.func @f() {\n  %0:2 = stablehlo.replica_id : tensor<ui32>\n}", (2, 3), "operation defines 1 results"),
        ("#a = 1\n#a = 2", (2, 1), "alias '#a' is defined twice"),
        ("{-#\n", (1, 1), "'{-#' is not closed"),
        ("func.func @f() {\n  %0 = stablehlo.constant dense_resource<r> : tensor<3xf32>\n}", (2, 27),
         "resource 'r' is not defined"),
        (b"func.func @f() {\n  \xff\xfe", (2, 3), "the text is not UTF-8"),
    ],
)  # fmt: skip
def test_whole_programs(text: str | bytes, place: tuple[int, int], message: str) -> None:
    error = refusal(text)
    assert message in error.diagnostics[0].message
    assert (error.line, error.column) == place


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "func.func @f() attributes {a = " + "[" * 100_000,
        "func.func @f() attributes {a = " + "{a = " * 100_000,
        "func.func @f(%a: " + "tuple<" * 100_000,
        "func.func @f(%a: " + "tensor<" * 100_000,
        "func.func @f(%a: " + "(" * 100_000,
        '"a.b"() ({' * 100_000,
        "module {" * 100_000,
        '"' + '\\"' * 500_000,
        'dense<"' * 100_000,
        "func.func @f() attributes {a = " + "9" * 1_000_000 + "}",
        "func.func @f() attributes {a = " + "9" * 1_000_000 + ".0}",
        "func.func @f() attributes {a = dense<" + "9" * 1_000_000 + "> : tensor<i32>}",
        "func.func @f() attributes {a = array<i64: " + "9" * 1_000_000 + ">}",
        "func.func @f() attributes {a = [" + "9" * 1_000_000 + "]}",
        "func.func @f() attributes {a = dense<[1, 2]> : tensor<1000000000x1000000000xi32>}",
        "func.func @f(%a: tensor<" + "1x" * 200_000 + "f32>) {",
        "#a = #foo<" + "<" * 100_000,
        "loc(" * 100_000,
        "/ " * 500_000,
        "%" * 100_000,
        "%0:" + "9" * 100_000 + ' = "a.b"() : () -> ()',
        "%0:999999999999 = stablehlo.replica_id : tensor<ui32>",
    ],
    ids=lambda text: f"{text[:30]}_{len(text)}",
)
def test_hostile_texts_are_refused_in_time(text: str) -> None:
    start = time.process_time()
    error = refusal(text)
    assert time.process_time() - start < 2.0
    diagnostic = error.diagnostics[0]
    lines = text.split("\n")
    assert 1 <= diagnostic.line <= len(lines)
    assert 1 <= diagnostic.column <= len(lines[diagnostic.line - 1]) + 1
    assert len(str(error)) < 2000


def test_a_huge_splat_takes_no_memory() -> None:
    text = "func.func @f() {\n  %0 = stablehlo.constant dense<1.0> : tensor<1000000000x1000000000xf32>\n  return\n}"
    op = next(parse_module(text).functions()).block().ops[0]
    assert op.constant.is_splat
    assert op.constant.array.strides == (0, 0)
