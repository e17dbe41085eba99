"""Large programs: functions of bounded size, calls that stay calls, and memory for very many values."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusing import refused

import shlo_jit
from benchmarks.growth_shapes import SHAPES
from shlo_jit import tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.errors import UnsupportedError
from shlo_jit.memory.storage import ALIGN, Storage, place, place_by_time
from shlo_jit.pipeline import program_of
from shlo_jit.reference.interpreter import evaluate

VECTOR = "tensor<16xf32>"
MOST_LINES = 1500
"""Maximum length of an LLVM function: a kernel of 400 ops, or 100 steps."""


def llvm_functions(text: str) -> dict[str, str]:
    """Returns the LLVM functions of a program, by name, before optimization."""
    program = program_of(text, "test", resolve()).text
    return {m[1]: m[0] for m in re.finditer(r"^define [^\n@]*@([\w.$]+)\(.*?^}", program, re.MULTILINE | re.DOTALL)}


def arguments_of(executable: shlo_jit.Executable) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [
        random.integers(0, 2, port.shape).astype(port.dtype)
        if port.dtype.kind in "bi"
        else random.uniform(0.5, 1, port.shape).astype(port.dtype)
        for port in executable.inputs
    ]


def check_against_reference(text: str, **options: object) -> None:
    executable = shlo_jit.compile(text, cache=False, **options)  # type: ignore[arg-type]
    arguments = arguments_of(executable)
    got = executable(*arguments)
    expected = evaluate(shlo_jit.parse(text), *arguments)
    for g, e in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_of_large_programs_compute_what_they_say(shape: str) -> None:
    check_against_reference(SHAPES[shape](24))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.sampled(4)
def test_text_grows_linearly_and_functions_stay_small(shape: str) -> None:
    small, large = (llvm_functions(SHAPES[shape](n)) for n in (100, 300))
    size = [sum(map(len, functions.values())) for functions in (small, large)]
    assert size[1] < 4 * size[0] + 20_000
    assert max(text.count("\n") for text in large.values()) < MOST_LINES


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_compile_time_and_memory_grow_linearly(shape: str) -> None:
    from benchmarks.compile_growth import OURS, growth, measure

    costs = {(OURS, shape, n): measure(OURS, shape, n, 200) for n in (1000, 10_000)}
    found = growth(costs, OURS, shape, 10_000)
    assert found is not None, costs
    assert max(found) < 2, costs


# ---------------------------------------------------------------------- parts
def chain(length: int) -> tuple[str, str]:
    """Returns sorts and sums of `%w`, so that there are many steps: the ops, and the last value."""
    lines, v = [], "%w"
    for i in range(length):
        lines.append(f"%s{i} = stablehlo.reverse {v}, dims = [0] : {VECTOR}")
        lines.append(
            f'%t{i} = "stablehlo.sort"(%s{i}) <{{dimension = 0 : i64}}> ({{ ^bb0(%a: tensor<f32>, %b: tensor<f32>): '
            f"%c = stablehlo.compare {'LT' if i % 2 else 'GT'}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1> "
            f"stablehlo.return %c : tensor<i1> }}) : ({VECTOR}) -> {VECTOR}"
        )
        lines.append(f"%v{i} = stablehlo.add %t{i}, %y : {VECTOR}")
        v = f"%v{i}"
    return "\n".join(lines), v


def test_long_bodies_of_loops_are_cut_too() -> None:
    body, last = chain(150)
    text = f"""func.func @main(%x: {VECTOR}, %y: {VECTOR}) -> {VECTOR} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %two = stablehlo.constant dense<2> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %w = %x) : tensor<i32>, {VECTOR} cond {{
        %p = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %one : tensor<i32>
        {body}
        stablehlo.return %j, {last} : tensor<i32>, {VECTOR}
      }}
      return %r#1 : {VECTOR}
    }}"""
    assert sum(name.startswith("part") for name in llvm_functions(text)) > 1
    check_against_reference(text)


def test_parts_see_memory_that_a_loop_exchanges() -> None:
    """A large state and its new value are swapped at the end of every iteration."""
    n = 2048
    t = f"tensor<{n}xf32>"
    lines, v = [], "%a"
    for i in range(130):
        lines.append(f"%c{i} = stablehlo.reverse {v}, dims = [0] : {t}")
        lines.append(f"%s{i} = stablehlo.slice %c{i} [{i % 7}:{i % 7 + 1}] : ({t}) -> tensor<1xf32>")
        lines.append(f"%b{i} = stablehlo.reshape %s{i} : (tensor<1xf32>) -> tensor<f32>")
        lines.append(f"%z{i} = stablehlo.constant dense<{i}> : tensor<i32>")
        lines.append(
            f"%u{i} = stablehlo.dynamic_update_slice %c{i}, %s{i}, %z{i} : ({t}, tensor<1xf32>, tensor<i32>) -> {t}"
        )
        v = f"%u{i}"
    body = "\n".join(lines)
    text = f"""func.func @main(%x: {t}) -> {t} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %end = stablehlo.constant dense<3> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, {t} cond {{
        %p = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %one : tensor<i32>
        {body}
        stablehlo.return %j, {v} : tensor<i32>, {t}
      }}
      return %r#1 : {t}
    }}"""
    parts = [body for name, body in llvm_functions(text).items() if name.startswith("part")]
    assert any("%moved0" in part for part in parts)
    check_against_reference(text)


def test_a_custom_call_that_fails_in_a_part_stops_the_program() -> None:
    lines = "\n".join(
        f"%c{i} = stablehlo.custom_call @step(%{'x' if i == 0 else f'c{i - 1}'}) {{has_side_effect = true}} : "
        f"({VECTOR}) -> {VECTOR}"
        for i in range(250)
    )
    text = f"func.func @main(%x: {VECTOR}) -> {VECTOR} {{\n{lines}\nreturn %c249 : {VECTOR}\n}}"
    calls = 0

    def step(x: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 170:
            raise ValueError("enough")
        return x + 1

    executable = shlo_jit.compile(text, custom_calls={"step": step}, cache=False)
    with pytest.raises(ValueError, match="enough"):
        executable(np.zeros(16, np.float32))
    assert calls == 170
    calls = 1000
    assert executable(np.zeros(16, np.float32))[0] == 250


# ---------------------------------------------------------------------- memory
@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(1, 1000)), max_size=60))
def test_places_do_not_overlap(lives: list[tuple[int, int, int]]) -> None:
    storages = [Storage("arena", size, 0, first, first + length) for first, length, size in lives]
    total = place_by_time(storages)
    for i, a in enumerate(storages):
        assert a.number % ALIGN == 0
        assert a.number + a.nbytes <= total
        for b in storages[:i]:
            apart = a.last < b.first or b.last < a.first
            assert apart or a.number + a.nbytes <= b.number or b.number + b.nbytes <= a.number


def test_very_many_values_share_memory() -> None:
    random = np.random.default_rng(3)
    storages = [
        Storage("arena", int(size), 0, i, i + int(length))
        for i, (size, length) in enumerate(
            zip(random.integers(64, 4096, 5000), random.integers(1, 9, 5000), strict=True)
        )
    ]
    assert len(storages) > tuning.FEW_STORAGES
    needed = max(sum(s.nbytes for s in storages if s.first <= t <= s.last) for t in range(0, 5000, 7))
    assert place(storages) < 2 * needed


# ---------------------------------------------------------------------- calls
def call_dag(levels: int, leaf: str, before: str = "") -> str:
    functions = "".join(
        f"func.func private @f{i}(%x: {VECTOR}) -> {VECTOR} {{ %0 = call @f{i + 1}(%x) : ({VECTOR}) -> {VECTOR} "
        f"%1 = call @f{i + 1}(%0) : ({VECTOR}) -> {VECTOR} %2 = stablehlo.maximum %1, %x : {VECTOR} "
        f"return %2 : {VECTOR} }}\n"
        for i in range(levels)
    )
    functions += f"func.func private @f{levels}(%x: {VECTOR}) -> {VECTOR} {{ {leaf} }}\n"
    return (
        f"{functions}func.func @main(%x: {VECTOR}) -> {VECTOR} {{ {before} %r = call @f0(%x) : ({VECTOR}) -> {VECTOR} "
        f"return %r : {VECTOR} }}"
    )


HALF = f"%h = stablehlo.constant dense<0.5> : {VECTOR} %r = stablehlo.multiply %x, %h : {VECTOR} return %r : {VECTOR}"


def test_two_to_the_thirty_calls_compile() -> None:
    text = call_dag(30, HALF)
    assert any(name.startswith("function") for name in llvm_functions(text))
    shlo_jit.compile(text, cache=False)


def test_kept_calls_compute_what_the_reference_says() -> None:
    """13 levels make 8,000 calls, which the interpreter can run."""
    text = call_dag(12, f"%0 = stablehlo.cosine %x : {VECTOR} %1 = stablehlo.tanh %0 : {VECTOR} return %1 : {VECTOR}")
    assert any(name.startswith("function") for name in llvm_functions(text))
    check_against_reference(text)


def test_effects_in_functions_happen_in_order() -> None:
    leaf = (
        f"%0 = stablehlo.custom_call @note(%x) {{has_side_effect = true}} : ({VECTOR}) -> {VECTOR} return %0 : {VECTOR}"
    )
    seen: list[float] = []
    failing = False

    def note(x: np.ndarray) -> np.ndarray:
        if len(seen) == 3000 and failing:
            raise ValueError("enough")
        seen.append(float(x[0]))
        return np.zeros_like(x) + np.float32((len(seen) - 1) % 4096 % 50)

    text = call_dag(12, leaf)
    expected: list[float] = []

    def f(level: int, x: float) -> float:
        if level == 12:
            expected.append(x)
            return float((len(expected) - 1) % 50)
        return max(f(level + 1, f(level + 1, x)), x)

    executable = shlo_jit.compile(text, custom_calls={"note": note}, cache=False)
    assert executable(np.zeros(16, np.float32))[0] == f(0, 0.0)
    assert seen[:4096] == expected
    seen.clear()
    failing = True
    with pytest.raises(ValueError, match="enough"):
        executable(np.zeros(16, np.float32))
    assert len(seen) == 3000


def test_calls_in_the_body_of_a_reduction_are_written_out() -> None:
    """Bodies cannot call; with 2^25 inlined calls, the program is refused at compile time."""

    def text(levels: int) -> str:
        scalar = "tensor<f32>"
        functions = "".join(
            f"func.func private @g{i}(%a: {scalar}) -> {scalar} {{ %0 = call @g{i + 1}(%a) : ({scalar}) -> {scalar} "
            f"%1 = call @g{i + 1}(%0) : ({scalar}) -> {scalar} return %1 : {scalar} }}\n"
            for i in range(levels)
        )
        return f"""{functions}
        func.func private @g{levels}(%a: {scalar}) -> {scalar} {{
          %0 = stablehlo.abs %a : {scalar}
          return %0 : {scalar}
        }}
        func.func @main(%x: {VECTOR}) -> {scalar} {{
          %z = stablehlo.constant dense<0.0> : {scalar}
          %r = stablehlo.reduce(%x init: %z) across dimensions = [0] : ({VECTOR}, {scalar}) -> {scalar}
          reducer(%a: {scalar}, %b: {scalar}) {{
            %c = func.call @g0(%b) : ({scalar}) -> {scalar}
            %d = stablehlo.add %a, %c : {scalar}
            stablehlo.return %d : {scalar}
          }}
          return %r : {scalar}
        }}"""

    check_against_reference(text(2))
    with refused(UnsupportedError, "too-many-ops"):
        shlo_jit.compile(text(25), cache=False)


def test_a_function_that_writes_into_a_donated_state() -> None:
    """A callee assumes that its results' memory is aligned; a donated argument's need not be."""
    text = (
        call_dag(12, HALF).replace("@main", "@inner").replace("func.func @inner", "func.func private @inner")
        + f"""
    func.func @main(%x: {VECTOR}) -> {VECTOR} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %end = stablehlo.constant dense<3> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, {VECTOR} cond {{
        %p = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %one : tensor<i32>
        %b = func.call @inner(%a) : ({VECTOR}) -> {VECTOR}
        stablehlo.return %j, %b : tensor<i32>, {VECTOR}
      }}
      return %r#1 : {VECTOR}
    }}"""
    )
    numbers = np.linspace(-1e-3, 1e-3, 17, dtype=np.float32)[1:]  # aligned to 4 bytes only
    expected = shlo_jit.compile(text, cache=False)(numbers)
    np.testing.assert_array_equal(shlo_jit.compile(text, donate=(0,), cache=False)(numbers), expected)
