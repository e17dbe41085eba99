"""The commands that call a program: run, check, profile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shlo_jit.cli import arrays, mistakes, programs, report
from shlo_jit.cli.options import (
    Dynamic,
    DynamicCode,
    Entry,
    Example,
    File,
    Inputs,
    NoCache,
    Processes,
    Random,
    Runnable,
    Seed,
    Shapes,
    Threads,
    Transport,
)
from shlo_jit.cli.progress import progress
from shlo_jit.cli.several import Several, grid_of, quiet_unless

if TYPE_CHECKING:
    import numpy as np

    from shlo_jit.ir.core import Module
    from shlo_jit.runtime.dynamic import DynamicExecutable
    from shlo_jit.runtime.executable import Executable
    from shlo_jit.runtime.staged import Runnable as Code
    from shlo_jit.runtime.trace import Trace

TIMING_SECONDS, TIMING_CALLS = 0.5, 1000
"""How long, and how often at most, `run` goes on calling the program for its best time."""
PROFILE_SECONDS = 1.0
"""How long `profile` goes on calling the program."""


class Ready(NamedTuple):
    """A program that can be called, and what with."""

    name: str
    """For people."""
    source: Path | bytes
    executable: Code | Several
    seconds: float
    """How long it took to compile or load."""
    arguments: list[np.ndarray]


Make = Callable[["Path | bytes"], "tuple[Executable | DynamicExecutable | Several, float]"]


@contextlib.contextmanager
def _ready(
    file: Path | None,
    example: str,
    inputs: list[Path] | None,
    shapes: list[str] | None,
    random: bool,
    seed: int,
    entry: str,
    make: Make,
) -> Iterator[Ready]:
    """A program made of its source by `make`, with its arguments. What goes wrong ends the command, in the body too."""
    source, name = programs.source(file, example)
    given = [arrays.load(path) for path in inputs or []]
    with mistakes.refusals(name):
        made, seconds = make(source)
        expected = arrays.with_shapes(made.inputs, given, shapes or [])
        arguments = arrays.arguments(expected, given, random, seed)
        executable, more = programs.for_shapes(made, arguments)
        yield Ready(name, source, executable, seconds + more, arguments)


def run(
    file: Runnable = None,
    example: Example = "",
    inputs: Inputs = None,
    shapes: Shapes = None,
    random: Random = False,
    seed: Seed = 0,
    output_dir: Annotated[
        Path | None, typer.Option(metavar="D", help="Write the results there, as output0.npy and so on.")
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Calls of the program.  [default: one, and more for half a second]"),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="T.json", help="Write when each step of one more call ran, for trace viewers."),
    ] = None,
    entry: Annotated[
        str, typer.Option(metavar="NAME", help="The function to run.  [default: main, or a library's only one]")
    ] = "",
    threads: Threads = None,
    dynamic: Dynamic = DynamicCode.SPECIALIZE,
    processes: Processes = None,
    transport: Transport = None,
    no_cache: NoCache = False,
) -> None:
    """Compile a program, or load an exported library, run it, and print its results and times.

    With --processes, every input and result has one more dimension, the first, along the processes. Of a command that
    mpiexec has started, the first process prints.
    """
    grid = grid_of(processes, transport)

    def make(source: Path | bytes) -> tuple[Executable | DynamicExecutable | Several, float]:
        if isinstance(source, Path) and programs.is_library(source):
            if grid.processes is not None:
                mistakes.fail("--processes: a library's functions are for one process")
            return programs.load(source, entry or None, threads)
        return programs.compile_any(source, entry or "main", threads, not no_cache, dynamic, grid)

    with mistakes.refusals(), quiet_unless(grid.prints):
        _run_and_print(
            lambda: _ready(file, example, inputs, shapes, random, seed, entry or "main", make),
            [p.name for p in inputs or []],
            output_dir if grid.prints else None,
            repeat or (1 if grid.is_mpi else None),  # all must make as many calls
            trace,
        )


def _run_and_print(
    prepare: Callable[[], contextlib.AbstractContextManager[Ready]],
    files: list[str],
    output_dir: Path | None,
    repeat: int | None,
    trace: Path | None,
) -> None:
    console = report.make_console()
    with prepare() as ready:
        results, times = _run(ready.executable, ready.arguments, repeat)
        traced = None if trace is None else _trace(ready, trace)
        if isinstance(ready.source, Path) and programs.is_library(ready.source):
            assert not isinstance(ready.executable, Several)
            report.print_library(console, ready.name, ready.executable, ready.seconds, times)
        else:
            module = programs.parse(ready.source)
            report.print_program(console, ready.name, module, ready.executable, ready.seconds, times)
    origins = [*files, *["random"] * len(ready.arguments)]
    report.print_inputs(console, ready.executable.inputs, ready.arguments, origins)
    report.print_results(console, results)
    if output_dir is not None:
        arrays.save(output_dir, results)
    if traced is not None:
        report.print_trace(console, traced)


def check(
    file: File = None,
    example: Example = "",
    inputs: Inputs = None,
    shapes: Shapes = None,
    random: Random = False,
    seed: Seed = 0,
    entry: Entry = "main",
    threads: Threads = None,
    dynamic: Dynamic = DynamicCode.SPECIALIZE,
    no_cache: NoCache = False,
) -> None:
    """Compare what a compiled program computes with the reference interpreter.

    The exit status is 1 when a result differs by more than roundings do.
    """

    def make(source: Path | bytes) -> tuple[Executable | DynamicExecutable, float]:
        return programs.compile(source, entry, threads, not no_cache, dynamic)

    with _ready(file, example, inputs, shapes, random, seed, entry, make) as ready:
        got, _ = _run(ready.executable, ready.arguments, 1)
        want = _interpret(_static(programs.parse(ready.source), entry, ready.arguments), entry, ready.arguments)
    if not report.print_differences(report.make_console(), got, want):
        raise typer.Exit(mistakes.INVALID)


def profile(
    file: File = None,
    example: Example = "",
    inputs: Inputs = None,
    shapes: Shapes = None,
    random: Random = False,
    seed: Seed = 0,
    repeat: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Calls.  [default: as many as a second takes]")
    ] = None,
    entry: Entry = "main",
    threads: Threads = None,
    dynamic: Dynamic = DynamicCode.SPECIALIZE,
) -> None:
    """Print where the time of a program goes, step by step.

    Steps are numbered as in `show --stage plan`; `show --stage schedule` says why each runs as it does.
    """

    def make(source: Path | bytes) -> tuple[Executable | DynamicExecutable, float]:
        return programs.compile(source, entry, threads, True, dynamic)

    with _ready(file, example, inputs, shapes, random, seed, entry, make) as ready:
        executable = ready.executable
        assert not isinstance(executable, Several)  # `make` refuses those
        executable(*ready.arguments)  # sizes that follow from data are known afterwards
        with progress("compiling again, with a clock"):
            measured = executable.profile()
        with measured, progress("running"):
            executable(*ready.arguments)
            measured.reset()  # the first call is a warm-up
            _, times = _timed(lambda: executable(*ready.arguments), repeat, PROFILE_SECONDS)
    report.print_profile(report.make_console(), ready.name, executable, measured, times)


def _run(
    executable: Code | Several, arguments: Sequence[Any], repeat: int | None
) -> tuple[tuple[Any, ...], list[float]]:
    """Results of the last call, and the times of all."""
    with progress("running"):
        results, times = _timed(lambda: executable(*arguments), repeat)
        return results if isinstance(results, tuple) else (results,), times


def _trace(ready: Ready, path: Path) -> Trace:
    """Trace one call, after another to warm up."""
    with mistakes.writable(path):
        with progress("compiling again, with a clock"):
            traced = ready.executable.trace(path)
        with traced, progress("running"):
            ready.executable(*ready.arguments)
            traced.reset()
            ready.executable(*ready.arguments)
    return traced


def _static(module: Module, entry: str, arguments: Sequence[np.ndarray]) -> Module:
    """The program for these arguments, as far as its shapes follow from them."""
    from shlo_jit import api
    from shlo_jit.ir.unknown import has_unknown

    return api.refine(module, arguments, entry) if has_unknown(module) else module


def _interpret(module: Module, entry: str, arguments: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """What the program means, by the reference interpreter."""
    from shlo_jit.passes.context import Context
    from shlo_jit.passes.frontend.first_platform import first_platform
    from shlo_jit.reference.interpreter import evaluate

    function = module.function(entry)
    assert function is not None  # it was compiled
    with progress("interpreting"):
        return evaluate(first_platform(function, Context(module)), *arguments, module=module)


def _timed(call: Callable[[], Any], repeat: int | None, seconds: float = TIMING_SECONDS) -> tuple[Any, list[float]]:
    """What the last of `repeat` calls returns, and the seconds of each. Without `repeat` there is one call, and more as
    long as all of them take no more than `seconds`."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        results = call()
        times.append(time.perf_counter() - start)
        if len(times) == repeat:
            return results, times
        if repeat is None and (len(times) == TIMING_CALLS or time.perf_counter() + times[-1] > end):
            return results, times
