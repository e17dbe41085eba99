"""Loops that change rows of a stacked input update the stack in place, if every row is read where it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from alone import after
from looped import names

import shlo_jit
from shlo_jit.ir.core import Op, walk
from shlo_jit.passes.simplify import simplify
from shlo_jit.passes.states.known_comparisons import known_comparisons
from shlo_jit.passes.states.single_updates import single_updates
from shlo_jit.passes.states.stacked_rows import stacked_rows
from shlo_jit.reference.interpreter import evaluate

X, ROW, PART, I = "tensor<4x1100x2xf32>", "tensor<1x1100x2xf32>", "tensor<1100x2xf32>", "tensor<i32>"
READ = f"%r = stablehlo.dynamic_slice %x, %at, %zero, %zero, sizes = [1, 1100, 2] : ({X}, {I}, {I}, {I}) -> {ROW}"
SAME = READ + f"\n    %s = stablehlo.reshape %r : ({ROW}) -> {PART}"
CHANGE = f"%t = stablehlo.dynamic_update_slice %s, %u, %j, %zero : ({PART}, tensor<3x2xf32>, {I}, {I}) -> {PART}"
SCATTERED = f"""%places = stablehlo.iota dim = 0 : tensor<3x2xi32>
    %t = "stablehlo.scatter"(%s, %places, %v) <{{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}}> ({{
    ^bb0(%o: tensor<f32>, %w: tensor<f32>):
      %sum = stablehlo.add %o, %w : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }}) : ({PART}, tensor<3x2xi32>, tensor<3xf32>) -> {PART}"""
FORWARD = "%at = stablehlo.add %i, %zero : tensor<i32>"


def program(
    index: str = FORWARD, read: str = SAME, change: str = CHANGE, more: str = "", write: str = "%at", last: int = 4
) -> str:
    """A loop over a counter %i from 0 to `last` that reads a row of %x, changes it, and writes it to a row of %y."""
    return f"""func.func @main(%x: {X}, %j: {I}, %u: tensor<3x2xf32>) -> {X} {{
  %zero = stablehlo.constant dense<0> : {I}
  %one = stablehlo.constant dense<1> : {I}
  %three = stablehlo.constant dense<3> : {I}
  %v0 = stablehlo.slice %u [0:3, 0:1] : (tensor<3x2xf32>) -> tensor<3x1xf32>
  %v = stablehlo.reshape %v0 : (tensor<3x1xf32>) -> tensor<3xf32>
  %ones = stablehlo.constant dense<1.0> : {X}
  %z:2 = stablehlo.while(%i = %zero, %y = %ones) : {I}, {X} cond {{
    %last = stablehlo.constant dense<{last}> : {I}
    %go = stablehlo.compare LT, %i, %last : ({I}, {I}) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    {index}
    {read}
    {change}
    {more}
    %a = stablehlo.reshape %t : ({PART}) -> {ROW}
    %b = stablehlo.dynamic_update_slice %y, %a, {write}, %zero, %zero : ({X}, {ROW}, {I}, {I}, {I}) -> {X}
    %n = stablehlo.add %i, %one : {I}
    stablehlo.return %n, %b : {I}, {X}
  }}
  return %z#1 : {X}
}}"""


def rewritten(text: str) -> Op:
    """Returns the function after the pass, which must compute the same; so must the compiled program."""
    function = after(text, simplify, single_updates, known_comparisons, stacked_rows, simplify)
    module, exe = shlo_jit.parse(text), shlo_jit.compile(text, cache=False)
    x = np.random.default_rng(1).standard_normal((4, 1100, 2)).astype(np.float32)
    for j in (-5, 0, 700, 1097, 1099, 2000):
        given = x, np.array(j, np.int32), np.arange(6, dtype=np.float32).reshape(3, 2)
        (want,) = evaluate(module, *given)
        (got,) = evaluate(function, *given)
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
        assert np.asarray(exe(*given)).tobytes() == np.asarray(want).tobytes()
    return function


def is_in_place(function: Op) -> bool:
    """Whether the loop begins with the input, and no row is written as a whole."""
    (loop,) = (op for op in function.block().ops if op.name == "stablehlo.while")
    updates = [op for op in walk(function.block()) if op.name == "stablehlo.dynamic_update_slice"]
    is_begun = function.block().arguments[0] in loop.operands
    return is_begun and all(op.operands[1].tensor.size < 1000 for op in updates)


REVERSED = "%at = stablehlo.subtract %three, %i : tensor<i32>"
WRAPPED = f"""%p = stablehlo.compare LT, %i, %zero : ({I}, {I}) -> tensor<i1>
    %four = stablehlo.constant dense<4> : {I}
    %k = stablehlo.add %i, %four : {I}
    %at = stablehlo.select %p, %k, %i : tensor<i1>, {I}"""
ODD = f"""%k0 = stablehlo.multiply %i, %three : {I}
    %four = stablehlo.constant dense<4> : {I}
    %at = stablehlo.remainder %k0, %four : {I}"""
GATHERED = f"""%place = stablehlo.reshape %at : ({I}) -> tensor<1xi32>
    %s = "stablehlo.gather"(%x, %place) <{{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 0>,
        slice_sizes = array<i64: 1, 1100, 2>}}> : ({X}, tensor<1xi32>) -> {PART}"""
BRANCHES = f"""%q = stablehlo.compare GT, %j, %three : ({I}, {I}) -> tensor<i1>
    %t = "stablehlo.if"(%q) ({{
      {CHANGE.replace("%t", "%t0")}
      stablehlo.return %t0 : {PART}
    }}, {{
      stablehlo.return %s : {PART}
    }}) : (tensor<i1>) -> {PART}"""
LOOPS = f"""%w:2 = stablehlo.while(%m = %zero, %c = %s) : {I}, {PART} cond {{
      %more = stablehlo.compare LT, %m, %three : ({I}, {I}) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }} do {{
      %d = stablehlo.dynamic_update_slice %c, %u, %m, %zero : ({PART}, tensor<3x2xf32>, {I}, {I}) -> {PART}
      %m1 = stablehlo.add %m, %one : {I}
      stablehlo.return %m1, %d : {I}, {PART}
    }}
    %t = stablehlo.reshape %w#1 : ({PART}) -> {PART}"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [
        {}, {"index": REVERSED}, {"index": WRAPPED}, {"index": ODD}, {"read": GATHERED}, {"change": BRANCHES},
        {"change": LOOPS}, {"change": SCATTERED},
    ],
    ids=["forward", "reversed", "wrapped", "odd", "gathered", "branches", "loop in loop", "scatter"],
)  # fmt: skip
def test_rows_are_changed_where_they_are(options: dict[str, Any]) -> None:
    assert is_in_place(rewritten(program(**options)))


