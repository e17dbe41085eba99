"""Times of collective ops: a call of a program with one of them, and one more of them inside a program.

    python -m benchmarks.collectives                                    2 and 4 ranks; processes and threads; also mpi
                                                                        if mpiexec and mpi4py are installed
    python -m benchmarks.collectives --only all_reduce --sizes 4,8192,65536 --ranks 2 --transports threads

`call` is a call with one op, with NumPy arrays as arguments and newly allocated results. `in-loop` is the time of one
more op: the op is also in a loop in which each iteration depends on the previous one, and calls with many iterations
are compared with calls without. Every iteration changes one element of each rank, so that no op can be removed. The
size is that of the larger buffer of a rank: the operand, or the result of an all_gather. Times are the minimum of
several blocks, in which the two kinds of calls alternate, because other programs can only make them longer. Results are
checked first. Every transport and number of ranks is measured in a process of its own. Writes a table (collectives.md)
and the numbers (collectives.json), which `python -m benchmarks.scaling` reads.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from benchmarks.report import environment, seconds

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute", "collective_broadcast")
SIZES = (4, *(k << 10 for k in (1, 8, 16, 64, 256)), *(m << 20 for m in (1, 4, 16, 64)))
"""Sizes in bytes; 8 KiB is the largest message that is sent inline."""
TRANSPORTS = ("processes", "threads", "mpi")
LOOP, LEAST_ITERATIONS, MOST_ITERATIONS = 0.002, 4, 4096
"""Minimum seconds of a call with many iterations, and bounds of their number."""
CHECKED_ITERATIONS = 3
BLOCK = 0.001
"""Approximate seconds of a block of calls: on a busy machine only short blocks are undisturbed."""
LEAST_BLOCKS = 3


class Point(NamedTuple):
    """Measurement of an op: bytes of the larger buffer of a rank, and seconds."""

    transport: str
    ranks: int
    op: str
    nbytes: int
    call: float
    loop: float


# ---------------------------------------------------------------------- the programs
def elements(op: str, ranks: int, nbytes: int) -> int:
    """Elements (f32) of the operand: of an all_gather a part; of ops that split it at least one for each rank."""
    if op == "all_gather":
        return max(1, nbytes // 4 // ranks)
    return max(1 if op in ("all_reduce", "collective_permute", "collective_broadcast") else ranks, nbytes // 4)


def program(op: str, ranks: int, count: int) -> str:
    """A program that runs the op over `count` elements %count times in a loop, and once more; %c changes it every
    time."""
    x, one, i32 = f"tensor<{count}xf32>", "tensor<1xf32>", "tensor<i32>"
    result = {"all_gather": count * ranks, "reduce_scatter": count // ranks}.get(op, count)
    y = f"tensor<{result}xf32>"
    if result > count:
        following = f"%z = stablehlo.slice %y [0:{count}] : ({y}) -> {x}"
    elif result < count:
        following = f"%z = stablehlo.dynamic_update_slice %a, %y, %zero : ({x}, {y}, {i32}) -> {x}"
    else:
        following = f"%z = stablehlo.reshape %y : ({y}) -> {x}"
    return f"""
