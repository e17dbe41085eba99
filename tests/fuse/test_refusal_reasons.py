"""Why something was not fused, or not done in place: a program for each reason, which its plan or memory plan prints."""

from __future__ import annotations

import pytest

from shlo_jit import parse, tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.options import CompileOptions
from shlo_jit.pipeline import lower
from shlo_jit.stages import show

T, ROW, WIDE = "tensor<32x32xf32>", "tensor<32xf32>", "tensor<5x32x32xf32>"
DOT = f"%d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}"
ZERO = "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n%o = stablehlo.constant dense<1> : tensor<i32>"


def add(of: str, name: str, dim: int = 1, t: str = T, out: str = ROW) -> str:
    """A sum along a dimension."""
    return (
        f"{name} = stablehlo.reduce({of} init: %zero) applies stablehlo.add across dimensions = [{dim}]"
        f" : ({t}, tensor<f32>) -> {out}"
    )


def update(operand: str, part: str, name: str, t: str = "tensor<8x32xf32>") -> str:
    return f"{name} = stablehlo.dynamic_update_slice {operand}, {part}, %i, %i : ({T}, {t}, tensor<i32>, tensor<i32>) -> {T}"


def text_of(stage: str, body: str, results: tuple[str, ...], types: tuple[str, ...]) -> str:
    arguments = f"%x: {T}, %w: {T}, %p: tensor<8x32xf32>, %v: {ROW}, %i: tensor<i32>"
    kinds = ", ".join(types)
    text = f"func.func @main({arguments}) -> ({kinds}) {{\n{ZERO}\n{body}\nreturn {', '.join(results)} : {kinds}\n}}"
    return show(lower(parse(text), CompileOptions(resolve())), stage, resolve())


def cholesky(of: str, name: str) -> str:
    return f"{name} = stablehlo.cholesky {of}, lower = true : {T}"


PLANS = {
    "the product is returned": (DOT.replace("%d", "%y"), T),
    "2 steps read the product": (
        f"{DOT}\n{cholesky('%d', '%c')}\n%s = stablehlo.reverse %d, dims = [0] : {T}\n%y = stablehlo.add %c, %s : {T}", T),
    "a cholesky reads the product": (f"{DOT}\n{cholesky('%d', '%y')}", T),
    "what reads it passes over its rows several times": (f"{DOT}\n{add('%d', '%y')}", ROW),
    "what reads it writes a part of a buffer": (
        f"%d = stablehlo.dot_general %p, %w, contracting_dims = [1] x [0] : (tensor<8x32xf32>, {T}) -> tensor<8x32xf32>\n"
        f"{update('%x', '%d', '%y')}", T),
    "the loop reads it at several places": (
        f"{DOT}\n%t = stablehlo.transpose %d, dims = [1, 0] : ({T}) -> {T}\n%y = stablehlo.add %d, %t : {T}", T),
    "the loop does not go over each of its elements once": (
        f"{DOT}\n%y = stablehlo.broadcast_in_dim %d, dims = [1, 2] : ({T}) -> {WIDE}", WIDE),
    "it reads the result at several places": (
        f"{add('%x', '%s')}\n%r = stablehlo.reverse %s, dims = [0] : {ROW}\n%y = stablehlo.add %s, %r : {ROW}", ROW),
    "it writes a part of a buffer": (
        f"{add('%x', '%s')}\n%r = stablehlo.reshape %s : ({ROW}) -> tensor<1x32xf32>\n"
        f"{update('%x', '%r', '%y', 'tensor<1x32xf32>')}", T),
    "it does not read each element of the result once": (
        f"{add('%x', '%s')}\n%y = stablehlo.slice %s [1:32] : ({ROW}) -> tensor<31xf32>", "tensor<31xf32>"),
    "it reduces over other loops": (
        f"{add('%x', '%s')}\n%e = stablehlo.exponential %s : {ROW}\n{add('%e', '%y', 0, ROW, 'tensor<f32>')}",
        "tensor<f32>"),
    "its loops are not those of the reduced row": (
        f"{add('%x', '%s')}\n%y = stablehlo.broadcast_in_dim %s, dims = [0] : ({ROW}) -> tensor<32x16xf32>",
        "tensor<32x16xf32>"),
}  # fmt: skip


@pytest.mark.parametrize("reason", PLANS)
def test_what_a_plan_says(reason: str) -> None:
    body, result = PLANS[reason]
    printed = text_of("plan", body, ("%y",), (result,))
    assert reason in printed, printed


MEMORIES = {
    "what is updated: it is an argument or a constant, which must stay": (update("%x", "%p", "%y"), ("%y",)),
    "what is updated: it is read later": (
        f"{cholesky('%x', '%c')}\n{update('%c', '%p', '%u')}\n{cholesky('%u', '%e')}\n"
        f"%y = stablehlo.add %c, %e : {T}", ("%y",)),
    "what is updated: the result is wanted elsewhere": (
        f"{cholesky('%x', '%c')}\n{update('%c', '%p', '%y')}", ("%y",)),
    "the program's result is an argument, a constant, another result or a loop's number": ("", ("%x",)),
}  # fmt: skip


@pytest.mark.parametrize("reason", MEMORIES)
def test_what_a_memory_plan_says(reason: str) -> None:
    body, results = MEMORIES[reason]
    printed = text_of("memory", body, results, (T,) * len(results))
    assert f"({reason})" in printed, printed


def test_a_reduction_does_not_join_a_full_loop() -> None:
    chain = [add("%x", "%v0"), *(f"%v{i + 1} = stablehlo.add %v{i}, %v{i} : {ROW}" for i in range(tuning.NEST_OPS + 1))]
    body = "\n".join(chain)
    assert "it has" not in text_of("plan", "\n".join(chain[:-1]), (f"%v{tuning.NEST_OPS}",), (ROW,))
    assert f"it has {tuning.NEST_OPS} ops already" in text_of("plan", body, (f"%v{tuning.NEST_OPS + 1}",), (ROW,))
