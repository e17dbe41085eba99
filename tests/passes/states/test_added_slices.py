"""Sums with a part of zeros become updates in place, if that has the same bits."""

from __future__ import annotations

import pytest
from looped import T, check, looped, whole

from shlo_jit.passes.states.added_slices import added_slices

SLICE = f"%a = stablehlo.dynamic_update_slice %zeros, %u, %j : ({T}, tensor<4xf32>, tensor<i32>) -> {T}"
PAD = f"""%f = stablehlo.constant dense<0.0> : tensor<f32>
    %a = stablehlo.pad %u, %f, low = [3], high = [5], interior = [0] : (tensor<4xf32>, tensor<f32>) -> {T}"""
SCATTER = f"""%at = stablehlo.reshape %j : (tensor<i32>) -> tensor<1xi32>
    %v = stablehlo.slice %u [0:1] : (tensor<4xf32>) -> tensor<1xf32>
    %w = stablehlo.reshape %v : (tensor<1xf32>) -> tensor<f32>
    %a = "stablehlo.scatter"(%zeros, %at, %w) <{{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 0>, unique_indices = true}}> ({{
    ^bb0(%o: tensor<f32>, %q: tensor<f32>):
      stablehlo.return %q : tensor<f32>
    }}) : ({T}, tensor<1xi32>, tensor<f32>) -> {T}"""
SUM = f"\n    %c = stablehlo.add %s, %a : {T}"


@pytest.mark.parametrize("part", [SLICE, PAD, SCATTER], ids=["slice", "pad", "scatter"])
@pytest.mark.parametrize("total", [SUM, SUM.replace("%s, %a", "%a, %s")], ids=["state first", "part first"])
def test_a_state_that_begins_at_zero(part: str, total: str) -> None:
    function, changed = check(looped(part + total, "%c", initial="%zeros"), added_slices)
    assert changed and whole(function, "add") == 0


@pytest.mark.parametrize("part", [SLICE, PAD, SCATTER], ids=["slice", "pad", "scatter"])
def test_a_state_that_may_hold_negative_zeros(part: str) -> None:
    """The sum of -0 and 0 is 0 in all elements, so all are added."""
    function, changed = check(looped(part + SUM, "%c"), added_slices)
    assert not changed and whole(function, "add") == 1


def test_negative_zeros_change_nothing() -> None:
    body = SLICE.replace("%zeros", "%minus") + SUM
    function, changed = check(looped(f"%minus = stablehlo.constant dense<-0.0> : {T}\n    {body}", "%c"), added_slices)
    assert changed and whole(function, "add") == 0


def test_a_state_that_may_become_negative_zero() -> None:
    more = f"\n    %d = stablehlo.negate %c : {T}"
    assert not check(looped(SLICE + SUM + more, "%d", initial="%zeros"), added_slices)[1]


def test_a_part_that_is_read_elsewhere() -> None:
    more = f"\n    %d = stablehlo.add %c, %a : {T}"
    assert not check(looped(SLICE + SUM + more, "%d", initial="%zeros"), added_slices)[1]


def test_a_state_that_a_scatter_multiplies() -> None:
    """-1 times 0 is -0: operand and updates without -0 do not suffice."""
    body = f"""%minus = stablehlo.constant dense<-1.0> : {T}
    %none = stablehlo.constant dense<0.0> : tensor<1xf32>
    %k = stablehlo.reshape %j : (tensor<i32>) -> tensor<1x1xi32>
    %m = "stablehlo.scatter"(%minus, %k, %none) <{{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
    ^bb0(%o: tensor<f32>, %q: tensor<f32>):
      %t = stablehlo.multiply %o, %q : tensor<f32>
      stablehlo.return %t : tensor<f32>
    }}) : ({T}, tensor<1x1xi32>, tensor<1xf32>) -> {T}
    {SLICE}
    %c = stablehlo.add %m, %a : {T}"""
    assert not check(looped(body, "%c", initial="%zeros"), added_slices)[1]


SCALE = f"%k = stablehlo.constant dense<KKK> : {T}\n    %b = stablehlo.multiply %k, %a : {T}"


def scaled(factor: str, total: str, order: str = "%k, %a") -> str:
    """A part of zeros that is multiplied by a constant and then added or subtracted."""
    scale = SCALE.replace("KKK", factor).replace("%k, %a", order)
    return f"{SLICE}\n    {scale}\n    %c = stablehlo.{total} : {T}"


@pytest.mark.parametrize("order", ["%k, %a", "%a, %k"])
@pytest.mark.parametrize(("factor", "total"), [("0.1", "subtract %s, %b"), ("-0.1", "add %s, %b")])
def test_a_step_of_gradient_descent(factor: str, total: str, order: str) -> None:
    """x - 0 and x + -0 are x, also for -0: nothing has to be known of the state."""
    function, changed = check(looped(scaled(factor, total, order), "%c"), added_slices)
    assert changed and whole(function, "multiply") == whole(function, "subtract") == whole(function, "add") == 0


def test_a_negated_part_is_added() -> None:
    body = f"{SLICE}\n    %b = stablehlo.negate %a : {T}\n    %c = stablehlo.add %s, %b : {T}"
    function, changed = check(looped(body, "%c"), added_slices)
    assert changed and whole(function, "negate") == 0


@pytest.mark.parametrize(
    ("factor", "total"),
    [
        ("-0.1", "subtract %s, %b"),
        ("-0.0", "subtract %s, %b"),
        ("0.1", "add %s, %b"),
        ("0x7F800000", "subtract %s, %b"),
        ("0.1", "subtract %b, %s"),
    ],
    ids=["zeros added", "negative zero", "positive zeros", "infinite", "part first"],
)
def test_scaled_zeros_that_change_other_elements(factor: str, total: str) -> None:
    assert not check(looped(scaled(factor, total), "%c"), added_slices)[1]


def test_a_quotient_of_a_part() -> None:
    body = scaled("3.0", "subtract %s, %b", "%a, %k").replace("stablehlo.multiply", "stablehlo.divide")
    assert check(looped(body, "%c"), added_slices)[1]
    assert not check(looped(body.replace("dense<3.0>", "dense<0.0>"), "%c"), added_slices)[1]


ONES = f"%ones = stablehlo.constant dense<1.0> : {T}\n    "
PART_OF_ONES = {
    "slice": ONES + SLICE.replace("%zeros", "%ones"),
    "pad": PAD.replace("dense<0.0>", "dense<1.0>"),
}


@pytest.mark.parametrize("part", PART_OF_ONES)
@pytest.mark.parametrize("scaled", ["divide %s, %a", "multiply %s, %a", "multiply %a, %s"])
def test_a_part_of_a_state_is_scaled(part: str, scaled: str) -> None:
    """The state may hold anything: x / 1 and x * 1 are x."""
    body = f"{PART_OF_ONES[part]}\n    %c = stablehlo.{scaled} : {T}"
    function, changed = check(looped(body, "%c"), added_slices)
    assert changed and whole(function, scaled.partition(" ")[0]) == 0


@pytest.mark.parametrize("part", [PART_OF_ONES["slice"].replace("1.0", "2.0"), PART_OF_ONES["slice"]])
def test_other_quotients_are_of_all_elements(part: str) -> None:
    """A tensor of twos, and a quotient whose divisor is the state."""
    total = "divide %s, %a" if "2.0" in part else "divide %a, %s"
    assert not check(looped(f"{part}\n    %c = stablehlo.{total} : {T}", "%c"), added_slices)[1]
