"""Scatters of one window become updates of slices; a window outside changes nothing."""

from __future__ import annotations

import pytest
from looped import T, check, looped, names

from shlo_jit.passes.states.single_updates import single_updates


def scatter(state: str, index: str, update: str, clause: str, body: str, types: str) -> str:
    inner = {"set": "stablehlo.return %w : tensor<f32>"}.get(body) or (
        f"%t = stablehlo.{body} %o, %w : tensor<f32>\n      stablehlo.return %t : tensor<f32>"
    )
    return f"""%c = "stablehlo.scatter"({state}, {index}, {update}) <{{scatter_dimension_numbers = #stablehlo.scatter<
        {clause}, index_vector_dim = 0>}}> ({{
    ^bb0(%o: tensor<f32>, %w: tensor<f32>):
      {inner}
    }}) : {types}"""


@pytest.mark.parametrize("body", ["set", "add", "subtract", "maximum"])
def test_an_element(body: str) -> None:
    lines = """%at = stablehlo.reshape %j : (tensor<i32>) -> tensor<1xi32>
    %v = stablehlo.slice %u [3:4] : (tensor<4xf32>) -> tensor<1xf32>
    %e = stablehlo.reshape %v : (tensor<1xf32>) -> tensor<f32>
    """
    clause = "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]"
    lines += scatter("%s", "%at", "%e", clause, body, f"({T}, tensor<1xi32>, tensor<f32>) -> {T}")
    function, _ = check(looped(lines, "%c"), single_updates)
    assert names(function)["scatter"] == 0 and names(function)["dynamic_update_slice"] == 1


def test_a_row() -> None:
    """The state is reshaped, so that the rows are short."""
    m = "tensor<3x4xf32>"
    lines = f"""%at = stablehlo.reshape %j : (tensor<i32>) -> tensor<1xi32>
    %m = stablehlo.reshape %s : ({T}) -> {m}
    """
    clause = "update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]"
    lines += scatter("%m", "%at", "%u", clause, "add", f"({m}, tensor<1xi32>, tensor<4xf32>) -> {m}")
    lines += f"\n    %d = stablehlo.reshape %c : ({m}) -> {T}"
    function, _ = check(looped(lines, "%d"), single_updates)
    assert names(function)["scatter"] == 0


def test_a_window_that_may_be_half_outside_stays() -> None:
    lines = """%at = stablehlo.reshape %j : (tensor<i32>) -> tensor<1xi32>
    """
    clause = "update_window_dims = [0], scatter_dims_to_operand_dims = [0]"
    lines += scatter("%s", "%at", "%u", clause, "set", f"({T}, tensor<1xi32>, tensor<4xf32>) -> {T}")
    function, changed = check(looped(lines, "%c"), single_updates)
    assert not changed and names(function)["scatter"] == 1
