"""Products of bytes use the instructions of their target that multiply several bytes at a time, and are exact with them.

Instructions that this machine may lack are emulated by simple ones with the same meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit import pipeline
from shlo_jit.codegen import optimize
from shlo_jit.codegen.objects import routine_text
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.gemm import micro, pack
from shlo_jit.kernels.llvm_values import V, lanes, vector
from shlo_jit.pipeline import program_of
from shlo_jit.runtime import machine

PRODUCT = """
func.func @main(%x: tensor<{0}x{2}x{3}>, %w: tensor<{2}x{1}x{4}>) -> tensor<{0}x{1}xi32> {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<{0}x{2}x{3}>, tensor<{2}x{1}x{4}>) -> tensor<{0}x{1}xi32>
  return %0 : tensor<{0}x{1}xi32>
}}"""


def instructions(text: str, name: str) -> set[str]:
    """The words of the assembly of a program and its routines."""
    target = resolve(name)
    program = program_of(text, "product", target)
    texts = [program.text, *(routine_text(routine, target) for routine in program.routines)]
    return {word for t in texts for word in optimize.emit_assembly(optimize.optimize(t, target), target).split()}


@pytest.mark.parametrize(
    ("target", "types", "wanted"),
    [
        ("x86_64-linux:x86-64", ("i8", "i8"), "pmaddwd"),
        ("x86_64-linux:haswell", ("i8", "ui8"), "vpmaddwd"),
        ("x86_64-linux:alderlake", ("i8", "i8"), "vpdpbusd"),
        ("x86_64-linux:cascadelake", ("ui8", "i8"), "vpdpbusd"),
        ("x86_64-linux:sapphirerapids", ("i8", "i8"), "tdpbssd"),
        ("aarch64-linux:neoverse-n1", ("i8", "i8"), "sdot"),
        ("aarch64-linux:neoverse-n1", ("ui8", "ui8"), "udot"),
        ("aarch64-linux:neoverse-v2", ("ui8", "i8"), "usdot"),
    ],
)
def test_many_rows(target: str, types: tuple[str, str], wanted: str) -> None:
    assert wanted in instructions(PRODUCT.format(64, 128, 256, *types), target)


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("x86_64-linux:haswell", "vpmaddwd"),
        ("x86_64-linux:alderlake", "vpdpwssd"),
        ("x86_64-linux:znver4", "vpdpwssd"),
        ("aarch64-linux:neoverse-n1", "sdot"),
    ],
)
def test_few_rows(target: str, wanted: str) -> None:
    assert wanted in instructions(PRODUCT.format(2, 512, 512, "i8", "i8"), target)


def emulated(b: Builder, unsigned: V, signed: V, acc: V) -> V:
    """The meaning of `vpdpbusd`."""
    n = lanes(acc.type)
    four = vector("i8", 4 * n)
    products = b.mul(b.cast("zext", b.bitcast(unsigned, four), "i32"), b.cast("sext", b.bitcast(signed, four), "i32"))
    for place in range(4):
        acc = b.add(acc, b.shuffle(products, None, range(place, 4 * n, 4)))
    return acc


@pytest.mark.skipif(resolve().arch != "x86_64", reason="x86 instructions are emulated")
@pytest.mark.parametrize("types", [("i8", "i8"), ("ui8", "i8"), ("i8", "ui8"), ("ui8", "ui8")])
def test_four_bytes_at_a_time_are_exact(types: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    # A target of its own, for which no routines have been built with the instruction.
    target = replace(resolve(), has_vnni=True, features=f"{resolve().features},+sse2")
    called: list[Any] = []

    def observed(*args: Any) -> V:
        called.append(args)
        return emulated(*args)

    for module in (micro, pack):
        monkeypatch.setattr(module, "multiply_bytes", observed)
    for module in (machine, pipeline):
        if hasattr(module, "native"):
            monkeypatch.setattr(module, "native", lambda: target)
    monkeypatch.setattr(shlo_jit.check_options, "resolve", lambda *_: target)
    monkeypatch.setattr(shlo_jit.check_options, "check_runs_here", lambda *_: None)
    rng = np.random.default_rng(3)
    numpy = {"i8": np.int8, "ui8": np.uint8}
    for m, n, k in ((13, 64, 64), (70, 53, 131), (9, 100, 7), (33, 9, 1)):
        x, w = (
            rng.integers(np.iinfo(numpy[t]).min, np.iinfo(numpy[t]).max + 1, shape).astype(numpy[t])
            for t, shape in zip(types, ((m, k), (k, n)), strict=True)
        )
        want = (x.astype(np.int64) @ w.astype(np.int64)).astype(np.int32)
        text = PRODUCT.format(m, n, k, *types)
        np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, w), want)
        np.testing.assert_array_equal(shlo_jit.compile(text, cache=False, constants={"w": w})(x), want)
    assert called
