"""Rules for every op and for whole modules (`GENERAL` of the registry): a valid and an invalid program for each."""

from __future__ import annotations

import pytest

import shlo_jit
from shlo_jit.ir.core import Block, Module, Op, Region
from shlo_jit.ir.types import F32, tensor
from shlo_jit.ops.constraints import GENERAL
from shlo_jit.text.parser import parse_module
from shlo_jit.verify.verifier import verify_module


def labels(text: str) -> list[str]:
    return [d.label for d in shlo_jit.verify(text)]


def messages(text: str, **options: bool) -> list[str]:
    return [d.message for d in verify_module(parse_module(text), **options)]


def in_function(ops: str, arguments: str = "%a: tensor<2xf32>, %v: tensor<f32>") -> str:
    return f"func.func @main({arguments}) {{\n{ops}\nfunc.return\n}}"


REDUCE = """%0 = "stablehlo.reduce"(%a, %v) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    stablehlo.return %x : tensor<f32>
}) {dimensions = array<i64: 0>} : (tensor<2xf32>, tensor<f32>) -> tensor<f32>"""
CALL = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = func.call @helper(%x) : (tensor<f32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}
func.func private @helper(%x: tensor<f32>) -> tensor<f32> {
  func.return %x : tensor<f32>
}"""
ABS = '%0 = "stablehlo.abs"(%a) : (tensor<2xf32>) -> tensor<2xf32>'
PAIRS = {
    "count": (in_function(ABS), in_function(ABS.replace("(%a)", "(%a, %a)").replace("(t", "(tensor<2xf32>, t"))),
    "type": (in_function(ABS), in_function(ABS.replace("f32", "ui8"), "%a: tensor<2xui8>")),
    "attribute": (in_function(REDUCE), in_function(REDUCE.replace("array<i64: 0>", "0.5"))),
    "region": (in_function(REDUCE), in_function(REDUCE.replace("stablehlo.return", "func.return"))),
    "terminator": (CALL, CALL.replace("func.return %0 : tensor<f32>", "")),
    "symbol": (CALL, CALL.replace("call @helper", "call @helpr")),
    "recursion": (CALL, CALL.replace("func.return %x", "%1 = func.call @main(%x) : (tensor<f32>) -> tensor<f32>\n"
                                     "func.return %1")),
    "unknown": (in_function(ABS), in_function(ABS.replace("abs", "absolute"))),
}  # fmt: skip


def test_every_general_rule_has_tests() -> None:
    assert set(PAIRS) | {"dominance"} == set(GENERAL)


@pytest.mark.parametrize("label", PAIRS)
def test_general(label: str) -> None:
    good, bad = PAIRS[label]
    assert labels(good) == []
    assert labels(bad) == [label]


def test_dominance() -> None:
    t = tensor((), F32)
    hidden = Op("stablehlo.constant", [], [t])
    inner = Block(ops=[hidden, Op("stablehlo.return", [hidden.result], [])])
    outer = Op("my.region", [], [], regions=[Region([inner])])

    def found(user: Op) -> list[str]:
        module = Module(Op("builtin.module", [], [], regions=[Region([Block(ops=[outer, user])])]))
        return [d.label for d in verify_module(module) if d.op == "my.op"]

    assert found(Op("my.op", [hidden.result], [t])) == ["dominance"]
    assert found(Op("my.op", [], [t])) == []


def test_all_errors_with_their_places() -> None:
    found = shlo_jit.verify("""func.func @main(%a: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %0 = stablehlo.transpose %a, dims = [0, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = stablehlo.reverse %a, dims = [5] : tensor<2x3xf32>
  return %0 : tensor<3x2xf32>
}""")
    assert [(d.op, d.label) for d in found] == [("stablehlo.transpose", "C2"), ("stablehlo.reverse", "C3")]
    assert [d.message.partition(":")[0] for d in found] == ["transpose C2", "reverse C3"]
    assert [(d.line, d.column) for d in found] == [(2, 8), (3, 8)]


def test_unknown_ops() -> None:
    text = in_function('%0 = "stablehlo.multipy"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>')
    (message,) = messages(text)
    assert message == "unknown op stablehlo.multipy; did you mean 'stablehlo.multiply'?"
    text = in_function('%0 = "my.op"(%a) : (tensor<2xf32>) -> tensor<2xf32>')
    assert messages(text) == []
    assert messages(text, foreign=True) == ["op my.op is of an unknown dialect"]


def test_calls() -> None:
    (found,) = shlo_jit.verify(CALL.replace("call @helper", "call @helpr"))
    assert found.label == "symbol" and "'helpr'" in found.message and "'helper'" in found.hint
    (message,) = messages(CALL.replace("@helper(%x: tensor<f32>)", "@helper(%x: tensor<f32>, %y: tensor<f32>)"))
    assert " 1, " in message and " 2" in message
    wrong = CALL.replace(
        "-> tensor<f32>\n  func.return %0 : tensor<f32>", "-> tensor<2xf32>\n  func.return %x : tensor<f32>"
    )
    (message,) = messages(wrong)
    assert "'tensor<f32>'" in message and "'tensor<2xf32>'" in message


def test_recursion_names_the_cycle() -> None:
    text = """func.func @a() { func.call @b() : () -> () return }
func.func @b() { func.call @c() : () -> () return }
func.func @c() { func.call @b() : () -> () return }"""
    (found,) = shlo_jit.verify(text)
    assert found.message.endswith("recursive calls are not supported: @b -> @c -> @b")
    assert found.line == 3


def test_symbols_are_unique_in_their_module() -> None:
    assert labels("func.func @a() { return }\nfunc.func @a() { return }") == ["symbol"]
    assert labels("module @m { func.func @a() { return }\nmodule @n { func.func @a() { return } } }") == []


def test_functions_return_what_they_say() -> None:
    (message,) = messages("func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> { return %a : tensor<2xf32> }")
    assert "operand 0" in message and "'tensor<2xf32>'" in message and "'tensor<3xf32>'" in message
    assert labels("func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { return }") == ["type"]


def test_functions_have_one_block() -> None:
    text = 'func.func @f(%x: tensor<f32>) {\n"cf.br"()[^b] : () -> ()\n^b:\n func.return\n}'
    assert labels(text) == ["region"]


@pytest.mark.parametrize(
    ("name", "good"),
    [("my.op", True), ("a.b.c", True), ("x_1.0$", True), ("op", False), ("my.", False), (".op", False),
     ("1.op", False), ("my.o p", False), ("my..op", False), ("my.op\\0A", False)],
)  # fmt: skip
def test_names_of_composites(name: str, good: bool) -> None:
    text = f"""func.func @main() {{ stablehlo.composite "{name}" {{decomposition = @impl}} : () -> () return }}
func.func private @impl() {{ return }}"""
    assert labels(text) == ([] if good else ["C1"])
