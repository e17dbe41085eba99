"""The page of results, generated from measurements.

    python -m benchmarks.results                     print the tables of benchmarks/RESULTS.md
    python -m benchmarks.results --write             write them, the pictures, and the figures of README.md
    python -m benchmarks.results --measure --write   measure again first: half an hour on a quiet machine

Needs the extras `bench` and `deployed`. Measurements are kept as JSON in benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.deployed import pictures, tables
from benchmarks.names import OURS, REFERENCE
from benchmarks.pages import table, written

FOLDER = Path(__file__).parent / "results"
PAGE, README = Path(__file__).parent / "RESULTS.md", Path(__file__).parents[1] / "README.md"
CASES, CURVES, DEPLOYED = "cases", "curves", "deployed"
Data = Mapping[str, Any]
DISTURBED = 0.1
"""Maximum share of each CPU that other programs may use for measurements to be reliable."""


def measure() -> int:
    """Runs the three measurements one after the other. Returns the sum of their exit statuses."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        status = _run("benchmarks", "--output", made)
        shutil.copy(Path(made) / "results.json", FOLDER / f"{CASES}.json")
    threads = ",".join(map(str, sorted({1, len(os.sched_getaffinity(0))})))
    for name in (CURVES, DEPLOYED):
        status += _run(f"benchmarks.{name}", "--threads", threads, "--json", str(FOLDER / f"{name}.json"))
    return status


