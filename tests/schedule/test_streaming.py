"""Streaming stores: the schedule says which results take them once memory is planned, and code has no others."""

from __future__ import annotations

import pytest

import shlo_jit
from shlo_jit import tuning

LARGE = "tensor<3000x2000xf32>"
LOOP = f"""func.func @main(%x: {LARGE}) -> {LARGE} {{
  %y = stablehlo.add %x, %x : {LARGE}
  return %y : {LARGE}
}}"""
PRODUCT = f"""func.func @main(%x: tensor<3000x8xf32>, %w: tensor<8x2000xf32>, %z: {LARGE}) -> ({LARGE}, {LARGE}) {{
  %p = stablehlo.dot %x, %w : (tensor<3000x8xf32>, tensor<8x2000xf32>) -> {LARGE}
  %y = stablehlo.multiply %z, %z : {LARGE}
  return %p, %y : {LARGE}, {LARGE}
}}"""


def decided(program: str, donate: tuple[int, ...]) -> tuple[str, bool]:
    """The line of the schedule, and whether the code has streaming stores."""
    exe = shlo_jit.compile(program, donate=donate)
    (line,) = [line for line in exe.text("schedule").splitlines() if line.strip().startswith("streams")]
    return line, "!nontemporal" in exe.text("lowered")


@pytest.mark.parametrize(("program", "donated"), [(LOOP, 0), (PRODUCT, 2)], ids=["loop", "beside a product"])
def test_memory_of_an_argument_is_not_streamed_to(program: str, donated: int) -> None:
    """An argument's memory is the caller's, aligned to its elements only."""
    line, streams = decided(program, ())
    assert "[exceeds-cache]" in line and streams
    line, streams = decided(program, (donated,))
    assert "[memory-of-argument]" in line and not streams


def test_schedule_and_code_agree_for_an_epilogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epilogue that writes one part of a large concatenation streams on the tiles of its product."""
    monkeypatch.setattr(tuning, "STREAM_BYTES", 1 << 12)
    half, whole = "tensor<1x24x24x32xf32>", "tensor<1x24x24x64xf32>"
    convolution = "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]}"
    line, streams = decided(
        f"""func.func @main(%x: {half}, %w: tensor<3x3x32x32xf32>) -> {whole} {{
          %c = stablehlo.convolution(%x, %w) {convolution}
            {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({half}, tensor<3x3x32x32xf32>) -> {half}
          %t = stablehlo.tanh %c : {half}
          %r = stablehlo.concatenate %x, %t, dim = 3 : ({half}, {half}) -> {whole}
          return %r : {whole}
        }}""",
        (),
    )
    assert "[exceeds-cache]" in line and streams
