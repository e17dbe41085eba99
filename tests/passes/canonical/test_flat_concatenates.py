"""Concatenations of concatenations are merged, unless the inner one has other readers."""

from __future__ import annotations

import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit.ir.core import walk
from shlo_jit.reference.interpreter import evaluate


def text_of(inner: int, outer: int, result: str) -> str:
    """Two segments concatenated along `inner`, and with themselves along `outer`."""
    both = [2, 2]
    both[inner] *= 2
    t, of = "tensor<2x2xf32>", f"tensor<{both[0]}x{both[1]}xf32>"
    out = list(both)
    out[outer] *= 2
    whole = f"tensor<{out[0]}x{out[1]}xf32>"
    types = {"whole": whole, "both": f"{whole}, {of}"}[result]
    values = {"whole": "%2", "both": "%2, %0"}[result]
    return f"""func.func @main(%x: {t}, %y: {t}) -> ({types}) {{
  %0 = stablehlo.concatenate %x, %y, dim = {inner} : ({t}, {t}) -> {of}
  %1 = stablehlo.concatenate %y, %x, dim = {inner} : ({t}, {t}) -> {of}
  %2 = stablehlo.concatenate %0, %1, dim = {outer} : ({of}, {of}) -> {whole}
  return {values} : {types}
}}"""


@pytest.mark.parametrize(
    "inner,outer,result,operands",
    [
        (0, 0, "whole", [4]), (1, 1, "whole", [4]),
        (0, 1, "whole", [2, 2, 2]),  # another dimension
        (0, 0, "both", [2, 3]),  # one of them is a result
    ],
)  # fmt: skip
def test_which_are_merged(inner: int, outer: int, result: str, operands: list[int]) -> None:
    text = text_of(inner, outer, result)
    found = [len(op.operands) for op in walk(canonical(text).block()) if op.name == "stablehlo.concatenate"]
    assert found == operands
    x, y = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    got = shlo_jit.compile(text, cache=False)(x, y)
    for a, b in zip(got if isinstance(got, tuple) else (got,), evaluate(shlo_jit.parse(text), x, y), strict=True):
        np.testing.assert_array_equal(a, b)
