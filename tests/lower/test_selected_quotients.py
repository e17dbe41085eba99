"""Selects of quotients and roots by data are computed without a branch."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate


def program(op: str, dtype: str = "f32") -> str:
    """Replaces each element of an array by a selected value, which depends on the previous one."""
    n = f"tensor<40x{dtype}>"
    return f"""func.func @main(%x: {n}) -> {n} {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %s = %x) : tensor<i32>, {n} cond {{
    %n = stablehlo.constant dense<39> : tensor<i32>
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %a = stablehlo.dynamic_slice %s, %i, sizes = [1] : ({n}, tensor<i32>) -> tensor<1x{dtype}>
    %b = stablehlo.dynamic_slice %s, %j, sizes = [1] : ({n}, tensor<i32>) -> tensor<1x{dtype}>
    %p = stablehlo.compare LT, %a, %b : (tensor<1x{dtype}>, tensor<1x{dtype}>) -> tensor<1xi1>
    %q = {op} : tensor<1x{dtype}>
    %c = stablehlo.select %p, %q, %a : tensor<1xi1>, tensor<1x{dtype}>
    %u = stablehlo.dynamic_update_slice %s, %c, %j : ({n}, tensor<1x{dtype}>, tensor<i32>) -> {n}
    stablehlo.return %j, %u : tensor<i32>, {n}
  }}
  return %r#1 : {n}
}}"""


@pytest.mark.parametrize(
    ("op", "dtype", "marked"),
    [
        ("stablehlo.divide %a, %b", "f32", True),
        ("stablehlo.divide %a, %b", "f64", True),
        ("stablehlo.sqrt %b", "f32", True),
        ("stablehlo.add %a, %b", "f32", False),
        ("stablehlo.divide %a, %b", "i32", False),
    ],
)
def test_only_quotients_and_roots_of_floats(op: str, dtype: str, marked: bool) -> None:
    text = program(op, dtype)
    exe = shlo_jit.compile(text, cache=False)
    selects = re.findall(r"select i1 .*", exe.text("lowered"))
    assert any("!unpredictable" in line for line in selects) == marked
    x = np.random.default_rng(2).permutation(np.arange(1, 41)).astype({"f32": "f4", "f64": "f8", "i32": "i4"}[dtype])
    (want,) = evaluate(shlo_jit.parse(text), x)
    assert np.asarray(exe(x)).tobytes() == np.asarray(want).tobytes()
