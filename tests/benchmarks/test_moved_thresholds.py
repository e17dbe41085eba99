"""The search for thresholds that decide nothing."""

from __future__ import annotations

from argparse import Namespace

import pytest

from benchmarks.moved_thresholds import EXTREMES, FACTORS, in_fork, line, main, read
from benchmarks.thresholds import scaled
from shlo_jit import tuning
from shlo_jit.caches import L2

TEXT = "func.func @main(%x: tensor<1000000xf32>) -> tensor<1000000xf32> {\n%y = stablehlo.sine %x : tensor<1000000xf32>\nreturn %y : tensor<1000000xf32>\n}"


def found(name: str, **factors: float) -> list[str]:
    options = Namespace(target="znver5", seconds=60, factors=factors or FACTORS)
    known = {"a program": in_fork(lambda: read(TEXT, "znver5"))}
    return [cell.strip() for cell in line(name, known, {"a program": TEXT}, options).strip("|").split("|")]


def test_what_moves_and_what_does_not() -> None:
    now = tuning.TASK_WORK
    assert found("TASK_WORK") == ["TASK_WORK", "1", "schedule of a program", "schedule of a program"]
    assert found("LONG_TASK") == ["LONG_TASK", "1", "-", "-"]
    assert found("SORT_CHUNKS") == ["SORT_CHUNKS", "0", "unread", "unread"]
    assert found("STREAM_BYTES", **EXTREMES)[2:] == ["schedule of a program", "-"]
    assert now == tuning.TASK_WORK, "thresholds change in other processes only"


def test_scaled_values() -> None:
    assert scaled(5, 0.5) == 2
    assert scaled(1, 0.5) == 1
    assert scaled(0.5, 2.0) == 1.0
    assert scaled((4, 6), 0.5) == (2, 3)
    assert scaled(L2 / 2, 2.0) * 1 == L2 * 2 / 2
    assert scaled(L2.at_least(100), 0.5) == (L2 / 2).at_least(50)
    assert scaled(tuning.SYMBOLIC_SIZES, 2.0) == tuning.SYMBOLIC_SIZES


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["NO_SUCH_THRESHOLD"]) == 2
    assert "NO_SUCH_THRESHOLD" in capsys.readouterr().out
