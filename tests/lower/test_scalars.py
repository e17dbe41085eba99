"""Scalars between steps, which live on the stack: counters, conditions, states of loops."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.pipeline import program_of
from shlo_jit.reference.interpreter import evaluate

AVERAGE = """func.func @main(%x: tensor<50xf32>) -> (tensor<f32>, tensor<50xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %start = stablehlo.constant dense<1.0> : tensor<f32>
  %y = stablehlo.constant dense<0.0> : tensor<50xf32>
  %r:3 = stablehlo.while(%i = %zero, %c = %start, %a = %y) : tensor<i32>, tensor<f32>, tensor<50xf32>
  cond {
    %n = stablehlo.constant dense<50> : tensor<i32>
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %keep = stablehlo.constant dense<0.9> : tensor<f32>
    %s = stablehlo.dynamic_slice %x, %i, sizes = [1] : (tensor<50xf32>, tensor<i32>) -> tensor<1xf32>
    %e = stablehlo.reshape %s : (tensor<1xf32>) -> tensor<f32>
    %k = stablehlo.multiply %c, %keep : tensor<f32>
    %d = stablehlo.add %k, %e : tensor<f32>
    %u = stablehlo.reshape %d : (tensor<f32>) -> tensor<1xf32>
    %b = stablehlo.dynamic_update_slice %a, %u, %i : (tensor<50xf32>, tensor<1xf32>, tensor<i32>) -> tensor<50xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %d, %b : tensor<i32>, tensor<f32>, tensor<50xf32>
  }
  return %r#1, %r#2 : tensor<f32>, tensor<50xf32>
}"""

NESTED = """func.func @main(%x: tensor<f32>, %p: tensor<i1>, %m: tensor<4000xf32>) -> (tensor<f32>, tensor<i32>, tensor<4000xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %c = %x, %a = %m) : tensor<i32>, tensor<f32>, tensor<4000xf32>
  cond {
    %n = stablehlo.constant dense<7> : tensor<i32>
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %t:2 = stablehlo.while(%k = %zero, %d = %c) : tensor<i32>, tensor<f32>
    cond {
      %less = stablehlo.compare LE, %k, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %next = stablehlo.add %k, %one : tensor<i32>
      %e = stablehlo.sine %d : tensor<f32>
      stablehlo.return %next, %e : tensor<i32>, tensor<f32>
    }
    %f = "stablehlo.if"(%p) ({
      %g = stablehlo.add %t#1, %c : tensor<f32>
      stablehlo.return %g : tensor<f32>
    }, {
      stablehlo.return %t#1 : tensor<f32>
    }) : (tensor<i1>) -> tensor<f32>
    %all = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<4000xf32>
    %rev = stablehlo.reverse %a, dims = [0] : tensor<4000xf32>
    %b = stablehlo.add %rev, %all : tensor<4000xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %f, %b : tensor<i32>, tensor<f32>, tensor<4000xf32>
  }
  return %r#1, %r#0, %r#2 : tensor<f32>, tensor<i32>, tensor<4000xf32>
}"""


def lowered(text: str) -> str:
    """Returns the entry function before LLVM's passes."""
    program = program_of(text, "test", resolve()).text
    found = re.search(r"^define [^\n@]*@shlo_main\(.*?^}", program, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


def test_states_that_are_numbers_are_not_in_the_arena() -> None:
    loop = lowered(AVERAGE).partition("while")[2]
    assert "%arena" not in loop
    x = np.linspace(0, 1, 50, dtype=np.float32)
    for got, expected in zip(
        shlo_jit.compile(AVERAGE, cache=False)(x), evaluate(shlo_jit.parse(AVERAGE), x), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("bytes", [0, 8])
@pytest.mark.parametrize("steps", [1, 2, 100])
@pytest.mark.parametrize("parallel", [1, tuning.PARALLEL_WORK])
def test_loops_in_loops(bytes: int, steps: int, parallel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some scalars are read by other functions: parts of the program, and tasks of other threads."""
    monkeypatch.setattr(tuning, "SCALAR_BYTES", bytes)
    monkeypatch.setattr(tuning, "PART_STEPS", steps)
    monkeypatch.setattr(tuning, "PARALLEL_WORK", parallel)
    exe = shlo_jit.compile(NESTED, threads=2, cache=False)
    for condition in (False, True):
        arguments = np.float32(0.3), np.bool_(condition), np.linspace(-1, 1, 4000, dtype=np.float32)
        for got, expected in zip(exe(*arguments), evaluate(shlo_jit.parse(NESTED), *arguments), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_numbers_that_several_functions_use_stay_in_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lowered(NESTED).count("alloca") > 2
    monkeypatch.setattr(tuning, "PART_STEPS", 1)
    assert "%arena" in lowered(NESTED)
