"""Latency of calls while another process keeps one core busy.

    python -m benchmarks.busy_neighbor [--model MobileNetV2] [--seconds 4]

Each engine runs in a process of its own: with one thread while nothing else runs, then with as many threads as there
are cores while another process computes. The median of the latter shall be at most 1.1 times the former.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.deployed import engines, files
from benchmarks.pages import table
from benchmarks.report import seconds as shown

ENGINES = {"shlo_jit": engines.constant_weights, engines.ORT: engines.onnx_runtime}
WARM = 20
"""Calls before the measured ones."""


def _compute() -> None:
    while True:
        pass


def child(engine: str, folder: Path, threads: int, seconds: float) -> None:
    """Prints the seconds of all calls as JSON."""
    ready = ENGINES[engine](folder, folder, threads, "f32")
    for _ in range(WARM):
        ready.call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        ready.call()
        times.append(time.perf_counter() - begin)
    print(json.dumps(times))


def measured(engine: str, folder: Path, threads: int, seconds: float) -> np.ndarray:
    """Returns the seconds of each call in a new process."""
    command = [sys.executable, "-m", "benchmarks.busy_neighbor", "--child", engine, str(folder)]
    command += [str(threads), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return np.array(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="MobileNetV2")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        engine, folder, threads, seconds = given.child
        return child(engine, Path(folder), int(threads), float(seconds))
    cores = len(os.sched_getaffinity(0))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files.write(given.model, Path(folder))
        for engine in ENGINES:
            quiet = measured(engine, Path(folder), 1, given.seconds)
            neighbor = multiprocessing.get_context("spawn").Process(target=_compute, daemon=True)
            neighbor.start()
            busy = measured(engine, Path(folder), cores, given.seconds)
            neighbor.kill()
            neighbor.join()
            middle, late = np.median(busy), np.percentile(busy, 99)
            rows.append((engine, shown(float(np.median(quiet))), shown(float(middle)), shown(float(late)),
                         f"{middle / np.median(quiet):.2f}"))  # fmt: skip
    head = ("engine", "1 thread, quiet", f"{cores} threads, busy", "99th percentile", "median, relative")
    print("\n".join(table(head, rows)))
    return None


if __name__ == "__main__":
    main()
