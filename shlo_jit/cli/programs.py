"""Programs that commands are given: found, parsed, compiled or loaded."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from shlo_jit import examples
from shlo_jit.cli import mistakes
from shlo_jit.cli.progress import progress

if TYPE_CHECKING:
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


def parse(given: Path | bytes) -> Module:
    from shlo_jit import api

    with progress("parsing"), mistakes.readable(str(given) if isinstance(given, Path) else "<stdin>"):
        return api.parse(given)


def compile(given: Path | bytes, entry: str, threads: int | None, cache: bool) -> tuple[Executable, float]:
    """The program, and how long it took to compile."""
    from shlo_jit import api

    with progress("compiling"):
        start = time.perf_counter()
        executable = api.compile(given, entry, threads=threads, cache=cache)
        return executable, time.perf_counter() - start


def load(library: Path, entry: str | None, threads: int | None) -> tuple[Executable, float]:
    """A function of an exported library, and how long it took to load."""
    from shlo_jit import api

    start = time.perf_counter()
    executable = api.load(library, entry, threads=threads)
    return executable, time.perf_counter() - start