def _run(module: str, *arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode


def read(name: str) -> Data:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


# ---------------------------------------------------------------------- tables
def blocks() -> dict[str, Callable[[], list[str]]]:
    """The tables of the page, by name."""
    cases, curves, deployed = (read(name) for name in (CASES, CURVES, DEPLOYED))
    most = max(machine["threads"] for machine in deployed["machines"])
    models = [row for row in deployed["rows"] if row["threads"] == most]
    machine = next(m for m in deployed["machines"] if m["threads"] == most)
    return {
        "machine": lambda: machine_of({**cases["environment"], **deployed["environment"]}),
        "peaks": lambda: tables.peaks(deployed["machines"]),
        "deployed summary": lambda: tables.summary(models),
        "deployed": lambda: tables.times(models),
        "starts": lambda: tables.starts(models),
        "memory": lambda: tables.memory(models),
        "shares": lambda: tables.shares(models, machine),
        "speedups": lambda: tables.speedups(deployed["rows"], most),
        "summary": lambda: report.summary(cases["rows"]),
        "cases": lambda: report.cases(cases["rows"]),
        "curves": lambda: sizes(curves["points"]),
    }


def machine_of(environment: Mapping[str, Any]) -> list[str]:
    return [report.words(environment), *warning(environment)]


def warning(environment: Mapping[str, Any]) -> list[str]:
    """A note if other programs used the machine."""
    busy = float(environment.get("busy before", 0))
    if busy <= DISTURBED * environment["cpus"]:
        return []
    return [
        "",
        f"**Other programs used the machine meanwhile: {busy:g} CPUs before models were measured.**",
        "Engines whose threads wait for each other lose most by that: comparisons with all threads say little.",
    ]


def sizes(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """For every program and size: times with one thread and with all, and the speed-up."""
    counts = list(dict.fromkeys(point["threads"] for point in points))
    found = {(p["program"], p["size"], p["threads"], peer): times.get("median")
             for p in points for peer, times in p["peers"].items()}  # fmt: skip
    rows = []
    for program, size in dict.fromkeys((p["program"], p["size"]) for p in points):
        row, pairs = [program, f"{size:,}"], []
        for threads in counts:
            ours, theirs = (found.get((program, size, threads, peer)) for peer in (OURS, REFERENCE))
            pairs.append((ours, theirs))
            row += [report.seconds(ours), report.seconds(theirs), f"{theirs / ours:.2f}" if ours and theirs else ""]
        row += [f"{a / b:.2f}" if a and b else "" for a, b in zip(pairs[0], pairs[-1], strict=True)]
        rows.append(row)
    heads = [f"{head}, {threads}" for threads in counts for head in (OURS, REFERENCE, "ratio")]
    return table(["program", "size", *heads, f"gain, {OURS}", f"gain, {REFERENCE}"], rows)


def overview() -> list[str]:
    """Summary shown in the README."""
    cases, deployed = read(CASES), read(DEPLOYED)
    most = max(row["threads"] for row in deployed["rows"])
    models = [row for row in deployed["rows"] if row["threads"] == most]
    cpu = deployed["environment"]
    return [
        f"On {cpu['cpu']}, {cpu['cpus']} CPUs, against XLA of JAX {cpu.get('jax', '')}, ONNX Runtime "
        f"{cpu.get('onnxruntime', '')} and OpenVINO {str(cpu.get('openvino', '')).partition('-')[0]}:",
        *warning(cpu),
        "",
        *tables.brief(models),
        "",
        *tables.summary(models),
        "",
        *report.summary(cases["rows"]),
    ]


# ---------------------------------------------------------------------- pictures
def draw() -> list[Path]:
    """Writes the pictures as SVG. Equal figures give equal files."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "results", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    cases, curves, deployed = (read(name) for name in (CASES, CURVES, DEPLOYED))
    most = max(machine["threads"] for machine in deployed["machines"])
    models = [row for row in deployed["rows"] if row["threads"] == most]
    machine = next(m for m in deployed["machines"] if m["threads"] == most)
    made = {
        "deployed": lambda: pictures.ratios(pyplot, models),
        "roofline": lambda: pictures.roofline(pyplot, models, machine),
        "curves": lambda: _curves(pyplot, curves["points"], curves["units"]),
    }
    paths = [FOLDER / f"{name}.svg" for name in made]
    for picture, path in zip(made.values(), paths, strict=True):
        figure = picture()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
    paths.append(FOLDER / f"{CASES}.svg")
    drawn = [row for row in cases["rows"] if report.ratio(row) is not None]
    report.draw(drawn, paths[-1], cases["environment"])
    return paths


def _curves(pyplot: Any, points: Sequence[Mapping[str, Any]], units: Mapping[str, str]) -> Any:
    """Time over size, with a subplot for each program."""
    names = list(dict.fromkeys(point["program"] for point in points))
    figure, axes = pyplot.subplots(2, -(-len(names) // 2), figsize=(11, 6), layout="constrained", squeeze=False)
    counts = list(dict.fromkeys(point["threads"] for point in points))
    for axis, name in zip(axes.flat, names, strict=False):
        for colour, peer in (("C0", OURS), ("C1", REFERENCE)):
            for style, threads in zip(("--", "-", ":"), counts, strict=False):
                mine = [p for p in points if (p["program"], p["threads"]) == (name, threads)]
                times = [
                    (p["size"], 1e6 * p["peers"][peer]["median"]) for p in mine if "median" in p["peers"].get(peer, {})
                ]
                axis.plot(*zip(*times, strict=True), style, color=colour, marker="o", markersize=3, linewidth=1.2,
                          label=f"{peer}, threads {threads}")  # fmt: skip
        axis.set(xscale="log", yscale="log", title=name, xlabel=units[name])
        axis.grid(alpha=0.3)
        axis.minorticks_off()
    axes[0, 0].set_ylabel("us a call")
    axes[0, 0].legend(fontsize=7)
    return figure


# ---------------------------------------------------------------------- the page
def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if something could not be measured, or was wrong."""
    parser = argparse.ArgumentParser("benchmarks.results", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--measure", action="store_true", help="measure this machine first")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md, its pictures, and README.md")
    options = parser.parse_args(arguments)
    status = measure() if options.measure else 0
    page = PAGE.read_text(encoding="utf-8")
    for name, made in blocks().items():
        lines = made()
        page = written(page, name, lines)
        if not options.write:
            print(f"{name}\n\n" + "\n".join(lines) + "\n")
    if options.write:
        PAGE.write_text(page, encoding="utf-8")
        README.write_text(written(README.read_text(encoding="utf-8"), "results", overview()), encoding="utf-8")
        for path in (PAGE, README, *draw()):
            print(f"wrote {path}")
    return int(status > 0)


if __name__ == "__main__":
    raise SystemExit(main())
