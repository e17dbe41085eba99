"""One model on all engines: start times, agreement of results, and times of calls."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agreement import difference
from benchmarks.deployed import work
from benchmarks.deployed.catalogue import Model
from benchmarks.deployed.engines import XLA, can_run
from benchmarks.deployed.process import Process
from benchmarks.timing import take_turns
from benchmarks.worker import Row

BLOCK, PAUSE = 0.06, 0.05
"""Seconds of a block, and between two, in which spinning threads go to sleep."""


@dataclass(frozen=True)
class Options:
    engines: tuple[str, ...]
    budget: float
    """Seconds of timing for each engine of a model."""
    is_started_twice: bool


def measure(model: Model, threads: int, options: Options) -> Row:
    """A row with `peers` by engine: `median`, `low`, `high`, `start`, `peak` and `cached start`; or `error`."""
    counted = work.count(model.graph(), 2 if model.floats == "bf16" else 4)
    row: Row = {"case": model.name, "threads": threads, "kind": model.kind, "work": counted._asdict(), "peers": {}}
    with tempfile.TemporaryDirectory(prefix="deployed-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "benchmarks.deployed.files", model.name, name]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        if done.returncode:
            return row | {"error": done.stderr.strip().splitlines()[-1]}
        live = _started(model, threads, options, folder, row["peers"])
        try:
            _time(live, options.budget, row["peers"])
        finally:
            for process in live.values():
                process.end()
        for engine in live if options.is_started_twice else ():
            _again(engine, model, threads, folder, row["peers"][engine])
    return row


def _process(engine: str, model: Model, threads: int, folder: Path) -> Process:
    return Process(engine, folder, folder / f"{engine} cache", threads, model.floats)


def _started(model: Model, threads: int, options: Options, folder: Path, peers: dict[str, Any]) -> dict[str, Process]:
    """Engines whose results agree with XLA's, or with the first engine's if XLA has none."""
    live: dict[str, Process] = {}
    expected: list[np.ndarray] = []
    for engine in sorted(options.engines, key=lambda e: e != XLA):
        if not can_run(engine, model.floats):
            continue
        try:
            process = _process(engine, model, threads, folder)
            results = process.results(folder / "results.npz")
            process.prepare_blocks(BLOCK)
        except RuntimeError as problem:
            peers[engine] = {"error": str(problem)}
            continue
        expected = expected or results
        if wrong := difference(results, expected, model.tolerance):
            peers[engine] = {"error": f"WRONG {wrong}"}
            process.end()
            continue
        peers[engine] = {"start": process.start_seconds, "peak": process.peak}
        live[engine] = process
    return live


def _time(live: dict[str, Process], budget: float, peers: dict[str, Any]) -> None:
    """Times the engines; starts again without those that fail meanwhile."""
    while live:
        try:
            found = take_turns({engine: process.block for engine, process in live.items()}, budget, PAUSE)
        except RuntimeError:
            for engine in [engine for engine, process in live.items() if process.failure]:
                peers[engine] = {"error": live.pop(engine).failure}
            continue
        for engine, times in found.items():
            peers[engine] |= times._asdict()
        return


def _again(engine: str, model: Model, threads: int, folder: Path, found: dict[str, Any]) -> None:
    try:
        process = _process(engine, model, threads, folder)
    except RuntimeError as problem:
        found["error"] = f"with its cache: {problem}"
        return
    found["cached start"] = process.start_seconds
    process.end()
