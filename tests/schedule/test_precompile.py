"""Routines that are compiled as soon as a program is read."""

from __future__ import annotations

import pytest

from shlo_jit.codegen.target import resolve
from shlo_jit.options import CompileOptions
from shlo_jit.pipeline import lower
from shlo_jit.schedule.precompile import routines_to_precompile
from shlo_jit.text.parser import parse_module


def dot(m: int, k: int, n: int, element: str, result: str = "") -> str:
    types = [f"tensor<{m}x{k}x{element}>", f"tensor<{k}x{n}x{element}>", f"tensor<{m}x{n}x{result or element}>"]
    return f"""func.func @main(%a: {types[0]}, %b: {types[1]}) -> {types[2]} {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}
  return %0 : {types[2]}
}}"""


def convolution(groups: int) -> str:
    types = "tensor<1x32x32x64xf32>", f"tensor<3x3x{64 // groups}x64xf32>", "tensor<1x32x32x64xf32>"
    return f"""func.func @main(%x: {types[0]}, %k: {types[1]}) -> {types[2]} {{
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}
    : ({types[0]}, {types[1]}) -> {types[2]}
  return %0 : {types[2]}
}}"""


@pytest.mark.parametrize(
    ("text", "types"),
    [
        (dot(64, 64, 64, "f32"), "f32_f32_f32"),
        (dot(64, 64, 64, "f64"), "f64_f64_f64"),
        (convolution(1), "f32_f32_f32"),
        (dot(4, 4, 4, "f32"), ""),  # becomes a reduction
        (dot(1, 256, 256, "f32"), ""),  # product with a vector
        (dot(64, 64, 64, "f16", "f32"), ""),  # depends on the target
        (convolution(64), ""),  # depthwise
    ],
)
def test_precompiled_routines_are_called(text: str, types: str) -> None:
    module, target = parse_module(text, "test"), resolve()
    early = [routine.name for routine in routines_to_precompile(module, target)]
    assert early == ([f"shlo_gemm_{types}_tile"] if types else [])
    called: set[str] = set()
    for routine in lower(module, CompileOptions(target)).program.routines:
        called |= {routine.name, *(need.name for need in routine.needs)}
    assert called >= set(early)
