"""Rules between passes: each rejects a function that breaks it, with the pass, the op and its line."""

from __future__ import annotations

import re

import pytest

import shlo_jit
from shlo_jit.ir.core import Op
from shlo_jit.op_table import QUANTIZED, rows
from shlo_jit.passes import CANONICAL
from shlo_jit.passes.expand.expand import EXPANDED
from shlo_jit.verify import core
from shlo_jit.verify.core import Rule, check_level

F = "tensor<4xf32>"
DOT = "stablehlo.dot_general %x, %x, contracting_dims = [{}] x [{}]"
CONV = """stablehlo.convolution(%x, %x) dim_numbers = [b, f, 0]x[i, o, 0]->[{out}], window = {{}}
  {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({t}, {t}) -> {r}"""
SOLVE = """"stablehlo.triangular_solve"(%x, %x) <{{left_side = {left}, lower = true, unit_diagonal = false,
  transpose_a = #stablehlo<transpose {kind}>}}> : ({t}, {t}) -> {t}"""
REDUCE = """"stablehlo.reduce"(%x, %z) ({{
  ^bb0(%a: tensor<{e}>, %b: tensor<{e}>):
    {body}
    stablehlo.return %s : tensor<{e}>
  }}) {{dimensions = array<i64: 0>}} : (tensor<4xf32>, tensor<f32>) -> tensor<{e}>"""
ZERO = "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
SQUARES = "tensor<4x4xf32>"
GROUPS = "replica_groups = dense<0> : tensor<1x1xi64>"
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"