func.func @main(%x: {x}, %c: {one}, %count: {i32}) -> {y} {{
  %zero = stablehlo.constant dense<0> : {i32}
  %step = stablehlo.constant dense<1> : {i32}
  %after:2 = stablehlo.while(%a = %x, %i = %zero) : {x}, {i32}
    cond {{
      %more = stablehlo.compare LT, %i, %count : ({i32}, {i32}) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }} do {{
      %y = {_op(op, ranks, "%a")} : ({x}) -> {y}
      {following}
      %first = stablehlo.slice %z [0:1] : ({x}) -> {one}
      %changed = stablehlo.add %first, %c : {one}
      %next = stablehlo.dynamic_update_slice %z, %changed, %zero : ({x}, {one}, {i32}) -> {x}
      %j = stablehlo.add %i, %step : {i32}
      stablehlo.return %next, %j : {x}, {i32}
    }}
  %last = {_op(op, ranks, "%after#0")} : ({x}) -> {y}
  return %last : {y}
}}
"""


def _op(op: str, ranks: int, operand: str) -> str:
    groups = f"replica_groups = dense<[{[*range(ranks)]}]> : tensor<1x{ranks}xi64>"
    add = (
        " ({\n  ^bb0(%l: tensor<f32>, %r: tensor<f32>):\n    %s = stablehlo.add %l, %r : tensor<f32>\n"
        "    stablehlo.return %s : tensor<f32>\n  })"
    )
    cut = f"split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = {ranks} : i64"
    pairs = [[i, (i + 1) % ranks] for i in range(ranks)]
    attributes = {
        "all_reduce": f"<{{{groups}}}>{add}",
        "all_gather": f"<{{all_gather_dim = 0 : i64, {groups}}}>",
        "reduce_scatter": f"<{{scatter_dimension = 0 : i64, {groups}}}>{add}",
        "all_to_all": f"<{{{cut}, {groups}}}>",
        "collective_permute": f"<{{source_target_pairs = dense<{pairs}> : tensor<{ranks}x2xi64>}}>",
        "collective_broadcast": f"<{{{groups}}}>",
    }
    return f'"stablehlo.{op}"({operand}) {attributes[op]}'


def expected(op: str, given: np.ndarray, changes: np.ndarray, iterations: int) -> np.ndarray:
    """Results of all ranks, one row each, of the program for the operands in `given`, one row each."""
    x = given.copy()
    for _ in range(iterations):
        y = meaning(op, x)
        width = min(x.shape[1], y.shape[1])
        x[:, :width] = y[:, :width].copy()
        x[:, 0] += changes
    return meaning(op, x)


def meaning(op: str, x: np.ndarray) -> np.ndarray:
    """Results of the op for all ranks, from their operands."""
    ranks = len(x)
    return {
        "all_reduce": lambda: np.broadcast_to(x.sum(0), x.shape),
        "all_gather": lambda: np.broadcast_to(x.ravel(), (ranks, x.size)),
        "reduce_scatter": lambda: x.sum(0).reshape(ranks, -1),
        "all_to_all": lambda: x.reshape(ranks, ranks, -1).swapaxes(0, 1).reshape(ranks, -1),
        "collective_permute": lambda: np.roll(x, 1, 0),
        "collective_broadcast": lambda: np.broadcast_to(x[0], x.shape),
    }[op]()


# ---------------------------------------------------------------------- times
def fastest(calls: Sequence[Callable[[], Any]], budget: float, agreed: Callable[[int], int]) -> list[float]:
    """Seconds per call of the fastest block of each.

    The blocks alternate for `budget` seconds. `agreed` combines the numbers of several processes, which must make the
    same calls.
    """
    counts = [agreed(max(1, min(2000, round(BLOCK / max(_block(call, 2), 1e-7))))) for call in calls]
    best = [math.inf] * len(calls)
    start, blocks = time.perf_counter(), 0
    while agreed(int(blocks < LEAST_BLOCKS or time.perf_counter() - start < budget)):
        for i, call in enumerate(calls):
            call()
            best[i] = min(best[i], _block(call, counts[i]))
        blocks += 1
    return best


def _block(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def _least(call: Callable[[], Any]) -> float:
    return min(_block(call, 1) for _ in range(5))


def measure(transport: str, ranks: int, op: str, nbytes: int, budget: float) -> Point:
    """Measures an op. Raises AssertionError for a wrong result."""
    import shlo_jit

    count = elements(op, ranks, nbytes)
    given = np.random.default_rng(0).random((ranks, count), np.float32)
    changes = np.arange(1, ranks + 1, dtype=np.float32)
    agreed, rank = _agreement(transport)
    exe: Any = shlo_jit.compile(program(op, ranks, count), num_replicas=ranks, transport=transport)
    with exe:

        def call(iterations: int) -> list[np.ndarray]:
            arguments = [(given[r], changes[r : r + 1], np.int32(iterations)) for r in range(ranks)]
            return exe(arguments) if rank is None else [exe.local(*arguments[rank])]

        wanted = expected(op, given, changes, CHECKED_ITERATIONS)
        for made, row in zip(
            call(CHECKED_ITERATIONS), wanted if rank is None else wanted[rank : rank + 1], strict=True
        ):
            np.testing.assert_allclose(made, row, rtol=1e-4)
        iterations = LEAST_ITERATIONS
        enough = max(LOOP, 2 * _least(lambda: call(0)))
        while agreed(
            int(iterations < MOST_ITERATIONS and _least(lambda iterations=iterations: call(iterations)) < enough)
        ):
            iterations *= 2
        one, many = fastest([lambda: call(0), lambda: call(iterations)], budget, agreed)
    return Point(transport, ranks, op, nbytes, one, max(many - one, 0.0) / iterations)


def _agreement(transport: str) -> tuple[Callable[[int], int], int | None]:
    """Returns a function by which processes that run this file together agree on a number, and this process's rank.

    The rank of a single process is None.
    """
    if transport != "mpi":
        return lambda number: number, None
    from mpi4py import MPI  # type: ignore[import-not-found]

    return MPI.COMM_WORLD.bcast, MPI.COMM_WORLD.Get_rank()


# ---------------------------------------------------------------------- the command
def mpiexec() -> str | None:
    """Path of mpiexec, next to this Python or on PATH; None without it or without mpi4py."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    return found if importlib.util.find_spec("mpi4py") else None


def starter(ranks: int) -> list[str]:
    """Command that starts so many processes of MPI, on any number of CPUs, as any user."""
    command = mpiexec()
    if command is None:
        raise SystemExit("mpi needs mpiexec and mpi4py")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    is_open = any(name in version for name in ("Open MPI", "OpenRTE", "PRRTE"))
    return [command, *(["--oversubscribe", "--allow-run-as-root"] if is_open else []), "-n", str(ranks)]


