"""Comparators that are functions of the program: what they may contain, how often they are called, and their
arguments."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from guarded import plain_compile

import shlo_jit
from shlo_jit.ir.types import DTYPES
from shlo_jit.reference.interpreter import evaluate

I, F = "tensor<i32>", "tensor<f32>"
LOOP = """%z{x} = stablehlo.constant dense<0> : tensor<i32>
%ten{x} = stablehlo.constant dense<10> : tensor<i32>
%w{x}:2 = stablehlo.while(%p{x} = {v}, %q{x} = %z{x}) : tensor<i32>, tensor<i32>
cond {{
  %c{x} = stablehlo.compare GT, %p{x}, %z{x} : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %c{x} : tensor<i1>
}} do {{
  %d{x} = stablehlo.divide %p{x}, %ten{x} : tensor<i32>
  %m{x} = stablehlo.remainder %p{x}, %ten{x} : tensor<i32>
  %s{x} = stablehlo.add %q{x}, %m{x} : tensor<i32>
  stablehlo.return %d{x}, %s{x} : tensor<i32>, tensor<i32>
}}"""
"""%w{x}#1 is the sum of the decimal digits of {v}."""
LESS_SUM = "%o = stablehlo.compare LT, %wa#1, %wb#1 : (tensor<i32>, tensor<i32>) -> tensor<i1>"
DIGITS = "\n".join([LOOP.format(x="a", v="%a"), LOOP.format(x="b", v="%b"), LESS_SUM])


def sort(t: str, body: str, dimension: int = 0, more: str = "", element: str = "i32") -> str:
    scalar = f"tensor<{element}>"
    return f"""func.func @main(%x: {t}{more}) -> {t} {{
  %0 = "stablehlo.sort"(%x) <{{dimension = {dimension} : i64, is_stable = true}}> ({{
  ^bb0(%a: {scalar}, %b: {scalar}):
    {body}
    stablehlo.return %o : tensor<i1>
  }}) : ({t}) -> {t}
  return %0 : {t}
}}"""


def digit_sums(x: np.ndarray) -> np.ndarray:
    return sum((x // 10**k % 10 for k in range(1, 10)), x % 10)


def ordered(x: np.ndarray, keys: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.take_along_axis(x, np.argsort(keys, axis, kind="stable"), axis)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000, 100_000])
def test_lines_of_any_length(n: int) -> None:
    x = np.random.default_rng(n).integers(0, 10**6, n).astype(np.int32)
    exe = shlo_jit.compile(sort(f"tensor<{n}xi32>", DIGITS), cache=False, threads=2)
    np.testing.assert_array_equal(exe(x), ordered(x, digit_sums(x)))
    assert n < 2 or "calls a function for each comparison" in exe.text("schedule")


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_lines_along_any_dimension(dimension: int) -> None:
    x = np.random.default_rng(5).integers(0, 10**6, (5, 6, 7)).astype(np.int32)
    exe = shlo_jit.compile(sort("tensor<5x6x7xi32>", DIGITS, dimension), cache=False, threads=2)
    np.testing.assert_array_equal(exe(x), ordered(x, digit_sums(x), dimension))


def test_values_from_outside_are_arguments() -> None:
    """A table that the comparator reads, and that is not a constant."""
    looked_up = """%i{x} = stablehlo.dynamic_slice %t, %{x}, sizes = [1] : (tensor<50xf32>, tensor<i32>) -> tensor<1xf32>
    %k{x} = stablehlo.reshape %i{x} : (tensor<1xf32>) -> tensor<f32>"""
    less = "%o = stablehlo.compare GT, %ka, %kb : (tensor<f32>, tensor<f32>) -> tensor<i1>"
    text = sort(
        "tensor<40xi32>",
        "\n".join([looked_up.format(x="a"), looked_up.format(x="b"), less]),
        more=", %t: tensor<50xf32>",
    )
    rng = np.random.default_rng(1)
    x, t = rng.integers(0, 50, 40).astype(np.int32), rng.standard_normal(50).astype(np.float32)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, t), ordered(x, -t[x]))


