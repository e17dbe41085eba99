"""Concatenations that products read in segments, and the reasons that the plan prints for the others."""

from __future__ import annotations

import pytest
from printed_codes import codes

from shlo_jit import parse, tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.options import CompileOptions
from shlo_jit.pipeline import lower
from shlo_jit.stages import show


def t(*extents: int) -> str:
    return "tensor<" + "".join(f"{n}x" for n in extents) + "f32>"


def plan(arguments: list[tuple[int, ...]], results: list[tuple[str, tuple[int, ...]]], *lines: str) -> str:
    """Returns the plan of a function of %a, %b, ..."""
    parameters = ", ".join(f"%{name}: {t(*shape)}" for name, shape in zip("abcdef", arguments, strict=False))
    names, kinds = ", ".join(name for name, _ in results), ", ".join(t(*shape) for _, shape in results)
    body = "\n".join(lines)
    text = f"func.func @main({parameters}) -> ({kinds}) {{\n{body}\nreturn {names} : {kinds}\n}}"
    return show(lower(parse(text), CompileOptions(resolve())), "plan", resolve())


def joined(name: str, dim: int, *parts: tuple[str, tuple[int, ...]]) -> str:
    shapes = [shape for _, shape in parts]
    whole = [*shapes[0]]
    whole[dim] = sum(shape[dim] for shape in shapes)
    kinds, operands = ", ".join(t(*s) for s in shapes), ", ".join(n for n, _ in parts)
    return f"{name} = stablehlo.concatenate {operands}, dim = {dim} : ({kinds}) -> {t(*whole)}"


def dot(
    name: str,
    a: tuple[str, tuple[int, ...]],
    b: tuple[str, tuple[int, ...]],
    out: tuple[int, ...],
    dims: tuple[int, int],
) -> str:
    """Batched if there are three dimensions."""
    batch = "batching_dims = [0] x [0], " if len(a[1]) == 3 else ""
    contracting = f"contracting_dims = [{dims[0]}] x [{dims[1]}]"
    kinds = f"({t(*a[1])}, {t(*b[1])}) -> {t(*out)}"
    return f"{name} = stablehlo.dot_general {a[0]}, {b[0]}, {batch}{contracting} : {kinds}"


ROW, OLD, NEW, WHOLE, SCORES = (3, 1, 64), (3, 99, 64), (3, 1, 64), (3, 100, 64), (3, 1, 100)
THREE = [ROW, OLD, NEW]
JOINED = joined("%m", 1, ("%b", OLD), ("%c", NEW))
PRODUCT = dot("%y", ("%a", ROW), ("%m", WHOLE), SCORES, (2, 2))


def test_before_and_after() -> None:
    """A matrix that is also a result is concatenated, by a loop per segment; otherwise its product reads the
    segments."""
    before = plan(THREE, [("%y", SCORES), ("%m", WHOLE)], JOINED, PRODUCT)
    after = plan(THREE, [("%y", SCORES)], JOINED, PRODUCT)
    assert before.startswith("3 steps: 2 loop, 1 dot_general;")
    assert codes(before, "writes  %m") == 2 * ["concatenation-part", "not-in-segments", "other-readers"]
    assert after.startswith("1 step: 1 dot_general;")
    assert "reads   %a 3x1x64xf32  %b 3x99x64xf32  %c 3x1x64xf32\n" in after
    assert codes(after, "segments  %m 3x100x64xf32") == ["read-in-segments"]
    assert codes(after, "writes  %y") == ["kernel-result"]


def test_several_products_read_the_segments() -> None:
    other = dot("%z", ("%d", (3, 1, 100)), ("%m", WHOLE), ROW, (2, 1))
    text = plan([*THREE, (3, 1, 100)], [("%y", SCORES), ("%z", ROW)], JOINED, PRODUCT, other)
    assert text.startswith("2 steps: 2 dot_general") and text.count("segments  %m") == 2


def test_computed_segments_are_written() -> None:
    """A row that another loop computes, and a view of an argument."""
    lines = [
        f"%new = stablehlo.tanh %c : {t(3, 64)}",
        f"%row = stablehlo.reshape %new : ({t(3, 64)}) -> {t(*NEW)}",
        f"%old = stablehlo.reshape %b : ({t(3, 99 * 64)}) -> {t(*OLD)}",
        joined("%m", 1, ("%old", OLD), ("%row", NEW)),
    ]
    text = plan([ROW, (3, 99 * 64), (3, 64)], [("%y", SCORES)], *lines, PRODUCT)
    assert text.startswith("4 steps: 2 view, 1 loop, 1 dot_general") and "segments  %m" in text


def test_a_few_rows() -> None:
    few = MANY - 1
    lines = [JOINED, dot("%y", ("%a", (3, few, 64)), ("%m", WHOLE), (3, few, 100), (2, 2))]
    assert "segments  %m" in plan([(3, few, 64), OLD, NEW], [("%y", (3, few, 100))], *lines)


MANY = tuning.SEGMENT_ROWS + 1
REFUSED = {
    "many-rows": (
        f"{MANY} rows",
        plan(
            [(3, MANY, 64), OLD, NEW],
            [("%y", (3, MANY, 100))],
            JOINED,
            dot("%y", ("%a", (3, MANY, 64)), ("%m", WHOLE), (3, MANY, 100), (2, 2)),
        ),
    ),
    "segment-not-block": (
        "",
        plan(
            [(5, 1, 64), (2, 99, 64), (3, 99, 64)],
            [("%y", (5, 1, 99))],
            joined("%m", 0, ("%b", (2, 99, 64)), ("%c", (3, 99, 64))),
            dot("%y", ("%a", (5, 1, 64)), ("%m", (5, 99, 64)), (5, 1, 99), (2, 2)),
        ),
    ),
    "saves-too-little": (
        "13,824 bytes",
        plan(
            [(3, 2, 64), (3, 17, 64), NEW],
            [("%y", (3, 2, 18))],
            joined("%m", 1, ("%b", (3, 17, 64)), ("%c", NEW)),
            dot("%y", ("%a", (3, 2, 64)), ("%m", (3, 18, 64)), (3, 2, 18), (2, 2)),
        ),
    ),
    "saves-too-little 2": (
        "256 bytes",
        plan(
            [(2, 64), (100, 64), (1, 64)],
            [("%y", (2, 100))],
            f"%s = stablehlo.slice %b [1:100, 0:64] : ({t(100, 64)}) -> {t(99, 64)}",
            joined("%m", 0, ("%s", (99, 64)), ("%c", (1, 64))),
            dot("%y", ("%a", (2, 64)), ("%m", (100, 64)), (2, 100), (1, 1)),
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    """The reason, and a number that it shows."""
    shows, text = REFUSED[case]
    found = [line for line in text.splitlines() if case.partition(" ")[0] in codes(line)]
    assert found and all("not-in-segments" in codes(line) and shows in line for line in found), text
