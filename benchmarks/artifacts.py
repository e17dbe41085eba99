"""Time to read a program: the portable artifact against the text.

    python -m benchmarks.artifacts                      the examples, and programs of 1,000 ops
    python -m benchmarks.artifacts FILE.mlir FOLDER     these programs, texts or artifacts
    python -m benchmarks.artifacts --first FILE.mlir    the first program of a process, which imports what it needs

Both are written from one module, without locations and with a location at every op (`located`), and are read and
verified alternately in one process. Each number is the minimum of all rounds. Programs of a folder, or of one shape,
are one row.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import shlo_jit
from benchmarks.growth_shapes import SHAPES
from shlo_jit import examples
from shlo_jit.bytecode.reader import read_artifact
from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.ir.core import Module, walk
from shlo_jit.text.parser import parse_module
from shlo_jit.verify.verifier import verify_module

OPS = 1000
"""Number of ops of generated programs."""
SUFFIXES = (".mlir", ".mlirbc", ".bc")
FIRST = """import sys, time
import shlo_jit
data = open(sys.argv[1], "rb").read()
start = time.perf_counter()
module = shlo_jit.parse(data)
read = time.perf_counter()
shlo_jit.verify(module)
print(read - start, time.perf_counter() - start)"""


class Pair(NamedTuple):
    """A program in both forms."""

    artifact: bytes
    text: str


class Seconds(NamedTuple):
    """Times of a program: to read it, and to read and verify it."""

    read: float
    verified: float


def located(module: Module) -> Module:
    """Gives every op of a module a location of its own."""
    for line, op in enumerate(walk(module.op.block()), 1):
        op.location = OpaqueAttr(f'loc("program.py":{line}:{1 + line % 70})')
    return module


def plain(module: Module) -> Module:
    for op in (module.op, *walk(module.op.block())):
        op.location = None
        for block in (block for region in op.regions for block in region.blocks):
            block.locations = ()
    module.locations = {}
    return module


def pairs(modules: Sequence[Module], prepare: Callable[[Module], Module]) -> list[Pair]:
    return [Pair(prepared.serialize(), str(prepared)) for prepared in map(prepare, modules)]


def programs(paths: Sequence[Path]) -> dict[str, list[Module]]:
    """Modules by the row that they belong to."""
    found = {
        str(path): sorted(p for p in path.iterdir() if p.suffix in SUFFIXES) if path.is_dir() else [path]
        for path in paths
    }
    if found:
        return {name: _readable(files) for name, files in found.items()}
    made = {"examples": [shlo_jit.parse(examples.path(name)) for name in examples.names()]}
    return {**made, **{f"{name} ({OPS} ops)": [shlo_jit.parse(shape(OPS))] for name, shape in SHAPES.items()}}


def _readable(files: Sequence[Path]) -> list[Module]:
    """Modules of files that are programs and can be written as artifacts."""
    modules: list[Module] = []
    for path in files:
        try:
            modules.append(shlo_jit.parse(path))
            modules[-1].serialize()
        except shlo_jit.StableHLOError as error:
            print(f"{path} is left out: {str(error).splitlines()[0]}", file=sys.stderr)
            modules = [module for module in modules if module is not modules[-1]] if modules else modules
    return modules


def warm(given: Sequence[Pair], rounds: int) -> tuple[Seconds, Seconds]:
    """Times of all artifacts, and of all texts."""
    readers: tuple[Callable[[Any], Module], ...] = (read_artifact, parse_module)
    least = [[Seconds(float("inf"), float("inf"))] * 2 for _ in given]
    for _ in range(rounds):
        gc.collect()
        for row, pair in zip(least, given, strict=True):
            for reader, (read, form) in enumerate(zip(readers, pair, strict=True)):
                took = _time(read, form)
                row[reader] = Seconds(*map(min, row[reader], took))
    sums = [[sum(row[reader][i] for row in least) for i in range(2)] for reader in range(2)]
    return Seconds(*sums[0]), Seconds(*sums[1])


def _time(read: Callable[[Any], Module], form: bytes | str) -> Seconds:
    start = time.process_time()
    module = read(form)
    middle = time.process_time()
    verify_module(module)
    return Seconds(middle - start, time.process_time() - start)


def first(given: Sequence[Pair], rounds: int) -> tuple[Seconds, Seconds]:
    """Times as in `warm`, with each program the first one of a process that has imported `shlo_jit`."""
    sums = [[0.0, 0.0], [0.0, 0.0]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program"
        for pair in given:
            for reader, form in enumerate((pair.artifact, pair.text.encode())):
                path.write_bytes(form)
                command = [sys.executable, "-c", FIRST, str(path)]
                runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(rounds)]
                found = [list(map(float, run.stdout.split())) for run in runs]
                for i in range(2):
                    sums[reader][i] += min(times[i] for times in found)
    return Seconds(*sums[0]), Seconds(*sums[1])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--first", action="store_true", help="time the first program of a process")
    options = parser.parse_args(arguments)
    measure = first if options.first else warm
    print(
        f"{'':30} {'ops':>7}   {'artifact':>9} {'text':>9} {'ratio':>6}   {'verified':>9} {'text':>9} {'ratio':>6}  ms"
    )
    for name, modules in programs(options.paths).items():
        ops = sum(1 for module in modules for _ in walk(module.op.block()))
        for label, prepare in ((name, plain), (f"{name[:20]}, located", located)):
            artifact, text = measure(pairs(modules, prepare), options.rounds)
            columns = [f"{1e3 * a:9.2f} {1e3 * t:9.2f} {t / a:5.2f}x" for a, t in zip(artifact, text, strict=True)]
            print(f"{label[-30:]:30} {ops:7}   {'   '.join(columns)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
