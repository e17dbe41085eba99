"""The scalar part of a predicate becomes a branch, in which the rest is computed."""

from __future__ import annotations

import pytest
from looped import check, looped, names

from shlo_jit.ir.core import Op, walk
from shlo_jit.passes.context import Context
from shlo_jit.passes.states.scalar_conjuncts import scalar_conjuncts
from shlo_jit.passes.states.uniform_conditions import uniform_conditions

N = 600
T, P = f"tensor<{N}xf32>", f"tensor<{N}xi1>"
PARTS = f"""%w = stablehlo.broadcast_in_dim %p, dims = [] : (tensor<i1>) -> {P}
    %a = stablehlo.reverse %s, dims = [0] : {T}
    %m = stablehlo.compare GT, %a, %s : ({T}, {T}) -> {P}"""


def branched(function: Op, context: Context) -> Op:
    return uniform_conditions(scalar_conjuncts(function, context), context)


def body(combined: str, x: str, y: str, parts: str = PARTS) -> str:
    return f"{parts}\n    {combined}\n    %c = stablehlo.select %q, {x}, {y} : {P}, {T}"


def in_branches(function: Op, name: str) -> int:
    """Counts the ops of a name in branches."""
    branches = [b for op in walk(function.block()) if op.name == "stablehlo.if" for r in op.regions for b in r.blocks]
    return sum(op.name == f"stablehlo.{name}" for block in branches for op in block.ops)


@pytest.mark.parametrize(
    ("combined", "sides"),
    [
        (f"%q = stablehlo.and %w, %m : {P}", ("%a", "%s")),
        (f"%q = stablehlo.and %m, %w : {P}", ("%a", "%s")),
        (f"%q = stablehlo.or %w, %m : {P}", ("%s", "%a")),
        (f"%k = stablehlo.not %m : {P}\n %l = stablehlo.and %w, %k : {P}\n %q = stablehlo.and %l, %w : {P}", ("%a", "%s")),
    ],
    ids=["first", "last", "or", "twice"],
)
def test_the_rest_is_computed_in_the_branch(combined: str, sides: tuple[str, str]) -> None:
    function, changed = check(looped(body(combined, *sides), "%c", T), branched, N)
    assert changed and names(function)["if"] == 1
    assert in_branches(function, "select") == in_branches(function, "compare") == in_branches(function, "reverse") == 1


def test_an_array_of_one_element() -> None:
    parts = PARTS.replace("%p, dims = []", "%v, dims = [0]").replace("(tensor<i1>)", "(tensor<1xi1>)")
    parts = f"%v = stablehlo.reshape %p : (tensor<i1>) -> tensor<1xi1>\n    {parts}"
    text = looped(body(f"%q = stablehlo.and %w, %m : {P}", "%a", "%s", parts), "%c", T)
    assert names(check(text, branched, N)[0])["if"] == 1


@pytest.mark.parametrize(
    ("combined", "sides"),
    [
        (f"%q = stablehlo.and %w, %m : {P}", ("%s", "%a")),
        (f"%q = stablehlo.or %w, %m : {P}", ("%a", "%s")),
        (f"%q = stablehlo.xor %w, %m : {P}", ("%a", "%s")),
        (f"%k = stablehlo.or %w, %m : {P}\n %q = stablehlo.and %k, %m : {P}", ("%a", "%s")),
    ],
    ids=["and", "or", "xor", "or in and"],
)
def test_scalars_that_do_not_decide_stay(combined: str, sides: tuple[str, str]) -> None:
    assert not check(looped(body(combined, *sides), "%c", T), scalar_conjuncts, N)[1]


def test_small_states_stay() -> None:
    text = looped(body(f"%q = stablehlo.and %w, %m : {P}", "%a", "%s"), "%c", T)
    assert not check(text.replace(f"<{N}x", "<12x"), scalar_conjuncts)[1]


def test_a_select_that_is_read_as_a_whole_stays() -> None:
    text = looped(body(f"%q = stablehlo.and %w, %m : {P}", "%a", "%s") + f"\n    %d = stablehlo.negate %c : {T}", "%d", T)
    assert not check(text, scalar_conjuncts, N)[1]
