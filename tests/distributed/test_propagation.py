"""If a program does not specify how its results are split, they are split as their operands are."""

from __future__ import annotations

import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit.distributed.dimension_maps import dimension_maps
from shlo_jit.distributed.propagation import Propagation, meshes_of, propagate
from shlo_jit.distributed.shardy import Sharding, sharding_of
from shlo_jit.errors import StableHLOError
from shlo_jit.ir.attributes import DictAttr

X = '%x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {"b"}]>}'
V = '%v: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}'
MAX = "applies stablehlo.maximum"

CASES = {
    "elementwise": ("%r = stablehlo.negate %x : tensor<8x4xf32>", "8x4", "a b"),
    "elementwise with another": ("%r = stablehlo.add %w, %x : tensor<8x4xf32>", "8x4", "a b"),
    "transpose": ("%r = stablehlo.transpose %x, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>", "4x8", "b a"),
    "broadcast_in_dim": (
        "%r = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>",
        "3x4",
        "- a",
    ),
    "reshape that splits": ("%r = stablehlo.reshape %x : (tensor<8x4xf32>) -> tensor<2x4x4xf32>", "2x4x4", "a - b"),
    "reshape that merges": ("%r = stablehlo.reshape %x : (tensor<8x4xf32>) -> tensor<32xf32>", "32", "a"),
    "reshape that cannot keep": ("%r = stablehlo.reshape %x : (tensor<8x4xf32>) -> tensor<1x32xf32>", "1x32", "- a"),
    "reduce": (
        f"%r = stablehlo.reduce(%x init: %one) {MAX} across dimensions = [0] : (tensor<8x4xf32>, tensor<f32>)"
        " -> tensor<4xf32>",
        "4",
        "b",
    ),
    "slice": ("%r = stablehlo.slice %x [0:8, 0:2] : (tensor<8x4xf32>) -> tensor<8x2xf32>", "8x2", "a -"),
    "dot_general": (
        "%r = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : (tensor<8x4xf32>, tensor<8x4xf32>)"
        " -> tensor<8x8xf32>",
        "8x8",
        "a -",
    ),
    "dot_general with one axis for both": (
        "%r = stablehlo.dot_general %x, %v, batching_dims = [1] x [0], contracting_dims = [] x [] :"
        " (tensor<8x4xf32>, tensor<4xf32>) -> tensor<4x8xf32>",
        "4x8",
        "b a",
    ),
    "gather": (
        "%i = stablehlo.constant dense<[1, 2]> : tensor<2xi32>\n"
        '%r = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1],'
        " collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}"
        " : (tensor<8x4xf32>, tensor<2xi32>) -> tensor<2x4xf32>",
        "2x4",
        "- b",
    ),
    "while": (
        "%c0 = stablehlo.constant dense<true> : tensor<i1>\n"
        "%r, %p = stablehlo.while(%s = %x, %q = %c0) : tensor<8x4xf32>, tensor<i1>\n"
        "cond { stablehlo.return %q : tensor<i1> } do {\n"
        "%n = stablehlo.negate %s : tensor<8x4xf32>\n"
        "%f = stablehlo.constant dense<false> : tensor<i1>\n"
        "stablehlo.return %n, %f : tensor<8x4xf32>, tensor<i1> }",
        "8x4",
        "a b",
    ),
    "call": ("%r = func.call @turned(%x) : (tensor<8x4xf32>) -> tensor<4x8xf32>", "4x8", "b a"),
    "composite": (
        '%r = stablehlo.composite "some.turn" %x {decomposition = @turned} : (tensor<8x4xf32>) -> tensor<4x8xf32>',
        "4x8",
        "b a",
    ),
    "constraint": (
        '%r = sdy.sharding_constraint %x <@mesh, [{}, {"a", "b"}]> : tensor<8x4xf32>',
        "8x4",
        "- ab",
    ),
    "constraint that leaves a dimension open": (
        "%r = sdy.sharding_constraint %x <@mesh, [{}, {?}]> : tensor<8x4xf32>",
        "8x4",
        "- b",
    ),
    "dynamic_update_slice": (
        "%c0 = stablehlo.constant dense<0> : tensor<i32>\n"
        "%row = stablehlo.reshape %v : (tensor<4xf32>) -> tensor<1x4xf32>\n"
        "%r = stablehlo.dynamic_update_slice %w, %row, %c0, %c0 :"
        " (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>",
        "8x4",
        "- a",
    ),
    "while that a turn cuts": (
        "%c0 = stablehlo.constant dense<true> : tensor<i1>\n"
        "%r, %p = stablehlo.while(%s = %w, %q = %c0) : tensor<8x4xf32>, tensor<i1>\n"
        "cond { stablehlo.return %q : tensor<i1> } do {\n"
        "%n = stablehlo.add %s, %x : tensor<8x4xf32>\n"
        "%f = stablehlo.constant dense<false> : tensor<i1>\n"
        "stablehlo.return %n, %f : tensor<8x4xf32>, tensor<i1> }",
        "8x4",
        "a b",
    ),
    "computation on parts along one axis": (
        '%r = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a"}, {?}]>] out_shardings=[<@mesh, [{"a"}, {?}]>]'
        ' manual_axes={"a"} (%y: tensor<4x4xf32>) { %n = stablehlo.negate %y : tensor<4x4xf32>\n'
        "sdy.return %n : tensor<4x4xf32> } : (tensor<8x4xf32>) -> tensor<8x4xf32>",
        "8x4",
        "a b",
    ),
    "nothing known": ("%r = stablehlo.constant dense<0.0> : tensor<8x4xf32>", "8x4", None),
    "an op that is not known": (
        "%r = stablehlo.fft %z, type = FFT, length = [4] : (tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>",
        "4c",
        None,
    ),
}


