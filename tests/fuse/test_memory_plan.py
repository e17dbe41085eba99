"""Shared memory of values: programs whose results are wrong if a value is overwritten before its last read."""

from __future__ import annotations

import guarded
import numpy as np
import pytest
from printed_codes import codes

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

T = "tensor<64xf32>"


def check(lines: str, results: str, returned: str, size: int = 64) -> None:
    """Compares the compiled program with the reference interpreter on integers, where no rounding hides errors."""
    text = f"func.func @main(%x: {T}, %y: {T}, %n: tensor<i32>) -> ({results}) {{\n{lines}\nreturn {returned} : {results}\n}}"
    text = text.replace("64xf32", f"{size}xf32")
    x = np.arange(size, dtype=np.float32) % 13 + 1
    given = x, x[::-1] * 3, np.int32(7)
    wants = evaluate(shlo_jit.parse(text), *given)
    exe = guarded.compile(text, cache=False)
    for got, want in zip(guarded.outputs(exe(*given)), wants, strict=True):
        np.testing.assert_array_equal(got, want, exe.text("plan"))


def in_memory(name: str, value: str) -> str:
    """A value that is written to memory other than a result's: two ops other than loops sort it first."""
    return f"""
  %{name} = "stablehlo.sort"(%{value}) <{{dimension = 0 : i64}}> ({{
  ^bb0(%{name}_a: tensor<f32>, %{name}_b: tensor<f32>):
    %{name}_p = stablehlo.compare LT, %{name}_a, %{name}_b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %{name}_p : tensor<i1>
  }}) : ({T}) -> {T}"""


def test_a_loop_that_reads_an_operand_elsewhere_than_it_writes() -> None:
    lines = f"""{in_memory("a", "x")}
  %r = stablehlo.reverse %a, dims = [0] : {T}
  %b = stablehlo.multiply %a, %r : {T}
  %c = stablehlo.subtract %b, %r : {T}"""
    check(lines + in_memory("d", "c"), T, "%d")


@pytest.mark.parametrize("update", ["%a", "%v"])
def test_a_scatter_of_a_tensor_into_itself(update: str) -> None:
    """Scatters of the tensor into itself, or into a view of its memory."""
    lines = f"""{in_memory("a", "x")}
  %m = stablehlo.reshape %a : ({T}) -> tensor<1x64xf32>
  %v = stablehlo.reshape %m : (tensor<1x64xf32>) -> {T}
  %i = stablehlo.iota dim = 0 : tensor<64xi32>
  %j = stablehlo.reverse %i, dims = [0] : tensor<64xi32>
  %k = stablehlo.reshape %j : (tensor<64xi32>) -> tensor<64x1xi32>
  %s = "stablehlo.scatter"(%a, %k, {update}) <{{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %t = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %t : tensor<f32>
  }}) : ({T}, tensor<64x1xi32>, {T}) -> {T}"""
    check(lines + in_memory("d", "s"), T, "%d")


def test_an_update_that_reads_the_updated_tensor() -> None:
    lines = f"""{in_memory("a", "x")}
  %part = stablehlo.slice %a [5:64] : ({T}) -> tensor<59xf32>
  %back = stablehlo.reverse %part, dims = [0] : tensor<59xf32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %u = stablehlo.dynamic_update_slice %a, %back, %one : ({T}, tensor<59xf32>, tensor<i32>) -> {T}"""
    check(lines + in_memory("d", "u"), T, "%d")


@pytest.mark.parametrize("first,overlaps", [(0, False), (30, False), (24, True), (60, False)])
def test_an_update_that_reads_another_part(first: int, overlaps: bool) -> None:
    """A border, for example: it is computed from the adjacent elements, and nothing is copied. What is read from
    elements that the update overwrites is written to memory before."""
    lines = f"""{in_memory("a", "x")}
  %part = stablehlo.slice %a [20:30] : ({T}) -> tensor<10xf32>
  %back = stablehlo.multiply %part, %part : tensor<10xf32>
  %at = stablehlo.constant dense<{first}> : tensor<i32>
  %u = stablehlo.dynamic_update_slice %a, %back, %at : ({T}, tensor<10xf32>, tensor<i32>) -> {T}"""
    check(lines + in_memory("d", "u"), T, "%d")
    text = f"func.func @main(%x: {T}) -> {T} {{\n{lines + in_memory('d', 'u')}\nreturn %d : {T}\n}}"
    exe = shlo_jit.compile(text, cache=False)
    assert "update-reads-elsewhere" not in codes(exe.text("memory"))
    assert ("update-overlaps" in codes(exe.text("plan"))) is overlaps


