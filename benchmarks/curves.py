"""Time over size, with one thread and with several: shlo_jit and XLA:CPU.

    python -m benchmarks.curves                     six programs, with one CPU and with all
    python -m benchmarks.curves --only sort,dot     programs with a word in the name

A process has as many CPUs as threads, for both peers alike, which are timed alternately. Writes curves.json, from which
`benchmarks.results` makes tables and pictures.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from rich.console import Console
from rich.progress import track

from benchmarks import programs
from benchmarks.cases import SUM, Case
from benchmarks.inputs import Maker, normal
from benchmarks.names import OURS, REFERENCE
from benchmarks.report import environment, seconds


def _dot(n: int) -> Case:
    return Case("dot", "", jnp.matmul, (normal(n, n), normal(n, n)))


def _conv(n: int) -> Case:
    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return Case("conv", "", function, (normal(1, n, n, 64), normal(3, 3, 64, 64, scale=0.1)))


def _softmax(n: int) -> Case:
    return Case("softmax", "", jax.nn.softmax, (normal(n, 512),))


def _sum(n: int) -> Case:
    return Case("sum", "", jnp.sum, (normal(n),), tolerance=SUM)


def _sort(n: int) -> Case:
    return Case("sort", "", jnp.sort, (normal(n),), tolerance=0)


def _transformer_block(n: int) -> Case:
    weights: list[Maker] = [normal(512, 512, scale=0.04)] * 4
    weights += [normal(512, 2048, scale=0.04), normal(2048, 512, scale=0.02)]
    return Case("block", "", programs.transformer_block, (normal(n, 512), *weights), tolerance=SUM)


class Program(NamedTuple):
    case: Callable[[int], Case]
    sizes: Sequence[int]
    unit: str
    """Unit of a size."""


PROGRAMS: Mapping[str, Program] = {
    "dot f32": Program(_dot, (16, 32, 64, 128, 256, 512, 1024, 2048), "n x n x n"),
    "conv 3x3, 64 channels": Program(_conv, (4, 8, 16, 32, 64, 128), "n x n pixels"),
    "transformer block": Program(_transformer_block, (1, 4, 16, 64, 256, 1024), "tokens"),
    "softmax": Program(_softmax, (1, 8, 64, 512, 4096, 32768), "rows of 512"),
    "sum of all": Program(_sum, tuple(10**k for k in range(2, 9)), "numbers"),
    "sort": Program(_sort, tuple(10**k for k in range(2, 7)), "numbers"),
}
Point = dict[str, Any]
"""`program`, `size`, `threads`, and `peers`: by name `median`, `low` and `high`, or `error`."""


def measure(name: str, size: int, threads: int, budget: float) -> Point:
    """Measures a program in this process, which has as many CPUs as threads."""
    from benchmarks.agreement import difference
    from benchmarks.peers import PEERS
    from benchmarks.timing import interleave

    case = PROGRAMS[name].case(size)
    lowered, inputs = case.lower(), case.inputs()
    point: Point = {"program": name, "size": size, "threads": threads, "peers": {}}
    ready = {peer: PEERS[peer](case, lowered, inputs) for peer in (OURS, REFERENCE)}
    ours, theirs = (found.arrays(found.call()) for found in ready.values() if found)
    if wrong := difference(ours, theirs, case.tolerance):
        return point | {"peers": {OURS: {"error": f"WRONG {wrong}"}}}
    times = interleave({peer: found.call for peer, found in ready.items() if found}, budget)
    return point | {"peers": {peer: found._asdict() for peer, found in times.items()}}


def pin(cpus: list[int]) -> None:
    """Restricts a new process to CPUs, before any library has counted them."""
    jax.config.update("jax_platforms", "cpu")
    os.sched_setaffinity(0, cpus)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if a result was wrong, 2 if no program was selected."""
    cpus = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser("benchmarks.curves", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--only", default="", metavar="WORDS", help="separated by commas")
    parser.add_argument("--threads", default=",".join(map(str, sorted({1, len(cpus)}))), metavar="N,N",
                        help="default: %(default)s")  # fmt: skip
    parser.add_argument("--budget", type=float, default=0.3, metavar="S", help="seconds a peer and size: %(default)s")
    parser.add_argument("--json", type=Path, default=Path("build/benchmarks/curves.json"), metavar="FILE")
    options = parser.parse_args(arguments)
    words, console = [w for w in options.only.split(",") if w], Console(highlight=False)
    names = [name for name in PROGRAMS if not words or any(w in name for w in words)]
    if not names:
        console.print(f"programs are {'; '.join(PROGRAMS)}")
        return 2
    points: list[Point] = []
    for threads in map(int, options.threads.split(",")):
        wanted = [(name, size, threads, options.budget) for name in names for size in PROGRAMS[name].sizes]
        with multiprocessing.get_context("spawn").Pool(1, pin, (cpus[:threads],)) as pool:
            for work in track(wanted, f"{threads} threads", console=console, transient=True):
                points.append(pool.apply(measure, work))
                console.print(line(points[-1]), markup=False)
    units = {name: PROGRAMS[name].unit for name in names}
    data = {"environment": environment(), "units": units, "points": points}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(data, indent=1), encoding="utf-8")
    console.print(f"wrote {options.json}")
    return 1 if any("error" in found for point in points for found in point["peers"].values()) else 0


def line(point: Point) -> str:
    """Formats a point for the screen."""
    cells = (f"{peer} {found.get('error') or seconds(found['median'])}" for peer, found in point["peers"].items())
    return f"{point['program']} {point['size']:,}, threads {point['threads']}: {', '.join(cells)}"


if __name__ == "__main__":
    raise SystemExit(main())
