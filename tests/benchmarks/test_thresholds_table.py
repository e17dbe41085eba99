"""The table of `benchmarks.thresholds`."""

from __future__ import annotations

import pytest

from benchmarks.thresholds import Found, changed, main, row

NOW = Found([2e-6, 3e-6, 4e-6], {"program": "a", "schedule": "b", "routine": "c"})
FOUND = {
    "half": Found([4e-6, 3e-6], {"program": "a", "schedule": "x", "routine": "y"}),
    "as is": NOW,
    "double": Found([], dict(NOW.texts)),
}


def test_a_row_has_the_fastest_blocks_and_what_changes() -> None:
    assert (changed(FOUND, "half"), changed(FOUND, "double")) == ("schedule", "-")
    cells = [cell.strip() for cell in row("TILE_SIDE", "a case", FOUND).strip("|").split("|")]
    assert cells == ["TILE_SIDE", "16", "a case", "3.0", "2.0", "", "1.50", "", "schedule, -", "50 %"]


def test_a_threshold_without_a_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["NEST_OPS"]) == 2
    assert "no case for NEST_OPS" in capsys.readouterr().out
