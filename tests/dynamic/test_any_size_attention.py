"""Attention by blocks of rows with any number of heads: the batch is known only at the call."""

from __future__ import annotations

import pytest
from any_size import check
from printed_codes import codes

import shlo_jit


def text(m: int, n: int, k: int, depth: int) -> str:
    """(s - max(s)) @ v with s = q @ k^T: whole numbers stay whole."""
    q, y, v, s = (f"tensor<?x{a}x{b}xf32>" for a, b in ((m, k), (n, k), (n, depth), (m, n)))
    r, out = f"tensor<?x{m}xf32>", f"tensor<?x{m}x{depth}xf32>"
    return f"""func.func @main(%q: {q}, %k: {y}, %v: {v}) -> ({out}) {{
      %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({q}, {y}) -> {s}
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %most = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [2] : ({s}, tensor<f32>) -> {r}
      %heads = stablehlo.get_dimension_size %q, dim = 0 : ({q}) -> tensor<i32>
      %first = stablehlo.reshape %heads : (tensor<i32>) -> tensor<1xi32>
      %rest = stablehlo.constant dense<[{m}, {n}]> : tensor<2xi32>
      %shape = stablehlo.concatenate %first, %rest, dim = 0 : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>
      %mosts = stablehlo.dynamic_broadcast_in_dim %most, %shape, dims = [0, 1] : ({r}, tensor<3xi32>) -> {s}
      %p = stablehlo.subtract %s, %mosts : {s}
      %y = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({s}, {v}) -> {out}
      return %y : {out}
    }}"""


@pytest.mark.parametrize("extents", [(40, 50, 16, 24), (1, 70, 32, 32), (9, 33, 5, 7), (200, 64, 32, 32)])
def test_any_number_of_heads(extents: tuple[int, int, int, int]) -> None:
    program = text(*extents)
    m, n, k, depth = extents
    plan = shlo_jit.compile(program, dynamic="symbolic").text("plan", [(3, m, k), (3, n, k), (3, n, depth)])
    assert "1 attention" in plan.splitlines()[1]
    check(program, high=3)


def test_any_number_of_rows() -> None:
    """In a product without a batch, the number of rows is symbolic: attention is not fused."""
    program = text(40, 50, 16, 24)
    for old, new in (("?x40x16", "?x16"), ("?x50x16", "50x16"), ("?x50x24", "50x24"), ("?x40x50", "?x50"), ("?x40xf32", "?xf32"),
                     ("?x40x24", "?x24"), ("batching_dims = [0] x [0], ", ""), ("[2] x [2]", "[1] x [1]"), ("[2] x [1]", "[1] x [0]"),
                     ("dimensions = [2]", "dimensions = [1]"), ("dense<[40, 50]> : tensor<2xi32>", "dense<[50]> : tensor<1xi32>"),
                     ("tensor<2xi32>", "tensor<1xi32>"), ("tensor<3xi32>", "tensor<2xi32>"), ("dims = [0, 1]", "dims = [0]")):  # fmt: skip
        assert old in program, old
        program = program.replace(old, new)
    plan = shlo_jit.compile(program, dynamic="symbolic").text("plan", [(3, 16), (50, 16), (50, 24)])
    assert codes(plan, "no row blocks") == ["dynamic-size"]
    check(program, high=3)
