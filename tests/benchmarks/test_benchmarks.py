"""The benchmark harness: agreement, timing, cases, processes, and reports."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import report
from benchmarks.__main__ import line, main
from benchmarks.agreement import difference
from benchmarks.cases import select
from benchmarks.timing import interleave
from benchmarks.worker import Options, Worker


# ---------------------------------------------------------------------- agreement
def f32(*values: float) -> list[np.ndarray]:
    return [np.array(values, np.float32)]


def test_equal_results_agree() -> None:
    special = f32(1, -0.0, np.inf, -np.inf, np.nan)
    for tolerance in (0, 1e-6):
        assert difference(special, special, tolerance) == ""
    assert difference([np.arange(3)], [np.arange(3)], 0) == ""
    assert difference([np.zeros((0, 2))], [np.zeros((0, 2))], 1e-6) == ""


def test_errors_are_relative_to_value_and_magnitude() -> None:
    assert difference(f32(1000.05, 0.01), f32(1000, 0), 1e-4) == ""
    assert "1 of 2 elements" in difference(f32(1000.5, 0), f32(1000, 0), 1e-4)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (f32(1, 2), f32(1)),
        (f32(1), f32(1) * 2),
        ([np.ones(1)], f32(1)),
        (f32(np.nan), f32(1)),
        (f32(1), f32(np.nan)),
        (f32(np.inf), f32(1)),
        (f32(1e30), f32(np.inf)),
        (f32(np.inf), f32(-np.inf)),
    ],
)
@pytest.mark.parametrize("tolerance", [0, 1e-3])
def test_different_results_do_not_agree(got, expected, tolerance) -> None:
    assert difference(got, expected, tolerance) != ""


def test_exact_results_have_to_be_equal() -> None:
    assert difference(f32(1.0000001), f32(1), 0) != ""
    assert difference([np.array([1, 2])], [np.array([1, 3])], 0) != ""


def test_numpy_may_give_a_wider_type() -> None:
    assert difference([np.ones(2)], f32(1, 1), 1e-6, strict=False) == ""


# ---------------------------------------------------------------------- timing
def test_times_are_those_of_the_calls() -> None:
    times = interleave({"slow": lambda: time.sleep(0.004), "fast": lambda: time.sleep(0.001)}, 0.1)
    assert 0.001 <= times["fast"].median < times["slow"].median
    assert times["slow"].low <= times["slow"].median <= times["slow"].high


def test_slow_calls_end_after_a_few_rounds() -> None:
    calls: list[float] = []
    interleave({"slow": lambda: calls.append(time.sleep(0.05) or 0.0)}, 0.001)
    assert len(calls) <= 3 + 2 * 5


# ---------------------------------------------------------------------- cases
def test_names_are_unique_and_groups_can_be_selected() -> None:
    names = [case.name for case in select()]
    assert len(names) == len(set(names)) >= 50
    assert {case.group for case in select("conv")} == {"conv"}
    assert [case.name for case in select("identity,add 3M")] == ["add 3M", "identity"]
    assert not select("no such case")


def test_inputs_are_the_same_every_time() -> None:
    (case,) = select("dense 1x12")
    for first, second in zip(case.inputs(), case.inputs(), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("case", [c for c in select() if c.numpy], ids=lambda c: c.name)
@pytest.mark.sampled(4)
def test_numpy_functions_take_the_inputs(case) -> None:
    assert np.asarray(case.numpy(*case.inputs())).shape == case.lower().out_info.shape


# ---------------------------------------------------------------------- in a process
OPTIONS = Options(("shlo_jit", "XLA", "NumPy"), budget=0.02, timeout=100, start=False)


@pytest.fixture
def worker():
    made = Worker(OPTIONS)
    yield made
    made.end()


def test_a_case_has_times_of_all_peers(worker: Worker) -> None:
    row = worker.run("add 3", "control")
    assert {"shlo_jit", "XLA", "NumPy"} == set(row["peers"])
    assert all(found["median"] > 0 for found in row["peers"].values())
    assert row["peers"]["shlo_jit"]["compile"] > 0
    assert report.problem(row) == "" and report.ratio(row)


def test_a_process_that_died_is_replaced(worker: Worker) -> None:
    worker._begin()
    assert worker._process is not None
    os.kill(worker._process.pid or 0, 9)
    worker._process.join()
    assert "median" in worker.run("identity", "control")["peers"]["shlo_jit"]


def test_a_case_that_takes_too_long_fails() -> None:
    worker = Worker(Options(OPTIONS.peers, 0.02, 0.01, False))
    row = worker.run("identity", "control")
    assert row["error"] == "no answer in 0.01 s" and worker._process is None


def test_a_peer_that_takes_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(OPTIONS)
    attempts: list[tuple[str, ...]] = []

    def attempt(case: str, peers: tuple[str, ...]):
        attempts.append(peers)
        good = {"case": case, "group": "", "flops": 0.0, "peers": {"shlo_jit": {"median": 1.0}}}
        return ({**good, "error": "no answer"}, "NumPy") if "NumPy" in peers else (good, "")

    monkeypatch.setattr(worker, "_attempt", attempt)
    found = worker.run("add 3", "control")
    assert attempts == [("shlo_jit", "XLA", "NumPy"), ("shlo_jit", "XLA")]
    assert found["peers"] == {"shlo_jit": {"median": 1.0}, "NumPy": {"error": "no answer"}}
    assert found["group"] == "control" and "error" not in found


def test_an_unknown_case_is_an_error_of_that_case(worker: Worker) -> None:
    assert "ValueError" in worker.run("no such case", "dot")["error"]


@pytest.mark.slow
def test_the_command_writes_table_data_and_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--only", "add 3,identity", "--budget", "0.02", "--peers", "shlo_jit,XLA", "--output", str(tmp_path)]
    assert main(arguments) == 0
    assert "add 3M" in capsys.readouterr().out
    data = json.loads((tmp_path / "results.json").read_text())
    assert {row["case"] for row in data["rows"]} == {"add 3M", "add 30K", "add 3", "identity"}
    assert all(set(row["start"]) == {"cold", "cached"} for row in data["rows"])
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
    table = (tmp_path / "results.md").read_text()
    assert "| identity |" in table and "cached start" in table


def test_mistakes_end_with_status_2() -> None:
    assert main(["--only", "no such case"]) == 2
    assert main(["--peers", "nobody", "--only", "identity"]) == 2


# ---------------------------------------------------------------------- the report
def row(case: str, ours: float, theirs: float, **peers: float) -> dict:
    medians = {"shlo_jit": ours, "XLA": theirs, **peers}
    found = {peer: {"median": m, "low": m, "high": m, "compile": 0.1} for peer, m in medians.items()}
    return {"case": case, "group": case.partition(" ")[0], "flops": 2e6, "peers": found}


BROKEN = {"case": "b two", "group": "b", "flops": 0.0, "peers": {"shlo_jit": {"error": "WRONG result | 0"}}}


def test_ratios_and_means() -> None:
    rows = [row("a one", 1e-3, 2e-3), row("b one", 2e-3, 1e-3), BROKEN]
    assert [report.ratio(r) for r in rows] == [2.0, 0.5, None]
    text = "\n".join(report.summary(rows))
    assert "3 cases, 2 measured against XLA, 1 failed." in text
    assert "Faster than XLA in 1; geometric mean of the ratios 1.00." in text


def test_table_shows_times_and_failures() -> None:
    text = report.markdown([row("a one", 1e-3, 2e-3, NumPy=5e-3), BROKEN])
    assert "| a one | 1 ms | 2 ms | 2.00 | 5 ms | 2.0 | 100 ms | 100 ms |" in text
    assert "WRONG result \\| 0" in text
    (broken,) = (line for line in text.splitlines() if line.startswith("| b two"))
    assert broken.replace("\\|", "").count("|") == 9


def test_lines_on_the_screen() -> None:
    assert line(row("a one", 1e-3, 2e-3)).split() == ["a", "one", "1", "ms", "2", "ms", "2.00"]
    assert line(BROKEN).endswith("WRONG result | 0")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (1.5e-7, "0.15 us"), (1e-3, "1 ms"), (0.9999e-3, "1000 us"), (0.25, "250 ms"), (2, "2 s")],
)
def test_seconds(value: float | None, text: str) -> None:
    assert report.seconds(value) == text


def test_one_case_makes_a_chart(tmp_path: Path) -> None:
    report.draw([row("a one", 1e-3, 2e-3, NumPy=3e-3)], tmp_path / "chart.png", report.environment())
    assert (tmp_path / "chart.png").stat().st_size > 1000


# ---------------------------------------------------------------------- compile time over size
@pytest.mark.slow
def test_compile_growth_writes_its_files(tmp_path: Path) -> None:
    from benchmarks import compile_growth

    arguments = ["--only", "elementwise", "--sizes", "20,40", "--output", str(tmp_path)]
    assert compile_growth.main(arguments) == 0
    rows = json.loads((tmp_path / "growth.json").read_text())
    assert [row[1:3] for row in rows] == [["elementwise chain", 20], ["elementwise chain", 40]]
    assert all(row[3] > 0 for row in rows)
    assert "| elementwise chain | 40 | shlo_jit |" in (tmp_path / "growth.md").read_text()
    assert (tmp_path / "growth.png").stat().st_size > 1000


def test_growth_that_is_too_steep_is_named() -> None:
    from benchmarks.compile_growth import OURS, Cost, too_steep

    costs = {(OURS, "s", 1000): Cost(1.0, 1.0, 1000), (OURS, "s", 10_000): Cost(1.0, 21.0, 9000),
             (OURS, "t", 1000): "> 9 s"}  # fmt: skip
    assert too_steep(costs) == ["s at 10,000: 2.10 times the time and 0.90 times the memory an op", "t at 1,000: > 9 s"]
