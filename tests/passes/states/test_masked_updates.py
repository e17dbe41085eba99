"""Selects of updates become updates of a selected part."""

from __future__ import annotations

import pytest
from looped import T, check, looped, names, whole

from shlo_jit.passes.states.masked_updates import masked_updates

NEW = f"%a = stablehlo.dynamic_update_slice %s, %u, %j : ({T}, tensor<4xf32>, tensor<i32>) -> {T}"
OTHER = f"%b = stablehlo.dynamic_update_slice %s, %u, %i : ({T}, tensor<4xf32>, tensor<i32>) -> {T}"
SCATTER = f"""%k = stablehlo.iota dim = 0 : tensor<3xi32>
    %m = stablehlo.broadcast_in_dim %j, dims = [] : (tensor<i32>) -> tensor<3xi32>
    %q = stablehlo.add %k, %m : tensor<3xi32>
    %at = stablehlo.reshape %q : (tensor<3xi32>) -> tensor<3x1xi32>
    %v = stablehlo.slice %u [0:3] : (tensor<4xf32>) -> tensor<3xf32>
    %a = "stablehlo.scatter"(%s, %at, %v) <{{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
    ^bb0(%o: tensor<f32>, %w: tensor<f32>):
      %t = stablehlo.add %o, %w : tensor<f32>
      stablehlo.return %t : tensor<f32>
    }}) : ({T}, tensor<3x1xi32>, tensor<3xf32>) -> {T}"""


def select(p: str, x: str, y: str, name: str = "%c", kind: str = "tensor<i1>") -> str:
    return f"\n    {name} = stablehlo.select {p}, {x}, {y} : {kind}, {T}"


def program(body: str) -> str:
    return looped(body, "%c")


@pytest.mark.parametrize(
    "body",
    [
        NEW + select("%p", "%a", "%s"),
        NEW + select("%p", "%s", "%a"),
        NEW + OTHER + select("%p", "%a", "%b"),
        NEW + select("%p", "%a", "%s", "%d") + select("%p", "%s", "%d"),
        SCATTER + select("%p", "%a", "%s"),
        SCATTER + OTHER + select("%p", "%b", "%a"),
    ],
    ids=["new", "old", "two places", "nested", "scatter", "scatter or slice"],
)
def test_only_the_part_is_selected(body: str) -> None:
    body = body.replace("%b =", "\n    %b =")
    function, changed = check(program(body), masked_updates)
    assert changed and whole(function, "select") == 0


def test_a_chain_of_updates_with_reads_between() -> None:
    body = f"""%e = stablehlo.dynamic_slice %s, %j, sizes = [1] : ({T}, tensor<i32>) -> tensor<1xf32>
    %a0 = stablehlo.dynamic_update_slice %s, %e, %i : ({T}, tensor<1xf32>, tensor<i32>) -> {T}
    %f = stablehlo.dynamic_slice %a0, %i, sizes = [1] : ({T}, tensor<i32>) -> tensor<1xf32>
    %g = stablehlo.negate %f : tensor<1xf32>
    %a = stablehlo.dynamic_update_slice %a0, %g, %j : ({T}, tensor<1xf32>, tensor<i32>) -> {T}"""
    function, changed = check(program(body + select("%p", "%a", "%s")), masked_updates)
    assert changed and whole(function, "select") == 0 and names(function)["dynamic_update_slice"] == 2


def test_a_predicate_of_each_element() -> None:
    mask = f"""
    %w = stablehlo.constant dense<0.5> : {T}
    %h = stablehlo.compare GT, %x, %w : ({T}, {T}) -> tensor<12xi1>"""
    body = NEW + mask + select("%h", "%a", "%s", kind="tensor<12xi1>")
    function, changed = check(program(body), masked_updates)
    assert changed and whole(function, "select") == 0


