"""Combining all_reduce ops: which are combined, and that the results stay the same."""

from __future__ import annotations

import random

import numpy as np
import pytest
from alone import main_of, on_grid
from grid_meaning import Grid

from shlo_jit import tuning
from shlo_jit.ir.core import Op, walk
from shlo_jit.passes.canonical.collective_layouts import MOST_OPERANDS
from shlo_jit.passes.canonical.combine_collectives import combine_collectives

T = "tensor<4xi32>"


def all_reduce(
    result: str, *operands: str, groups: str = "[[0, 1]]", body: str = "add", t: str = T, more: str = ""
) -> str:
    e = t.rpartition("x")[2].rstrip(">")
    results, types = f"%{result}:{len(operands)}" if len(operands) > 1 else f"%{result}", ", ".join([t] * len(operands))
    return f"""{results} = "stablehlo.all_reduce"({", ".join(operands)}) ({{
      ^bb0(%a: tensor<{e}>, %b: tensor<{e}>):
        %s = stablehlo.{body} %a, %b : tensor<{e}>
        {more or "%o = stablehlo.add %s, %s"} : tensor<{e}>
        stablehlo.return %{"o" if more else "s"} : tensor<{e}>
      }}) {{replica_groups = dense<{groups}> : tensor<{1 + groups.count("], [")}x{1 + groups[2:].partition("]")[0].count(",")}xi64>}}
      : ({types}) -> ({types})"""


def program(lines: list[str], returned: list[str], t: str = T, arguments: str = "") -> str:
    types = ", ".join([t] * len(returned))
    body = "\n".join(lines)
    return f"func.func @main(%x: {t}, %y: {t}{arguments}) -> ({types}) {{\n{body}\nreturn {', '.join(returned)} : {types}\n}}"


def combined(text: str, processes: int = 2) -> list[int]:
    """Returns the number of operands of each all_reduce in the final function."""
    return [len(op.operands) for op in reductions(on_grid(text, combine_collectives, processes, 1))]


def reductions(function: Op) -> list[Op]:
    return [op for op in walk(function.block()) if op.name == "stablehlo.all_reduce"]


TWO = [all_reduce("p", "%x"), all_reduce("q", "%y")]
EFFECT = f"stablehlo.custom_call @own(%x) {{has_side_effect = true}} : ({T}) -> ()"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (TWO, [2]),
        ([*TWO, all_reduce("r", "%x", "%y"), f"%z = stablehlo.add %r#0, %r#1 : {T}"], [4]),
        ([TWO[0], f"%n = stablehlo.negate %p : {T}", TWO[1]], [2]),
        ([TWO[0], f"%n = stablehlo.negate %y : {T}", all_reduce("q", "%n")], [2]),
        ([TWO[0], f"%n = stablehlo.negate %p : {T}", all_reduce("q", "%n")], [1, 1]),
        ([all_reduce("p", "%x"), all_reduce("r", "%p"), all_reduce("q", "%y")], [1, 2]),
        ([TWO[0], EFFECT, TWO[1]], [1, 1]),
        ([TWO[0], all_reduce("q", "%y", body="maximum")], [1, 1]),
        ([TWO[0], all_reduce("q", "%y", groups="[[1, 0]]")], [1, 1]),
        ([all_reduce("p", "%x", more="%o = stablehlo.maximum %s, %c"), all_reduce("q", "%y", more="%o = stablehlo.maximum %s, %c")],
         [2]),
        ([all_reduce("p", "%x", more="%o = stablehlo.maximum %s, %c"), all_reduce("q", "%y", more="%o = stablehlo.maximum %s, %d")],
         [1, 1]),
    ],
)  # fmt: skip
def test_which_are_combined(lines: list[str], expected: list[int]) -> None:
    constants = [f"%{n} = stablehlo.constant dense<{k}> : tensor<i32>" for n, k in (("c", 3), ("d", 4))]
    text = program([*constants, *lines], ["%p", "%q"])
    assert combined(text) == expected
    check_meaning(text, 2)


def check_meaning(text: str, processes: int) -> None:
    function, _ = main_of(text)
    if any(op.name == "stablehlo.custom_call" for op in walk(function.block())):
        return
    arguments = [[np.arange(4, dtype=np.int32) + 10 * p, np.arange(4, dtype=np.int32) * p] for p in range(processes)]
    got = Grid(processes, 1).run(on_grid(text, combine_collectives, processes, 1), arguments)
    np.testing.assert_array_equal(got, Grid(processes, 1).run(function, arguments))


def test_bytes_and_operands_are_bounded() -> None:
    count = tuning.COMBINED_BYTES // 4
    for n, expected in ((count // 2 - 1, [2]), (count // 2, [1, 1])):
        t = f"tensor<{n}xf32>"
        assert combined(program([all_reduce("p", "%x", t=t), all_reduce("q", "%y", t=t)], ["%p", "%q"], t)) == expected
    many = [all_reduce(f"r{i}", "%x" if i % 2 else "%y") for i in range(2 * MOST_OPERANDS + 1)]
    returned = [f"%r{i}" for i in range(len(many))]
    assert combined(program(many, returned)) == [MOST_OPERANDS, MOST_OPERANDS, 1]
    wide = [all_reduce("r", *["%x", "%y"] * MOST_OPERANDS)]
    assert combined(program(wide, ["%r#0", f"%r#{2 * MOST_OPERANDS - 1}"])) == [MOST_OPERANDS] * 2


def test_different_programs_are_not_combined() -> None:
    function, context = main_of(program(TWO, ["%p", "%q"]))
    assert len(reductions(combine_collectives(function, context))) == 1
    assert combine_collectives(function, context._replace(same_program=False)) is function


def test_element_types() -> None:
    other = all_reduce("q", "%z", t="tensor<4xf32>")
    lines = [f"%z = stablehlo.convert %y : ({T}) -> tensor<4xf32>", TWO[0], other]
    lines.append(f"%w = stablehlo.convert %q : (tensor<4xf32>) -> {T}")
    assert combined(program(lines, ["%p", "%w"])) == [1, 1]


def test_inside_of_control_flow() -> None:
    inner = "\n".join(TWO)
    branch = f"{inner}\n%t = stablehlo.add %p, %q : {T}\nstablehlo.return %t : {T}"
    lines = [f'%r = "stablehlo.if"(%k) ({{\n{branch}\n}}, {{\nstablehlo.return %x : {T}\n}}) : (tensor<i1>) -> {T}']
    assert combined(program(lines, ["%r"], arguments=", %k: tensor<i1>")) == [2]


def test_random_programs() -> None:
    """Values flow between random ops; the results are the same, and fewer ops synchronize."""
    rng = random.Random(0)
    before = after = 0
    for _ in range(40):
        values, lines = ["%x", "%y"], []
        for i in range(12):
            name = f"v{i}"
            kind = rng.choice(["all_reduce", "all_reduce", "negate", "add"])
            if kind == "all_reduce":
                lines.append(all_reduce(name, rng.choice(values), groups="[[2, 0, 1]]"))
                before += 1
            else:
                operands = ", ".join(rng.choices(values, k=2 if kind == "add" else 1))
                lines.append(f"%{name} = stablehlo.{kind} {operands} : {T}")
            values.append("%" + name)
        text = program(lines, rng.sample(values, 6))
        check_meaning(text, 3)
        after += len(combined(text, 3))
    assert 40 < after < before * 0.8
