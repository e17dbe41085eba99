"""Programs that commands are given: found, parsed, compiled or loaded."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shlo_jit import examples
from shlo_jit.cli import mistakes
from shlo_jit.cli.progress import progress

if TYPE_CHECKING:
    import numpy as np

    from shlo_jit.ir.core import Module
    from shlo_jit.runtime.executable import Executable


def source(file: Path | None, example: str) -> tuple[Path | bytes, str]:
    """What to compile, and its name for people."""
    if (file is None) == (not example):
        mistakes.fail("give a FILE, or --example NAME")
    if example:
        try:
            return examples.path(example), f"{example} (example)"
        except ValueError as error:
            mistakes.fail(str(error))
    assert file is not None
    if str(file) == "-":
        return sys.stdin.buffer.read(), "<stdin>"
    check_exists(file)
    if file.is_file():
        return file, str(file)
    from shlo_jit.sources import read_file

    with mistakes.readable(str(file)):
        return read_file(str(file)), str(file)  # a pipe, which can be read once


def check_exists(file: Path) -> None:
    """End the command where there is no such file."""
    if not file.exists() or file.is_dir():
        mistakes.fail(f"cannot read {file}: {'it is a folder' if file.is_dir() else 'no such file'}")


def is_library(given: Path | bytes) -> bool:
    """Whether a file is machine code."""
    from shlo_jit.sources import LIBRARIES

    if isinstance(given, bytes):
        return False
    with mistakes.readable(str(given)), open(given, "rb") as file:
        return file.read(8).startswith(tuple(LIBRARIES))


def parse(given: Path | bytes | Module) -> Module:
    from shlo_jit import api

    with progress("parsing"), mistakes.readable(str(given) if isinstance(given, Path) else "<stdin>"):
        return api.parse(given)


def compile(given: Path | bytes | Module, entry: str, threads: int | None, cache: bool) -> tuple[Executable, float]:
    """The program, and how long it took to compile."""
    from shlo_jit import api
    from shlo_jit.runtime.executable import Executable

    with progress("compiling"):
        start = time.perf_counter()
        executable = api.compile(given, entry, threads=threads, cache=cache)
        seconds = time.perf_counter() - start
    if not isinstance(executable, Executable):
        mistakes.fail("the program has unknown dimensions: give --input or --shape for each such input")
    return executable, seconds


def for_shapes(
    given: Path | bytes | Module, entry: str, arrays: Sequence[np.ndarray], shapes: Sequence[str]
) -> Path | bytes | Module:
    """The program for the shapes of its first inputs, and those given for the others whose shapes are not known; the
    source as it is where all are known."""
    from shlo_jit import api
    from shlo_jit.ir.unknown import has_unknown, is_dynamic

    if not shapes and not arrays:
        return given
    module = parse(given)
    function = module.function(entry)
    if function is None or not (shapes or has_unknown(module)):
        return given
    left = list(shapes)
    wanted = []
    for i, argument in enumerate(function.block().arguments):
        if i < len(arrays):
            wanted.append(arrays[i])
        elif is_dynamic(argument):
            if not left:
                mistakes.fail(f"input {i} (%{argument.name}) has unknown dimensions: give its --shape")
            wanted.append(left.pop(0))
        else:
            wanted.append(argument.tensor.extents)
    if left:
        mistakes.fail(f"--shape {left[0]}: there are not so many inputs with unknown dimensions")
    with progress("refining"):
        return api.refine(module, wanted, entry)


def load(library: Path, entry: str | None, threads: int | None) -> tuple[Executable, float]:
    """A function of an exported library, and how long it took to load."""
    from shlo_jit import api

    start = time.perf_counter()
    executable = api.load(library, entry, threads=threads)
    return executable, time.perf_counter() - start