def loop(body: str, returned: str) -> str:
    """Iterations over the states %a and %b; their number is an argument, so that they are not unrolled."""
    return f"""
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y) : tensor<i32>, {T}, {T} cond {{
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %j = stablehlo.add %i, %one : tensor<i32>
{body}
    stablehlo.return %j, {returned} : tensor<i32>, {T}, {T}
  }}"""


STATES = {
    "the old state is another's new one": (f"%c = stablehlo.add %a, %b : {T}", "%c, %a"),
    "states change places": ("", "%b, %a"),
    "a state goes round through a view": (
        f"""%m = stablehlo.reshape %a : ({T}) -> tensor<1x64xf32>
        %v = stablehlo.reshape %m : (tensor<1x64xf32>) -> {T}
        %c = stablehlo.maximum %a, %b : {T}""",
        "%c, %v",
    ),
    "a value computed from both is both": (
        f"{in_memory('c', 'a')}\n%d = stablehlo.add %c, %b : {T}{in_memory('e', 'd')}",
        "%e, %e",
    ),
    "the old state is read after the new one is made": (
        f"""%c = stablehlo.subtract %b, %a : {T}
        {in_memory("d", "c")}
        %e = stablehlo.reverse %a, dims = [0] : {T}
        %f = stablehlo.add %d, %e : {T}""",
        "%c, %f",
    ),
    "the old state is read elsewhere than the new one is written": (
        f"""%e = stablehlo.reverse %a, dims = [0] : {T}
        %c = stablehlo.subtract %b, %e : {T}""",
        "%c, %b",
    ),
    "a new state is read twice": (
        f"{in_memory('u', 'a')}\n%w = stablehlo.add %u, %b : {T}{in_memory('s', 'w')}\n%t = stablehlo.subtract %s, %u : {T}",
        "%t, %s",
    ),
    "one value is two states": (f"%c = stablehlo.subtract %a, %b : {T}", "%c, %c"),
    "the same from outside": (f"%c = stablehlo.subtract %y, %b : {T}", "%c, %y"),
}


@pytest.mark.parametrize("size", [64, 2048], ids=["copied", "exchanged"])
@pytest.mark.parametrize("name", STATES)
def test_states_of_loops(name: str, size: int) -> None:
    body, returned = STATES[name]
    check(loop(body, returned), f"{T}, {T}", "%r#1, %r#2", size)


@pytest.mark.parametrize("size", [64, 2048])
def test_states_with_the_same_initial_value(size: int) -> None:
    lines = loop(f"%c = stablehlo.add %a, %b : {T}\n%d = stablehlo.negate %b : {T}", "%c, %d")
    lines = in_memory("z", "x") + lines.replace("%a = %x, %b = %y", "%a = %z, %b = %z")
    check(lines + in_memory("u", "r#1") + in_memory("v", "r#2"), f"{T}, {T}", "%u, %v", size)


def test_values_that_every_iteration_reads() -> None:
    lines = in_memory("z", "x") + loop(in_memory("c", "a") + f"\n%d = stablehlo.add %c, %z : {T}", "%d, %c")
    check(lines, f"{T}, {T}", "%r#1, %r#2")


def test_a_state_is_written_in_place_next_to_an_update() -> None:
    """A scan's carry and its stacked results come from one loop: only the stack updates another buffer."""
    lines = f"""
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %start = stablehlo.constant dense<2.0> : tensor<f32>
  %0:3 = stablehlo.while(%i = %zero, %h = %start, %stack = %y) : tensor<i32>, tensor<f32>, {T}
  cond {{
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %s = stablehlo.dynamic_slice %x, %i, sizes = [1] : ({T}, tensor<i32>) -> tensor<1xf32>
    %e = stablehlo.reshape %s : (tensor<1xf32>) -> tensor<f32>
    %d = stablehlo.multiply %h, %e : tensor<f32>
    %g = stablehlo.subtract %d, %h : tensor<f32>
    %u = stablehlo.reshape %g : (tensor<f32>) -> tensor<1xf32>
    %v = stablehlo.dynamic_update_slice %stack, %u, %i : ({T}, tensor<1xf32>, tensor<i32>) -> {T}
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %g, %v : tensor<i32>, tensor<f32>, {T}
  }}"""
    results = f"tensor<f32>, {T}"
    check(lines, results, "%0#1, %0#2")
    text = f"func.func @main(%x: {T}, %y: {T}, %n: tensor<i32>) -> ({results}) {{\n{lines}\nreturn %0#1, %0#2 : {results}\n}}"
    assert "at the end of a region: copy" not in shlo_jit.compile(text, cache=False).text("memory")
