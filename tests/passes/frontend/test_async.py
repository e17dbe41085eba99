"""Collective ops that start early: a call at the start, the op itself at its async_done."""

from __future__ import annotations

import numpy as np
from alone import main_of, on_grid
from grid_meaning import Grid

import shlo_jit
from shlo_jit.ir.core import Op, walk
from shlo_jit.passes.canonical.collective_layouts import collective_layouts
from shlo_jit.passes.frontend.flatten import flatten
from shlo_jit.passes.frontend.process_grid import process_grid

T = "tensor<2x4xf32>"
FUTURE = f"!stablehlo.future<{T}>"
ALL = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
REDUCE = f"""%c = "stablehlo.all_reduce"(%a) ({{
    ^bb0(%m: tensor<f32>, %n: tensor<f32>):
      %s = stablehlo.add %m, %n : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }}) {{{ALL}}} : ({T}) -> {T}"""


def start(inner: str, name: str = "f", given: str = "%x", future: str = FUTURE, returned: str = T) -> str:
    return f"""%{name} = "stablehlo.async_start"({given}) ({{
    ^bb0(%a: {T}):
      {inner}
      stablehlo.return %c : {returned}
    }}) : ({T}) -> {future}"""


def done(name: str = "r", future: str = "%f", types: str = f"({FUTURE}) -> {T}") -> str:
    return f'%{name} = "stablehlo.async_done"({future}) : {types}'


def program(*lines: str, result: str = T) -> str:
    body = "\n".join(lines)
    return f"func.func @main(%x: {T}, %k: tensor<i1>) -> {result} {{\n{body}\nreturn %r : {result}\n}}"


def outline(function: Op) -> list[str]:
    """Returns the names of ops in order, with the numbers of started ops."""
    names = []
    for op in walk(function.block()):
        number = op.attributes.get("started")
        name = op.attributes.get("call_target_name", op.name).partition(".")[2]
        if not name.endswith("return"):
            names.append(name if number is None else f"{name} {number.value}")
    return names


NEGATE = f"%y = stablehlo.negate %x : {T}"


def test_with_several_processes_it_runs_at_async_done() -> None:
    text = program(start(REDUCE), NEGATE, done())
    assert outline(on_grid(text, process_grid, 2, 1)) == ["start 0", "negate", "all_reduce 0", "add"]
    assert outline(
        on_grid(text.replace("[[0, 1]]> : tensor<1x2xi64>", "0> : tensor<1x1xi64>"), process_grid, 1, 1)
    ) == ["negate"]
    alone, context = main_of(text)
    assert outline(flatten(alone, context)) == ["all_reduce", "add", "negate"]
    function = on_grid(text, collective_layouts, 2, 1)
    call, op, _ = function.block().ops
    assert call.operands == op.operands and call.attributes["has_side_effect"]
    x = [[np.full((2, 4), p + 1, np.float32), np.array(True)] for p in range(2)]
    assert [out[0][0, 0] for out in Grid(2, 1).run(function, x)] == [3, 3]


def test_several_at_a_time() -> None:
    text = program(start(REDUCE), start(REDUCE, "g"), done("q", "%g"), done())
    found = [n for n in outline(on_grid(text, process_grid, 2, 1)) if n != "add"]
    assert found == ["start 1", "start 0", "all_reduce 0", "all_reduce 1"]


def test_which_ops_run_at_async_start() -> None:
    """Slices, ops that are done in another block or more than once, and bodies that return more than the op's
    results."""
    cut = f"%c = stablehlo.slice %a [0:1, 0:4] : ({T}) -> tensor<1x4xf32>"
    short, future = "tensor<1x4xf32>", "!stablehlo.future<tensor<1x4xf32>>"
    slices = program(start(cut, future=future, returned=short), done(types=f"({future}) -> {short}"), result=short)
    assert outline(on_grid(slices, process_grid, 2, 1)) == ["slice"]
    elsewhere = f"""%r = "stablehlo.if"(%k) ({{
      {done("q")}
      stablehlo.return %q : {T}
    }}, {{
      stablehlo.return %x : {T}
    }}) : (tensor<i1>) -> {T}"""
    assert outline(on_grid(program(start(REDUCE), elsewhere), process_grid, 2, 1)) == ["all_reduce", "add", "if"]
    twice = program(start(REDUCE), done("q"), done())
    assert outline(on_grid(twice, process_grid, 2, 1)) == ["all_reduce", "add"]
    more = start(REDUCE, future=f"!stablehlo.future<{T}, {T}>").replace(f"return %c : {T}", f"return %c, %a : {T}, {T}")
    more = program(more, done("r:2", types=f"(!stablehlo.future<{T}, {T}>) -> ({T}, {T})")).replace(
        "return %r", "return %r#0"
    )
    assert outline(on_grid(more, process_grid, 2, 1)) == ["all_reduce", "add"]


def test_nothing_starts_without_communication() -> None:
    """Groups of one member: the op is removed, and finally its call, too."""
    text = program(start(REDUCE), NEGATE, done()).replace(
        "[[0, 1]]> : tensor<1x2xi64>", "[[0], [1]]> : tensor<2x1xi64>"
    )
    assert outline(on_grid(text, process_grid, 2, 1)) == ["start 0", "negate"]
    assert outline(on_grid(text, collective_layouts, 2, 1)) == []


GATHER = f'%c = "stablehlo.all_gather"(%a) {{all_gather_dim = 1 : i64, {ALL}}} : ({T}) -> tensor<2x8xf32>'


def test_layouts_are_made_before_the_start() -> None:
    wide = "tensor<2x8xf32>"
    future = f"!stablehlo.future<{wide}>"
    text = program(
        start(GATHER, future=future, returned=wide), NEGATE, done(types=f"({future}) -> {wide}"), result=wide
    )
    function = on_grid(text, collective_layouts, 2, 1)
    names = outline(function)
    assert names[:2] == ["reshape", "start 0"] and names[-3:] == ["all_gather 0", "transpose", "reshape"]
    call, op = (
        next(o for o in function.block().ops if "started" in o.attributes and o.name == n)
        for n in ("stablehlo.custom_call", "stablehlo.all_gather")
    )
    assert call.operands == op.operands
    x = [[np.arange(8, dtype=np.float32).reshape(2, 4) + 10 * p, np.array(True)] for p in range(2)]
    want = np.concatenate([a for a, _ in x], 1)
    for (got,) in Grid(2, 1).run(function, x):
        np.testing.assert_array_equal(got, want)


def test_one_process_computes_what_starts() -> None:
    text = program(start(REDUCE), NEGATE, done()).replace("[[0, 1]]> : tensor<1x2xi64>", "0> : tensor<1x1xi64>")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, np.array(True)), x)