def run(transport: str, ranks: int, options: argparse.Namespace, console: Console) -> list[Point]:
    """Measures in a process of its own, or with mpi in several."""
    command = [sys.executable, "-m", "benchmarks.collectives", "--child", "--transports", transport]
    for name in ("sizes", "only", "budget"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--ranks", str(ranks)]
    if transport == "mpi":
        command = [*starter(ranks), *command]
    found = []
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found.append(Point(*json.loads(line)))
            console.print(text(found[-1]), markup=False)
    if process.returncode:
        console.print(f"{transport}, {ranks} ranks: ended with {process.returncode}")
    return found


def child(options: argparse.Namespace) -> None:
    """Prints the points of one transport and number of ranks."""
    transport, ranks = options.transports, int(options.ranks)
    agree = _agreement(transport)
    for op in select(options.only):
        for nbytes in map(int, options.sizes.split(",")):
            point = measure(transport, ranks, op, nbytes, options.budget)
            if not agree[1]:
                print(json.dumps(point), flush=True)


def select(words: str) -> list[str]:
    """Selects ops with one of the words in their names; all if there are no words."""
    wanted = [w for w in words.split(",") if w]
    return [op for op in OPS if not wanted or any(w in op for w in wanted)]


def size_text(nbytes: int) -> str:
    for scale, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= scale:
            return f"{nbytes / scale:g} {unit}"
    return f"{nbytes} B"


def text(point: Point) -> str:
    """Formats a point for the screen."""
    cells = f"{size_text(point.nbytes):>8}{seconds(point.call):>10}{seconds(point.loop):>10}"
    return f"{point.transport:10}{point.ranks:2} {point.op:22}{cells}"


def markdown(points: Sequence[Point]) -> list[str]:
    """A table: a row for each op and size, columns of in-loop and call times for each transport and number of ranks."""
    sets = list(dict.fromkeys((p.transport, p.ranks) for p in points))
    found = {(p.op, p.nbytes, p.transport, p.ranks): p for p in points}
    lines = ["| op | size | " + " | ".join(f"{t} {n}" for t, n in sets) + " |", "|---|--:" + "|--:" * len(sets) + "|"]
    for op, nbytes in dict.fromkeys((p.op, p.nbytes) for p in points):
        here = [found.get((op, nbytes, t, n)) for t, n in sets]
        cells = ["" if p is None else f"{seconds(p.loop)} ({seconds(p.call)})" for p in here]
        lines.append(f"| {op} | {size_text(nbytes)} | " + " | ".join(cells) + " |")
    return lines


def write(points: Sequence[Point], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    table, data = folder / "collectives.md", folder / "collectives.json"
    head = [", ".join(f"{k} {v}" for k, v in environment().items()), "", "In-loop time (time of a call)", ""]
    table.write_text("\n".join([*head, *markdown(points), ""]), encoding="utf-8")
    rows = ",\n".join(json.dumps([*p[:4], *(float(f"{t:.4g}") for t in p[4:])]) for p in points)
    head = f'"environment": {json.dumps(environment())},\n"fields": {json.dumps(Point._fields)}'
    data.write_text(f'{{{head},\n"points": [\n{rows}\n]}}\n', encoding="utf-8")
    return [table, data]


def read(path: Path) -> tuple[dict[str, Any], list[Point]]:
    """Reads the machine and its measurements."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["environment"], [Point(*row) for row in found["points"]]


def merged(old: Sequence[Point], new: Sequence[Point]) -> list[Point]:
    """Merges points: of two for one op, keeps the one whose call took less: it was disturbed less by other
    programs."""
    found: dict[tuple[Any, ...], Point] = {}
    for p in (*old, *new):
        found[p[:4]] = min(p, found.get(p[:4], p), key=lambda point: point.call)
    return list(found.values())


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.collectives", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--only", default="", metavar="WORDS", help="ops with a word in the name, separated by commas")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), metavar="BYTES", help="default: %(default)s")
    parser.add_argument("--ranks", default="2,4", metavar="N,N", help="default: %(default)s")
    parser.add_argument("--transports", default=",".join(t for t in TRANSPORTS if t != "mpi" or mpiexec()),
                        metavar="NAMES", help="default: %(default)s")  # fmt: skip
    parser.add_argument("--budget", type=float, default=0.4, metavar="S", help="seconds of an op and size: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks"), metavar="D",
                        help="default: %(default)s")  # fmt: skip
    parser.add_argument("--merge", action="store_true", help="keep points of an earlier run that took less")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if a process failed."""
    options = parse(arguments)
    if options.child:
        child(options)
        return 0
    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    console.print(f"{'transport':10}{'n':>2} {'op':22}{'size':>8}{'call':>10}{'in-loop':>10}", markup=False)
    sets = [(t, int(n)) for t in options.transports.split(",") for n in options.ranks.split(",")]
    points = [point for transport, ranks in sets for point in run(transport, ranks, options, console)]
    wanted = len(sets) * len(select(options.only)) * len(options.sizes.split(","))
    complete = len(points) == wanted
    if options.merge and (options.output / "collectives.json").exists():
        points = merged(read(options.output / "collectives.json")[1], points)
    for path in write(points, options.output):
        console.print(f"wrote {path}")
    return 0 if complete else 1


if __name__ == "__main__":
    raise SystemExit(main())
