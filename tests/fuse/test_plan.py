"""Fusion: the steps of programs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from printed_codes import codes

import shlo_jit
from shlo_jit import parse
from shlo_jit.codegen.target import resolve
from shlo_jit.fuse.plan import NestStep, OpStep, all_steps
from shlo_jit.lower.planned import Lowered
from shlo_jit.options import CompileOptions
from shlo_jit.pipeline import lower
from shlo_jit.stages import show


def plan_of(body: str, signature: str) -> Lowered:
    return lower(parse(f"func.func @main{signature} {{\n{body}\n}}"), CompileOptions(resolve()))


def titles(lowered: Lowered) -> list[str]:
    return [s.title for s in all_steps(lowered.plan)]


SOFTMAX = """
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %d = stablehlo.subtract %x, %mb : tensor<8x32xf32>
  %e = stablehlo.exponential %d : tensor<8x32xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %y = stablehlo.divide %e, %sb : tensor<8x32xf32>
  return %y : tensor<8x32xf32>
"""


def test_softmax_is_one_row_program() -> None:
    lowered = plan_of(SOFTMAX, "(%x: tensor<8x32xf32>) -> tensor<8x32xf32>")
    assert titles(lowered) == ["row"]
    (step,) = lowered.plan.steps
    assert isinstance(step, NestStep)
    assert len([n for n in step.nest.nodes.values() if n.op.name == "stablehlo.reduce"]) == 2


def test_dimensions_of_a_reduce_need_not_ascend() -> None:
    """Alone and in a row program: each variable has the extent of its dimension."""
    text = """func.func @main(%x: tensor<2x9x5x3xf32>) -> (tensor<2xf32>, tensor<2x9x5x3xf32>) {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [3, 2, 1] : (tensor<2x9x5x3xf32>, tensor<f32>) -> tensor<2xf32>
      %q = stablehlo.multiply %x, %x : tensor<2x9x5x3xf32>
      %t = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [3, 1, 2] : (tensor<2x9x5x3xf32>, tensor<f32>) -> tensor<2xf32>
      %b = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<2xf32>) -> tensor<2x9x5x3xf32>
      %y = stablehlo.divide %x, %b : tensor<2x9x5x3xf32>
      return %s, %y : tensor<2xf32>, tensor<2x9x5x3xf32>
    }"""
    x = np.arange(270, dtype=np.float32).reshape(2, 9, 5, 3)
    total, y = shlo_jit.compile(text, cache=False)(x)
    np.testing.assert_allclose(total, x.sum((1, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(y, x / (x * x).sum((1, 2, 3), keepdims=True), rtol=1e-6)


def test_elementwise_chain_is_one_loop() -> None:
    body = """
  %0 = stablehlo.add %x, %y : tensor<64xf32>
  %1 = stablehlo.tanh %0 : tensor<64xf32>
  %2 = stablehlo.multiply %1, %x : tensor<64xf32>
  return %2 : tensor<64xf32>"""
    lowered = plan_of(body, "(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32>")
    assert titles(lowered) == ["loop"]


def test_two_results_of_one_space_share_a_loop() -> None:
    body = """
  %0 = stablehlo.tanh %x : tensor<64xf32>
  %1 = stablehlo.add %0, %x : tensor<64xf32>
  return %0, %1 : tensor<64xf32>, tensor<64xf32>"""
    lowered = plan_of(body, "(%x: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>)")
    assert titles(lowered) == ["loop"]
    assert len(lowered.plan.steps[0].writes) == 2


def test_bias_runs_on_the_tiles_of_a_product() -> None:
    body = """
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x160xf32>, tensor<160x4xf32>) -> tensor<8x4xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<8x4xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>"""
    lowered = plan_of(body, "(%x: tensor<8x160xf32>, %w: tensor<160x4xf32>, %b: tensor<4xf32>) -> tensor<8x4xf32>")
    (step,) = lowered.plan.steps
    assert isinstance(step, OpStep)
    assert step.epilogue is not None
    product, total = step.op.result, step.epilogue.writes[0]
    assert lowered.memory.storage[product] is lowered.memory.storage[total]


def test_a_reshape_of_memory_runs_nothing() -> None:
    body = """
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x160xf32>, tensor<160x4xf32>) -> tensor<8x4xf32>
  %1 = stablehlo.reshape %0 : (tensor<8x4xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>"""
    lowered = plan_of(body, "(%x: tensor<8x160xf32>, %w: tensor<160x4xf32>) -> tensor<4x8xf32>")
    assert titles(lowered) == ["dot_general", "view"]
    product, result = (s.writes[0] for s in lowered.plan.steps)
    assert lowered.memory.storage[product] is lowered.memory.storage[result]
    assert lowered.memory.storage[result].kind == "result"
    assert not lowered.memory.block_end.get(id(lowered.plan))


LOOP = """
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<100xf32>
  cond {
    %n = stablehlo.constant dense<10> : tensor<i32>
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    BODY
    stablehlo.return %j, %d : tensor<i32>, tensor<100xf32>
  }
  return %r#1 : tensor<100xf32>
"""


@pytest.mark.parametrize(
    ("body", "copies"),
    [
        ("%d = stablehlo.multiply %c, %c : tensor<100xf32>", 0),
        ("%d = stablehlo.reverse %c, dims = [0] : tensor<100xf32>", 1),
    ],
)
def test_loop_state_is_updated_in_place_where_that_is_safe(body: str, copies: int) -> None:
    lowered = plan_of(LOOP.replace("BODY", body), "(%x: tensor<100xf32>) -> tensor<100xf32>")
    ends = [c for copies in lowered.memory.block_end.values() for c in copies if c.source.tensor.rank]
    assert len(ends) == copies


def test_plan_prints_reasons() -> None:
    exe = shlo_jit.compile(f"func.func @main(%x: tensor<8x32xf32>) -> tensor<8x32xf32> {{{SOFTMAX}}}", cache=False)
    text = exe.text("plan")
    assert text.startswith("1 step: 1 row")
    assert "8 over 32" in text
    assert codes(text, "writes") == ["returned"]


def test_a_plan_marks_the_product_that_stays_in_the_cache() -> None:
    t = "tensor<64x64xf32>"
    body = f"""%d = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}
      %y = stablehlo.tanh %d : {t}
      return %y : {t}"""
    text = show(plan_of(body, f"(%x: {t}) -> {t}"), "plan", resolve())
    assert codes(text, "writes  %d") == ["epilogue-input"]
    assert codes(text, "writes  %y") == ["returned"]


def test_a_long_chain_is_split_into_loops() -> None:
    t = "tensor<64xf32>"
    lines = [f"%v{i + 1} = stablehlo.add %v{i}, %x : {t}" for i in range(1500)]
    body = f"%v0 = stablehlo.multiply %x, %x : {t}\n" + "\n".join(lines) + f"\nreturn %v1500 : {t}"
    lowered = plan_of(body, f"(%x: {t}) -> {t}")
    assert 3 <= len(titles(lowered)) <= 5


def test_a_donated_argument_that_is_read_again_is_not_overwritten() -> None:
    t = "tensor<64xf32>"
    text = f"""func.func @main(%x: {t}) -> ({t}, {t}) {{
      %0 = stablehlo.add %x, %x : {t}
      %1 = stablehlo.sine %x : {t}
      %n = stablehlo.constant dense<1> : tensor<i32>
      %z = stablehlo.constant dense<0> : tensor<i32>
      %2:2 = stablehlo.while(%i = %z, %a = %x) : tensor<i32>, {t} cond {{
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %n : tensor<i32>
        %b = stablehlo.add %a, %1 : {t}
        stablehlo.return %j, %b : tensor<i32>, {t}
      }}
      return %0, %2#1 : {t}, {t}
    }}"""
    x = np.linspace(0, 1, 64, dtype=np.float32)
    first, second = shlo_jit.compile(text, cache=False, donate=(0,))(x.copy())
    np.testing.assert_array_equal(first, x + x)
    np.testing.assert_allclose(second, x + np.sin(x), rtol=1e-6)


def test_steps_name_values_like_the_core_ops() -> None:
    """Numbers of the text differ from those of the core ops: a dead op and a constant are gone."""
    t = "tensor<64xf32>"
    body = f"""%3 = stablehlo.sine %x : {t}
      %5 = stablehlo.add %x, %x : {t}
      %7 = stablehlo.sort(%5) ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %9 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %9 : tensor<i1>
      }}) {{dimension = 0 : i64}} : ({t}) -> {t}
      return %7 : {t}"""
    lowered = plan_of(body.replace("stablehlo.sort(%5) (", '"stablehlo.sort"(%5) ('), f"(%x: {t}) -> {t}")
    core = show(lowered, "core", resolve())
    assert "%0 = stablehlo.add" in core and '%1 = "stablehlo.sort"(%0)' in core
    for stage in ("plan", "schedule", "memory"):
        assert set(re.findall(r"%\d+", show(lowered, stage, resolve()))) == {"%0", "%1"}, stage


GRID = """
  %r = stablehlo.reshape %i : (tensor<40xi32>) -> tensor<40x1xi32>
  %c = stablehlo.reshape %j : (tensor<40xi32>) -> tensor<40x1xi32>
  %at = stablehlo.concatenate %r, %c, dim = 1 : (tensor<40x1xi32>, tensor<40x1xi32>) -> tensor<40x2xi32>
  %g = "stablehlo.gather"(%x, %at) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1],
    start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}>
    : (tensor<9x7xf32>, tensor<40x2xi32>) -> tensor<40xf32>
