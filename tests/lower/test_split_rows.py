"""Reductions over long rows, whose parts are computed separately and then combined."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit

SIZE = 3_000_017
ARGMAX = """
      %i = stablehlo.iota dim = 1 : tensor<2x{n}xi32>
      %z = stablehlo.constant dense<-1> : tensor<i32>
      %r:2 = stablehlo.reduce(%x init: %v), (%i init: %z) across dimensions = [1]
        : (tensor<2x{n}xi32>, tensor<2x{n}xi32>, tensor<i32>, tensor<i32>) -> (tensor<2xi32>, tensor<2xi32>)
      reducer(%a: tensor<i32>, %b: tensor<i32>) (%c: tensor<i32>, %d: tensor<i32>) {{
        %p = stablehlo.compare GE, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %s = stablehlo.select %p, %a, %b : tensor<i1>, tensor<i32>
        %t = stablehlo.select %p, %c, %d : tensor<i1>, tensor<i32>
        stablehlo.return %s, %t : tensor<i32>, tensor<i32>
      }}"""
PLAIN = """
      %r = stablehlo.reduce(%x init: %v) applies stablehlo.{op} across dimensions = [1]
        : (tensor<2x{n}xi32>, tensor<i32>) -> tensor<2xi32>"""


def signature(results: str) -> str:
    return f"func.func @main(%x: tensor<2x{SIZE}xi32>, %v: tensor<i32>) -> ({results})"


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
@pytest.mark.sampled(3)
def test_every_element_counts_once_and_so_does_the_initial_value(op: str) -> None:
    text = f"{signature('tensor<2xi32>')} {{{PLAIN.format(op=op, n=SIZE)}\nreturn %r : tensor<2xi32>\n}}"
    exe = shlo_jit.compile(text, threads=2)
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (2, SIZE)).astype(np.int32) | 1
    ufuncs = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    ufunc = ufuncs[op] if op in ufuncs else getattr(np, op)
    for initial in (7, -(2**31) + 5, 2**31 - 3):
        v = np.int32(initial)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(exe(x, v), ufunc(ufunc.reduce(x, 1, dtype=np.int32), v))
    # an element that decides, in each part of the row
    neutral = {"add": 0, "multiply": 1, "maximum": -(2**31), "minimum": 2**31 - 1, "and": -1, "or": 0, "xor": 0}[op]
    for at in np.linspace(0, SIZE - 1, 17).astype(int):
        x = np.full((2, SIZE), neutral, np.int32)
        x[1, at] = 12345
        np.testing.assert_array_equal(exe(x, np.int32(neutral)), [neutral, 12345])


def test_the_first_of_equal_elements_wins() -> None:
    """Parts are combined in order, after the initial values."""
    text = f"{signature('tensor<2xi32>, tensor<2xi32>')} {{{ARGMAX.format(n=SIZE)}\nreturn %r#0, %r#1 : tensor<2xi32>, tensor<2xi32>\n}}"
    exe = shlo_jit.compile(text, threads=2)
    x = np.zeros((2, SIZE), np.int32)
    x[0, [5, SIZE // 2, SIZE - 1]] = 3
    x[1, [SIZE // 3, SIZE // 3 * 2]] = 4
    assert [r.tolist() for r in exe(x, np.int32(-9))] == [[3, 4], [5, SIZE // 3]]
    assert [r.tolist() for r in exe(x, np.int32(3))] == [[3, 4], [-1, SIZE // 3]]
