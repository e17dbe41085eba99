"""The verifier on whole modules: symbols, calls, scopes, and several errors in one run."""

from __future__ import annotations

from shlo_jit.ir.core import Block, Module, Op, Region
from shlo_jit.ir.types import F32, tensor
from shlo_jit.ir.verifier import verify_module
from shlo_jit.text.parser import parse_module


def messages(text, **options):
    return [d.message for d in verify_module(parse_module(text), **options)]


def test_all_errors_with_their_places():
    found = verify_module(
        parse_module("""func.func @main(%a: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %0 = stablehlo.transpose %a, dims = [0, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = stablehlo.reverse %a, dims = [5] : tensor<2x3xf32>
  return %0 : tensor<3x2xf32>
}""")
    )
    assert [d.message.partition(":")[0] for d in found] == ["transpose C2", "reverse C3"]
    assert [(d.line, d.column) for d in found] == [(2, 8), (3, 8)]


def test_unknown_ops():
    text = '%a: tensor<2xf32>) {\n %0 = "stablehlo.multipy"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>'
    (message,) = messages(f"func.func @main({text}\n return\n}}")
    assert message == "unknown op stablehlo.multipy; did you mean stablehlo.multiply?"
    text = 'func.func @main(%a: tensor<2xf32>) {\n %0 = "my.op"(%a) : (tensor<2xf32>) -> tensor<2xf32>\n return\n}'
    assert messages(text) == []
    assert messages(text, foreign=True) == ["op my.op is of a dialect that is not known here"]


def test_calls():
    text = """
func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @helper(%a) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = func.call @helpr(%a) : (tensor<2xf32>) -> tensor<2xf32>
  %2 = func.call @helper(%a) : (tensor<2xf32>) -> tensor<3xf32>
  return %0 : tensor<2xf32>
}
func.func private @helper(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }
"""
    first, second = messages(text)
    assert "'helpr' does not reference a valid function; did you mean 'helper'?" in first
    assert "result types 'tensor<3xf32>' are not those of function 'helper'" in second


def test_recursion_and_duplicates():
    text = """
func.func @a(%x: tensor<f32>) -> tensor<f32> {
  %0 = func.call @b(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func @b(%x: tensor<f32>) -> tensor<f32> {
  %0 = func.call @a(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func @b(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }
"""
    found = messages(text)
    assert any("redefinition of symbol 'b'" in m for m in found)
    assert sum("is recursive" in m for m in found) == 1


def test_return_types():
    (message,) = messages("func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> { return %a : tensor<2xf32> }")
    assert message.startswith("func.return type: type of return operand 0 ('tensor<2xf32>')")


def test_a_value_of_another_scope_is_refused():
    t = tensor((), F32)
    hidden = Op("stablehlo.constant", [], [t])
    inner = Block(ops=[hidden, Op("stablehlo.return", [hidden.result], [])])
    outer = Op("my.region", [], [], regions=[Region([inner])])
    user = Op("stablehlo.negate", [hidden.result], [t])
    module = Module(Op("builtin.module", [], [], regions=[Region([Block(ops=[outer, user])])]))
    assert any("negate dominance" in d.message for d in verify_module(module))


def test_regions_need_a_terminator():
    text = """func.func @main(%a: tensor<2xf32>, %v: tensor<f32>) {
  %0 = "stablehlo.reduce"(%a, %v) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
  }) {dimensions = array<i64: 0>} : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  return
}"""
    (message,) = messages(text)
    assert message.startswith("reduce region:")
