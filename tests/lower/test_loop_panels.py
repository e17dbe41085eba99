"""Products in loops with matrices that were packed before: against the reference, on every kind of element and target,
in guarded memory, with states that swap their memory, in nested loops and branches."""

from __future__ import annotations

import random
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from random_check import check

NUMPY = {
    **{"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "i8": np.int8},
    **{"i32": np.int32, "complex<f32>": np.complex64},
}

SUMS = {"bf16": "f32", "f16": "f32", "i8": "i32"}


def program(dtype: str, m: int, n: int, batch: int, transposed: bool, nested: bool, iterations: int) -> str:
    """Returns a loop whose state [batch, m, n], or [m, n] without a batch, is multiplied by W in every iteration, and
    by V in a branch of every second one."""
    lead = f"{batch}x" if batch else ""
    state, matrix, sums = f"tensor<{lead}{m}x{n}x{dtype}>", f"tensor<{lead}{n}x{n}x{dtype}>", SUMS.get(dtype, dtype)
    wide = f"tensor<{lead}{m}x{n}x{sums}>"
    at = 1 if batch else 0
    dims = "batching_dims = [0] x [0], " if batch else ""
    dims += f"contracting_dims = [{at + 1}] x [{at + transposed}]"

    def times(name: str, left: str, right: str) -> str:
        lines = [f"{name}w = stablehlo.dot_general {left}, {right}, {dims} : ({state}, {matrix}) -> {wide}"]
        lines.append(f"{name} = stablehlo.convert {name}w : ({wide}) -> {state}")
        return "\n".join(lines)

    def loop(name: str, start: str, body: str, count: int) -> str:
        return f"""{name}i, {name} = stablehlo.while({name}k = %zero, {name}c = {start}) : tensor<i32>, {state}
          cond {{
            %last = stablehlo.constant dense<{count}> : tensor<i32>
            %less = stablehlo.compare LT, {name}k, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %less : tensor<i1>
          }} do {{
            {body}
            %one = stablehlo.constant dense<1> : tensor<i32>
            %j = stablehlo.add {name}k, %one : tensor<i32>
            stablehlo.return %j, {name}n : tensor<i32>, {state}
          }}"""

    branch = f"""%two = stablehlo.constant dense<2> : tensor<i32>
      %odd = stablehlo.remainder %ok, %two : tensor<i32>
      %on = "stablehlo.case"(%odd) ({{
        {times("%p", "%oc", "%w")}
        stablehlo.return %p : {state}
      }}, {{
        {times("%q", "%oc", "%v")}
        stablehlo.return %q : {state}
      }}) : (tensor<i32>) -> {state}"""
    inner = loop("%b", "%oc", times("%bn", "%bc", "%w"), 2) + f"\n%on = stablehlo.negate %b : {state}"
    return f"""func.func @main(%x: {state}, %w: {matrix}, %v: {matrix}) -> {state} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      {loop("%o", "%x", inner if nested else branch, iterations)}
      return %o : {state}
    }}"""


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "i8", "i32", "complex<f32>"])
@pytest.mark.sampled(4)
def test_against_the_reference(dtype: str, target: str) -> None:
    pick, rng = random.Random(dtype), np.random.default_rng(0)
    for nested, transposed in product([False, True], repeat=2):
        m, n, batch = pick.choice([1, 2, 5, 17]), pick.choice([3, 16, 33, 70]), pick.choice([0, 0, 2])
        text = program(dtype, m, n, batch, transposed, nested, pick.choice([0, 1, 9]))
        shapes = [(m, n), (n, n), (n, n)]
        scale = 3 if dtype.startswith("i") else 1 / np.sqrt(n)
        arguments = [
            (rng.standard_normal((*([batch] if batch else []), *shape)) * scale).astype(NUMPY[dtype])
            for shape in shapes
        ]
        check(text, arguments, target)
