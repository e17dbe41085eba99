"""Long chains of ops that rearrange elements compile in time proportional to their length, and are right.

Every walk over values is bounded, or caches its results. Otherwise the time for each of these chains would double with
every few ops. `SHLO_JIT_CHAIN=1000 pytest -m slow tests/fuse/test_long_chains.py` runs the chains at that length.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import numpy as np
import pytest

import shlo_jit
from shlo_jit.reference.interpreter import evaluate

N = 8
T, ROW, INDEX, PAIRS = f"tensor<{N}x{N}xf32>", f"tensor<1x{N}xf32>", "tensor<i32>", f"tensor<{N}x2xi32>"
ARGUMENTS = f"%x: {T}, %p: tensor<{N}x{N}xi1>, %i: {INDEX}, %rows: tensor<{N}x1xi32>"
FAST, LONG = 60, int(os.environ.get("SHLO_JIT_CHAIN", "300"))
GATHER = (
    "<{{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
    f"index_vector_dim = 1>, slice_sizes = array<i64: 1, {N}>}}}}>"
)
Link = Callable[[str, str], str]
"""Emits ops from the value of one name to that of another, of one type."""


def reverse(v: str, w: str) -> str:
    return f"{w} = stablehlo.reverse {v}, dims = [0] : {T}"


def transpose(v: str, w: str) -> str:
    return f"{w} = stablehlo.transpose {v}, dims = [1, 0] : ({T}) -> {T}"


def reshape(v: str, w: str) -> str:
    flat = f"tensor<{N * N}xf32>"
    return f"{w}a = stablehlo.reshape {v} : ({T}) -> {flat}\n{w}b = stablehlo.reverse {w}a, dims = [0] : {flat}\n{w} = stablehlo.reshape {w}b : ({flat}) -> {T}"


def roll(v: str, w: str) -> str:
    rest = f"tensor<{N - 3}x{N}xf32>"
    return (
        f"{w}a = stablehlo.slice {v} [0:3, 0:{N}] : ({T}) -> tensor<3x{N}xf32>\n{w}b = stablehlo.slice {v} [3:{N}, 0:{N}] : ({T}) -> {rest}\n"
        f"{w} = stablehlo.concatenate {w}b, {w}a, dim = 0 : ({rest}, tensor<3x{N}xf32>) -> {T}"
    )


def concatenate(v: str, w: str) -> str:
    """Concatenates with a row of another tensor."""
    rest = f"tensor<{N - 1}x{N}xf32>"
    return f"{w}a = stablehlo.slice {v} [1:{N}, 0:{N}] : ({T}) -> {rest}\n{w} = stablehlo.concatenate {w}a, %row, dim = 0 : ({rest}, {ROW}) -> {T}"


def pad(v: str, w: str) -> str:
    return (
        f"{w} = stablehlo.pad {v}, %zero, low = [1, -1], high = [-1, 1], interior = [0, 0] : ({T}, tensor<f32>) -> {T}"
    )


def spread(v: str, w: str) -> str:
    """Pads between elements, and slices the beginning."""
    return f"{w} = stablehlo.pad {v}, %zero, low = [0, 0], high = [{1 - N}, 0], interior = [1, 0] : ({T}, tensor<f32>) -> {T}"


def shrink(v: str, w: str) -> str:
    rest = f"tensor<{N - 2}x{N}xf32>"
    return f"{w}a = stablehlo.slice {v} [1:{N - 1}, 0:{N}] : ({T}) -> {rest}\n{w} = stablehlo.pad {w}a, %zero, low = [1, 0], high = [1, 0], interior = [0, 0] : ({rest}, tensor<f32>) -> {T}"


def gather(v: str, w: str) -> str:
    return f'{w} = "stablehlo.gather"({v}, %rows) {GATHER.format()} : ({T}, tensor<{N}x1xi32>) -> {T}'


def select(v: str, w: str) -> str:
    return f"{w}a = stablehlo.reverse {v}, dims = [1] : {T}\n{w} = stablehlo.select %p, {v}, {w}a : tensor<{N}x{N}xi1>, {T}"


def dynamic_slice(v: str, w: str) -> str:
    rest = f"tensor<{N - 2}x{N}xf32>"
    return f"{w}a = stablehlo.dynamic_slice {v}, %i, %zi, sizes = [{N - 2}, {N}] : ({T}, {INDEX}, {INDEX}) -> {rest}\n{w} = stablehlo.pad {w}a, %zero, low = [0, 0], high = [2, 0], interior = [0, 0] : ({rest}, tensor<f32>) -> {T}"


def dynamic_update_slice(v: str, w: str) -> str:
    return f"{w}a = stablehlo.slice {v} [2:3, 0:{N}] : ({T}) -> {ROW}\n{w} = stablehlo.dynamic_update_slice {v}, {w}a, %i, %zi : ({T}, {ROW}, {INDEX}, {INDEX}) -> {T}"


def update_most(v: str, w: str) -> str:
    """Updates at a known place with neighbours."""
    inner = f"tensor<{N - 2}x{N}xf32>"
    return f"{w}a = stablehlo.slice {v} [2:{N}, 0:{N}] : ({T}) -> {inner}\n{w} = stablehlo.dynamic_update_slice {v}, {w}a, %one, %zi : ({T}, {inner}, {INDEX}, {INDEX}) -> {T}"


def broadcast(v: str, w: str) -> str:
    return f"{w}a = stablehlo.slice {v} [2:3, 0:{N}] : ({T}) -> {ROW}\n{w}b = stablehlo.reshape {w}a : ({ROW}) -> tensor<{N}xf32>\n{w} = stablehlo.broadcast_in_dim {w}b, dims = [0] : (tensor<{N}xf32>) -> {T}"


def scatter(v: str, w: str) -> str:
    return f"""{w}u = stablehlo.reverse {v}, dims = [1] : {T}
    {w} = "stablehlo.scatter"({v}, %rows, {w}u) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        stablehlo.return %b : tensor<f32>
    }}) : ({T}, tensor<{N}x1xi32>, {T}) -> {T}"""


def twice(v: str, w: str) -> str:
    """Reads at two places, and adds."""
    return f"{w}a = stablehlo.reverse {v}, dims = [0, 1] : {T}\n{w} = stablehlo.maximum {w}a, {v} : {T}"


def interleaved(v: str, w: str) -> str:
    """Takes every second row, twice."""
    half = f"tensor<{N // 2}x{N}xf32>"
    return f"{w}a = stablehlo.slice {v} [0:{N}:2, 0:{N}] : ({T}) -> {half}\n{w}b = stablehlo.slice {v} [1:{N}:2, 0:{N}] : ({T}) -> {half}\n{w} = stablehlo.concatenate {w}a, {w}b, dim = 0 : ({half}, {half}) -> {T}"


LINKS: dict[str, Link] = {
    f.__name__: f
    for f in (
        reverse, transpose, reshape, roll, concatenate, pad, spread, shrink, gather, select, dynamic_slice,
        dynamic_update_slice, update_most, broadcast, scatter, twice, interleaved,
    )
}  # fmt: skip


def chain(names: list[str]) -> str:
    """A program of these links, one after the other."""
    lines = [
        f"func.func @main({ARGUMENTS}) -> {T} {{", "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        f"%zi = stablehlo.constant dense<0> : {INDEX}", f"%one = stablehlo.constant dense<1> : {INDEX}",
        f"%row = stablehlo.constant dense<[[{', '.join(f'{k}.5' for k in range(N))}]]> : {ROW}", f"%v0 = stablehlo.sine %x : {T}",
    ]  # fmt: skip
    lines += [LINKS[name](f"%v{k}", f"%v{k + 1}") for k, name in enumerate(names)]
    return "\n".join([*lines, f"return %v{len(names)} : {T} }}"])


def shrinking(n: int) -> str:
    """A chain of slices only."""
    lines = [f"func.func @main(%v0: tensor<{n + 1}x4xf32>) -> tensor<1x4xf32> {{"]
    lines += [
        f"%v{k + 1} = stablehlo.slice %v{k} [{k % 2}:{n - k + k % 2}, 0:4] : (tensor<{n + 1 - k}x4xf32>) -> tensor<{n - k}x4xf32>"
        for k in range(n)
    ]
    return "\n".join([*lines, f"return %v{n} : tensor<1x4xf32> }}"])


def pairs(n: int) -> str:
    """Gathers at gathered indices: each index has two components."""
    numbers = (
        f"<{{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0, 1], start_index_map = [0, 1], "
        f"index_vector_dim = 1>, slice_sizes = array<i64: 1, 1, 2>}}> : (tensor<{N}x{N}x2xi32>, {PAIRS}) -> {PAIRS}"
    )
    lines = [f"func.func @main(%table: tensor<{N}x{N}x2xi32>, %v0: {PAIRS}) -> {PAIRS} {{"]
    lines += [f'%v{k + 1} = "stablehlo.gather"(%table, %v{k}) {numbers}' for k in range(n)]
    return "\n".join([*lines, f"return %v{n} : {PAIRS} }}"])


def doubled(n: int) -> str:
    """Concatenations of a value with itself, which are sliced again."""
    wide = f"tensor<{2 * N}x{N}xf32>"
    lines = [f"func.func @main(%v0: {T}) -> {T} {{"]
    for k in range(n):
        lines.append(f"%c{k} = stablehlo.concatenate %v{k}, %v{k}, dim = 0 : ({T}, {T}) -> {wide}")
        lines.append(f"%v{k + 1} = stablehlo.slice %c{k} [3:{N + 3}, 0:{N}] : ({wide}) -> {T}")
    return "\n".join([*lines, f"return %v{n} : {T} }}"])


def growing(n: int) -> str:
    """Adds a row in every link."""
    lines = [f"func.func @main(%v0: {ROW}, %y: {ROW}) -> tensor<{n + 1}x{N}xf32> {{"]
    lines += [
        f"%v{k + 1} = stablehlo.concatenate %v{k}, %y, dim = 0 : (tensor<{k + 1}x{N}xf32>, {ROW}) -> tensor<{k + 2}x{N}xf32>"
        for k in range(n)
    ]
    return "\n".join([*lines, f"return %v{n} : tensor<{n + 1}x{N}xf32> }}"])


def in_loop(n: int) -> str:
    """A loop whose body reads every value at two places, at growing distances."""
    lines = [
        f"func.func @main(%x: {T}) -> {T} {{", "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        "%k0 = stablehlo.constant dense<0> : tensor<i32>", "%k1 = stablehlo.constant dense<1> : tensor<i32>",
        f"%r:2 = stablehlo.while(%k = %k0, %v0 = %x) : tensor<i32>, {T} cond {{",
        "%c = stablehlo.compare LT, %k, %k1 : (tensor<i32>, tensor<i32>) -> tensor<i1>", "stablehlo.return %c : tensor<i1> } do {",
    ]  # fmt: skip
    for k in range(n):
        low, high = (1, -1) if k % 2 else (-2, 2)
        lines.append(
            f"%a{k} = stablehlo.pad %v{k}, %zero, low = [{low}, {k % 3}], high = [{high}, {-(k % 3)}], interior = [0, 0] : ({T}, tensor<f32>) -> {T}"
        )
        lines.append(f"%v{k + 1} = stablehlo.maximum %a{k}, %v{k} : {T}")
    lines += ["%j = stablehlo.add %k, %k1 : tensor<i32>", f"stablehlo.return %j, %v{n} : tensor<i32>, {T} }}"]
    return "\n".join([*lines, f"return %r#1 : {T} }}"])


def comparator(n: int) -> str:
    """A comparator whose two sides are the same expression, with every value read twice."""
    element, line = "tensor<f32>", f"tensor<{N}xf32>"
    sides = [
        f"%{side}{k + 1} = stablehlo.{'add' if k == 0 else 'maximum'} %{side}{k}, %{side}{k} : {element}"
        for side in "ab"
        for k in range(n)
    ]
    return "\n".join(
        [f"func.func @main(%x: {line}) -> {line} {{", '%r = "stablehlo.sort"(%x) <{dimension = 0 : i64}> ({',
         f"^bb0(%a0: {element}, %b0: {element}):", *sides,
         f"%c = stablehlo.compare LT, %a{n}, %b{n} : ({element}, {element}) -> tensor<i1>",
         f"stablehlo.return %c : tensor<i1> }}) : ({line}) -> {line}", f"return %r : {line} }}"]
    )  # fmt: skip


def mixed(n: int, seed: int) -> str:
    rng = random.Random(seed)
    return chain([rng.choice(list(LINKS)) for _ in range(n)])


SHAPES: dict[str, Callable[[int], str]] = {
    **{name: lambda n, name=name: chain([name] * n) for name in LINKS},
    "shrinking": shrinking, "pairs": pairs, "doubled": doubled, "growing": growing,
    "in a loop": in_loop, "comparator": comparator,
    **{f"mixed {seed}": lambda n, seed=seed: mixed(n, seed) for seed in range(4)},
}  # fmt: skip


def run(text: str) -> float:
    """Compiles the program, compares its result with the reference, and returns the compile time in seconds."""
    start = time.process_time()
    exe = shlo_jit.compile(text, cache=False, threads=1)
    seconds = time.process_time() - start
    rng = np.random.default_rng(0)
    arrays = []
    for port in exe.inputs:
        if port.dtype.kind == "f":
            arrays.append(rng.standard_normal(port.shape).astype(port.dtype))
        else:
            arrays.append(rng.integers(0, 2 if port.dtype.kind == "b" else N, port.shape).astype(port.dtype))
    (want,) = evaluate(shlo_jit.parse(text), *arrays)
    # sines are rounded like the machine does; all other ops move elements
    np.testing.assert_allclose(exe(*arrays), want, rtol=1e-6)
    return seconds


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.sampled(4)
def test_a_chain(name: str) -> None:
    run(SHAPES[name](FAST))


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_a_long_chain_takes_proportional_time(name: str) -> None:
    run(SHAPES[name](4))  # imports and other one-time work
    some, many = run(SHAPES[name](LONG // 4)), run(SHAPES[name](LONG))
    print(f"{name}: {LONG // 4} in {some:.2f} s, {LONG} in {many:.2f} s")
    assert many < 10 * some + 1
