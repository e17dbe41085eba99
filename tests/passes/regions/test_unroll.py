"""unroll: short counted loops become straight-line code, others stay; results equal the reference's."""

from __future__ import annotations

import numpy as np
import pytest
from alone import after

import shlo_jit
from shlo_jit.ir.core import walk
from shlo_jit.passes.regions.unroll import unroll
from shlo_jit.reference.interpreter import evaluate


def loop(start: int, limit: int, step: int, direction: str = "LT") -> str:
    return f"""func.func @main(%x: tensor<4xi32>) -> (tensor<i32>, tensor<4xi32>) {{
      %start = stablehlo.constant dense<{start}> : tensor<i32>
      %limit = stablehlo.constant dense<{limit}> : tensor<i32>
      %step = stablehlo.constant dense<{step}> : tensor<i32>
      %0:2 = stablehlo.while(%i = %start, %y = %x) : tensor<i32>, tensor<4xi32>
       cond {{
        %go = stablehlo.compare {direction}, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      }} do {{
        %next = stablehlo.add %step, %i : tensor<i32>
        %wide = stablehlo.broadcast_in_dim %next, dims = [] : (tensor<i32>) -> tensor<4xi32>
        %z = stablehlo.multiply %y, %wide : tensor<4xi32>
        stablehlo.return %next, %z : tensor<i32>, tensor<4xi32>
      }}
      return %0#0, %0#1 : tensor<i32>, tensor<4xi32>
    }}"""


@pytest.mark.parametrize(
    "arguments,gone",
    [
        ((0, 5, 1), True),
        ((1, 8, 3), True),
        ((3, 3, 1), True),
        ((5, 0, 1), True),
        ((0, 9, 1), False),
        ((0, 4, 1, "LE"), False),
    ],
)
def test_loops(arguments: tuple, gone: bool) -> None:
    text = loop(*arguments)
    module = shlo_jit.parse(text)
    function = after(text, unroll)
    assert gone == all(op.name != "stablehlo.while" for op in walk(function.block()))
    x = np.arange(4, dtype=np.int32)
    for got, want in zip(shlo_jit.compile(text)(x), evaluate(module, x), strict=True):
        np.testing.assert_array_equal(got, want)
