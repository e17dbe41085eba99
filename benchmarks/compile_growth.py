"""Growth of compile time and memory with the size of a program.

    python -m benchmarks.compile_growth                        every shape at 100, 1,000 and 10,000 ops
    python -m benchmarks.compile_growth --only dots,while --sizes 1000,10000,50000 --xla

Each measurement is a process of its own, which compiles one program with an empty cache. Times per op are CPU times of
all threads together, which a busy machine disturbs less. Writes a table (growth.md), the numbers (growth.json) and a
chart (growth.png). Exit status 1 if a program larger than 1,000 ops takes more than twice the time or memory per op.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress

from benchmarks.growth_shapes import SHAPES

OURS, XLA = "shlo_jit", "XLA"
BASE = 1000
"""Number of ops that larger programs are compared with."""
LIMIT = 2.0
SMALLEST = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.sine %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}"""
"""Program that is compiled first, so that imports do not count."""


class Cost(NamedTuple):
    """Cost of compiling one program: seconds, CPU seconds of all threads, and peak bytes beyond those at the start."""

    seconds: float
    cpu: float
    peak: int


Costs = dict[tuple[str, str, int], Cost | str]
"""Costs by peer, shape and number of ops; or the reason why there is none."""


def compile_once(peer: str, shape: str, ops: int) -> Cost:
    """Compiles a program in this process."""
    text = SHAPES[shape](ops)
    compile_text = _xla() if peer == XLA else _ours()
    compile_text(SMALLEST)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    compile_text(text)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return Cost(seconds, cpu, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


def _ours():
    import shlo_jit

    return lambda text: shlo_jit.compile(text, cache=False)


def _xla():
    import jax
    from jax.extend import backend

    _jax = importlib.import_module("jaxlib._jax")
    client = backend.get_backend("cpu")
    devices = _jax.DeviceList(tuple(jax.devices("cpu")[:1]))
    return lambda text: client.compile_and_load(text, devices, _jax.CompileOptions())


def measure(peer: str, shape: str, ops: int, timeout: float) -> Cost | str:
    """Compiles a program in a process of its own; returns its cost, or a short reason why there is none."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.compile_growth", "--worker", peer, shape, str(ops)]
    root = Path(__file__).parents[1]
    try:
        done = subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, timeout=timeout, cwd=root
        )
    except subprocess.TimeoutExpired:
        return f"> {timeout:g} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:60]
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


# ---------------------------------------------------------------------- output
def growth(costs: Costs, peer: str, shape: str, ops: int) -> tuple[float, float] | None:
    """Time and memory per op, relative to those at BASE ops."""
    small, large = costs.get((peer, shape, BASE)), costs.get((peer, shape, ops))
    if not isinstance(small, Cost) or not isinstance(large, Cost):
        return None
    scale = BASE / ops
    return large.cpu / small.cpu * scale, large.peak / max(small.peak, 1) * scale


def table(costs: Costs) -> list[str]:
    """Lines of Markdown: microseconds and kilobytes per op, and their growth."""
    lines = ["| shape | ops | peer | time | us an op | KB an op | time growth | memory growth |",
             "|---|--:|---|--:|--:|--:|--:|--:|"]  # fmt: skip
    for (peer, shape, ops), cost in sorted(costs.items(), key=lambda item: (item[0][1], item[0][2], item[0][0] == XLA)):
        if isinstance(cost, str):
            lines.append(f"| {shape} | {ops:,} | {peer} | {cost} | | | | |")
            continue
        found = growth(costs, peer, shape, ops)
        grown = f"{found[0]:.2f} | {found[1]:.2f}" if found else " | "
        lines.append(
            f"| {shape} | {ops:,} | {peer} | {cost.seconds:.2f} s | {cost.cpu / ops * 1e6:.0f} "
            f"| {cost.peak / ops / 1024:.1f} | {grown} |"
        )
    return lines


def chart(costs: Costs, path: Path) -> None:
    """Draws time and memory per op over the number of ops, a line for every shape."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(14, 6))
    shapes = list(dict.fromkeys(shape for _, shape, _ in costs))
    colors = pyplot.get_cmap("tab20")
    for axis, what in zip(axes, ("milliseconds an op", "kilobytes an op"), strict=True):
        for peer, style in ((OURS, "-o"), (XLA, ":x")):
            for number, shape in enumerate(shapes):
                mine = ((n, c) for (p, s, n), c in costs.items() if (p, s) == (peer, shape))
                points = sorted((n, c) for n, c in mine if isinstance(c, Cost))
                values = [c.cpu / n * 1e3 if what.startswith("milli") else c.peak / n / 1024 for n, c in points]
                label = shape if peer == OURS else None
                axis.plot([n for n, _ in points], values, style, color=colors(number % 20), label=label, alpha=0.8)
        axis.set(xscale="log", yscale="log", xlabel="ops", ylabel=what)
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize=7, ncols=2)
    figure.suptitle(f"Compiling: {OURS} (solid), {XLA} (dotted)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def write(costs: Costs, folder: Path) -> list[Path]:
    """Writes the files for which there are measurements."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"growth.{kind}" for kind in ("md", "json", "png")]
    paths[0].write_text("\n".join([*table(costs), ""]), encoding="utf-8")
    rows = [[*key, *(cost if isinstance(cost, Cost) else [cost])] for key, cost in costs.items()]
    paths[1].write_text(json.dumps(rows, indent=1), encoding="utf-8")
    chart(costs, paths[2])
    return paths


def too_steep(costs: Costs) -> list[str]:
    """Shapes for which our costs grow more than LIMIT allows, or that could not be compiled."""
    out = []
    for (peer, shape, ops), cost in costs.items():
        if peer != OURS:
            continue
        if isinstance(cost, str):
            out.append(f"{shape} at {ops:,}: {cost}")
        found = growth(costs, peer, shape, ops) if ops > BASE else None
        if found and max(found) > LIMIT:
            out.append(f"{shape} at {ops:,}: {found[0]:.2f} times the time and {found[1]:.2f} times the memory an op")
    return out


# ---------------------------------------------------------------------- the command
def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("compile_growth", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--only", default="", metavar="WORDS", help="shapes with a word in the name, comma-separated")
    parser.add_argument("--sizes", default="100,1000,10000", metavar="OPS", help="default: %(default)s")
    parser.add_argument("--xla", action="store_true", help="XLA:CPU beside (needs jax)")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="seconds a program: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks"), metavar="D",
                        help="default: %(default)s")  # fmt: skip
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def select(words: str) -> list[str]:
    """Selects shapes with one of the words in their names; all if there are no words."""
    wanted = [w.strip() for w in words.split(",") if w.strip()]
    return [name for name in SHAPES if not wanted or any(w in name for w in wanted)]


def run(jobs: Iterable[tuple[str, str, int]], timeout: float, console: Console) -> Costs:
    """Measures, and prints the results immediately."""
    costs: Costs = {}
    todo = list(jobs)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(todo))
        for peer, shape, ops in todo:
            progress.update(task, description=f"{shape} {ops:,} {peer}")
            cost = costs[peer, shape, ops] = measure(peer, shape, ops, timeout)
            text = cost if isinstance(cost, str) else (
                f"{cost.seconds:8.2f} s {cost.cpu / ops * 1e6:8.0f} us an op {cost.peak / ops / 1024:8.1f} KB an op"
            )  # fmt: skip
            console.print(f"{shape:20}{ops:>8,} {peer:9}{text}", markup=False)
            progress.advance(task)
    return costs


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.worker:
        peer, shape, ops = options.worker
        print(json.dumps(compile_once(peer, shape, int(ops))))
        return 0
    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    sizes = [int(n) for n in options.sizes.split(",")]
    peers = [OURS, XLA] if options.xla else [OURS]
    costs = run(((p, s, n) for s in select(options.only) for n in sizes for p in peers), options.timeout, console)
    for path in write(costs, options.output):
        console.print(f"wrote {path}")
    steep = too_steep(costs)
    for line in steep:
        console.print(line, markup=False)
    return 1 if steep else 0


if __name__ == "__main__":
    raise SystemExit(main())
