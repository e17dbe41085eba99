"""Long functions that only call kernels are marked, so that LLVM generates code for them without optimizing."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.routine import GLUE
from shlo_jit.lower.glue import mark_glue
from shlo_jit.pipeline import program_of

CALL = "  call void @far(ptr %p)\n"
SMALL = "  call void @small(ptr %p)\n"


def function(body: str) -> str:
    return f"define void @f(ptr %p) nounwind {{\nentry:\n{body}  ret void\n}}"


def test_a_long_function_is_marked() -> None:
    assert GLUE in mark_glue(function(CALL * tuning.GLUE_LINES), set())
    assert GLUE not in mark_glue(function(CALL * (tuning.GLUE_LINES // 2)), set())


def test_branches_are_no_loops() -> None:
    branch = "  br i1 true, label %a, label %b\na:\n  br label %b\nb:\n"
    loop = "  br label %a\na:\n  br i1 true, label %a, label %b\nb:\n"
    long = CALL * tuning.GLUE_LINES
    assert GLUE in mark_glue(function(long + branch), set())
    assert GLUE not in mark_glue(function(long + loop), set())


def test_few_small_kernels_are_called_and_many_inlined() -> None:
    long = CALL * tuning.GLUE_LINES
    few = mark_glue(function(long + SMALL), {"small"})
    assert GLUE in few and "@small(ptr %p) noinline\n" in few and "@far(ptr %p) noinline" not in few
    many = function(long + SMALL * 20)
    assert mark_glue(many, {"small"}) == many


def chain(length: int) -> str:
    lines, last = [], "%x"
    for i in range(length):
        lines.append(
            f"  %d{i} = stablehlo.dot_general {last}, %w, contracting_dims = [1] x [0]"
            " : (tensor<24x48xf32>, tensor<48x48xf32>) -> tensor<24x48xf32>\n"
            f"  %t{i} = stablehlo.tanh %d{i} : tensor<24x48xf32>\n"
        )
        last = f"%t{i}"
    signature = "%x: tensor<24x48xf32>, %w: tensor<48x48xf32>"
    return (
        f"func.func @main({signature}) -> tensor<24x48xf32> {{\n{''.join(lines)}  return {last} : tensor<24x48xf32>\n}}"
    )


def test_results_are_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    text, random = chain(60), np.random.default_rng(0)
    inputs = random.standard_normal((24, 48), np.float32), random.standard_normal((48, 48), np.float32)
    assert GLUE in program_of(text, "test", resolve()).text
    fast = shlo_jit.compile(text, cache=False)(*inputs)
    monkeypatch.setattr(tuning, "GLUE_LINES", 1 << 30)
    assert GLUE not in program_of(text, "test", resolve()).text
    np.testing.assert_array_equal(fast, shlo_jit.compile(text, cache=False)(*inputs))
