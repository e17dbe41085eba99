"""Finds the thresholds of `shlo_jit/tuning` that decide nothing: no code changes if they are halved or doubled.

    python -m benchmarks.moved_thresholds                            every threshold, on the cases and the examples
    python -m benchmarks.moved_thresholds --programs DIR ...         and on the .mlir files of these folders
    python -m benchmarks.moved_thresholds TILE_SIDE CONV_TASK        these thresholds
    python -m benchmarks.moved_thresholds --extremes WINDOW_SPARSE   whether its branch decides anything

Each line names a threshold, how many programs read it, and the first program that changes with half and with double of
it. `schedule` and `program` are the decisions and the LLVM text. `routine` is the text of a routine, such as that of
products: it decides at run time, so a change there need not matter. `-` says that no program changes, `unread` that
compiling none of the programs reads the threshold.

Nothing is compiled to machine code. A first run of each program notes the thresholds that it reads, so that each
threshold only visits programs that read it. Every variant is a forked process, because plans and routines are cached.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.llvm_text import programs
from benchmarks.thresholds import scaled, texts_of
from shlo_jit import StableHLOError, tuning

FACTORS = {"half": 0.5, "double": 2.0}
EXTREMES = {"tiny": 2.0**-40, "huge": 2.0**40}
"""Factors for which the branch that a threshold guards is always taken, or never."""


class Read(NamedTuple):
    """A program as it is compiled today."""

    texts: dict[str, str]
    thresholds: frozenset[str]
    seconds: float


class _Recording(ModuleType):
    """The module of thresholds, noting which ones are read."""

    def __getattribute__(self, name: str) -> Any:
        if name.isupper():
            _read.add(name)
        return super().__getattribute__(name)


_read: set[str] = set()


def in_fork(work: Callable[[], Any]) -> Any:
    """Returns the result of a function that runs in a forked process. Raises EOFError if the process ends early."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(work(), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(data)


def texts(program: str, target: str) -> dict[str, str]:
    """Returns a program's texts; for one that is refused, the message."""
    try:
        return texts_of(program, target)
    except StableHLOError as error:
        return {"program": f"refused: {error}"}


def read(program: str, target: str) -> Read:
    """Compiles a program to text, and notes what it reads."""
    setattr(tuning, "__class__", _Recording)  # noqa: B010 - pyright knows no such assignment
    start = time.process_time()
    found = texts(program, target)
    return Read(found, frozenset(_read), time.process_time() - start)


def first_change(
    name: str, factor: float, known: dict[str, Read], sources: dict[str, str], options: argparse.Namespace
) -> str:
    """Returns what the scaled threshold changes, and in which program; the fastest programs are asked first."""
    end = time.process_time() + options.seconds
    setattr(tuning, name, scaled(getattr(tuning, name), factor))
    routine = "-"
    for number, (program, now) in enumerate(sorted(known.items(), key=lambda item: item[1].seconds)):
        if time.process_time() > end:
            return f"{routine} ({number} programs tried)"
        try:
            found = texts(sources[program], options.target)
        except Exception as error:  # a threshold that breaks the compiler decides something
            return f"{type(error).__name__} in {program}"
        for what in ("schedule", "program"):
            if found.get(what) != now.texts.get(what):
                return f"{what} of {program}"
        if found.get("routine") != now.texts.get("routine") and routine == "-":
            routine = f"routine of {program}"
    return routine


def line(name: str, known: dict[str, Read], sources: dict[str, str], options: argparse.Namespace) -> str:
    """A line of the table."""
    readers = {program: now for program, now in known.items() if name in now.thresholds}
    if not readers:
        return f"| {name} | 0 | unread | unread |"
    found = [in_fork(lambda f=f: first_change(name, f, readers, sources, options)) for f in options.factors.values()]
    return f"| {name} | {len(readers)} | {found[0]} | {found[1]} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("benchmarks.moved_thresholds", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", help="thresholds; default: all")
    parser.add_argument("--programs", type=Path, nargs="*", default=[], help="folders with .mlir files")
    parser.add_argument("--target", default="native", help="the CPU the text is for; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=60, help="processor time of a variant; default: %(default)s")
    parser.add_argument("--extremes", dest="factors", action="store_const", const=EXTREMES, default=FACTORS,
                        help="nearly zero, and nearly no limit, instead of half and double")  # fmt: skip
    options = parser.parse_args(arguments)
    names = options.names or [name for name in vars(tuning) if name.isupper()]
    unknown = [name for name in names if name not in vars(tuning)]
    if unknown:
        print(f"no threshold {', '.join(unknown)}")
        return 2
    sources = dict(programs(options.programs))
    known = {}
    for program, text in sources.items():
        known[program] = in_fork(lambda text=text: read(text, options.target))
    seconds = sum(now.seconds for now in known.values())
    print(f"{len(known)} programs, {seconds:.0f} s to compile to text", file=sys.stderr, flush=True)
    columns = " | ".join(f"{how} changes" for how in options.factors)
    print(f"| threshold | programs that read it | {columns} |\n|---|--:|---|---|", flush=True)
    for name in names:
        print(line(name, known, sources, options), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
