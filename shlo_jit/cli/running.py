"""The commands that call a program: run and profile."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shlo_jit.cli import arrays, mistakes, programs, report
from shlo_jit.cli.comparing import Against, draws_numbers, with_files, with_interpreter
from shlo_jit.cli.comparing import as_json as difference_as_json
from shlo_jit.cli.constants import Constants, bound
from shlo_jit.cli.constants import read as read_constants
from shlo_jit.cli.options import (
    AsJson,
    AssumeFinite,
    Dynamic,
    DynamicCode,
    Entry,
    Example,
    File,
    FoldScales,
    Inputs,
    NoCache,
    Processes,
    Random,
    Reproducible,
    RoundActivations,
    Runnable,
    ScheduleFile,
    Seed,
    Shapes,
    Threads,
    Transport,
    arithmetic,
)
from shlo_jit.cli.progress import progress
from shlo_jit.cli.several import Grid, Several, grid_of, quiet_unless
from shlo_jit.cli.timing import profiled, timed

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from shlo_jit.cli.comparing import Comparison
    from shlo_jit.ir.core import Module
    from shlo_jit.reference.compare import Difference
    from shlo_jit.runtime.dynamic import DynamicExecutable
    from shlo_jit.runtime.executable import Executable
    from shlo_jit.runtime.profile import Profile
    from shlo_jit.runtime.staged import Runnable as Code
    from shlo_jit.runtime.trace import Trace

PROFILE_SECONDS = 1.0
"""Seconds for which `profile` calls the program repeatedly."""

OutputDir = Annotated[
    Path | None, typer.Option(metavar="D", help="Folder to write the results to, as output0.npy and so on.")
]
Repeat = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Number of calls.  [default: one, and more for half a second]"),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(metavar="T.json", help="File to write the times of all steps of one more call to, for trace viewers."),
]
AnyEntry = Annotated[
    str, typer.Option(metavar="NAME", help="Function to run.  [default: main, or a library's only one]")
]
Check = Annotated[bool, typer.Option("--check", help="Compare the results with those of the reference interpreter.")]
Expected = Annotated[
    list[Path] | None,
    typer.Option(
        "--expected", metavar="O.npy ...", help="Compare the results with the arrays in these files, in order."
    ),
]
RelativeTolerance = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="X", help="Allowed difference, relative to the expected value.  [default: by the element type]"
    ),
]
AbsoluteTolerance = Annotated[
    float | None, typer.Option(min=0, metavar="X", help="Allowed difference in addition to --rtol.")
]


class Ready(NamedTuple):
    """A program that can be called, and its arguments."""

    name: str
    """Name for messages."""
    source: Path | bytes
    executable: Code | Several
    seconds: float
    """Seconds to compile or load it."""
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
    make: Make,
) -> Iterator[Ready]:
    """Makes a program from its source by `make`, with its arguments. Errors, also in the body, end the command."""
    source, name = programs.source(file, example)
    given = [arrays.load(path) for path in inputs or []]
    with mistakes.refusals(name):
        made, seconds = make(source)
        expected = arrays.with_shapes(made.inputs, given, shapes or [], takes_inputs=True)
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
    output_dir: OutputDir = None,
    repeat: Repeat = None,
    trace: TraceFile = None,
    entry: AnyEntry = "",
    threads: Threads = None,
    dynamic: Dynamic = DynamicCode.SPECIALIZE,
    fold_scales: FoldScales = False,
    round_activations: RoundActivations = None,
    assume_finite: AssumeFinite = False,
    reproducible: Reproducible = False,
    schedule: ScheduleFile = None,
    constants: Constants = None,
    processes: Processes = None,
    transport: Transport = None,
    no_cache: NoCache = False,
    check: Check = False,
    expected: Expected = None,
    rtol: RelativeTolerance = None,
    atol: AbsoluteTolerance = None,
    as_json: AsJson = False,
) -> None:
    """Run a program or an exported library, and print its results and times.

    With --processes, every input and result has an additional first dimension, along the processes. Under mpiexec, only
    the first process prints.

    With --check or --expected, a line for each result says how far it is from the expected one. The exit status is 1
    if a result differs by more than rounding explains: half of the digits of its type, relative to the largest
    expected element. --rtol and --atol set other limits for each element. The reference interpreter follows the
    specification op by op, and is slow.
    """
    grid = grid_of(processes, transport)
    with mistakes.as_json(as_json and grid.prints), mistakes.refusals():
        against = Against(check, expected or [], rtol, atol)
        against.check()
        modes = arithmetic(fold_scales, round_activations, assume_finite, reproducible)
        given = read_constants(constants)
        how = programs.Compilation(entry, threads, dynamic, modes, schedule, given, not no_cache)
        with quiet_unless(grid.prints):
            _run_and_print(
                lambda: _ready(file, example, inputs, shapes, random, seed, partial(_made, how=how, grid=grid)),
                [p.name for p in inputs or []],
                output_dir if grid.prints else None,
                repeat or (1 if grid.is_mpi else None),  # all processes must make the same number of calls
                trace,
                against,
                how,
                as_json,
            )


def _made(
    source: Path | bytes, how: programs.Compilation, grid: Grid
) -> tuple[Executable | DynamicExecutable | Several, float]:
    """Compiles a program, or loads a function of an exported library. Ends the command for options that only programs
    have."""
    if not isinstance(source, Path) or not programs.is_library(source):
        return programs.compile_any(source, how, grid)
    if grid.processes is not None:
        mistakes.fail("--processes: functions of a library run in one process")
    if how.constants:
        mistakes.fail("--constants: a library contains its constants")
    return programs.load(source, how.entry or None, how.threads)


def _run_and_print(
    prepare: Callable[[], contextlib.AbstractContextManager[Ready]],
    files: list[str],
    output_dir: Path | None,
    repeat: int | None,
    trace: Path | None,
    against: Against,
    how: programs.Compilation,
    as_json: bool,
) -> None:
    entry = how.entry or programs.ENTRY
    with prepare() as ready:
        is_library = isinstance(ready.source, Path) and programs.is_library(ready.source)
        if is_library and against.interpreter:
            mistakes.fail("--check: a library has no program to interpret; use --expected")
        if isinstance(ready.executable, Several) and against.interpreter:
            mistakes.fail("--check: the interpreter runs programs of one process; use --expected")
        results, times = _run(ready.executable, ready.arguments, repeat)
        traced = None if trace is None else _trace(ready, trace)
        module = None if is_library else bound(programs.parse(ready.source), entry, how.constants)
        compared = None
        if against.interpreter and module is not None:
            compared = with_interpreter(module, entry, ready.arguments, results)
        elif against.files:
            compared = with_files(against.files, results)
        differences = compared.differences(against.tolerance) if compared is not None else []
        origins = [*files, *["random"] * len(ready.arguments)]
        ran = Ran(ready, module, results, times, origins, compared, differences)
        _print_json(ran) if as_json else _print(ran, report.make_console())
    if output_dir is not None:
        arrays.save(output_dir, results, quiet=as_json)
    if traced is not None and not as_json:
        report.print_trace(report.make_console(), traced)
    if not all(d.is_close for d in differences):
        raise typer.Exit(mistakes.INVALID)


class Ran(NamedTuple):
    """A program that was run, and its results."""

    ready: Ready
    module: Module | None
    """None for a library."""
    results: tuple[Any, ...]
    times: list[float]
    origins: list[str]
    """Origin of each input."""
    compared: Comparison | None
    differences: list[Difference]


def _print(ran: Ran, console: Console) -> None:
    ready = ran.ready
    if ran.module is None:
        assert not isinstance(ready.executable, Several)
        report.print_library(console, ready.name, ready.executable, ready.seconds, ran.times)
    else:
        report.print_program(console, ready.name, ran.module, ready.executable, ready.seconds, ran.times)
    report.print_inputs(console, ready.executable.inputs, ready.arguments, ran.origins)
    report.print_results(console, ran.results)
    if ran.compared is not None:
        report.print_differences(console, ran.differences, ran.compared)
        if ran.module is not None and draws_numbers(ran.module) and not all(d.is_close for d in ran.differences):
            console.print("rng draws different numbers in every implementation, including the interpreter")


def _print_json(ran: Ran) -> None:
    ready = ran.ready
    results: list[dict[str, Any]] = [{"dtype": x.dtype.name, "shape": list(x.shape)} for x in ran.results]
    for i, found in enumerate(ran.differences):
        assert ran.compared is not None
        results[i] |= difference_as_json(found, ran.compared, i)
    inputs = zip(ready.executable.inputs, ready.arguments, ran.origins, strict=False)
    printed = {
        "program": ready.name,
        "threads": ready.executable.threads,
        "compile_seconds": ready.seconds,
        "run_seconds": {"best": min(ran.times), "median": statistics.median(ran.times), "calls": len(ran.times)},
        "inputs": [
            {"name": s.name, "dtype": array.dtype.name, "shape": list(array.shape), "from": origin}
            for s, array, origin in inputs
        ],
        "results": results,
    }
    typer.echo(json.dumps(printed, indent=1, allow_nan=False))


def profile(
    file: File = None,
    example: Example = "",
    inputs: Inputs = None,
    shapes: Shapes = None,
    random: Random = False,
    seed: Seed = 0,
    repeat: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of calls.  [default: as many as fit into a second]")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="F", help="File to write a page to: a roofline chart of the steps on this machine, and a table."
        ),
    ] = None,
    entry: Entry = "main",
    threads: Threads = None,
    dynamic: Dynamic = DynamicCode.SPECIALIZE,
    fold_scales: FoldScales = False,
    round_activations: RoundActivations = None,
    assume_finite: AssumeFinite = False,
    reproducible: Reproducible = False,
    schedule: ScheduleFile = None,
    constants: Constants = None,
) -> None:
    """Print how long each step of a program takes.

    Steps have the numbers of `show --stage plan`; `show --stage schedule` gives the reasons for its strategy.

    The page of --html compares each step with what this machine can do. The limits of the machine are measured in
    less than a second, and kept in the object cache.
    """
    modes = arithmetic(fold_scales, round_activations, assume_finite, reproducible)
    how = programs.Compilation(entry, threads, dynamic, modes, schedule, read_constants(constants))
    with _ready(file, example, inputs, shapes, random, seed, lambda source: programs.compile(source, how)) as ready:
        executable = ready.executable
        assert not isinstance(executable, Several)  # `make` refuses programs of several processes
        measured, times = profiled(executable, ready.arguments, repeat, PROFILE_SECONDS)
    report.print_profile(report.make_console(), ready.name, executable, measured, times)
    if html is not None:
        _write_page(html, ready.name, executable, measured, times)


def _write_page(path: Path, name: str, executable: Code, measured: Profile, times: Sequence[float]) -> None:
    from shlo_jit.pictures.roofline import roofline_html
    from shlo_jit.runtime.limits import limits

    with progress("measuring this machine"):
        found = limits(executable.threads)
    text = roofline_html(os.path.basename(name), report.profile_summary(executable, times), measured.steps, found)
    with mistakes.writable(path):
        path.write_text(text, encoding="utf-8")
    typer.echo(f"\nwrote {path}")


def _run(
    executable: Code | Several, arguments: Sequence[Any], repeat: int | None
) -> tuple[tuple[Any, ...], list[float]]:
    """Results of the last call, and the times of all calls."""
    with progress("running"):
        results, times = timed(lambda: executable(*arguments), repeat)
        return results if isinstance(results, tuple) else (results,), times


def _trace(ready: Ready, path: Path) -> Trace:
    """Traces one call, after a warm-up call."""
    with mistakes.writable(path):
        with progress("compiling again, with a clock"):
            traced = ready.executable.trace(path)
        with traced, progress("running"):
            ready.executable(*ready.arguments)
            traced.reset()
            ready.executable(*ready.arguments)
    return traced
