"""Shape computations in `arith`, `tensor` and `shape`."""

from __future__ import annotations

import numpy as np
import pytest
from refusing import refused

import shlo_jit

BROADCAST = """
func.func @main(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = shape.shape_of %x : tensor<?x?xf32> -> tensor<2xindex>
  %b = shape.shape_of %y : tensor<?x?xf32> -> tensor<2xindex>
  %s = shape.broadcast %a, %b : tensor<2xindex>, tensor<2xindex> -> tensor<2xindex>
  %n = tensor.extract %s[%c0] : tensor<2xindex>
  %m = tensor.extract %s[%c1] : tensor<2xindex>
  %u = tensor.from_elements %n, %m : tensor<2xindex>
  %i = stablehlo.dynamic_broadcast_in_dim %x, %u, dims = [0, 1]
    : (tensor<?x?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  %j = stablehlo.dynamic_broadcast_in_dim %y, %u, dims = [0, 1]
    : (tensor<?x?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  %k = stablehlo.add %i, %j : tensor<?x?xf32>
  return %k : tensor<?x?xf32>
}
"""


@pytest.mark.parametrize(("a", "b"), [((1, 4), (3, 1)), ((3, 4), (3, 4)), ((1, 1), (5, 2)), ((1, 3), (0, 3))])
def test_broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = np.ones(a, np.float32), np.full(b, 2, np.float32)
    assert shlo_jit.verify(BROADCAST) == []
    assert shlo_jit.compile(BROADCAST)(x, y).tolist() == (x + y).tolist()
    refined = str(shlo_jit.refine(BROADCAST, [a, b]))
    assert not any(dialect in refined for dialect in ("arith.", "tensor.", "shape."))
    module = shlo_jit.parse(BROADCAST)
    assert shlo_jit.parse(str(module)) == module


COMPUTED = """
func.func @main(%x: tensor<?x3xf32>) -> tensor<?xi32> {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %a = tensor.dim %x, %zero : tensor<?x3xf32>
  %b = tensor.dim %x, %one : tensor<?x3xf32>
  {lines}
  %s = tensor.from_elements %n : tensor<1xindex>
  %r = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xindex>) -> tensor<?xi32>
  return %r : tensor<?xi32>
}}
"""


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("%n = arith.addi %a, %b : index", lambda a: a + 3),
        ("%n = arith.muli %a, %b : index", lambda a: 3 * a),
        ("%n = arith.divsi %a, %b : index", lambda a: a // 3),
        ("%n = arith.ceildivsi %a, %b : index", lambda a: -(-a // 3)),
        ("%n = arith.remsi %a, %b : index", lambda a: a % 3),
        ("%m = arith.subi %b, %a : index\n  %n = arith.maxsi %m, %zero : index", lambda a: max(3 - a, 0)),
        ("%m = arith.subi %zero, %a : index\n  %k = arith.divsi %m, %b : index\n  %n = arith.subi %zero, %k : index",
         lambda a: a // 3),
        ("%m = arith.subi %zero, %a : index\n  %k = arith.remsi %m, %b : index\n  %n = arith.subi %zero, %k : index",
         lambda a: a % 3),
        ("%p = arith.cmpi slt, %a, %b : index\n  %n = arith.select %p, %one, %a : index", lambda a: 1 if a < 3 else a),
        ("%m = arith.subi %zero, %one : index\n  %p = arith.cmpi ugt, %m, %a : index\n"
         "  %n = arith.select %p, %one, %zero : index", lambda a: 1),
        ("%i = arith.index_cast %a : index to i32\n  %n = arith.index_cast %i : i32 to index", lambda a: a),
        ("%t = shape.shape_of %x : tensor<?x3xf32> -> tensor<2xindex>\n"
         "  %n = shape.num_elements %t : tensor<2xindex> -> index", lambda a: 3 * a),
    ],
)  # fmt: skip
@pytest.mark.parametrize("a", [0, 1, 4, 7])
def test_arithmetic(lines: str, count, a: int) -> None:
    text = COMPUTED.format(lines=lines)
    assert shlo_jit.compile(text)(np.zeros((a, 3), np.float32)).tolist() == list(range(count(a)))


ANY_SIZE = """
func.func @main(%x: tensor<?x3xf32>, %y: tensor<?x1xf32>) -> tensor<?x3xf32> {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1 : index
  %a = shape.shape_of %x : tensor<?x3xf32> -> tensor<2xindex>
  %b = shape.shape_of %y : tensor<?x1xf32> -> tensor<2xindex>
  %u = shape.broadcast %a, %b : tensor<2xindex>, tensor<2xindex> -> tensor<2xindex>
  %j = stablehlo.dynamic_broadcast_in_dim %y, %u, dims = [0, 1]
    : (tensor<?x1xf32>, tensor<2xindex>) -> tensor<?x3xf32>
  %d = tensor.dim %x, %c0 : tensor<?x3xf32>
  %p = arith.cmpi slt, %d, %c0 : index
  %q = arith.select %p, %one, %d : index
  %twice = arith.addi %q, %q : index
  %half = arith.ceildivsi %twice, %one : index
  %di = arith.index_cast %half : index to i64
  %t = tensor.from_elements %di : tensor<1xi64>
  %r = stablehlo.reshape %t : (tensor<1xi64>) -> tensor<i64>
  %f = stablehlo.convert %r : (tensor<i64>) -> tensor<f32>
  %s = arith.index_cast %u : tensor<2xindex> to tensor<2xi32>
  %g = stablehlo.dynamic_broadcast_in_dim %f, %s, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x3xf32>
  %k = stablehlo.add %x, %j : tensor<?x3xf32>
  %l = stablehlo.divide %k, %g : tensor<?x3xf32>
  return %l : tensor<?x3xf32>
}
"""


def test_sizes_that_are_known_at_the_call_only() -> None:
    """Shapes are computed from them, and as numbers they are data."""
    executable = shlo_jit.compile(ANY_SIZE, dynamic="symbolic", cache=False)
    for n in (2, 5, 100):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        got = executable(x, x[:, :1])
        assert executable.text("plan").startswith("code for any n")
        np.testing.assert_allclose(got, (x + x[:, :1]) / (2 * n), rtol=1e-6)


def test_computations_that_fail_are_refused_at_their_line() -> None:
    text = COMPUTED.format(lines="%n = arith.divsi %a, %zero : index")
    with pytest.raises(shlo_jit.StableHLOError) as refusal:
        shlo_jit.compile(text)(np.zeros((2, 3), np.float32))
    assert refusal.value.line == 7


def test_an_unknown_comparison() -> None:
    with refused(shlo_jit.ParseError, "syntax", (7, 19), shows="eq, ne, slt") as refusal:
        shlo_jit.parse(COMPUTED.format(lines="%n = arith.cmpi less, %a, %b : index"))
    assert refusal.value.line == 7
