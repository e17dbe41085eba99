"""Times deployed models: shlo_jit, XLA, ONNX Runtime and OpenVINO.

    python -m benchmarks.deployed                       every model and engine that is installed
    python -m benchmarks.deployed --only bert,mlp       models with a word in the name
    python -m benchmarks.deployed --threads 1,2         with one thread, then with two
    python -m benchmarks.deployed --list

Every engine has a process of its own, and results are compared; then blocks of calls alternate, with pauses in between.
A process starts twice: with empty caches, and with those of the first start. Needs the extra `deployed`; engines that
are not installed are skipped. Writes deployed.json, from which `benchmarks.results` makes tables.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.deployed.catalogue import select
from benchmarks.deployed.engines import ENGINES, missing
from benchmarks.worker import Row

COLUMNS = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.deployed", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--only", default="", metavar="WORDS", help="separated by commas")
    parser.add_argument("--engines", default=",".join(ENGINES), metavar="NAMES", help="default: %(default)s")
    parser.add_argument("--threads", default=str(len(os.sched_getaffinity(0))), metavar="N,N", help="default: all CPUs")
    parser.add_argument(
        "--budget", type=float, default=1.5, metavar="S", help="seconds an engine and model: %(default)s"
    )
    parser.add_argument("--no-start", action="store_true", help="leave out the second start, with caches")
    parser.add_argument("--json", type=Path, default=Path("build/benchmarks/deployed.json"), metavar="FILE",
                        help="default: %(default)s")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the models and stop")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if one of our results was missing or wrong, 2 if no model or engine was selected."""
    from benchmarks.deployed import machine, measure
    from benchmarks.report import environment, problem

    options = parse(arguments)
    models, engines = select(options.only), [e for e in options.engines.split(",") if e]
    console = Console(width=None if Console().is_terminal else 160, highlight=False)
    if not models or not engines or not set(engines) <= set(ENGINES):
        console.print("no such model" if not models else f"engines are {', '.join(ENGINES)}")
        return 2
    if options.list:
        for model in models:
            console.print(model.name)
        return 0
    for engine in list(engines):
        if missing(engine):
            console.print(f"{engine} is left out: not installed: {', '.join(missing(engine))}")
            engines.remove(engine)
    counts = [int(n) for n in options.threads.split(",")]
    found = environment("onnxruntime", "openvino") | {"busy before": f"{machine.busy():.2f}"}
    machines = [machine.measure(n) for n in counts]
    data = {"environment": found, "machines": machines, "rows": []}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    with Progress(*COLUMNS, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=len(models) * len(counts))
        for model, threads in product(models, counts):
            progress.update(task, description=f"{model.name}, {threads} threads")
            is_started_twice = threads == max(counts) and not options.no_start
            row = measure.measure(model, threads, measure.Options(tuple(engines), options.budget, is_started_twice))
            data["rows"].append(row)
            options.json.write_text(json.dumps(data, indent=1), encoding="utf-8")
            console.print(line(row), markup=False)
            progress.advance(task)
    data["machines"] = [machine.better(found, machine.measure(found["threads"])) for found in machines]
    options.json.write_text(json.dumps(data, indent=1), encoding="utf-8")
    console.print(f"wrote {options.json}")
    return 1 if any(problem(row) for row in data["rows"]) else 0


def line(row: Row) -> str:
    """Formats a model for the screen."""
    from benchmarks.report import seconds

    cells = (f"{engine} {seconds(found['median']) if 'median' in found else found['error']}"
             for engine, found in row["peers"].items())  # fmt: skip
    return f"{row['case']}, threads {row['threads']}: {'; '.join(cells)}"


if __name__ == "__main__":
    raise SystemExit(main())
