"""Writes the LLVM text of a fixed set of programs, and compares two such folders: a guard for changes of the compiler.

    python -m benchmarks.llvm_text write DIR                   the cases of `python -m benchmarks`, and the examples
    python -m benchmarks.llvm_text write DIR FILE FOLDER ...   these programs as well
    python -m benchmarks.llvm_text compare OLD NEW             lists programs and routines whose text differs
    python -m benchmarks.llvm_text compare OLD NEW --names     the same ignoring names: renaming is no difference

A program's file has its own text; each routine it needs (such as the GEMM tile) has a file of its own. Nothing is
compiled to machine code, so the whole set takes about a minute. A change that should not affect machine code (a renamed
class, a new description of a schedule) shows no difference; other changes show which programs they affect.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from shlo_jit import StableHLOError, examples, pipeline
from shlo_jit.codegen.objects import routine_text
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

SUFFIX = ".ll"
NAME = re.compile(r"[%@][\w.$-]+|^[\w.$-]+:", re.MULTILINE)
"""A local or global name, or a label, in LLVM text."""


def programs(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Names and texts: the benchmark cases (lowered by JAX), the project's examples, the files given."""
    from benchmarks.cases import select

    for case in select():
        yield f"case {case.name}", case.lower().as_text()
    for name in examples.names():
        yield f"example {name}", examples.path(name).read_text()
    for path in paths:
        for file in sorted(path.rglob("*.mlir")) if path.is_dir() else [path]:
            yield f"file {file.stem}", file.read_text()


def write_routine(routine: Routine, target: Target, folder: Path) -> None:
    """Writes a routine and those it needs, unless they exist."""
    path = folder / f"routine {routine.name}{SUFFIX}"
    if not path.exists():
        path.write_text(routine_text(routine, target))
        for need in routine.needs:
            write_routine(need, target, folder)


def write(folder: Path, paths: Sequence[Path], target: Target, console: Console) -> None:
    """Writes every program's text; for a program that is refused, the message."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in track(list(programs(paths)), "LLVM text", console=console):
        try:
            program = pipeline.program_of(text, name, target)
        except StableHLOError as error:
            written = f"; refused: {error}\n"
        else:
            written = program.text
            for routine in program.routines:
                write_routine(routine, target, folder)
        (folder / f"{name.replace('/', '_')}{SUFFIX}").write_text(written)


def without_names(text: str) -> str:
    """The text with each name replaced by the order in which it first appears."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        name = match[0].strip("%@:")
        return numbers.setdefault(name, f"n{len(numbers)}")

    return NAME.sub(number, text)


def compare(old: Path, new: Path, *, names: bool, console: Console) -> int:
    """Lists differences, with the number of changed lines. Returns 1 if there are any."""
    files = sorted({p.name for folder in (old, new) for p in folder.glob(f"*{SUFFIX}")})
    differing = 0
    for file in files:
        texts = [(folder / file).read_text() if (folder / file).exists() else None for folder in (old, new)]
        if None in texts:
            console.print(f"{Path(file).stem}: only in {old if texts[1] is None else new}", markup=False)
            differing += 1
            continue
        before, after = (without_names(t) if names else t for t in texts if t is not None)
        if before != after:
            lines = [*difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")][2:]
            removed, added = (sum(line.startswith(sign) for line in lines) for sign in "-+")
            console.print(f"{Path(file).stem}: {removed} lines removed, {added} added", markup=False)
            differing += 1
    console.print(f"{len(files)} texts, {differing} differ")
    return 1 if differing else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("benchmarks.llvm_text", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write", help="write the texts to a folder")
    writing.add_argument("folder", type=Path)
    writing.add_argument("programs", type=Path, nargs="*", help="files, or folders with .mlir files")
    writing.add_argument("--target", default="native", help="the CPU the text is for; default: %(default)s")
    comparing = commands.add_parser("compare", help="list what differs between two folders")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--names", action="store_true", help="leave out names of values, labels and functions")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    if options.command == "write":
        write(options.folder, options.programs, resolve(options.target), console)
        return 0
    return compare(options.old, options.new, names=options.names, console=console)


if __name__ == "__main__":
    raise SystemExit(main())