@pytest.mark.slow
def test_a_comparator_may_sort() -> None:
    """Sorts by the second of three numbers, which the comparator finds by sorting in a loop."""
    inner = """%r{x} = stablehlo.reshape %{x} : (tensor<i32>) -> tensor<1xi32>
    %n{x} = stablehlo.constant dense<[555, 100]> : tensor<2xi32>
    %t{x} = stablehlo.concatenate %r{x}, %n{x}, dim = 0 : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>
    %s{x} = "stablehlo.sort"(%t{x}) <{{dimension = 0 : i64, is_stable = true}}> ({{
    ^bb0(%f{x}: tensor<i32>, %g{x}: tensor<i32>):
      LOOPS
      %l{x} = stablehlo.compare LT, %wf{x}#1, %wg{x}#1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %l{x} : tensor<i1>
    }}) : (tensor<3xi32>) -> tensor<3xi32>
    %e{x} = stablehlo.slice %s{x} [1:2] : (tensor<3xi32>) -> tensor<1xi32>
    %k{x} = stablehlo.reshape %e{x} : (tensor<1xi32>) -> tensor<i32>"""
    parts = [
        inner.format(x=x).replace("LOOPS", "\n".join(LOOP.format(x=f"{y}{x}", v=f"%{y}{x}") for y in "fg"))
        for x in "ab"
    ]
    less = "%o = stablehlo.compare LT, %ka, %kb : (tensor<i32>, tensor<i32>) -> tensor<i1>"
    text = sort("tensor<30xi32>", "\n".join([*parts, less]))
    x = np.random.default_rng(4).integers(0, 1000, 30).astype(np.int32)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x), evaluate(shlo_jit.parse(text), x)[0])


CALLED = (
    "%o = stablehlo.custom_call @before(%a, %b) {has_side_effect = true} : (tensor<i32>, tensor<i32>) -> tensor<i1>"
)