"""


def test_components_of_indices_are_read_in_place() -> None:
    """A loop reads one component or the other of the concatenation, which is in one of its operands."""
    signature = "(%x: tensor<9x7xf32>, %i: tensor<40xi32>, %j: tensor<40xi32>) -> tensor<40xf32>"
    lowered = plan_of(GRID + "return %g : tensor<40xf32>", signature)
    assert titles(lowered) == ["loop"]
    x = np.arange(63, dtype=np.float32).reshape(9, 7)
    i, j = (np.random.default_rng(n).integers(-3, 12, 40, dtype=np.int32) for n in range(2))
    text = f"func.func @main{signature} {{\n{GRID} return %g : tensor<40xf32>\n}}"
    found = shlo_jit.compile(text, cache=False)(x, i, j)
    np.testing.assert_array_equal(found, x[i.clip(0, 8), j.clip(0, 6)])


def test_a_part_of_a_concatenation_is_read_in_place_unless_it_spans_operands() -> None:
    body = """
  %m = stablehlo.concatenate %x, %y, dim = 0 : (tensor<5xf32>, tensor<4xf32>) -> tensor<9xf32>
  %s = stablehlo.slice %m [{first}:{last}] : (tensor<9xf32>) -> tensor<3xf32>
  %z = stablehlo.negate %s : tensor<3xf32>
  return %z : tensor<3xf32>"""
    signature, x = "(%x: tensor<5xf32>, %y: tensor<4xf32>) -> tensor<3xf32>", np.arange(9, dtype=np.float32)
    for first, loops in ((1, 1), (2, 1), (3, 3), (4, 3), (5, 1), (6, 1)):
        text = body.format(first=first, last=first + 3)
        assert titles(plan_of(text, signature)) == ["loop"] * loops
        found = shlo_jit.compile(f"func.func @main{signature} {{{text}\n}}", cache=False)(x[:5], x[5:])
        np.testing.assert_array_equal(found, -x[first : first + 3])
