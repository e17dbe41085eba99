"""Index maps against references: each element of a result is the operand's element at the mapped index."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At, Condition, Expr
from shlo_jit.ops import OPS
from shlo_jit.reference.interpreter import evaluate

NUMBERS = (
    "#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [1, 0], index_vector_dim = 1>"
)
BATCHED = (
    "#stablehlo.gather<offset_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [1], "
    "start_index_map = [1], index_vector_dim = 0>"
)
PROGRAMS = {
    "constant": ("", "%0 = stablehlo.constant dense<3> : tensor<2x3xi32>"),
    "iota": ("", "%0 = stablehlo.iota dim = 1 : tensor<2x3xi32>"),
    "reshape": ("6x4", "%0 = stablehlo.reshape %a : (tensor<6x4xi32>) -> tensor<1x2x3x4xi32>"),
    "reshape 1": ("6x1x4", "%0 = stablehlo.reshape %a : (tensor<6x1x4xi32>) -> tensor<1x6x4xi32>"),
    "transpose": ("2x3x4", "%0 = stablehlo.transpose %a, dims = [1, 2, 0] : (tensor<2x3x4xi32>) -> tensor<3x4x2xi32>"),
    "reverse": ("2x3x4", "%0 = stablehlo.reverse %a, dims = [0, 2] : tensor<2x3x4xi32>"),
    "slice": ("7x5", "%0 = stablehlo.slice %a [1:7:2, 2:4] : (tensor<7x5xi32>) -> tensor<3x2xi32>"),
    "broadcast_in_dim": (
        "3x1",
        "%0 = stablehlo.broadcast_in_dim %a, dims = [2, 0] : (tensor<3x1xi32>) -> tensor<2x4x3xi32>",
    ),
    "pad": (
        "3x4,",
        "%0 = stablehlo.pad %a, %b, low = [2, -1], high = [-1, 3], interior = [0, 0]"
        " : (tensor<3x4xi32>, tensor<i32>) -> tensor<4x6xi32>",
    ),
    "dynamic_slice": (
        "5x6,,",
        "%0 = stablehlo.dynamic_slice %a, %b, %c, sizes = [2, 6]"
        " : (tensor<5x6xi32>, tensor<i32>, tensor<i32>) -> tensor<2x6xi32>",
    ),
    "gather": (
        "5x6,4x2",
        f'%0 = "stablehlo.gather"(%a, %b) <{{dimension_numbers = {NUMBERS}, slice_sizes = array<i64: 1, 3>}}>'
        " : (tensor<5x6xi32>, tensor<4x2xi32>) -> tensor<4x3xi32>",
    ),
    "gather batches": (
        "3x5,1x3",
        f'%0 = "stablehlo.gather"(%a, %b) <{{dimension_numbers = {BATCHED}, slice_sizes = array<i64: 1, 2>}}>'
        " : (tensor<3x5xi32>, tensor<1x3xi32>) -> tensor<3x2xi32>",
    ),
}
"""Shapes of the operands, and the op."""


def number(e: Expr, variables: tuple[int, ...], arrays: dict[Value, np.ndarray]) -> int:
    """Evaluates an expression for values of its variables."""
    total = e.const + sum(k * variables[v] for v, k in e.terms)
    for s in e.syms:
        start = int(element(s.value, s.at, variables, arrays))
        total += s.coefficient * min(max(start, 0), s.limit)
    return total


def element(value: Value, at: At, variables: tuple[int, ...], arrays: dict[Value, np.ndarray]) -> np.generic:
    return arrays[value][tuple(number(e, variables, arrays) for e in at.index)]


def exists(conditions: tuple[Condition, ...], variables: tuple[int, ...], arrays: dict[Value, np.ndarray]) -> bool:
    return all(c.low <= number(c.expr, variables, arrays) < c.high for c in conditions)


@pytest.mark.parametrize("case", PROGRAMS)
def test_index_map(case: str) -> None:
    shapes, line = PROGRAMS[case]
    types = [f"tensor<{shape}{'x' if shape else ''}i32>" for shape in shapes.split(",")] if shapes else []
    arguments = ", ".join(f"%{name}: {t}" for name, t in zip("abc", types, strict=False))
    result = line.rpartition("->")[2] if "->" in line else line.rpartition(" : ")[2]
    module = shlo_jit.parse(f"func.func @main({arguments}) -> {result} {{\n{line}\nreturn %0 : {result}\n}}")
    function = module.function("main")
    assert function is not None
    op = function.block().ops[0]
    rng = np.random.default_rng(2)
    values = [rng.integers(-2, 9, v.tensor.extents, np.int32) for v in op.operands]
    arrays = dict(zip(op.operands, values, strict=True))
    (want,) = evaluate(module, *values)

    extents = op.result.tensor.extents
    at = At(tuple(ix.variable(d, n) for d, n in enumerate(extents)))
    index_map = OPS[op.name].index_map
    assert index_map is not None
    places = index_map(op, at, list(extents))
    if not op.operands:
        assert places == []
        return
    assert places[0][0] is op.operands[0]
    for variables in itertools.product(*map(range, extents)):
        read = next(p for p in places if exists(p[1].conditions, variables, arrays))
        assert element(*read, variables, arrays) == want[variables], variables


def test_every_index_map_has_a_program() -> None:
    assert {f"stablehlo.{case.split()[0]}" for case in PROGRAMS} == {
        record.name for record in OPS.values() if record.index_map is not None
    }
