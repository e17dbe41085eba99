"""Deeply nested regions, and long chains of calls."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import shlo_jit
from shlo_jit import deep
from shlo_jit.errors import ParseError, VerifyError

VECTOR = "tensor<4xf32>"
X = np.arange(4, dtype=np.float32)


def nested(kind: str, levels: int) -> str:
    """Nested control flow of one kind; at the bottom x + y, elsewhere x * y."""
    ends = {
        "if": f"stablehlo.return %e# : {VECTOR} }}) : (tensor<i1>) -> {VECTOR}",
        "case": f"stablehlo.return %e# : {VECTOR} }}) : (tensor<i32>) -> {VECTOR}",
    }
    head, tail, value = [], [], f"%r{0}"
    for d in range(levels):
        inner = "%leaf" if d == levels - 1 else f"%r{d + 1}"
        if kind == "while":
            outer = "%x" if d == 0 else f"%a{d - 1}"
            inner = "%leaf" if d == levels - 1 else f"%r{d + 1}#1"
            head.append(
                f"%r{d}:2 = stablehlo.while(%i{d} = %zero, %a{d} = {outer}) : tensor<i32>, {VECTOR} cond {{\n"
                f"%c{d} = stablehlo.compare LT, %i{d}, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
                f"stablehlo.return %c{d} : tensor<i1> }} do {{ %j{d} = stablehlo.add %i{d}, %one : tensor<i32>"
            )
            tail.append(f"stablehlo.return %j{d}, {inner} : tensor<i32>, {VECTOR} }}")
            value = "%r0#1"
        else:
            head.append(f'%r{d} = "stablehlo.{kind}"({"%p" if kind == "if" else "%k"}) ({{')
            other = f"}}, {{ %e# = stablehlo.multiply %x, %y : {VECTOR}\n{ends[kind]}".replace("#", str(d))
            tail.append(f"stablehlo.return {inner} : {VECTOR}\n{other}")
    last = f"%a{levels - 1}" if kind == "while" else "%x"
    lines = "\n".join([*head, f"%leaf = stablehlo.add {last}, %y : {VECTOR}", *reversed(tail)])
    return f"""func.func @main(%p: tensor<i1>, %k: tensor<i32>, %x: {VECTOR}, %y: {VECTOR}) -> {VECTOR} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      {lines}
      return {value} : {VECTOR}
    }}"""


def run(text: str) -> np.ndarray:
    return shlo_jit.compile(text, cache=False)(np.array(True), np.array(0, np.int32), X, X + 1)


@pytest.mark.parametrize("kind", ["if", "case", "while"])
@pytest.mark.sampled(3)
def test_nested_control_flow(kind: str) -> None:
    limit = sys.getrecursionlimit()
    np.testing.assert_array_equal(run(nested(kind, 250)), 2 * X + 1)
    assert sys.getrecursionlimit() == limit


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["if", "case", "while"])
def test_a_thousand_levels(kind: str) -> None:
    np.testing.assert_array_equal(run(nested(kind, 1000)), 2 * X + 1)


def test_everything_else_takes_deep_modules() -> None:
    from shlo_jit.reference.interpreter import evaluate

    text = nested("if", 250)
    module = shlo_jit.parse(text)
    assert shlo_jit.verify(module) == []
    assert shlo_jit.parse(str(module)) == module
    assert module != shlo_jit.parse(nested("if", 249))
    (result,) = evaluate(module, np.array(True), np.array(0, np.int32), X, X + 1)
    np.testing.assert_array_equal(result, 2 * X + 1)
    assert "if" in shlo_jit.compile(text, cache=False).text("plan")


def test_several_threads_at_once_and_the_limit_comes_back() -> None:
    limit = sys.getrecursionlimit()
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: found.append(run(nested("if", 150)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize("levels", [deep.NESTING_LIMIT + 5, 100_000])
def test_deeper_is_a_syntax_error_with_its_place(levels: int) -> None:
    text = "func.func @main(%p: tensor<i1>) {\n" + '"stablehlo.if"(%p) ({\n' * levels
    with pytest.raises(ParseError, match="nested too deeply") as raised:
        shlo_jit.compile(text, cache=False)
    assert raised.value.diagnostics[0].line == deep.NESTING_LIMIT + 1


def test_errors_in_deep_programs_have_their_place() -> None:
    text = nested("if", 250).replace(
        f"%leaf = stablehlo.add %x, %y : {VECTOR}", f"%leaf = stablehlo.add %x, %p : {VECTOR}"
    )
    with pytest.raises((ParseError, VerifyError)) as raised:
        shlo_jit.compile(text, cache=False)
    assert "%leaf" in str(raised.value)


def test_long_chains_of_calls() -> None:
    t = f"({VECTOR}) -> {VECTOR}"
    functions = "".join(
        f"func.func private @f{i}(%x: {VECTOR}) -> {VECTOR} {{ %0 = stablehlo.negate %x : {VECTOR} "
        f"%1 = call @f{i + 1}(%0) : {t} return %1 : {VECTOR} }}\n"
        for i in range(3001)
    )
    functions += f"func.func private @f3001(%x: {VECTOR}) -> {VECTOR} {{ return %x : {VECTOR} }}\n"
    text = f"{functions}func.func @main(%x: {VECTOR}) -> {VECTOR} {{ %0 = call @f0(%x) : {t} return %0 : {VECTOR} }}"
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(X), -X)


def test_control_flow_that_nests_through_calls() -> None:
    """A function for every level: too deep to be inlined completely."""
    t = f"(tensor<i1>, {VECTOR}) -> {VECTOR}"
    functions = "".join(
        f'func.func private @f{i}(%p: tensor<i1>, %x: {VECTOR}) -> {VECTOR} {{ %r = "stablehlo.if"(%p) ({{ '
        f"%a = stablehlo.abs %x : {VECTOR} %c = func.call @f{i + 1}(%p, %a) : {t} "
        f"stablehlo.return %c : {VECTOR} }}, {{ stablehlo.return %x : {VECTOR} }}) : (tensor<i1>) -> {VECTOR} "
        f"return %r : {VECTOR} }}\n"
        for i in range(400)
    )
    functions += f"func.func private @f400(%p: tensor<i1>, %x: {VECTOR}) -> {VECTOR} {{ return %x : {VECTOR} }}\n"
    text = (
        f"{functions}func.func @main(%p: tensor<i1>, %x: {VECTOR}) -> {VECTOR} {{ "
        f"%0 = func.call @f0(%p, %x) : {t} return %0 : {VECTOR} }}"
    )
    executable = shlo_jit.compile(text, cache=False)
    np.testing.assert_array_equal(executable(np.array(True), -X), X)
    np.testing.assert_array_equal(executable(np.array(False), -X), -X)
