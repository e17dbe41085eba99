"""Fields, locations and hints of findings; warnings; `infer`."""

from __future__ import annotations

import json

import pytest
from refusing import refused

import shlo_jit
from shlo_jit.ir.types import F32, tensor
from shlo_jit.ops.type_algebra import type_text

WRONG = """func.func @main(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.transpose"(%a) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}"""


def test_fields() -> None:
    (d,) = shlo_jit.verify(WRONG)
    assert (d.op, d.label, d.severity) == ("stablehlo.transpose", "C3", "error")
    assert d.rule == "shape(result) = dim(operand, permutation...)"
    assert d.hint == "write tensor<3x2xf32>"
    assert (d.file, d.line, d.column) == ("<text>", 2, 8)
    assert d.source_line == WRONG.splitlines()[1]
    assert json.loads(json.dumps(d.as_dict()))["label"] == "C3"
    lines = str(d).splitlines()
    assert lines[0].startswith("<text>:2:8: error: transpose C3: 'stablehlo.transpose' op inferred type(s)")
    assert lines[2].index("^") == lines[1].index('"stablehlo')
    assert lines[3:] == [f"  rule: {d.rule}", f"  hint: {d.hint}"]


@pytest.mark.parametrize(
    ("op", "found", "expected"),
    [
        ('"stablehlo.transpose"(%a) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>',
         "tensor<2x3xf32>", "tensor<3x2xf32>"),
        ('"stablehlo.reverse"(%a) {dimensions = array<i64: 5>} : (tensor<2x3xf32>) -> tensor<2x3xf32>',
         "dimensions = array<i64: 5>, (tensor<2x3xf32>) -> (tensor<2x3xf32>)", "0 <= dimensions < rank(result)"),
        ('"stablehlo.dot_general"(%a, %a) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], '
         "rhs_contracting_dimensions = [1]>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>",
         "lhs_contracting_dimensions = [2], (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x2xf32>)",
         "0 <= lhs_contracting_dimensions < rank(lhs)"),
        ('"stablehlo.not"(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>',
         "tensor<2x3xf32>", "ranked tensor of i1 or signed integer or unsigned integer values"),
        ('"stablehlo.abs"(%a, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>', "2 operands", "1 operands"),
        ('"stablehlo.reverse"(%a) {dimensions = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>',
         "dimensions = 1 : i64", "list of integers"),
        ('"stablehlo.reverse"(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>', "no attribute", "dimensions"),
        ("func.call @g(%a) : (tensor<2x3xf32>) -> ()", "@g", "a function of this module"),
        ("func.call @f(%a, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> ()",
         "(tensor<2x3xf32>, tensor<2x3xf32>)", "(tensor<2x3xf32>)"),
        ("stablehlo.ads %a : tensor<2x3xf32>", "'stablehlo.ads'", "an operation"),
    ],
)  # fmt: skip
def test_what_was_found_and_expected(op: str, found: str, expected: str) -> None:
    results = "" if "func.call" in op else "%0 = "
    (d,) = shlo_jit.verify(f"func.func @f(%a: tensor<2x3xf32>) {{\n  {results}{op}\n  return\n}}")
    assert (d.found, d.expected, d.line) == (found, expected, 2)


def test_large_attributes_are_not_written_out() -> None:
    op = '"stablehlo.reverse"(%a) {dimensions = dense<1> : tensor<99999999xi32>} : (tensor<2xf32>) -> tensor<2xf32>'
    (d,) = shlo_jit.verify(f"func.func @f(%a: tensor<2xf32>) {{\n  %0 = {op}\n  return\n}}")
    assert len(d.found) < 200


def test_a_misspelt_pretty_op_gets_a_hint() -> None:
    (d,) = shlo_jit.verify(
        "func.func @f(%a: tensor<f32>) {\n  %0 = stablehlo.multipy %a, %a : tensor<f32>\n  return\n}"
    )
    assert (d.label, d.hint, d.line, d.column) == ("syntax", "did you mean 'stablehlo.multiply'?", 2, 8)


def test_a_part_of_an_op_can_be_to_blame() -> None:
    text = """func.func @f(%a: tensor<2x2xf32>) {
  %0 = "stablehlo.dot_general"(%a, %a) {
    dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>,
    algorithm = #stablehlo.dot_algorithm<lhs_precision_type = f32, rhs_precision_type = f32, accumulation_type = f32,
      lhs_component_count = 0, rhs_component_count = 1, num_primitive_operations = 1,
      allow_imprecise_accumulation = false>
  } : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return
}"""
    (d,) = shlo_jit.verify(text)
    assert (d.label, d.line, d.column) == ("C22", 4, 17)