@pytest.mark.parametrize("source,is_masked", [("%s", True), ("%a0", False)], ids=["old state", "state between"])
def test_a_predicate_of_each_element_and_two_updates(source: str, is_masked: bool) -> None:
    """An element between may be one for which the predicate does not hold: it must not be the masked one."""
    body = f"""%a0 = stablehlo.dynamic_update_slice %s, %u, %i : ({T}, tensor<4xf32>, tensor<i32>) -> {T}
    %f = stablehlo.dynamic_slice {source}, %i, sizes = [1] : ({T}, tensor<i32>) -> tensor<1xf32>
    %a = stablehlo.dynamic_update_slice %a0, %f, %j : ({T}, tensor<1xf32>, tensor<i32>) -> {T}
    %w = stablehlo.constant dense<0.5> : {T}
    %h = stablehlo.compare GT, %x, %w : ({T}, {T}) -> tensor<12xi1>"""
    function, changed = check(program(body + select("%h", "%a", "%s", kind="tensor<12xi1>")), masked_updates)
    assert changed is is_masked and whole(function, "select") == (not is_masked)


@pytest.mark.parametrize("kind", ["tensor<i1>", "tensor<12xi1>"])
def test_a_side_that_reads_the_state_elsewhere(kind: str) -> None:
    """The second side reads the old state, also where the first one has changed it."""
    body = NEW + f"""
    %e = stablehlo.dynamic_slice %s, %j, sizes = [4] : ({T}, tensor<i32>) -> tensor<4xf32>
    %b = stablehlo.dynamic_update_slice %s, %e, %i : ({T}, tensor<4xf32>, tensor<i32>) -> {T}
    %w = stablehlo.constant dense<0.5> : {T}
    %h = stablehlo.compare GT, %x, %w : ({T}, {T}) -> tensor<12xi1>"""
    p = "%p" if kind == "tensor<i1>" else "%h"
    function, changed = check(program(body + select(p, "%a", "%b", kind=kind)), masked_updates)
    assert changed and whole(function, "select") == 0


def test_an_update_that_is_read_elsewhere_stays() -> None:
    body = NEW + select("%p", "%a", "%s", "%d") + f"\n    %c = stablehlo.add %d, %a : {T}"
    function, changed = check(program(body), masked_updates)
    assert not changed and whole(function, "select") == 1


@pytest.mark.parametrize("sides", [("%a", "%s"), ("%s", "%a")])
def test_an_update_that_was_read_before_is_undone_where_it_differs(sides: tuple[str, str]) -> None:
    total = f"""
    %o = stablehlo.constant dense<0.0> : tensor<f32>
    %k = stablehlo.reduce(%a init: %o) applies stablehlo.add across dimensions = [0] : ({T}, tensor<f32>) -> tensor<f32>
    %q = stablehlo.compare GT, %k, %o : (tensor<f32>, tensor<f32>) -> tensor<i1>"""
    small = NEW.replace("%u", "%v").replace("tensor<4xf32>", "tensor<2xf32>")
    part = "%v = stablehlo.slice %u [1:3] : (tensor<4xf32>) -> tensor<2xf32>\n    "
    function, changed = check(program(part + small + total + select("%q", *sides)), masked_updates)
    assert changed and whole(function, "select") == 0 and names(function)["dynamic_update_slice"] == 2


def test_an_update_of_most_of_a_tensor_stays() -> None:
    body = f"""%most = stablehlo.slice %s [0:11] : ({T}) -> tensor<11xf32>
    %a = stablehlo.dynamic_update_slice %s, %most, %j : ({T}, tensor<11xf32>, tensor<i32>) -> {T}"""
    assert not check(program(body + select("%p", "%a", "%s")), masked_updates)[1]


def test_updates_of_different_tensors_stay() -> None:
    body = NEW.replace("%s", "%x") + select("%p", "%a", "%s")
    assert not check(program(body), masked_updates)[1]


def test_scatters_without_an_index_keep_their_selects() -> None:
    """No index is outside: nothing could say that such a scatter is left out."""
    body = f"""%none = stablehlo.constant dense<[]> : tensor<0xi32>
    %a = "stablehlo.scatter"(%s, %none, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
        update_window_dims = [0]>, indices_are_sorted = false, unique_indices = true}}> ({{
    ^bb0(%o: tensor<f32>, %w: tensor<f32>):
      %t = stablehlo.add %o, %w : tensor<f32>
      stablehlo.return %t : tensor<f32>
    }}) : ({T}, tensor<0xi32>, tensor<4xf32>) -> {T}""" + select("%p", "%a", "%s")
    check(program(body), masked_updates)
