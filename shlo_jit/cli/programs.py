"""Programs of the command's arguments: finds, parses, compiles and loads them."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shlo_jit import examples
from shlo_jit.cli import mistakes
from shlo_jit.cli.options import DynamicCode
from shlo_jit.cli.progress import progress
from shlo_jit.cli.several import Grid, Several
from shlo_jit.options import Arithmetic

if TYPE_CHECKING:
    from shlo_jit.cli.constants import Arrays
    from shlo_jit.ir.core import Module
    from shlo_jit.runtime.dynamic import DynamicExecutable, Given
    from shlo_jit.runtime.executable import Executable
    from shlo_jit.runtime.staged import Runnable


def source(file: Path | None, example: str) -> tuple[Path | bytes, str]:
    """Returns what to compile, and its name for messages."""
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
    """Ends the command if the file does not exist."""
    if file.is_dir():
        is_saved_model = (file / "saved_model.pb").is_file()
        hint = "; this is a TensorFlow SavedModel: see docs/tensorflow.md" if is_saved_model else ""
        mistakes.fail(f"cannot read {file}: it is a folder{hint}")
    if not file.exists():
        from shlo_jit.suggest import closest

        with contextlib.suppress(OSError):
            near = closest(file.stem, [other.stem for other in file.parent.iterdir()])
            other = next((o for o in sorted(file.parent.iterdir()) if near and o.stem == near), None)
            if other is not None:
                mistakes.fail(f"cannot read {file}: no such file; did you mean {other}?")
        mistakes.fail(f"cannot read {file}: no such file")


def is_library(given: Path | bytes) -> bool:
    """Whether a file contains machine code."""
    from shlo_jit.foreign_files import LIBRARIES

    if isinstance(given, bytes):
        return False
    with mistakes.readable(str(given)), open(given, "rb") as file:
        return file.read(8).startswith(tuple(LIBRARIES))


def parse(given: Path | bytes | Module) -> Module:
    from shlo_jit import api

    with progress("parsing"), mistakes.readable(str(given) if isinstance(given, Path) else "<stdin>"):
        return api.parse(given)


ENTRY = "main"
"""The function that is compiled unless another one is named."""


class Compilation(NamedTuple):
    """How a command compiles its program."""

    entry: str = ""
    """The function; without a name that of programs, `main`, or a library's only one."""
    threads: int | None = None
    dynamic: DynamicCode = DynamicCode.SPECIALIZE
    arithmetic: Arithmetic = Arithmetic()
    schedule: Path | None = None
    """A file with the moves of steps, or the word for a stored schedule."""
    constants: Arrays | None = None
    cache: bool = True


def compile(given: Path | bytes | Module, how: Compilation) -> tuple[Executable | DynamicExecutable, float]:
    """Compiles a program and returns it with the compile time in seconds. Ends the command for a program of several
    processes."""
    made, seconds = compile_any(given, how, Grid())
    if isinstance(made, Several):
        mistakes.fail("the program runs in several processes: only the command `run` supports it")
    return made, seconds


def compile_any(
    given: Path | bytes | Module, how: Compilation, grid: Grid
) -> tuple[Executable | DynamicExecutable | Several, float]:
    """Compiles a program, possibly for several processes, and returns it with the compile time in seconds."""
    from shlo_jit import api
    from shlo_jit.runtime.distributed import DistributedExecutable

    with progress("compiling"):
        start = time.perf_counter()
        made = api.compile(
            given,
            how.entry or ENTRY,
            threads=how.threads,
            cache=how.cache,
            dynamic=how.dynamic.value,
            schedule=None if how.schedule is None else moves(how.schedule),
            constants=how.constants,
            num_partitions=grid.processes,
            transport=grid.transport,
            **how.arithmetic,
        )
        if isinstance(made, DistributedExecutable):
            made = Several(made)
        return made, time.perf_counter() - start


def moves(file: Path) -> Any:
    """The contents of a file of moves, or the word for a stored schedule. Ends the command if the file is not JSON."""
    from shlo_jit.runtime.stored_schedules import STORED

    if str(file) in STORED:
        return str(file)
    try:
        with mistakes.readable(str(file)):
            return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        mistakes.fail(f"--schedule {file}: not JSON: {error}")


def for_shapes(made: Executable | DynamicExecutable | Several, shapes: Given) -> tuple[Runnable | Several, float]:
    """Returns the code for shapes or arrays, and the additional compile time in seconds."""
    from shlo_jit.runtime.executable import Executable

    if isinstance(made, Executable | Several):
        return made, 0.0
    with progress("compiling"):
        start = time.perf_counter()
        executable = made.executable(shapes)
        return executable, time.perf_counter() - start


def text_of(made: Executable | DynamicExecutable, stage: str, shapes: Given) -> str:
    """Text of the program for these shapes at a stage."""
    from shlo_jit.runtime.executable import Executable

    return made.text(stage) if isinstance(made, Executable) else made.text(stage, shapes)


def refined(given: Path | bytes | Module, entry: str, shapes: Sequence[str]) -> Module:
    """Refines a program for these shapes of its inputs with unknown dimensions. A static program is returned
    unchanged."""
    from shlo_jit import api
    from shlo_jit.cli.arrays import with_shapes
    from shlo_jit.ir.dynamic_values import has_dynamic_shapes

    module = parse(given)
    if not shapes and not has_dynamic_shapes(module):
        return module
    expected, _ = compile(module, Compilation(entry))
    wanted = with_shapes(expected.inputs, [], shapes)
    with progress("refining"):
        return api.refine(module, [signature.shape for signature in wanted], entry)


def load(library: Path, entry: str | None, threads: int | None) -> tuple[Executable | DynamicExecutable, float]:
    """Loads a function of an exported library; returns it with the load time in seconds."""
    from shlo_jit import api

    start = time.perf_counter()
    executable = api.load(library, entry, threads=threads)
    return executable, time.perf_counter() - start