OTHER_ROW = f"""
    %o = stablehlo.dynamic_slice %x, %zero, %j, %zero, sizes = [1, 3, 2] : ({X}, {I}, {I}, {I}) -> tensor<1x3x2xf32>
    %t = stablehlo.dynamic_update_slice %s, %o2, %j, %zero : ({PART}, tensor<3x2xf32>, {I}, {I}) -> {PART}"""
OTHER_ROW = OTHER_ROW.replace("%t =", "%o2 = stablehlo.reshape %o : (tensor<1x3x2xf32>) -> tensor<3x2xf32>\n    %t =")
OWN_RESULT = OTHER_ROW.replace("%x", "%y")
BY_DATA = f"%at = stablehlo.add %i, %j : {I}"
HALVES = f"""%two = stablehlo.constant dense<2> : {I}
    %at = stablehlo.divide %i, %two : {I}"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [
        {"change": OTHER_ROW}, {"change": OWN_RESULT}, {"index": BY_DATA}, {"index": HALVES}, {"last": 3},
        {"write": "%i", "index": REVERSED},
    ],
    ids=["another row", "the result is read", "by data", "rows twice", "not all rows", "written elsewhere"],
)  # fmt: skip
def test_rows_that_are_needed_otherwise_are_kept(options: dict[str, Any]) -> None:
    assert not is_in_place(rewritten(program(**options)))


def test_short_rows_are_copied() -> None:
    text = program().replace("1100", "4").replace("3x2xf32", "1x2xf32")
    text = text.replace("[0:3, 0:1] : (tensor<1x2xf32>) -> tensor<3x1xf32>", "[0:1, 0:1] : (tensor<1x2xf32>) -> "
                        "tensor<1x1xf32>").replace("(tensor<3x1xf32>) -> tensor<3xf32>", "(tensor<1x1xf32>) -> "
                        "tensor<1xf32>")  # fmt: skip
    assert not is_in_place(after(text, simplify, stacked_rows))


def test_the_form_without_a_result_of_its_own() -> None:
    """The stack is the loop's state: the same updates, without a loop to prove anything of."""
    text = program(index=BY_DATA).replace("%y = %ones", "%y = %x").replace("%r = stablehlo.dynamic_slice %x", "%r = "
                                                                       "stablehlo.dynamic_slice %y")  # fmt: skip
    function = rewritten(text)
    assert is_in_place(function) and names(function)["dynamic_update_slice"] == 1
