"""Layouts of collective ops: results stay the same, and ops have the form that the rule requires."""

from __future__ import annotations

import random

import numpy as np
import pytest
from alone import main_of, module_of, on_grid
from grid_meaning import Grid

from shlo_jit import tuning
from shlo_jit.ir.core import Op, walk
from shlo_jit.ir.equality import equal_modules
from shlo_jit.passes.canonical.collective_layouts import collective_layouts

GROUPS = "replica_groups = dense<[[2, 0], [1, 3]]> : tensor<2x2xi64>"


def body(dtype: str) -> str:
    return f"""({{
    ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
      %s = stablehlo.add %a, %b : tensor<{dtype}>
      stablehlo.return %s : tensor<{dtype}>
    }})"""


def program(op: str, before: list[str], after: list[str]) -> str:
    arguments = ", ".join(f"%x{i}: {t}" for i, t in enumerate(before))
    results = ", ".join(f"%r#{i}" for i in range(len(after))) if len(after) > 1 else "%r"
    name = f"%r:{len(after)}" if len(after) > 1 else "%r"
    given = ", ".join(f"%x{i}" for i in range(len(before)))
    types = f"({', '.join(before)}) -> ({', '.join(after)})"
    return f"""func.func @main({arguments}) -> ({", ".join(after)}) {{
    {name} = {op.replace("OPERANDS", given)} : {types}
    return {results} : {", ".join(after)}
    }}"""


def checked(text: str, dtypes: list[str], shapes: list[tuple[int, ...]]) -> Op:
    """Returns the function in canonical form, after comparing its results on four processes with those of the text."""
    function = on_grid(text, collective_layouts, 4, 1)
    again = collective_layouts(function, main_of(text)[1])
    assert equal_modules(module_of(again), module_of(function))
    rng = np.random.default_rng(0)
    arguments = [
        [
            rng.integers(0, 2 if d == "int32" and s == (2,) else 50, s).astype(d)
            for d, s in zip(dtypes, shapes, strict=True)
        ]
        for _ in range(4)
    ]
    want = Grid(4, 1).run(main_of(text)[0], arguments)
    for own, got in zip(want, Grid(4, 1).run(function, arguments), strict=True):
        for a, b in zip(own, got, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    return function


def collectives(function: Op) -> list[Op]:
    return [op for op in walk(function.block()) if "replica_groups" in op.attributes]


def type_of(shape: tuple[int, ...], dtype: str = "f32") -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"


def scaled(shape: tuple[int, ...], d: int, times: int = 1, by: int = 1) -> tuple[int, ...]:
    return tuple(n * times // by if i == d else n for i, n in enumerate(shape))


@pytest.mark.parametrize("shape", [(4,), (4, 6), (2, 2, 6), (1, 4, 20), (1, 1, 2)])
def test_every_dimension(shape: tuple[int, ...]) -> None:
    for d in range(len(shape)):
        many = scaled(shape, d, 2)
        gather = f'"stablehlo.all_gather"(OPERANDS) {{all_gather_dim = {d} : i64, {GROUPS}}}'
        checked(program(gather, [type_of(shape)], [type_of(many)]), ["float32"], [shape])
        scatter = f'"stablehlo.reduce_scatter"(OPERANDS) {body("f32")} {{scatter_dimension = {d} : i64, {GROUPS}}}'
        checked(program(scatter, [type_of(many)], [type_of(shape)]), ["float32"], [many])
        for c in range(len(shape)):
            result = scaled(scaled(many, d, by=2), c, 2)
            op = f""""stablehlo.all_to_all"(OPERANDS) {{split_dimension = {d} : i64, concat_dimension = {c} : i64,
              split_count = 2 : i64, {GROUPS}}}"""
            checked(program(op, [type_of(many)], [type_of(result)]), ["float32"], [many])


def test_long_rows_stay() -> None:
    """Rows of at least COLLECTIVE_ROW_BYTES, or only one row."""
    columns = tuning.COLLECTIVE_ROW_BYTES // 4
    for shape, d, rank in [((3, columns), 1, 2), ((3, columns - 1), 1, 3), ((1, 2), 1, 2), ((3, 2), 0, 2)]:
        many = scaled(shape, d, 2)
        gather = f'"stablehlo.all_gather"(OPERANDS) {{all_gather_dim = {d} : i64, {GROUPS}}}'
        (op,) = collectives(checked(program(gather, [type_of(shape)], [type_of(many)]), ["float32"], [shape]))
        assert (op.result.tensor.rank, op.int("all_gather_dim")) == (rank, d if rank == 2 else 0)
        scatter = f'"stablehlo.reduce_scatter"(OPERANDS) {body("f32")} {{scatter_dimension = {d} : i64, {GROUPS}}}'
        (op,) = collectives(checked(program(scatter, [type_of(many)], [type_of(shape)]), ["float32"], [many]))
        assert (op.result.tensor.rank, op.int("scatter_dimension")) == (rank, d if rank == 2 else 0)


def test_one_operand_each() -> None:
    types, dtypes, shapes = ["tensor<3x4xf32>", "tensor<2xi32>"], ["float32", "int32"], [(3, 4), (2,)]
    pairs = "source_target_pairs = dense<[[0, 1], [1, 3]]> : tensor<2x2xi64>"
    text = program(f'"stablehlo.collective_permute"(OPERANDS) {{{pairs}}}', types, types)
    function = checked(text, dtypes, shapes)
    assert [len(op.operands) for op in function.block().ops[:-1]] == [1, 1]
    gather = f'"stablehlo.all_gather"(OPERANDS) {{all_gather_dim = 0 : i64, {GROUPS}}}'
    text = program(gather, types, ["tensor<6x4xf32>", "tensor<4xi32>"])
    assert [len(op.operands) for op in collectives(checked(text, dtypes, shapes))] == [1, 1]
    both = ["tensor<4xi32>", "tensor<2xi32>"]
    text = program(f'"stablehlo.all_reduce"(OPERANDS) {body("i32")} {{{GROUPS}}}', both, both)
    assert [len(op.operands) for op in collectives(checked(text, ["int32"] * 2, [(4,), (2,)]))] == [2]


@pytest.mark.parametrize("name", ["collective_broadcast", "collective_reduce"])
def test_dynamic_roots_go_with_their_operands(name: str) -> None:
    region = body("i32") if name == "collective_reduce" else ""
    op = f'"stablehlo.{name}"(OPERANDS) {region} {{{GROUPS}, has_dynamic_root}}'
    types = ["tensor<4xi32>", "tensor<3x3xi32>"]
    function = checked(program(op, [*types, "tensor<2xi32>"], types), ["int32"] * 3, [(4,), (3, 3), (2,)])
    assert [[v.tensor.extents for v in op.operands] for op in collectives(function)] == [[(4,), (1,)], [(3, 3), (1,)]]


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (f'"stablehlo.all_reduce"(OPERANDS) {body("f32")} {{{GROUPS}}}', (2, 4)),
        (f'"stablehlo.collective_reduce"(OPERANDS) {body("f32")} {{{GROUPS}}}', (2, 4)),
        (f'"stablehlo.reduce_scatter"(OPERANDS) {body("f32")} {{scatter_dimension = 1 : i64, {GROUPS}}}', (2, 2)),
    ],
)  # fmt: skip
def test_wider_bodies_get_wider_operands(op: str, shape: tuple[int, ...]) -> None:
    function = checked(program(op, ["tensor<2x4xf16>"], [type_of(shape)]), ["float16"], [(2, 4)])
    (found,) = collectives(function)
    assert str(found.operands[0].tensor.dtype) == "f32"


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter", "collective_reduce"])
def test_quantized_operands_are_requantized_to_the_type_of_the_body(name: str) -> None:
    """Scale 0.5 becomes scale 1 with a zero point of 3: 4 is stored as 5."""
    narrow, wide = ("!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8:f32, 1.0:3>")
    more = "scatter_dimension = 0 : i64, " if name == "reduce_scatter" else ""
    op = f'"stablehlo.{name}"(OPERANDS) {body(wide)} {{{more}{GROUPS}}}'
    shape = (2,) if name == "reduce_scatter" else (4,)
    text = program(op, [type_of((4,), narrow)], [type_of(shape, wide)])
    function = on_grid(text, collective_layouts, 4, 1)
    inputs = [[np.full(4, n, np.int8)] for n in (4, 8, 12, 16)]  # 2, 4, 6, 8
    sums = [8 + 3, 12 + 3, 8 + 3, 12 + 3]  # of processes 2 and 0, of 1 and 3
    want = [n if name != "collective_reduce" or i in (2, 1) else 0 for i, n in enumerate(sums)]
    assert [out[0].tolist() for out in Grid(4, 1).run(function, inputs)] == [[n] * shape[0] for n in want]