def test_user_code_is_called_once_per_comparison() -> None:
    calls = 0

    def before(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return np.asarray(a % 100 < b % 100)

    n = 1000
    x = np.random.default_rng(2).integers(0, 10**6, n).astype(np.int32)
    exe = plain_compile(sort(f"tensor<{n}xi32>", CALLED), cache=False, threads=4, custom_calls={"before": before})
    np.testing.assert_array_equal(exe(x), ordered(x, x % 100))
    assert n - 1 <= calls < n * math.ceil(math.log2(n))


def test_an_exception_in_user_code_ends_the_sort() -> None:
    def before(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        raise ValueError(f"no order of {int(a)} and {int(b)}")

    exe = shlo_jit.compile(sort("tensor<3xi32>", CALLED), cache=False, custom_calls={"before": before})
    with pytest.raises(ValueError, match="no order of 4 and 7"):
        exe(np.array([7, 4, 5], np.int32))


def test_short_conditions_are_selections() -> None:
    """Odd numbers first, each kind in order: no function is needed."""
    body = """%one = stablehlo.constant dense<1> : tensor<i32>
    %pa = stablehlo.and %a, %one : tensor<i32>
    %pb = stablehlo.and %b, %one : tensor<i32>
    %same = stablehlo.compare EQ, %pa, %pb : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %o = "stablehlo.if"(%same) ({
      %l = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
    }, {
      %m = stablehlo.compare GT, %pa, %pb : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %m : tensor<i1>
    }) : (tensor<i1>) -> tensor<i1>"""
    x = np.random.default_rng(3).integers(-50, 50, 300).astype(np.int32)
    exe = shlo_jit.compile(sort("tensor<300xi32>", body), cache=False)
    np.testing.assert_array_equal(exe(x), sorted(x, key=lambda v: (v % 2 == 0, v)))
    assert "calls a function" not in exe.text("schedule")


def test_comparators_that_communicate_are_refused() -> None:
    body = """%r = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
    ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %s = stablehlo.add %p, %q : tensor<i32>
      stablehlo.return %s : tensor<i32>
    }) : (tensor<i32>) -> tensor<i32>
    %o = stablehlo.compare LT, %r, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>"""
    with pytest.raises(shlo_jit.UnsupportedError, match=r"4:\d+: .*all_reduce is not supported"):
        shlo_jit.compile(sort("tensor<9xi32>", body), cache=False, num_replicas=2)


def test_users_cannot_write_the_call() -> None:
    call = "%0 = stablehlo.custom_call @shlo_jit.sort(%x) {callee = @main, dimension = 0 : i64} : (tensor<9xi32>) -> tensor<9xi32>"
    text = f"func.func @main(%x: tensor<9xi32>) -> tensor<9xi32> {{\n{call}\nreturn %0 : tensor<9xi32>\n}}"
    with pytest.raises(shlo_jit.VerifyError, match=r"custom_call @shlo_jit.sort: .*reserved"):
        shlo_jit.compile(text)


def test_functions_are_named_after_the_function_that_sorts() -> None:
    exe = shlo_jit.compile(sort("tensor<9xi32>", DIGITS), cache=False)
    assert re.search(r"@main: comparator 0:", exe.text("schedule"))


@pytest.mark.parametrize(
    "dtype", ["i1", "i4", "ui2", "i8", "ui64", "f8E5M2", "bf16", "f16", "f64", "complex<f32>", "complex<f64>"]
)
@pytest.mark.sampled(3)
def test_elements_of_any_type_and_operands_that_go_along(dtype: str) -> None:
    """Sorts by the first element of a tensor of an element and a constant, after they are swapped twice."""
    part = "" if dtype.startswith("complex") else dtype
    scalar, pair, row = f"tensor<{dtype}>", f"tensor<2x{dtype}>", f"tensor<1x{dtype}>"
    numbers = "%e{x} = stablehlo.real %d{x} : (tensor<{c}>) -> tensor<f{w}>\n" if not part else ""
    look = f"""%p{{x}} = stablehlo.broadcast_in_dim %{{x}}, dims = [] : ({scalar}) -> {pair}
    %q{{x}} = stablehlo.reverse %p{{x}}, dims = [0] : {pair}
    %r{{x}} = stablehlo.reshape %{{x}} : ({scalar}) -> {row}
    %z{{x}} = stablehlo.constant dense<0> : tensor<i32>
    %u{{x}} = stablehlo.dynamic_update_slice %q{{x}}, %r{{x}}, %z{{x}} : ({pair}, {row}, tensor<i32>) -> {pair}
    %s{{x}} = stablehlo.slice %u{{x}} [0:1] : ({pair}) -> {row}
    %d{{x}} = stablehlo.reshape %s{{x}} : ({row}) -> {scalar}
    """ + numbers.replace("{c}", dtype).replace("{w}", dtype[9:11])  # fmt: skip
    key, kind = ("%d", scalar) if part else ("%e", f"tensor<f{dtype[9:11]}>")
    less = f"%o = stablehlo.compare GT, {key}a, {key}b : ({kind}, {kind}) -> tensor<i1>"
    t, u = f"tensor<4x33x{dtype}>", "tensor<4x33xi16>"
    text = f"""func.func @main(%x: {t}, %y: {u}) -> ({t}, {u}) {{
  %0:2 = "stablehlo.sort"(%x, %y) <{{dimension = 1 : i64, is_stable = true}}> ({{
  ^bb0(%a: {scalar}, %b: {scalar}, %c: tensor<i16>, %i: tensor<i16>):
    {look.format(x="a")}
    {look.format(x="b")}
    {less}
    stablehlo.return %o : tensor<i1>
  }}) : ({t}, {u}) -> ({t}, {u})
  return %0#0, %0#1 : {t}, {u}
}}"""
    rng, element = np.random.default_rng(6), DTYPES[dtype]
    low = 0 if element.kind in "bu" else -2
    x = rng.integers(low, 2, (4, 33)).astype(element.numpy)
    y = np.arange(4 * 33, dtype=np.int16).reshape(4, 33)
    got = shlo_jit.compile(text, cache=False, threads=3)(x, y)
    for found, want in zip(got, evaluate(shlo_jit.parse(text), x, y), strict=True):
        assert found.tobytes() == want.tobytes()
