"""Arguments of handlers: attributes, buffers of all types, tokens."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from ffi_programs import F4, X, call, capsule, compiled, program, simple

import shlo_jit
from shlo_jit.errors import ExecutionError
from shlo_jit.ir.types import DTYPES
from shlo_jit.runtime.ffi.structures import DATA_TYPES

AFFINE = 'scale = 2.0 : f32, shift = array<f64: 10.0, 20.0>, how = "plus"'


def test_attributes_of_a_handler(handlers: ctypes.CDLL) -> None:
    np.testing.assert_array_equal(simple(handlers, "affine", AFFINE)(X), [10, 22, 14, 26])
    minus = AFFINE.replace("plus", "minus").replace("2.0 : f32", "0.5 : f32")
    np.testing.assert_array_equal(simple(handlers, "affine", minus)(X), [-10, -19.5, -9, -18.5])


def test_given_by_name_by_address_by_capsule_and_by_stage(handlers: ctypes.CDLL) -> None:
    text, function = program(call("f")), handlers.increment
    address = ctypes.cast(function, ctypes.c_void_p).value
    for target in (function, address, capsule(function), {"execute": capsule(function)}, {"execute": address}):
        np.testing.assert_array_equal(compiled(text, {"f": target})(X), X + 1)
        shlo_jit.register_custom_call("f", target)
        np.testing.assert_array_equal(shlo_jit.compile(text)(X), X + 1)
        shlo_jit.register_custom_call("f", None)


def test_a_python_callable_is_no_handler() -> None:
    np.testing.assert_array_equal(compiled(program(call("f", "k = 3.0 : f32")), {"f": lambda x, k: x * k})(X), X * 3)


def described(handlers: ctypes.CDLL, text: str, *arguments: np.ndarray) -> str:
    with pytest.raises(ExecutionError) as caught:
        compiled(text, {"describe": handlers.describe})(*arguments)
    message = str(caught.value)
    head = "custom call 'describe' (line 2) failed in its stage execute: ABORTED: "
    assert message.startswith(head), message
    return message.removeprefix(head).removesuffix(";")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("b = true, a = 1 : i8, c = -3 : i16", "{a=(2)1 b=(1)true c=(3)-3}"),
        ("a = 7 : i32, b = -7 : i64, c = 3 : si32", "{a=(4)7 b=(5)-7 c=(4)3}"),
        ("a = 255 : ui8, b = 65535 : ui16, c = 1 : ui32, d = 18446744073709551615 : ui64",
         "{a=(6)255 b=(7)65535 c=(8)1 d=(9)18446744073709551615}"),
        ("a = 1.5 : f32, b = -2.5 : f64", "{a=(11)1.500000 b=(12)-2.500000}"),
        ('a = "text", b = "", c = "\\C3\\BC\\00x"', "{a='text' b='' c='ü"),
        ("a = array<i64: 1, 2>, b = array<f32: 0.5>, c = array<i8>", "{a=[(5)1,2] b=[(11)0.500000] c=[(2)]}"),
        ("a = dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>, b = dense<7> : tensor<3xi64>", "{a=[(4)1,2,3,4] b=[(5)7,7,7]}"),
        ("e = {z = 1 : i64, y = {x = \"deep\"}}, d = {}", "{d={} e={y={x='deep'} z=(5)1}}"),
        ("Z = 1 : i64, _a = 1 : i64, a = 1 : i64, aa = 1 : i64, B = 1 : i64",
         "{B=(5)1 Z=(5)1 _a=(5)1 a=(5)1 aa=(5)1}"),
    ],
)  # fmt: skip
def test_attributes_are_typed_and_sorted_by_name(handlers: ctypes.CDLL, config: str, expected: str) -> None:
    assert described(handlers, program(call("describe", config)), X).startswith(f"(11[4]){expected}")


def test_the_older_name_of_the_dictionary(handlers: ctypes.CDLL) -> None:
    text = program(call("describe", more=", mhlo.backend_config = {a = 1 : i32}"))
    assert described(handlers, text, X) == "(11[4]){a=(4)1}(11[4])"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("a = [1 : i64]", r"attribute 'a' = \[1 : i64\]: handlers can be given numbers, strings"),
        ("a = unit", "attribute 'a' = unit"),
        ("a = i32", "attribute 'a' = i32"),
        ("a = @f", "attribute 'a' = @f"),
        ("e = {a = i32}", "in 'e', attribute 'a' = i32"),
        ("a = 1 : i128", "attribute 'a' of type i128"),
    ],
)
def test_attributes_no_handler_is_given(handlers: ctypes.CDLL, config: str, message: str) -> None:
    with pytest.raises(ExecutionError, match=rf"custom call 'describe' \(line 2\): {message}"):
        compiled(program(call("describe", config)), {"describe": handlers.describe})


def test_tokens_and_layouts(handlers: ctypes.CDLL) -> None:
    """Extents are the program's, whatever the layout; tokens are at their positions."""
    token = "!stablehlo.token"
    layouts = (
        ", operand_layouts = [dense<> : tensor<0xindex>, dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>], "
        "result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]"
    )
    types = f"({token}, tensor<2x3xf32>, {token}) -> (tensor<3x2xi8>, {token})"
    body = call("describe", operands="%t, %x, %t", types=types, more=layouts, result="%r:2")
    text = program(
        "%t = stablehlo.create_token : !stablehlo.token " + body.lstrip("\n"),
        "%x: tensor<2x3xf32>",
        "tensor<3x2xi8>",
        "%r#0",
    )
    assert described(handlers, text, np.zeros((2, 3), np.float32)) == "(17[] 11[2,3] 17[]){}(2[3,2] 17[])"


