"""Arrays that are selected by a scalar in a loop are computed under a branch."""

from __future__ import annotations

import pytest
from looped import check, looped, names

from shlo_jit.passes.states.uniform_conditions import uniform_conditions

N = 600
T = f"tensor<{N}xf32>"
EDGE = f"""%e = stablehlo.dynamic_slice %s, %j, sizes = [1] : ({T}, tensor<i32>) -> tensor<1xf32>
    %b = stablehlo.broadcast_in_dim %e, dims = [0] : (tensor<1xf32>) -> {T}
    %a = stablehlo.add %s, %b : {T}"""
"""A new state that is computed from an element, so the loop does not run tile by tile."""


def select(p: str, x: str, y: str, name: str = "%c") -> str:
    return f"\n    {name} = stablehlo.select {p}, {x}, {y} : tensor<i1>, {T}"


@pytest.mark.parametrize("sides", [("%a", "%s"), ("%s", "%a")], ids=["new first", "old first"])
def test_a_state_that_is_kept(sides: tuple[str, str]) -> None:
    function, changed = check(looped(EDGE + select("%p", *sides), "%c", T), uniform_conditions, N)
    assert changed and names(function)["if"] == 1 and names(function)["select"] == 0


def test_an_update_afterwards() -> None:
    body = EDGE + select("%p", "%a", "%s", "%d")
    body += f"\n    %c = stablehlo.dynamic_update_slice %d, %u, %j : ({T}, tensor<4xf32>, tensor<i32>) -> {T}"
    assert names(check(looped(body, "%c", T), uniform_conditions, N)[0])["if"] == 1


def test_two_selects_by_one_condition() -> None:
    body = EDGE + f"\n    %f = stablehlo.negate %a : {T}\n    %z = stablehlo.negate %e : tensor<1xf32>"
    body += select("%p", "%f", "%s", "%d")
    body += "\n    %g = stablehlo.select %p, %z, %e : tensor<i1>, tensor<1xf32>"
    body += f"\n    %c = stablehlo.dynamic_update_slice %d, %g, %i : ({T}, tensor<1xf32>, tensor<i32>) -> {T}"
    function, _ = check(looped(body, "%c", T), uniform_conditions, N)
    assert names(function)["if"] == 1 and names(function)["select"] == 0


def test_conditions_one_inside_of_the_other() -> None:
    body = f"""%nine = stablehlo.constant dense<9> : tensor<i32>
    %q = stablehlo.compare LT, %j, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    {EDGE}
    %w = stablehlo.sine %a : {T}{select("%q", "%w", "%s", "%d")}
    %h = stablehlo.sine %d : {T}{select("%p", "%h", "%s")}"""
    function, _ = check(looped(body, "%c", T), uniform_conditions, N)
    assert names(function)["select"] == 0 and names(function)["if"] == 2


def test_what_other_ops_read_stays_outside() -> None:
    body = EDGE + select("%p", "%a", "%s", "%d") + f"\n    %c = stablehlo.maximum %d, %a : {T}"
    function, changed = check(looped(body, "%c", T), uniform_conditions, N)
    assert not changed and names(function)["select"] == 1


def test_a_cheap_array_that_is_read_as_a_whole_stays() -> None:
    body = EDGE + select("%p", "%a", "%s", "%d") + f"\n    %c = stablehlo.negate %d : {T}"
    assert not check(looped(body, "%c", T), uniform_conditions, N)[1]


def test_small_arrays_stay() -> None:
    body = (EDGE + select("%p", "%a", "%s")).replace(T, "tensor<12xf32>")
    assert not check(looped(body, "%c"), uniform_conditions)[1]


def test_bodies_of_elementwise_ops_stay() -> None:
    body = f"%a = stablehlo.sine %s : {T}" + select("%p", "%a", "%s")
    assert not check(looped(body, "%c", T), uniform_conditions, N)[1]


def test_a_select_that_is_a_side_of_the_next_one() -> None:
    body = EDGE + f"\n    %f = stablehlo.cosine %s : {T}\n    %g = stablehlo.sine %s : {T}"
    body += select("%p", "%a", "%f", "%d") + select("%p", "%g", "%d")
    check(looped(body, "%c", T), uniform_conditions, N)


def two_states(new: str, best: str = "%c") -> str:
    """A loop that changes one element of a state, and has a second state: the best one so far."""
    return f"""func.func @main(%x: {T}, %j: tensor<i32>, %u: tensor<4xf32>) -> {T} {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %s = %x, %t = %x) : tensor<i32>, {T}, {T} cond {{
    %six = stablehlo.constant dense<6> : tensor<i32>
    %go = stablehlo.compare LT, %i, %six : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %p = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %a = stablehlo.dynamic_update_slice %s, %u, %i : ({T}, tensor<4xf32>, tensor<i32>) -> {T}
    {new}
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %a, {best} : tensor<i32>, {T}, {T}
  }}
  return %r#2 : {T}
}}"""


@pytest.mark.parametrize("sides", [("%a", "%t"), ("%t", "%a"), ("%s", "%t")], ids=["updated", "kept first", "old"])
def test_a_copy_of_another_state(sides: tuple[str, str]) -> None:
    """The best state so far: its memory is written only where the condition holds."""
    function, changed = check(two_states(select("%p", *sides)), uniform_conditions, N)
    assert changed and names(function)["if"] == 1 and names(function)["select"] == 0


def test_a_copy_that_no_state_keeps() -> None:
    text = two_states(select("%p", "%a", "%t") + f"\n    %d = stablehlo.negate %c : {T}", "%d")
    assert not check(text, uniform_conditions, N)[1]
