"""The page of results equals the command's output for the stored measurements; curves over sizes and threads."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("jax")

from benchmarks import curves, pages, results


@pytest.mark.parametrize("name", results.blocks())
def test_a_table_of_the_page(name: str) -> None:
    page = results.PAGE.read_text(encoding="utf-8")
    assert pages.written(page, name, results.blocks()[name]()) == page, "python -m benchmarks.results --write"


def test_readme_shows_the_same() -> None:
    page = results.README.read_text(encoding="utf-8")
    assert pages.written(page, "results", results.overview()) == page, "python -m benchmarks.results --write"


def test_use_of_the_machine_by_others_is_noted() -> None:
    assert results.machine_of({"cpu": "a CPU", "cpus": 2}) == ["cpu a CPU, cpus 2"]
    assert len(results.machine_of({"cpus": 2, "busy before": "0.05"})) == 1
    assert "1.9 CPUs" in results.machine_of({"cpus": 2, "busy before": "1.9"})[2]


def test_pictures_of_the_page_are_there() -> None:
    linked = re.findall(r"!\[.*?\]\(results/(\w+\.svg)\)", results.PAGE.read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(path.name for path in results.FOLDER.glob("*.svg")) and len(linked) == 4
    assert all((results.FOLDER / name).stat().st_size < 200_000 for name in linked)


def test_commands_of_the_page_are_modules() -> None:
    page = results.PAGE.read_text(encoding="utf-8")
    for module in set(re.findall(r"python -m (benchmarks[\w.]*)", page)):
        path = Path(results.__file__).parents[1].joinpath(*module.rstrip(".").split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


def test_everything_is_measured_by_commands_that_there_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benchmarks import __main__ as cases
    from benchmarks.deployed import __main__ as deployed

    commands: dict[str, tuple[str, ...]] = {}

    def run(module: str, *arguments: str) -> int:
        commands[module] = arguments
        if module == "benchmarks":
            (cases.parse(arguments).output / "results.json").write_text("{}")
        return 0

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(results, "_run", run)
    assert results.measure() == 0 and (tmp_path / "cases.json").read_text() == "{}"
    assert list(commands) == ["benchmarks", "benchmarks.curves", "benchmarks.deployed"]
    assert deployed.parse(commands["benchmarks.deployed"]).json == tmp_path / "deployed.json"
    assert commands["benchmarks.curves"][-1] == str(tmp_path / "curves.json")


# ---------------------------------------------------------------------- curves
def point(size: int, threads: int, ours: float, theirs: float) -> curves.Point:
    peers = {name: {"median": time, "low": time, "high": time} for name, time in (("shlo_jit", ours), ("XLA", theirs))}
    return {"program": "sort", "size": size, "threads": threads, "peers": peers}


def test_sizes_have_ratios_and_gains() -> None:
    points = [point(1000, 1, 2e-3, 4e-3), point(1000, 2, 1e-3, 4e-3)]
    head, _, line = ([c.strip() for c in text.strip("|").split("|")] for text in results.sizes(points))
    assert head[2:5] == ["shlo_jit, 1", "XLA, 1", "ratio, 1"] and head[-2:] == ["gain, shlo_jit", "gain, XLA"]
    assert line == ["sort", "1,000", "2 ms", "4 ms", "2.00", "1 ms", "4 ms", "4.00", "2.00", "1.00"]
    assert curves.line(points[0]) == "sort 1,000, threads 1: shlo_jit 2 ms, XLA 4 ms"


def test_a_failure_has_no_time() -> None:
    failed = point(10, 1, 1, 1) | {"peers": {"shlo_jit": {"error": "WRONG"}}}
    assert "ratio" in results.sizes([failed])[0] and curves.line(failed).endswith("shlo_jit WRONG")


@pytest.mark.parametrize("name", curves.PROGRAMS)
def test_the_smallest_size_of_a_program_is_measured(name: str) -> None:
    found = curves.measure(name, curves.PROGRAMS[name].sizes[0], 1, 0.001)
    assert {"shlo_jit", "XLA"} == set(found["peers"])
    assert all(times["median"] > 0 for times in found["peers"].values())


@pytest.mark.slow
def test_the_command_of_curves(tmp_path: Path) -> None:
    file = tmp_path / "curves.json"
    assert curves.main(["--only", "no such program"]) == 2
    assert curves.main(["--only", "sort", "--threads", "1", "--budget", "0.001", "--json", str(file)]) == 0
    data = json.loads(file.read_text())
    assert [p["size"] for p in data["points"]] == list(curves.PROGRAMS["sort"].sizes)
    assert data["environment"]["cpus"] >= 1