# rule: [(argument, ops, of which the last is wrong, part of the message), ...]
WRONG: dict[Rule, list[tuple[str, str, str]]] = {
    core.CALLS: [
        (F, f"%0 = func.call @f(%x) : ({F}) -> {F}", "func.call breaks the rule .* has_side_effect"),
        (F, f'%0 = stablehlo.composite "a.b" %x {{decomposition = @f}} : ({F}) -> {F}', "it should have been removed"),
    ],
    core.CALLERS: [
        (F, ZERO + "%0 = " + REDUCE.format(e="f32", body="%s = func.call @g(%a) : (tensor<f32>) -> tensor<f32>"),
         "func.call in its region"),
    ],
    core.SHARDINGS: [(F, f'%0 = sdy.sharding_constraint %x <@mesh, [{{"a"}}]> : {F}', "it should have been removed")],
    core.HOST_TRANSFERS: [
        (F, f"%t = stablehlo.create_token : !stablehlo.token\n"
            f'%u = "stablehlo.outfeed"(%x, %t) : ({F}, !stablehlo.token) -> !stablehlo.token', "it should have been removed"),
        (F, "%t = stablehlo.create_token : !stablehlo.token\n"
            '%u = "stablehlo.send"(%x, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>} : '
            f"({F}, !stablehlo.token) -> !stablehlo.token", "it should have been removed"),
    ],
    core.COLLECTIVES: [
        (F, "%0 = stablehlo.partition_id : tensor<ui32>", "it should have been removed"),
        (F, f'%0 = "stablehlo.cross-replica-sum"(%x) {{{GROUPS}}} : ({F}) -> {F}', "it should have been removed"),
        (F, f'%0 = "stablehlo.collective_broadcast"(%x) {{{GROUPS}, {CHANNEL}}} : ({F}) -> {F}', "it has channel_handle"),
        (F, f'%0 = "stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, {GROUPS}, use_global_device_ids = false}} : '
            f"({F}) -> {F}", "it has use_global_device_ids"),
        (F, '%0 = "stablehlo.collective_broadcast"(%x) {replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, '
            f'axes = [#stablehlo.axis_ref<name = "a">]>}} : ({F}) -> {F}', "it should have been removed"),
        (F, f'"stablehlo.custom_call"(%x) {{call_target_name = "shlo_jit.send", api_version = 4 : i32, '
            f"backend_config = {{channel = 1 : i64}}}} : ({F}) -> ()", "no source_target_pairs"),
    ],
    core.TOKENS: [
        (f"tuple<{F}>", "%0 = stablehlo.constant dense<0> : tensor<i32>", f"a value of type tuple<{F}>"),
        (F, "%0 = stablehlo.create_token : !stablehlo.token", "a value of type !stablehlo.token"),
        (F, f"%0 = stablehlo.tuple %x : tuple<{F}>", "a value of type tuple"),
    ],
    core.UNQUANTIZED: [
        (F, f"%0 = stablehlo.uniform_quantize %x : ({F}) -> tensor<4x!quant.uniform<i8:f32, 0.5>>", "a value of type"),
    ],
    core.ONE_ELEMENT_TYPE: [
        (F, ZERO + "%0 = " + REDUCE.format(e="f64", body="%s = stablehlo.add %a, %b : tensor<f64>"),
         r"elements \[f32\], the body has \[f64\]"),
    ],
    core.SCALAR_BODIES: [
        (F, ZERO + "%0 = " + REDUCE.format(e="f32", body="""%i = stablehlo.iota dim = 0 : tensor<2xi32>
           %s = stablehlo.add %a, %b : tensor<f32>"""), "contains regions, tensors or outside values"),
    ],
    core.STATIC: [
        ("tensor<?xf32>", "%0 = stablehlo.abs %x : tensor<?xf32>", r"a value of type tensor<\?xf32>"),
    ],
    EXPANDED: [(F, f"%0 = chlo.square %x : {F} -> {F}", "chlo.square breaks the rule 'no compound op'")],
    core.COLLECTIVE_LAYOUTS: [
        ("tensor<2x2xf32>", f'%0 = "stablehlo.all_to_all"(%x) {{split_dimension = 1 : i64, concat_dimension = 0 : i64, '
         f"split_count = 1 : i64, {GROUPS}}} : (tensor<2x2xf32>) -> tensor<2x2xf32>", "along a dimension other than 0"),
        ("tensor<2x15xf32>", f'%0 = "stablehlo.all_gather"(%x) {{all_gather_dim = 1 : i64, {GROUPS}}} : '
         "(tensor<2x15xf32>) -> tensor<2x15xf32>", "along rows of 60 bytes"),
        (F, f'%0:2 = "stablehlo.collective_broadcast"(%x, %x) {{{GROUPS}}} : ({F}, {F}) -> ({F}, {F})',
         "several operands"),
        (F, f'%0 = "stablehlo.all_reduce"(%x) ({{\n^bb0(%a: tensor<f64>, %b: tensor<f64>):\n'
            f"%s = stablehlo.add %a, %b : tensor<f64>\nstablehlo.return %s : tensor<f64>\n}}) {{{GROUPS}}} : "
            f"({F}) -> tensor<4xf64>", "operands of f32 for results of f64"),
    ],
    core.LINALG: [
        (SQUARES, f"%0 = stablehlo.cholesky %x, lower = true : {SQUARES}", "lower triangle"),
        ("tensor<4x4xbf16>", "%0 = stablehlo.cholesky %x, lower = false : tensor<4x4xbf16>", "elements of bf16"),
        (SQUARES, "%0 = " + SOLVE.format(left="false", kind="TRANSPOSE", t=SQUARES), "from the right"),
        (SQUARES, "%0 = " + SOLVE.format(left="true", kind="ADJOINT", t=SQUARES), "ADJOINT"),
    ],
    core.ROW_MAJOR: [
        (SQUARES, f"""%0 = stablehlo.custom_call @own(%x) {{operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
           result_layouts = [dense<[0, 1]> : tensor<2xindex>]}} : ({SQUARES}) -> {SQUARES}""", "it has operand_layouts"),
    ],
    core.DOTS: [
        ("tensor<4x4xbf16>", f"%0 = {DOT.format(1, 0)} : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>",
         "a result of bf16, but the accumulator is f32"),
        ("tensor<4x4xi16>", f"%0 = {DOT.format(1, 0)} : (tensor<4x4xi16>, tensor<4x4xi16>) -> tensor<4x4xi32>",
         "operands of i16 and i16 for an accumulator of i32"),
        ("tensor<4x5x6xf32>", f"%0 = {DOT.format(1, 1)} : (tensor<4x5x6xf32>, tensor<4x5x6xf32>) -> "
         "tensor<4x6x4x6xf32>", "free dimensions on both sides"),
        ("tensor<4x5x6xf32>", f"%0 = {DOT.format('0, 2', '0, 2')} : (tensor<4x5x6xf32>, tensor<4x5x6xf32>) -> "
         "tensor<5x5xf32>", "not contiguous runs"),
    ],
    core.CONVOLUTIONS: [
        ("tensor<2x2x2xbf16>", "%0 = " + CONV.format(t="tensor<2x2x2xbf16>", r="tensor<2x2x1xbf16>", out="b, f, 0"),
         "a result of bf16, but the accumulator is f32"),
        ("tensor<2x2x2xi8>", "%0 = " + CONV.format(t="tensor<2x2x2xi8>", r="tensor<2x2x1xi32>", out="b, f, 0"),
         "operands of i8 and i8 for an accumulator of i32"),
        ("tensor<2x2x2xcomplex<f32>>", "%0 = " + CONV.format(
            t="tensor<2x2x2xcomplex<f32>>", r="tensor<2x2x1xcomplex<f32>>", out="b, f, 0"), "a result of complex"),
        ("tensor<2x2x2xf32>", "%0 = " + CONV.format(t="tensor<2x2x2xf32>", r="tensor<2x1x2xf32>", out="f, 0, b"),
         "another layout"),
    ],
    core.NO_DEAD_OPS: [(F, f"%0 = stablehlo.abs %x : {F}", "stablehlo.abs breaks the rule .*: its results are unused")],
}  # fmt: skip

