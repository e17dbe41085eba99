"""Passes that search from an op through its operands look at operands that ops share once: each op of these programs
reads the one before it twice, so there are 2^40 paths."""

from __future__ import annotations

from itertools import pairwise

import pytest

import shlo_jit

CHAIN = 40
FLOATS, INTEGERS = "tensor<64x256xf32>", "tensor<64x256xi32>"
PRODUCT = """func.func @main(%x: tensor<64x256xf32>, %w: tensor<256x256xf32>, %i: tensor<64x256xi32>) -> tensor<64x256xf32> {{
  {0}
  %y = stablehlo.dot_general %l, %w, contracting_dims = [1] x [0]
    : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  return %y : tensor<64x256xf32>
}}"""
IOTA = f"%p = stablehlo.iota dim = 0 : {INTEGERS}"


def chain(op: str, first: str, kind: str) -> list[str]:
    """Lines that compute `%c40`."""
    names = [first, *(f"%c{k + 1}" for k in range(CHAIN))]
    return [f"{b} = stablehlo.{op} {a}, {a} : {kind}" for a, b in pairwise(names)]


def compared(direction: str, x: str, y: str, name: str) -> str:
    mask = "tensor<64x256xi1>"
    return f"{name} = stablehlo.compare {direction}, {x}, {y} : ({INTEGERS}, {INTEGERS}) -> {mask}"


def selected(mask: str) -> list[str]:
    zero = f"%z = stablehlo.constant dense<0.0> : {FLOATS}"
    return [zero, f"%l = stablehlo.select {mask}, %x, %z : tensor<64x256xi1>, {FLOATS}"]


def masks() -> list[str]:
    """Two masks, each of which is computed from both before it."""
    found = [IOTA, compared("LT", "%p", "%i", "%m0"), compared("GT", "%p", "%i", "%n0")]
    for k in range(CHAIN):
        found.append(f"%m{k + 1} = stablehlo.and %m{k}, %n{k} : tensor<64x256xi1>")
        found.append(f"%n{k + 1} = stablehlo.and %n{k}, %m{k + 1} : tensor<64x256xi1>")
    return [*found, *selected(f"%m{CHAIN}")]


@pytest.mark.parametrize(
    "lines",
    [
        [*chain("add", "%x", FLOATS), f"%l = stablehlo.exponential %c{CHAIN} : {FLOATS}"],
        [*chain("multiply", "%i", INTEGERS), IOTA, compared("LT", "%p", f"%c{CHAIN}", "%m"), *selected("%m")],
        [*chain("add", "%i", INTEGERS), IOTA, compared("LT", f"%c{CHAIN}", "%p", "%m"), *selected("%m")],
        masks(),
    ],
    ids=["scores", "bound", "position", "masks"],
)
@pytest.mark.timeout(60)
def test_searches_end(lines: list[str]) -> None:
    shlo_jit.compile(PRODUCT.format("\n  ".join(lines)), cache=False)
