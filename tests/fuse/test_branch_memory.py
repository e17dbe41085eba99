"""Results of branches take over the memory of what they return or update; every remaining copy says why."""

from __future__ import annotations

import guarded
import numpy as np
import pytest
from printed_codes import codes

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

N = 2000
T = f"tensor<{N}xf32>"
UPDATE = f"stablehlo.dynamic_update_slice {{x}}, %u, %k : ({T}, tensor<4xf32>, tensor<i32>) -> {T}"


def branches(then: str, other: str, results: int = 1, more: str = "") -> str:
    """A loop over two states, which are the results of an `if`; or the second stays as it is."""
    types = ", ".join([T] * results)
    named = f"%c:{results}"
    first, second = "%c#0", "%c#1" if results > 1 else "%b"
    return f"""func.func @main(%x: {T}, %y: {T}, %u: tensor<4xf32>, %n: tensor<i32>) -> ({T}, {T}) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%k = %zero, %a = %x, %b = %y) : tensor<i32>, {T}, {T} cond {{
    %go = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %odd = stablehlo.and %k, %one : tensor<i32>
    %p = stablehlo.compare EQ, %odd, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    {named} = "stablehlo.if"(%p) ({{
      {then} : {types}
    }}, {{
      {other} : {types}
    }}) : (tensor<i1>) -> ({types})
    {more}
    %next = stablehlo.add %k, %one : tensor<i32>
    stablehlo.return %next, {first}, {second} : tensor<i32>, {T}, {T}
  }}
  return %r#1, %r#2 : {T}, {T}
}}"""


def copies(text: str, donate: tuple[int, ...] = ()) -> int:
    """Runs a program in guarded memory against the reference; returns the copies of large tensors in its loop."""
    generator = np.random.default_rng(0)
    given = [generator.random(N, np.float32), generator.random(N, np.float32), np.ones(4, np.float32), np.array(5, np.int32)]
    wants = evaluate(shlo_jit.parse(text), *[x.copy() for x in given])
    exe = guarded.compile(text, cache=False, donate=donate)
    for got, want in zip(exe(*[x.copy() for x in given]), wants, strict=True):
        np.testing.assert_array_equal(got, want)
    lines = exe.text("memory").splitlines()
    inside = [line for line in lines if line.startswith(("at the end of a region", "before step 1."))]
    return sum(f"{N}xf32" in line for line in inside)


U = "%d = " + UPDATE
KEPT = "stablehlo.return %a"


@pytest.mark.parametrize("donate", [(), (0, 1)])
@pytest.mark.parametrize(
    "then,other",
    [
        (U.format(x="%a") + "\nstablehlo.return %d", KEPT),
        (KEPT, U.format(x="%a") + "\nstablehlo.return %d"),
        (U.format(x="%a") + "\n%e = " + UPDATE.format(x="%d") + "\nstablehlo.return %e", KEPT),
        (f"%d = stablehlo.negate %a : {T}\nstablehlo.return %d", KEPT),
    ],
    ids=["then", "else", "two updates", "all elements"],
)
def test_a_state_that_one_branch_returns(then: str, other: str, donate: tuple[int, ...]) -> None:
    assert copies(branches(then, other), donate) == 0


def test_two_states() -> None:
    then = U.format(x="%a") + "\nstablehlo.return %d, %b"
    other = U.format(x="%b") + "\nstablehlo.return %a, %d"
    assert copies(branches(then, other, 2)) == 0


def test_states_that_a_branch_swaps() -> None:
    """They are exchanged through a third memory."""
    assert copies(branches("stablehlo.return %b, %a", "stablehlo.return %a, %b", 2)) == 4


def test_an_old_state_that_is_read_as_a_whole_later() -> None:
    more = f"%s = stablehlo.add %b, %a : {T}"
    text = branches(U.format(x="%a") + "\nstablehlo.return %d", KEPT, 1, more).replace("%c#0, %b", "%c#0, %s")
    assert copies(text) == 0  # it is read before the branches


def test_a_state_that_is_needed_beside_the_result() -> None:
    text = branches(U.format(x="%a") + "\nstablehlo.return %d", KEPT).replace("%c#0, %b", "%c#0, %a")
    assert copies(text) > 0


def test_an_argument_is_copied_once() -> None:
    text = f"""func.func @main(%a: {T}, %u: tensor<4xf32>, %k: tensor<i32>, %p: tensor<i1>) -> {T} {{
  %c = "stablehlo.if"(%p) ({{
    {U.format(x="%a")}
    %e = {UPDATE.format(x="%d")}
    stablehlo.return %e : {T}
  }}, {{
    stablehlo.return %a : {T}
  }}) : (tensor<i1>) -> {T}
  return %c : {T}
}}"""
    exe = shlo_jit.compile(text, cache=False)
    printed = exe.text("memory")
    assert codes(printed).count("copied-before-update") == codes(printed).count("branch-result") == 1