HELPERS = f"""
func.func private @f(%x: {F}) -> {F} {{
  return %x : {F}
}}
func.func private @g(%x: tensor<f32>) -> tensor<f32> {{
  return %x : tensor<f32>
}}"""


def function_of(argument: str, body: str) -> Op:
    text = f'sdy.mesh @mesh = <["a"=1]>\nfunc.func @main(%x: {argument}) {{\n{body}\n  return\n}}{HELPERS}'
    main = shlo_jit.parse(text).function("main")
    assert main is not None
    return main


def test_every_rule_has_a_function_that_breaks_it() -> None:
    assert set(WRONG) == set(CANONICAL)


@pytest.mark.parametrize(
    ("rule", "case"), [pytest.param(r, case, id=r.statement) for r, cases in WRONG.items() for case in cases]
)
def test_a_function_that_breaks_the_rule_is_refused(rule: Rule, case: tuple[str, str, str]) -> None:
    argument, body, message = case
    function = function_of(argument, body)
    with pytest.raises(shlo_jit.InternalError) as caught:
        check_level(function, [rule], "some_pass")
    text = str(caught.value)
    assert re.search(r"^<text>:\d+:\d+: error: after some_pass: \S+ breaks the rule", text), text
    assert rule.statement in text and re.search(message, text), text


@pytest.mark.parametrize("rule", CANONICAL, ids=lambda rule: rule.statement)
def test_a_canonical_function_breaks_none(rule: Rule) -> None:
    body = f"""%z = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = {REDUCE.format(e="f32", body="%s = stablehlo.add %a, %b : tensor<f32>")}
      %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> {SQUARES}
      %2 = stablehlo.dot_general %1, %1, contracting_dims = [1] x [0] : ({SQUARES}, {SQUARES}) -> {SQUARES}
      stablehlo.custom_call @own(%2) {{has_side_effect = true}} : ({SQUARES}) -> ()"""
    check_level(function_of(F, body), [rule], "some_pass")


def test_what_no_rule_forbids_has_a_lowering() -> None:
    """Every op that no rule forbids has a lowering, or is eliminated otherwise.

    `simplify` removes the barrier, no value has the type of a `func.constant`, and quantized types are forbidden,
    whatever op produces them. For collective ops, the rule concerns their groups.
    """
    forbidden = [rule.concerns for rule in CANONICAL if rule.op_is_wrong is core.not_removed]
    left = {row.name for row in rows() if not any(concerns(row.name) for concerns in forbidden)}
    calls = {"stablehlo.composite", "func.call_indirect", "func.constant"}  # core.CALLS, core.STATIC
    others = {"stablehlo.optimization_barrier", *QUANTIZED, *calls}
    lowered = {row.name for row in rows() if row.how in ("kernel", "control flow", "fused loop", "collective")}
    assert left - others == lowered | {"func.call"}
