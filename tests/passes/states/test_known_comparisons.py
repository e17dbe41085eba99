"""Comparisons of counters with numbers that they never reach are folded, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from alone import after
from looped import T, check, looped, names

import shlo_jit
from shlo_jit.passes.states.known_comparisons import known_comparisons
from shlo_jit.reference.interpreter import evaluate


def compared(direction: str, x: str, number: int) -> str:
    return f"""%k = stablehlo.constant dense<{number}> : tensor<i32>
    %q = stablehlo.compare {direction}, {x}, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %m = stablehlo.negate %s : {T}
    %c = stablehlo.select %q, %m, %s : tensor<i1>, {T}"""


CASES = [
    ("LT", "%i", 0, True), ("LT", "%i", 1, False), ("LT", "%i", 6, True), ("LT", "%i", 5, False), ("GE", "%i", 0, True),
    ("GE", "%i", 6, True), ("GE", "%i", 5, False), ("EQ", "%i", 6, True), ("NE", "%i", 3, False), ("GT", "%i", 5, True),
    ("LE", "%i", 5, True), ("LT", "%j", 0, False), ("GE", "%odd", 2, True), ("GE", "%odd", 1, False),
]  # fmt: skip


@pytest.mark.parametrize("direction,x,number,known", CASES)
def test_a_counter(direction: str, x: str, number: int, known: bool) -> None:
    function, _ = check(looped(compared(direction, x, number), "%c"), known_comparisons)
    assert (names(function)["compare"] < 2) is known


def loop(first: int, limit: str, step: int, t: str = "i8", direction: str = "LT") -> str:
    """A loop over a counter of few bits and one that follows it; counts how often the second is negative."""
    return f"""func.func @main(%limit: tensor<{t}>, %go: tensor<i1>) -> (tensor<{t}>, tensor<i32>) {{
  %first = stablehlo.constant dense<{first}> : tensor<{t}>
  %count = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %first, %k = %first, %n = %count) : tensor<{t}>, tensor<{t}>, tensor<i32> cond {{
    %last = stablehlo.constant dense<{limit.removeprefix("%limit") or 0}> : tensor<{t}>
    %most = stablehlo.constant dense<900> : tensor<i32>
    %p = stablehlo.compare {direction}, %i, {"%limit" if limit == "%limit" else "%last"} : (tensor<{t}>, tensor<{t}>) -> tensor<i1>
    %few = stablehlo.compare LT, %n, %most : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %q = stablehlo.and %p, %few : tensor<i1>
    stablehlo.return %q : tensor<i1>
  }} do {{
    %step = stablehlo.constant dense<{step}> : tensor<{t}>
    %zero = stablehlo.constant dense<0> : tensor<{t}>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %neg = stablehlo.compare LT, %k, %zero : (tensor<{t}>, tensor<{t}>) -> tensor<i1>
    %ten = stablehlo.constant dense<300> : tensor<i32>
    %more = stablehlo.select %neg, %ten, %one : tensor<i1>, tensor<i32>
    %a = stablehlo.add %i, %step : tensor<{t}>
    %b = stablehlo.add %k, %step : tensor<{t}>
    %c = stablehlo.add %n, %more : tensor<i32>
    stablehlo.return %a, %b, %c : tensor<{t}>, tensor<{t}>, tensor<i32>
  }}
  return %r#1, %r#2 : tensor<{t}>, tensor<i32>
}}"""


@pytest.mark.parametrize("first,limit,step,folded", [
    (0, "100", 1, True), (0, "%limit", 1, True), (0, "120", 10, False), (0, "110", 10, True), (-2, "100", 1, False),
    (0, "%limit", 2, False), (3, "127", 1, True), (5, "2", 1, True),
])  # fmt: skip
def test_counters_that_may_wrap_around(first: int, limit: str, step: int, folded: bool) -> None:
    text = loop(first, limit, step)
    function = after(text, known_comparisons)
    assert (names(function)["compare"] == 2) is folded
    for number in (-128, 0, 5, 126, 127):
        given = np.array(number, np.int8), np.array(True)
        want = evaluate(shlo_jit.parse(text), *given)
        assert [np.asarray(x).tobytes() for x in evaluate(function, *given)] == [np.asarray(x).tobytes() for x in want]


@pytest.mark.parametrize("direction,first,limit,step,folded", [
    ("GE", 100, "0", -1, True), ("GE", 100, "0", -7, True), ("GE", 100, "-1", -1, False), ("GT", 100, "-1", -1, True),
    ("GT", 100, "%limit", -1, False), ("GE", -3, "-128", -1, False), ("GE", -3, "-120", -10, False),
    ("GE", -3, "-118", -10, True), ("GT", -3, "-128", -1, True), ("LT", 100, "0", -1, False), ("GE", 0, "0", 1, False),
])  # fmt: skip
def test_counters_that_decrease(direction: str, first: int, limit: str, step: int, folded: bool) -> None:
    text = loop(first, limit, step, direction=direction)
    function = after(text, known_comparisons)
    assert (names(function)["compare"] == 2) is folded
    for number in (-128, 0, 5, 126, 127):
        given = np.array(number, np.int8), np.array(True)
        want = evaluate(shlo_jit.parse(text), *given)
        assert [np.asarray(x).tobytes() for x in evaluate(function, *given)] == [np.asarray(x).tobytes() for x in want]