def test_inside_of_control_flow() -> None:
    text = f"""func.func @main(%p: tensor<i1>, %x: tensor<2x2xf32>) -> tensor<2x4xf32> {{
      %r = "stablehlo.if"(%p) ({{
        %y = "stablehlo.all_gather"(%x) {{all_gather_dim = 1 : i64, {GROUPS}}} : (tensor<2x2xf32>) -> tensor<2x4xf32>
        stablehlo.return %y : tensor<2x4xf32>
      }}, {{
        %z = "stablehlo.all_gather"(%x) {{all_gather_dim = 1 : i64, {GROUPS}}} : (tensor<2x2xf32>) -> tensor<2x4xf32>
        stablehlo.return %z : tensor<2x4xf32>
      }}) : (tensor<i1>) -> tensor<2x4xf32>
      return %r : tensor<2x4xf32>
    }}"""
    found = collectives(on_grid(text, collective_layouts, 4, 1))
    assert [op.result.tensor.extents for op in found] == [(2, 2, 2)] * 2


def test_random_shapes() -> None:
    rng = random.Random(0)
    kinds = set()
    for _ in range(60):
        shape = tuple(rng.choice([1, 2, 3, 4, 16]) for _ in range(rng.randint(1, 4)))
        d, c = rng.randrange(len(shape)), rng.randrange(len(shape))
        many = scaled(shape, d, 2)
        op = f""""stablehlo.all_to_all"(OPERANDS) {{split_dimension = {d} : i64, concat_dimension = {c} : i64,
          split_count = 2 : i64, {GROUPS}}}"""
        result = scaled(shape, c, 2)
        checked(program(op, [type_of(many)], [type_of(result)]), ["float32"], [many])
        gather = f'"stablehlo.all_gather"(OPERANDS) {{all_gather_dim = {d} : i64, {GROUPS}}}'
        (found,) = collectives(checked(program(gather, [type_of(shape)], [type_of(many)]), ["float32"], [shape]))
        kinds.add(found.result.tensor.rank == len(shape))
    assert kinds == {True, False}
