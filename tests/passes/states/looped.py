"""Programs with one loop whose body is given, and what a pass makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from alone import after

import shlo_jit
from shlo_jit.ir.core import Op, walk
from shlo_jit.passes.context import Context
from shlo_jit.passes.simplify import simplify
from shlo_jit.reference.interpreter import evaluate

N = 12
T = f"tensor<{N}xf32>"


def looped(body: str, result: str, state: str = T, initial: str = "%x") -> str:
    """A loop over a counter %i from 0 to 6 and a state %s. The body also reads %p (the state's elements are known), %j
    (an index that is not known) and %u (four elements)."""
    return f"""func.func @main(%x: {state}, %j: tensor<i32>, %u: tensor<4xf32>) -> {state} {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : {state}
  %r:2 = stablehlo.while(%i = %zero, %s = {initial}) : tensor<i32>, {state} cond {{
    %six = stablehlo.constant dense<6> : tensor<i32>
    %go = stablehlo.compare LT, %i, %six : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %odd = stablehlo.and %i, %one : tensor<i32>
    %p = stablehlo.compare EQ, %odd, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    {body}
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, {result} : tensor<i32>, {state}
  }}
  return %r#1 : {state}
}}"""


def arguments(size: int = N) -> list[np.ndarray]:
    """A state with zeros of both signs, an index and four elements."""
    x = np.random.default_rng(3).choice([-1.5, -0.0, 0.0, 2.5], size).astype(np.float32)
    return [x, np.array(5, np.int32), np.array([1, -0.0, 0.0, -3], np.float32)]


def check(text: str, run: Callable[[Op, Context], Op], size: int = N) -> tuple[Op, bool]:
    """Returns a function after a pass, and whether it has changed; the results of both must have the same bits, for
    several indices. So must those of the compiled program, but for sines."""
    before, function = after(text, simplify), after(text, simplify, run, simplify)
    module, exe = shlo_jit.parse(text), shlo_jit.compile(text, cache=False)
    for j in (-3, 0, 5, size - 3, size - 1, size, 40):
        given = arguments(size)
        given[1] = np.array(j, np.int32)
        (want,) = evaluate(module, *[x.copy() for x in given])
        (got,) = evaluate(function, *[x.copy() for x in given])
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
        found = np.asarray(exe(*given))
        if "sine" in text:  # NumPy's, which the reference calls, differs in the last bit
            np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)
        else:
            assert found.tobytes() == np.asarray(want).tobytes()
    return function, names(before) != names(function)


def names(function: Op) -> Counter[str]:
    """Counts the ops of a function."""
    return Counter(op.name.removeprefix("stablehlo.") for op in walk(function.block()))


def whole(function: Op, name: str, size: int = N) -> int:
    """Counts the ops of a name in a function whose results are as large as the state."""
    ops = [op for op in walk(function.block()) if op.name == f"stablehlo.{name}"]
    return sum(op.result.tensor.size >= size for op in ops)
