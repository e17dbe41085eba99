"""The printed memory plan shows the decisions that follow it: scalars on the stack, and how copies run."""

from __future__ import annotations

import pytest

import shlo_jit
from shlo_jit import tuning

SCALAR = """func.func @main(%x: tensor<10xf32>, %n: tensor<f32>) -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<10xf32>, tensor<f32>) -> tensor<f32>
  %m = stablehlo.while(%a = %s) : tensor<f32>
    cond {
      %c = stablehlo.compare LT, %a, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %d = stablehlo.multiply %a, %a : tensor<f32>
      stablehlo.return %d : tensor<f32>
    }
  return %m : tensor<f32>
}"""


def text_of(program: str) -> list[str]:
    return shlo_jit.compile(program, cache=False).text("memory").splitlines()


def test_scalars_on_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop's scalars have a place in the arena only if they are too large for the stack."""
    kinds = [line.split()[0] for line in text_of(SCALAR) if line]
    assert "stack" in kinds and kinds.count("arena") == 1, "only the first line, with the arena's bytes"
    monkeypatch.setattr(tuning, "SCALAR_BYTES", 0)
    kinds = [line.split()[0] for line in text_of(SCALAR) if line]
    assert "stack" not in kinds and kinds.count("arena") > 1


@pytest.mark.parametrize(
    ("nbytes", "tasks", "past"),
    [
        (tuning.COPY_PARALLEL_BYTES - 4, False, False),
        (tuning.COPY_PARALLEL_BYTES, True, False),
        (tuning.COPY_STREAM_BYTES, True, True),
    ],
    ids=["small", "in tasks", "past the caches"],
)
def test_copies(nbytes: int, tasks: bool, past: bool) -> None:
    """A program that returns its argument copies it."""
    kind = f"tensor<{nbytes // 4}xf32>"
    exe = shlo_jit.compile(f"func.func @main(%x: {kind}) -> {kind} {{ return %x : {kind} }}", cache=False)
    (line,) = [line for line in exe.text("memory").splitlines() if "copy" in line]
    assert (" tasks of " in line, "past the caches" in line) == (tasks, past)
    assert ("shlo_parallel" in exe.text("lowered"), "!nontemporal" in exe.text("lowered")) == (tasks, past)
