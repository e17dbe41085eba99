"""Collective ops in machine code, on threads, equal the text of the specification (`grid_meaning.py`): every op, on
random grids, with random groups, along random dimensions."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from alone import main_of
from grid_meaning import Grid

from shlo_jit.api import compile as compile_alone  # not in guarded memory: processes have separate memory

ADD = """({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %s = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %s : tensor<i32>
    })"""
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
SHARED = {"all_reduce", "all_gather", "reduce_scatter", "collective_reduce"}
"""Ops that support groups across replicas and partitions."""
NAMES = [*sorted(SHARED), "all_reduce", "all_to_all", "collective_broadcast", "collective_permute"]


def groups(rng: random.Random, name: str, replicas: int, partitions: int) -> tuple[str, int]:
    """Returns random attributes that specify groups, and the number of members of each."""
    ways = {"": replicas, CHANNEL: replicas if name in SHARED else partitions}
    if name in SHARED:
        ways[f"{CHANNEL}, use_global_device_ids"] = replicas * partitions
    way = rng.choice(list(ways))
    ids = rng.sample(range(ways[way]), ways[way])
    size = rng.choice([n for n in range(1, len(ids) + 1) if len(ids) % n == 0])
    rows = [ids[i : i + size] for i in range(0, len(ids), size)]
    word = "replica_groups"
    if name == "collective_permute":
        word, rows = "source_target_pairs", [[a, b] for a, b in pairwise(ids)]
    given = f"dense<{rows or ''}> : tensor<{len(rows)}x{len(rows[0]) if rows else 2}xi64>"
    more = f", {way}" if way else ""
    return f"{word} = {given}{more}", size * (partitions if name in SHARED and way == CHANNEL else 1)


def operation(rng: random.Random, name: str, i: int, grid: tuple[int, int]) -> tuple[str, tuple[int, ...], str]:
    """Returns a line that computes %ri from %xi, the operand's shape, and the result's type."""
    named, size = groups(rng, name, *grid)
    shape = [rng.choice([1, 2, 3, 20]) for _ in range(rng.randint(1, 3))]
    d, c = rng.randrange(len(shape)), rng.randrange(len(shape))
    more = {
        "all_gather": f"all_gather_dim = {d} : i64, ",
        "reduce_scatter": f"scatter_dimension = {d} : i64, ",
        "all_to_all": f"split_dimension = {d} : i64, concat_dimension = {c} : i64, split_count = {size} : i64, ",
    }.get(name, "")
    before, after = list(shape), list(shape)
    if name in ("reduce_scatter", "all_to_all"):
        before[d] *= size
    if name in ("all_gather", "all_to_all"):
        after[d if name == "all_gather" else c] *= size
    types = [f"tensor<{'x'.join(map(str, s))}xi32>" for s in (before, after)]
    body = ADD if "reduce" in name else ""
    line = f'%r{i} = "stablehlo.{name}"(%x{i}) {body} {{{more}{named}}} : ({types[0]}) -> {types[1]}'
    return line, tuple(before), types[1]


@pytest.mark.parametrize("grid", [(2, 1), (1, 2), (2, 2), (3, 1), (1, 4), (3, 2)])
def test_every_op_on_a_grid(grid: tuple[int, int]) -> None:
    rng = random.Random(str(grid))
    for _ in range(3):
        found = [operation(rng, name, i, grid) for i, name in enumerate(rng.sample(NAMES, len(NAMES)))]
        arguments = [f"%x{i}: tensor<{'x'.join(map(str, shape))}xi32>" for i, (_, shape, _) in enumerate(found)]
        lines, types = "\n".join(line for line, _, _ in found), ", ".join(t for _, _, t in found)
        returned = ", ".join(f"%r{i}" for i in range(len(found)))
        text = f"func.func @main({', '.join(arguments)}) -> ({types}) {{\n{lines}\nreturn {returned} : {types}\n}}"
        count = grid[0] * grid[1]
        given = [
            [np.arange(np.prod(shape), dtype=np.int32).reshape(shape) + 1000 * p for _, shape, _ in found]
            for p in range(count)
        ]
        want = Grid(*grid).run(main_of(text)[0], given)
        how = {"num_replicas": grid[0], "num_partitions": grid[1], "transport": "threads", "cache": False}
        with compile_alone(text, **how) as run:
            for _ in range(2):
                for p, own in enumerate(run([tuple(a) for a in given])):
                    for i, (got, expected) in enumerate(zip(own, want[p], strict=True)):
                        np.testing.assert_array_equal(got, expected, f"process {p}: {found[i][0]}")


STARTED = """func.func @main(%x: tensor<2x3xi32>, %y: tensor<2x3xi32>) -> (TYPES) {
  %f = "stablehlo.async_start"(%x) ({
  ^bb0(%c: tensor<2x3xi32>):
    %g = "stablehlo.all_gather"(%c) {all_gather_dim = 1 : i64, ALL} : (tensor<2x3xi32>) -> tensor<2x6xi32>
    stablehlo.return %g : tensor<2x6xi32>
  }) : (tensor<2x3xi32>) -> !stablehlo.future<tensor<2x6xi32>>
  %h = "stablehlo.async_start"(%y) ({
  ^bb0(%c: tensor<2x3xi32>):
    %g = "stablehlo.all_reduce"(%c) ADD {ALL} : (tensor<2x3xi32>) -> tensor<2x3xi32>
    stablehlo.return %g : tensor<2x3xi32>
  }) : (tensor<2x3xi32>) -> !stablehlo.future<tensor<2x3xi32>>
  %p = "stablehlo.all_reduce"(%x) ADD {ALL} : (tensor<2x3xi32>) -> tensor<2x3xi32>
  %n = stablehlo.negate %p : tensor<2x3xi32>
  %q = "stablehlo.all_reduce"(%y) ADD {ALL} : (tensor<2x3xi32>) -> tensor<2x3xi32>
  %r = "stablehlo.async_done"(%h) : (!stablehlo.future<tensor<2x3xi32>>) -> tensor<2x3xi32>
  %w = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<2x6xi32>>) -> tensor<2x6xi32>
  %s = stablehlo.subtract %q, %n : tensor<2x3xi32>
  return %s, %r, %w : TYPES
}"""


def test_started_and_combined_ops() -> None:
    """On two processes with the same program, and with different ones: then nothing is combined."""
    text = STARTED.replace("TYPES", "tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x6xi32>").replace("ADD", ADD)
    text = text.replace("ALL}", "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}")
    x = [np.arange(6, dtype=np.int32).reshape(2, 3) + 100 * p for p in range(2)]
    want = [(x[0] + x[1]) * 4, (x[0] + x[1]) * 3, np.concatenate(x, 1)]
    both = f"module {{\n{text}\n{text.replace('@main', '@other')}\n}}"
    for programs in (None, [["main"], ["other"]]):
        with compile_alone(both, num_replicas=2, programs=programs, transport="threads", cache=False) as run:
            for _ in range(3):
                for own in run([(a, 3 * a) for a in x]):
                    for got, expected in zip(own, want, strict=True):
                        np.testing.assert_array_equal(got, expected)
