"""Limits of fusion: for every decision by cost or size, a program on either side of the limit."""

from __future__ import annotations

import pytest
from printed_codes import codes

from shlo_jit import parse
from shlo_jit.codegen.target import resolve
from shlo_jit.fuse.plan import all_steps
from shlo_jit.fuse.show import show_plan
from shlo_jit.fuse.value_names import Names
from shlo_jit.options import CompileOptions
from shlo_jit.pipeline import lower
from shlo_jit.stages import show


def plan(arguments: str, results: str, lines: list[str], returned: str) -> tuple[list[str], str]:
    """Returns the titles of the steps, and the plan as printed."""
    body = "\n".join([*lines, f"return {returned} : {results}"])
    lowered = lower(parse(f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}"), CompileOptions(resolve()))
    return [s.title for s in all_steps(lowered.plan)], show_plan(lowered.plan, Names(lowered.entry.core))


def check(found: tuple[list[str], str], titles: list[str], code: str = "", shows: str = "") -> None:
    """Checks the steps, the reason that explains an additional step, and a number that the reason shows."""
    steps, text = found
    assert steps == titles, text
    assert not code or any(code in codes(line) and shows in line for line in text.splitlines()), text


# ---------------------------------------------------------------------- one reader
def chain(count: int) -> tuple[list[str], str]:
    t = "tensor<64xf32>"
    lines = [f"%v{i + 1} = stablehlo.add %v{i}, %v{i} : {t}" for i in range(count)]
    return plan(f"%v0: {t}", t, lines, f"%v{count}")


def test_nodes_of_a_nest() -> None:
    check(chain(400), ["loop"])
    check(chain(402), ["loop"])  # the last one reads only an argument
    check(chain(403), ["loop", "loop"], "loop-full", "400 ops")


def shifted(op: str, count: int, more: int = 0) -> tuple[list[str], str]:
    """An op read at `count` places of one nest, which has `more` other ops."""
    t = "tensor<64xf32>"
    lines = [f"%v = stablehlo.{op} %x{', dims = [0]' if op == 'reverse' else ''} : {t}"]
    part = "tensor<32xf32>"
    for i in range(count):
        lines.append(f"%s{i} = stablehlo.slice %v [{i}:{i + 32}] : ({t}) -> {part}")
    lines.append(f"%t0 = stablehlo.cosine %s0 : {part}")
    lines += [f"%t{i} = stablehlo.add %t{i - 1}, %s{i} : {part}" for i in range(1, count)]
    lines += [f"%t{i} = stablehlo.add %t{i - 1}, %t{i - 1} : {part}" for i in range(count, count + more)]
    return plan(f"%x: {t}", part, lines, f"%t{count + more - 1}")


def test_ops_read_at_several_places_of_a_nest() -> None:
    check(shifted("exponential", 1), ["loop"])
    check(shifted("exponential", 2), ["loop", "loop"], "expensive-to-recompute", "12 additions")
    check(shifted("negate", 2), ["loop"])
    check(shifted("negate", 3), ["loop", "loop"], "read-at-several-indices", "3 different")
    check(shifted("negate", 2, more=55), ["loop"])
    check(shifted("negate", 2, more=75), ["loop", "loop"], "reader-too-large-to-duplicate", "64 ops")


def test_index_maps_read_at_several_places_of_a_nest() -> None:
    check(shifted("reverse", 8), ["loop"])
    check(shifted("reverse", 9), ["loop", "loop"], "read-at-several-indices", "9 different")


def gathered(times: int) -> tuple[list[str], str]:
    g, out = "tensor<8xf32>", f"tensor<{times}x8xf32>"
    numbers = "#stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>"
    lines = [
        f'%g = "stablehlo.gather"(%x, %i) <{{dimension_numbers = {numbers}, slice_sizes = array<i64: 1>}}>'
        f" : (tensor<99xf32>, tensor<8x1xi32>) -> {g}",
        f"%b = stablehlo.broadcast_in_dim %g, dims = [1] : ({g}) -> {out}",
        f"%y = stablehlo.negate %b : {out}",
    ]
    return plan("%x: tensor<99xf32>, %i: tensor<8x1xi32>", out, lines, "%y")


def test_gathers_are_repeated_once() -> None:
    check(gathered(2), ["loop"])
    check(gathered(3), ["loop", "loop"], "gather-repeated", "24 gathered")


def permuted_rows(dim: int) -> tuple[list[str], str]:
    """Gathered rows, plus two of their columns in each column, or two of their rows in each row."""
    m, part = "tensor<8x8xf32>", ("tensor<8x1xf32>", "tensor<1x8xf32>")[dim]
    numbers = "#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>"
    lines = [
        f'%s0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = {numbers}, slice_sizes = array<i64: 1, 8>}}>'
        f" : ({m}, tensor<8x1xi32>) -> {m}"
    ]
    for k in range(2):
        limits = ("0:8, {}:{}", "{}:{}, 0:8")[dim].format(2 + k, 3 + k)
        lines += [
            f"%p{k} = stablehlo.slice %s0 [{limits}] : ({m}) -> {part}",
            f"%b{k} = stablehlo.broadcast_in_dim %p{k}, dims = [0, 1] : ({part}) -> {m}",
            f"%s{k + 1} = stablehlo.add {'%s0' if not k else f'%t{k}'}, %b{k} : {m}",
            f"%t{k + 1} = stablehlo.negate %s{k + 1} : {m}",
        ]
    return plan(f"%x: {m}, %i: tensor<8x1xi32>", m, lines, "%t2")


def test_gathered_elements_count_in_the_loops_of_their_place() -> None:
    """Two elements of a row are gathered once for that row, 64 + 16; two rows for each row, 64 + 64 + 64."""
    check(permuted_rows(0), ["loop"])
    check(permuted_rows(1), ["loop", "loop"], "gather-repeated", "192 gathered")


# ---------------------------------------------------------------------- several readers
def halves(op: str, first: int, second: int) -> tuple[list[str], str]:
    """An op with two nests: one reads the elements before `first`, the other those from `second` on."""
    t, a, b = "tensor<64xf32>", f"tensor<{first}xf32>", f"tensor<{64 - second}xf32>"
    lines = [
        f"%v = stablehlo.{op} : {t}",
        f"%a = stablehlo.slice %v [0:{first}] : ({t}) -> {a}",
        f"%b = stablehlo.slice %v [{second}:64] : ({t}) -> {b}",
        f"%c = stablehlo.tanh %a : {a}",
        f"%d = stablehlo.tanh %b : {b}",
    ]
    return plan(f"%x: {t}, %y: {t}", f"{a}, {b}", lines, "%c, %d")


def test_readers_of_different_parts() -> None:
    check(halves("exponential %x", 40, 40), ["loop", "loop"])
    check(halves("exponential %x", 40, 39), ["loop"] * 3, "several-readers", "12 additions")


def test_readers_of_the_same_elements() -> None:
    check(halves("negate %x", 40, 39), ["loop", "loop"])
    check(halves("add %x, %y", 40, 39), ["loop"] * 3, "several-readers", "costs 1 ")  # two loads instead of one
    check(halves("sqrt %x", 40, 39), ["loop"] * 3, "several-readers", "costs 4 ")
    check(halves("tanh %x", 40, 39), ["loop"] * 3, "several-readers", "costs 16 ")


def sums(op: str) -> list[str]:
    """Sums of an op's result over its rows and over its columns."""
    t, out = "tensor<32x48xf32>", ("tensor<32xf32>", "tensor<48xf32>")
    lines = ["%zero = stablehlo.constant dense<0.0> : tensor<f32>", f"%v = stablehlo.{op} : {t}"]
    for d, name in ((1, "r"), (0, "s")):
        types = f"({t}, tensor<f32>) -> {out[1 - d]}"
        lines.append(
            f"%{name} = stablehlo.reduce(%v init: %zero) applies stablehlo.add across dimensions = [{d}] : {types}"
        )
    return plan(f"%x: {t}, %y: {t}", ", ".join(out), lines, "%r, %s")[0]


def test_the_first_reader_of_each_element_writes_it_for_the_other() -> None:
    assert sums("negate %x") == ["reduce", "reduce"]
    assert sums("add %x, %y") == ["row", "reduce"]
    assert sums("tanh %x") == ["row", "reduce"]


# ---------------------------------------------------------------------- rows
def centered(shape: tuple[int, int], dim: int) -> tuple[list[str], str]:
    """Numbers less the maximum of their row (dim 1) or column (dim 0)."""
    t, rest = f"tensor<{shape[0]}x{shape[1]}xf32>", f"tensor<{shape[1 - dim]}xf32>"
    lines = [
        "%low = stablehlo.constant dense<0xFF800000> : tensor<f32>",
        f"%m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [{dim}]"
        f" : ({t}, tensor<f32>) -> {rest}",
        f"%b = stablehlo.broadcast_in_dim %m, dims = [{1 - dim}] : ({rest}) -> {t}",
        f"%d = stablehlo.subtract %x, %b : {t}",
    ]
    return plan(f"%x: {t}", t, lines, "%d")


@pytest.mark.parametrize(
    ("dim", "fits", "does_not", "code", "shows"),
    [
        (1, (16, 1 << 16), (16, (1 << 16) + 8), "row-exceeds-cache", "65,544"),
        (1, (15, 4096), (15, 4104), "few-long-rows", "15 long rows"),  # these are divided along the row
        (1, (16, 4104), (15, 4104), "few-long-rows", "15 long rows"),
        (0, (2048, 100), (2049, 100), "row-exceeds-cache", "2,049"),  # a cache line for each element
        (0, (512, 512), (513, 512), "row-exceeds-cache", "513 "),  # and all in the same cache set
    ],
)
def test_maximum_length_of_a_row(
    dim: int, fits: tuple[int, int], does_not: tuple[int, int], code: str, shows: str
) -> None:
    check(centered(fits, dim), ["row"])
    titles, text = centered(does_not, dim)
    assert len(titles) == 2
    assert any(["reduction-not-fused", code] == codes(line)[:2] and shows in line for line in text.splitlines()), text


# ---------------------------------------------------------------------- states of loops
def reversing(elements: int) -> str:
    t = f"tensor<{elements}xf32>"
    lines = [
        "%zero = stablehlo.constant dense<0> : tensor<i32>",
        f"%r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, {t} cond {{",
        "  %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>",
        "  stablehlo.return %p : tensor<i1>",
        "} do {",
        "  %one = stablehlo.constant dense<1> : tensor<i32>",
        "  %j = stablehlo.add %i, %one : tensor<i32>",
        f"  %d = stablehlo.reverse %c, dims = [0] : {t}",
        f"  stablehlo.return %j, %d : tensor<i32>, {t}",
        "}",
    ]
    body = "\n".join([*lines, f"return %r#1 : {t}"])
    text = f"func.func @main(%x: {t}, %n: tensor<i32>) -> {t} {{\n{body}\n}}"
    return show(lower(parse(text), CompileOptions(resolve())), "memory", resolve())


def test_large_states_swap_their_memory() -> None:
    copied, swapped = reversing(1023), reversing(1024)
    assert codes(copied, "at the end of a region") == ["next-state", "old-state-read-elsewhere"]
    assert "swapped" not in copied
    assert not codes(swapped, "at the end of a region") and "4,096 bytes each, swapped" in swapped