def program(body: str, result: str) -> str:
    type = f"tensor<{result}xf32>" if not result.endswith("c") else "tensor<4xcomplex<f32>>"
    return f"""
sdy.mesh @mesh = <["a"=2, "b"=4]>
func.func private @turned(%y: tensor<8x4xf32>) -> tensor<4x8xf32> {{
  %t = stablehlo.transpose %y, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
  return %t : tensor<4x8xf32>
}}
func.func @main({X}, {V}, %w: tensor<8x4xf32>, %one: tensor<f32>, %z: tensor<4xcomplex<f32>>) -> {type} {{
  {body}
  return %r : {type}
}}"""


def propagated(text: str) -> Sharding | None:
    return propagation(text).results[0]


def propagation(text: str) -> Propagation:
    module = shlo_jit.parse(text)
    main = module.function("main")
    assert main is not None
    rows = [row.get("sdy.sharding") for row in main.attributes.get("arg_attrs") or [DictAttr(())] * 5]
    given = [None if row is None else sharding_of(main, row, meshes_of(module)) for row in rows]
    return propagate(module, main, given, ["look"])


@pytest.mark.parametrize("name", CASES)
def test_a_result_is_cut_as_its_operands(name: str) -> None:
    body, result, expected = CASES[name]
    found = propagated(program(body, result))
    spelled = None
    if found is not None:
        spelled = " ".join("".join(axis.name for axis in axes) or "-" for axes in found.dimensions)
    assert spelled == expected


def test_parts_that_would_not_be_equal_are_not_made() -> None:
    body = "%r = stablehlo.reshape %x : (tensor<8x4xf32>) -> tensor<8x2x2xf32>"
    found = propagated(program(body, "8x2x2"))
    assert found is not None
    assert [len(axes) for axes in found.dimensions] == [1, 0, 0]  # 2 is not split into 4


def test_a_sharding_of_another_rank_is_an_error_at_its_op() -> None:
    text = program('%r = sdy.sharding_constraint %x <@mesh, [{"a"}]> : tensor<8x4xf32>', "8x4")
    with refused(StableHLOError, "sharding", (8, 8), shows="8x4xf32"):
        propagated(text)


@pytest.mark.parametrize("out", ['[<@mesh, [{"a"}]>]', '[<@mesh, [{"a"}, {}]>, <@mesh, [{"a"}, {}]>]', "[]"])
def test_a_computation_on_parts_that_does_not_fit_is_refused(out: str) -> None:
    text = program(
        f'%r = sdy.manual_computation(%x) in_shardings=[<@mesh, [{{"a"}}, {{?}}]>] out_shardings={out}'
        ' manual_axes={"a"} (%y: tensor<4x4xf32>) { sdy.return %y : tensor<4x4xf32> }'
        " : (tensor<8x4xf32>) -> tensor<8x4xf32>",
        "8x4",
    )
    with refused(StableHLOError, "sharding", (8, 8)):
        propagation(text)
        shlo_jit.compile(text, num_partitions=8)


def test_a_callback_in_a_loop_inspects_its_operand_once() -> None:
    """Also if another value is known better after the first iteration, so that the loop is analyzed a second time."""
    body = (
        "%c0 = stablehlo.constant dense<true> : tensor<i1>\n"
        "%r, %p = stablehlo.while(%s = %w, %q = %c0) : tensor<8x4xf32>, tensor<i1>\n"
        "cond { stablehlo.return %q : tensor<i1> } do {\n"
        "%k = func.call @looking(%v) : (tensor<4xf32>) -> tensor<4xf32>\n"
        "%n = stablehlo.add %s, %x : tensor<8x4xf32>\n"
        "%f = stablehlo.constant dense<false> : tensor<i1>\n"
        "stablehlo.return %n, %f : tensor<8x4xf32>, tensor<i1> }"
    )
    looking = (
        "func.func private @looking(%y: tensor<4xf32>) -> tensor<4xf32> {\n"
        "%t = stablehlo.custom_call @look(%y) : (tensor<4xf32>) -> tensor<4xf32>\n"
        "return %t : tensor<4xf32> }\n"
    )
    (look,) = propagation(program(body, "8x4").replace("func.func @main", looking + "func.func @main")).inspecting
    (known,) = look.operands
    assert known is not None
    assert [axis.name for axis in known.dimensions[0]] == ["a"]


def test_dimension_maps_are_correct() -> None:
    """Parts of an operand along a dimension are parts of the result along the one that it maps to."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 4)).astype(np.float32)
    w = rng.standard_normal((8, 4)).astype(np.float32)
    v, z = rng.standard_normal(4).astype(np.float32), rng.standard_normal(4).astype(np.complex64)
    for body, result, _ in CASES.values():
        if any(word in body for word in ("call", "composite", "sdy", "while", "gather", "fft", "update")):
            continue
        text = program(body, result)
        main = shlo_jit.parse(text).function("main")
        assert main is not None
        op = next(op for op in main.block().ops if op.results and op.result.name == "r")
        compute = shlo_jit.compile(text, num_partitions=1)
        whole = compute(x, v, w, np.float32(-9), z)
        for operand, targets in zip(op.operands, dimension_maps(op), strict=False):
            for d, to in enumerate(targets):
                if to is None or operand.tensor.extents[d] != whole.shape[to] or operand.name != "x":
                    continue
                other = x.copy()
                np.moveaxis(other, d, 0)[1] += 1  # only this row of the result may change
                changed = compute(other, v, w, np.float32(-9), z) != whole
                assert not np.delete(changed, 1, axis=to).any()
                assert changed.any()