@pytest.mark.parametrize(("attribute", "hint"), [("dimension", "did you mean 'dimensions'?"), ("zzz", "")])
def test_unknown_attributes_are_warnings(attribute: str, hint: str) -> None:
    text = f"""func.func @f(%a: tensor<2xf32>) {{
  %0 = "stablehlo.reverse"(%a) {{dimensions = array<i64: 0>, {attribute} = 1 : i64, jax.x, mhlo.y = "z"}}
    : (tensor<2xf32>) -> tensor<2xf32>
  return
}}"""
    assert shlo_jit.verify(text) == []
    (d,) = shlo_jit.verify(text, warnings=True)
    assert (d.severity, d.op, d.label, d.hint, d.line) == ("warning", "stablehlo.reverse", "attribute", hint, 2)
    assert f"stablehlo.reverse has no attribute '{attribute}'" in d.message


@pytest.mark.parametrize("kind", [bytes, "file", "path"])
def test_bytes_that_are_not_utf8_are_a_parse_error(kind, tmp_path) -> None:
    data = b"module {\n  // \xff\n}"
    path = tmp_path / "x.mlir"
    path.write_bytes(data)
    source = data if kind is bytes else path if kind == "path" else str(path)
    for function in (shlo_jit.parse, shlo_jit.compile):
        with refused(shlo_jit.ParseError, "encoding", (2, 6)) as caught:
            function(source)
        assert (caught.value.line, caught.value.column) == (2, 6)
    assert [d.line for d in shlo_jit.verify(source)] == [2]


# infer


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "results"),
    [
        ("add", ["tensor<2x?xf32>", "tensor<?x3xf32>"], {}, ["tensor<2x3xf32>"]),
        ("stablehlo.transpose", ["tensor<2x3xf32>"], {"permutation": [1, 0]}, ["tensor<3x2xf32>"]),
        ("compare", ["tensor<2xf32>"] * 2, {"comparison_direction": "LT"}, ["tensor<2xi1>"]),
        ("dot", ["tensor<2x3xf32>", "tensor<3x?xf32>"], {}, ["tensor<2x?xf32>"]),
        ("concatenate", ["tensor<2xi8>", "tensor<?xi8, #stablehlo.bounds<4>>"], {"dimension": 0},
         ["tensor<?xi8, #stablehlo.bounds<6>>"]),
        ("chlo.top_k", ["tensor<2x5xf32>"], {"k": 3}, ["tensor<2x3xf32>", "tensor<2x3xi32>"]),
        ("set_dimension_size", ["tensor<2x3xf32>", "tensor<i32>"], {"dimension": 1},
         ["tensor<2x?xf32, #stablehlo.bounds<?, 3>>"]),
        ("tuple", ["tensor<f32>", "tensor<i1>"], {}, ["tuple<tensor<f32>, tensor<i1>>"]),
        ("partition_id", [], {}, ["tensor<ui32>"]),
    ],
)  # fmt: skip
def test_infer(op, operands, attributes, results) -> None:
    assert [type_text(t) for t in shlo_jit.infer(op, operands, attributes)] == results


def test_infer_refuses() -> None:
    with pytest.raises(shlo_jit.VerifyError) as caught:
        shlo_jit.infer("transpose", [tensor((2, 3), F32)], {"permutation": [1, 1]})
    assert (caught.value.diagnostics[0].op, caught.value.diagnostics[0].label) == ("stablehlo.transpose", "C2")
    with refused(shlo_jit.VerifyError, "unknown", shows="stablehlo.ad"):
        shlo_jit.infer("ad", [])
    with refused(shlo_jit.VerifyError, "attribute", shows="'permutation'"):
        shlo_jit.infer("transpose", ["tensor<2x3xf32>"])
    with refused(shlo_jit.VerifyError, "C1"):
        shlo_jit.infer("abs", ["tensor<2xf32>"], result_types=["tensor<3xf32>"])


def test_infer_with_a_choice() -> None:
    with pytest.raises(ValueError, match="pass result_types"):
        shlo_jit.infer("reshape", ["tensor<6xf32>"])
    (t,) = shlo_jit.infer("reshape", ["tensor<6xf32>"], result_types=["tensor<2x3xf32>"])
    assert type_text(t) == "tensor<2x3xf32>"
    with refused(shlo_jit.VerifyError, "C2"):
        shlo_jit.infer("reshape", ["tensor<6xf32>"], result_types=["tensor<2x2xf32>"])