def test_tokens_in_order(handlers: ctypes.CDLL) -> None:
    types = f"({F4}, !stablehlo.token) -> ({F4}, !stablehlo.token)"
    body = "  %t = stablehlo.create_token : !stablehlo.token\n"
    body += call("f", operands="%x, %t", types=types, result="%a:2", more=", has_side_effect = true")
    body += call("f", operands="%a#0, %a#1", types=types, result="%b:2", more=", has_side_effect = true")
    exe = compiled(program(body, returned="%b#0"), {"f": handlers.add_one_in_order})
    np.testing.assert_array_equal(exe(X), X + 2)


def test_column_major_operands(handlers: ctypes.CDLL) -> None:
    """The handler reads the elements in the order of the layout."""
    layouts = ", operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<0> : tensor<1xindex>]"
    body = call("row_sums", types="(tensor<2x3xf32>) -> tensor<2xf32>", more=layouts)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    exe = compiled(program(body, "%x: tensor<2x3xf32>", "tensor<2xf32>"), {"row_sums": handlers.row_sums})
    np.testing.assert_array_equal(exe(x), x.T.reshape(2, 3).sum(1))


def test_several_buffers(handlers: ctypes.CDLL) -> None:
    types = "(tensor<4xf32>, tensor<2x3xi8>, tensor<f64>, tensor<0x5xi32>)"
    body = call("copy", operands="%a, %b, %c, %d", types=f"{types} -> {types}", result="%r:4")
    arguments = "%a: tensor<4xf32>, %b: tensor<2x3xi8>, %c: tensor<f64>, %d: tensor<0x5xi32>"
    exe = compiled(program(body, arguments, types, "%r#0, %r#1, %r#2, %r#3"), {"copy": handlers.copy})
    given = X, np.arange(6, dtype=np.int8).reshape(2, 3), np.float64(2.5), np.zeros((0, 5), np.int32)
    for result, expected in zip(exe(*given), given, strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", [n for n in DATA_TYPES if n != "index"])
def test_every_element_type(handlers: ctypes.CDLL, name: str) -> None:
    types = f"(tensor<2x3x{name}>) -> tensor<2x3x{name}>"
    arguments, result = f"%x: tensor<2x3x{name}>", f"tensor<2x3x{name}>"
    values = [0, 1, 1, 0, 1, 1] if name in ("i1", "i2", "ui2", "f8E8M0FNU", "f4E2M1FN") else [0, 1, 2, 3, 4, 5]
    x = np.array(values, np.float32).astype(DTYPES[name].numpy).reshape(2, 3)
    body = call("describe", types=types)
    number = DATA_TYPES[name]
    assert described(handlers, program(body, arguments, result), x) == f"({number}[2,3]){{}}({number}[2,3])"
    exe = compiled(program(call("copy", types=types), arguments, result), {"copy": handlers.copy})
    copied = exe(x)
    assert copied.dtype == x.dtype
    assert copied.tobytes() == x.tobytes()


@pytest.mark.parametrize("name", ["f6E2M3FN", "f6E3M2FN"])
def test_element_types_that_handlers_do_not_know(handlers: ctypes.CDLL, name: str) -> None:
    text = program(
        call("copy", types=f"(tensor<2x{name}>) -> tensor<2x{name}>"), f"%x: tensor<2x{name}>", f"tensor<2x{name}>"
    )
    with pytest.raises(ExecutionError, match=rf"'copy' \(line 2\).*{name}"):
        compiled(text, {"copy": handlers.copy})


def test_many_operands(handlers: ctypes.CDLL) -> None:
    n = 3000
    one = "tensor<f32>"
    types = f"({', '.join([one] * n)})"
    operands = ", ".join(["%x"] * n)
    body = call("copy", operands=operands, types=f"{types} -> {types}", result=f"%r:{n}")
    exe = compiled(program(body, f"%x: {one}", one, f"%r#{n - 1}"), {"copy": handlers.copy})
    assert exe(np.float32(7)) == 7


def test_an_aliased_operand_is_the_result(handlers: ctypes.CDLL) -> None:
    alias = (
        ", output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, "
        "operand_tuple_indices = []>]"
    )
    exe = compiled(program(call("increment", more=alias)), {"increment": handlers.increment})
    x = X.copy()
    np.testing.assert_array_equal(exe(x), X + 1)
    np.testing.assert_array_equal(x, X)
