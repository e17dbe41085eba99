"""Reasons against fusion or in-place work: a program for each reason, which its plan or memory plan prints."""

from __future__ import annotations

import pytest
from printed_codes import codes

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
    ("no epilogue", "product-returned"): (DOT.replace("%d", "%y"), T),
    ("no epilogue", "product-readers"): (
        f"{DOT}\n{cholesky('%d', '%c')}\n%s = stablehlo.reverse %d, dims = [0] : {T}\n%y = stablehlo.add %c, %s : {T}", T),
    ("no epilogue", "reader-is-kernel"): (f"{DOT}\n{cholesky('%d', '%y')}", T),
    ("no epilogue", "reader-reduces"): (f"{DOT}\n{add('%d', '%y')}", ROW),
    ("no epilogue", "writes-part"): (
        f"%d = stablehlo.dot_general %p, %w, contracting_dims = [1] x [0] : (tensor<8x32xf32>, {T}) -> tensor<8x32xf32>\n"
        f"{update('%x', '%d', '%y')}", T),
    ("no epilogue", "read-at-several-indices"): (
        f"{DOT}\n%t = stablehlo.transpose %d, dims = [1, 0] : ({T}) -> {T}\n%y = stablehlo.add %d, %t : {T}", T),
    ("no epilogue", "not-each-element-once"): (
        f"{DOT}\n%y = stablehlo.broadcast_in_dim %d, dims = [1, 2] : ({T}) -> {WIDE}", WIDE),
    ("writes", "read-at-several-indices"): (
        f"{add('%x', '%s')}\n%r = stablehlo.reverse %s, dims = [0] : {ROW}\n%y = stablehlo.add %s, %r : {ROW}", ROW),
    ("writes", "writes-part"): (
        f"{add('%x', '%s')}\n%r = stablehlo.reshape %s : ({ROW}) -> tensor<1x32xf32>\n"
        f"{update('%x', '%r', '%y', 'tensor<1x32xf32>')}", T),
    ("writes", "not-each-element-once"): (
        f"{add('%x', '%s')}\n%y = stablehlo.slice %s [1:32] : ({ROW}) -> tensor<31xf32>", "tensor<31xf32>"),
    ("writes", "other-reduction-loops"): (
        f"{add('%x', '%s')}\n%e = stablehlo.exponential %s : {ROW}\n{add('%e', '%y', 0, ROW, 'tensor<f32>')}",
        "tensor<f32>"),
    ("writes", "other-row-loops"): (
        f"{add('%x', '%s')}\n%y = stablehlo.broadcast_in_dim %s, dims = [0] : ({ROW}) -> tensor<32x16xf32>",
        "tensor<32x16xf32>"),
}  # fmt: skip


@pytest.mark.parametrize(("label", "code"), PLANS)
def test_reasons_in_a_plan(label: str, code: str) -> None:
    body, result = PLANS[label, code]
    printed = text_of("plan", body, ("%y",), (result,))
    assert code in codes(printed, label), printed


MEMORIES = {
    ("copied-before-update", "not-overwritable"): (update("%x", "%p", "%y"), ("%y",)),
    ("copied-before-update", "read-later"): (
        f"{cholesky('%x', '%c')}\n{update('%c', '%p', '%u')}\n{cholesky('%u', '%e')}\n"
        f"%y = stablehlo.add %c, %e : {T}", ("%y",)),
    ("copied-before-update", "result-placed-elsewhere"): (
        f"{cholesky('%x', '%c')}\n{update('%c', '%p', '%y')}", ("%y",)),
    ("result-elsewhere",): ("", ("%x",)),
}  # fmt: skip


@pytest.mark.parametrize("chain", MEMORIES, ids=lambda chain: chain[-1])
def test_reasons_in_a_memory_plan(chain: tuple[str, ...]) -> None:
    body, results = MEMORIES[chain]
    printed = text_of("memory", body, results, (T,) * len(results))
    assert any(codes(line) == [*chain] for line in printed.splitlines()), printed


def test_a_reduction_does_not_join_a_full_loop() -> None:
    chain = [add("%x", "%v0"), *(f"%v{i + 1} = stablehlo.add %v{i}, %v{i} : {ROW}" for i in range(tuning.NEST_OPS + 1))]
    body = "\n".join(chain)
    assert "loop-full" not in codes(text_of("plan", "\n".join(chain[:-1]), (f"%v{tuning.NEST_OPS}",), (ROW,)))
    assert "loop-full" in codes(text_of("plan", body, (f"%v{tuning.NEST_OPS + 1}",), (ROW,)))
