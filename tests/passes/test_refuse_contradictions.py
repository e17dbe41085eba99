"""Programs whose steps are valid separately, but contradict each other once extents and shapes are known: refused at
the line, never compiled."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit.passes import CHECK

CONSTANTS = """  %a = stablehlo.constant dense<3> : tensor<1xi64>
  %s = stablehlo.add %a, %a : tensor<1xi64>
  %l = stablehlo.constant dense<10> : tensor<1xi64>
  %t = stablehlo.constant dense<1> : tensor<1xi64>"""
VECTORS = "tensor<1xi64>, tensor<1xi64>, tensor<1xi64>"


def body(lines: str, result: str = "tensor<5xf32>") -> str:
    return f"func.func @main(%x: tensor<3xf32>, %p: tensor<i1>, %z: tensor<f32>) -> {result} {{\n{lines}\n  return %0 : {result}\n}}"


CALLS = """func.func private @f(%x: tensor<?xf32>) -> tensor<5xf32> {
  %0 = CALL : (tensor<?xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}
func.func private @g(%x: tensor<5xf32>) -> tensor<5xf32> {
  %0 = stablehlo.add %x, %x : tensor<5xf32>
  return %0 : tensor<5xf32>
}"""
OPEN = "  %y = stablehlo.optimization_barrier %x : (tensor<3xf32>) -> tensor<?xf32>\n"
PROGRAMS = {
    "calls": body("  %0 = call @f(%x) : (tensor<3xf32>) -> tensor<5xf32>") + CALLS.replace("CALL", "call @g(%x)"),
    "composites": body("  %0 = call @f(%x) : (tensor<3xf32>) -> tensor<5xf32>")
    + CALLS.replace("CALL", 'stablehlo.composite "a.b" %x {decomposition = @g}'),
    "barriers": body(OPEN + "  %0 = stablehlo.optimization_barrier %y : (tensor<?xf32>) -> tensor<5xf32>"),
    "tuple": body(
        """  %y = "stablehlo.tuple"(%x) : (tensor<3xf32>) -> tuple<tensor<?xf32>>
  %0 = "stablehlo.get_tuple_element"(%y) {index = 0 : i32} : (tuple<tensor<?xf32>>) -> tensor<5xf32>"""
    ),
    "branches": body(
        OPEN + '  %0 = "stablehlo.if"(%p) ({ stablehlo.return %y : tensor<?xf32> }, { stablehlo.return %y : tensor<?xf32> })'
        " : (tensor<i1>) -> tensor<5xf32>"
    ),
    "slice": body(
        f"{CONSTANTS}\n  %0 = stablehlo.real_dynamic_slice %x, %s, %l, %t : (tensor<3xf32>, {VECTORS}) -> tensor<5xf32>"
    ),
    "long_slice": body(
        "  %t = stablehlo.constant dense<1> : tensor<1xi64>\n  %s = stablehlo.bitcast_convert %q : (tensor<1xi64>) -> tensor<1xi64>\n"
        f"  %0 = stablehlo.real_dynamic_slice %x, %s, %s, %t : (tensor<3xf32>, {VECTORS}) -> tensor<5xf32>"
    ).replace("%z: tensor<f32>", "%q: tensor<1xi64>"),
    "pad": body(
        f"{CONSTANTS}\n  %0 = stablehlo.dynamic_pad %x, %z, %s, %s, %s : (tensor<3xf32>, tensor<f32>, {VECTORS}) -> tensor<5xf32>"
    ),
    "top_k": body(
        OPEN + "  %0, %1 = chlo.top_k(%y, k = 5) : tensor<?xf32> -> (tensor<5xf32>, tensor<5xi32>)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_contradiction(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHECK, raising=False)  # it would find the contradiction first, as an error of a pass
    text = PROGRAMS[name]
    assert shlo_jit.verify(text) == []
    with pytest.raises(shlo_jit.StableHLOError) as caught:
        shlo_jit.compile(text, cache=False)
    assert caught.value.line > 0 and not isinstance(caught.value, shlo_jit.ParseError)


def test_consistent_programs_are_compiled() -> None:
    text = PROGRAMS["calls"].replace("5xf32", "3xf32")
    assert shlo_jit.compile(text, cache=False)(np.float32([1, 2, 3]), True, 0.0).tolist() == [2, 4, 6]
