"""The command `shlo-jit`: run, check, profile, show and verify programs, look after the object cache.

Exit status: 0 all is well, 1 the program is refused or failed, 2 the command was given something it cannot use (a
missing file, a wrong shape). Mistakes of either kind are a line on stderr, never a traceback.

What the commands need is imported inside them, so that `--help` and mistakes are quick.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from shlo_jit import cli_mistakes, cli_report, examples, startup
from shlo_jit.stages import STAGES

if TYPE_CHECKING:
    import numpy as np

    from shlo_jit.ir.core import Module
    from shlo_jit.runtime.executable import Executable, Signature

TIMING_SECONDS, TIMING_CALLS = 0.5, 1000
"""How long, and how often at most, `run` goes on calling the program for its best time."""
PROFILE_SECONDS = 1.0
"""How long `profile` goes on calling the program."""
PROGRESS_AFTER = 0.3
"""Seconds after which waiting is worth a word."""

app = typer.Typer(
    name="shlo-jit",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cache_app = typer.Typer(help="Look after the object cache.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(cache_app, name="cache")


def _print_version(wanted: bool) -> None:
    if wanted:
        from shlo_jit.version import __version__

        typer.echo(f"shlo-jit {__version__}")
        raise typer.Exit


@app.callback()
def command(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log cache hits and the times of stages on stderr.")] = False,
) -> None:
    """Compile StableHLO text to machine code, and run it.

    Try: shlo-jit run --example mlp --random
    """
    if debug:
        import logging

        logging.basicConfig(format="%(message)s")
        logging.getLogger("shlo_jit").setLevel(logging.DEBUG)


class SeveralInputs(TyperCommand):
    """Takes `--input a.npy b.npy` for `--input a.npy --input b.npy`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        follows = False
        for arg in args:
            if follows and arg.endswith(".npy") and spread[-1] != "--input":
                spread.append("--input")
            follows = arg == "--input" or (follows and not arg.startswith("-"))
            spread.append(arg)
        return super().parse_args(ctx, spread)


File = Annotated[Path | None, typer.Argument(metavar="FILE", help="StableHLO text; - reads stdin.")]
Example = Annotated[str, typer.Option(metavar="NAME", help=f"One of ours instead: {', '.join(examples.names())}.")]
Entry = Annotated[str, typer.Option(metavar="NAME", help="The function to compile.")]
Threads = Annotated[int | None, typer.Option(min=1, metavar="N", help="Threads a call may use.  [default: all CPUs]")]
Inputs = Annotated[list[Path] | None, typer.Option("--input", metavar="X.npy ...", help="Inputs, in order.")]
Random = Annotated[bool, typer.Option("--random", help="Make up the inputs that were not given.")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Of the inputs made up.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compile even what the object cache knows.")]


@app.command(cls=SeveralInputs)
def run(
    file: File = None,
    example: Example = "",
    inputs: Inputs = None,
    random: Random = False,
    seed: Seed = 0,
    output_dir: Annotated[
        Path | None, typer.Option(metavar="D", help="Write the results there, as output0.npy and so on.")
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Calls of the program.  [default: one, and more for half a second]"),
    ] = None,
    entry: Entry = "main",
    threads: Threads = None,
    no_cache: NoCache = False,
) -> None:
    """Compile a program, run it, and print its results and times."""
    source, name = _source(file, example)
    given = [_load(path) for path in inputs or []]
    with cli_mistakes.refusals(name):
        module = _parse(source)
        executable, compile_seconds = _compile(source, entry, threads, not no_cache)
        arguments = _arguments(executable.inputs, given, random, seed)
        results, times = _run(executable, arguments, repeat)
    console = cli_report.make_console()
    cli_report.print_program(console, name, module, executable, compile_seconds, times)
    cli_report.print_inputs(console, executable.inputs, [*(p.name for p in inputs or []), *["random"] * len(arguments)])
    cli_report.print_results(console, executable.outputs, results)
    if output_dir is not None:
        _save(output_dir, results)


@app.command(cls=SeveralInputs)
def check(
    file: File = None,
    example: Example = "",
    inputs: Inputs = None,
    random: Random = False,
    seed: Seed = 0,
    entry: Entry = "main",
    threads: Threads = None,
    no_cache: NoCache = False,
) -> None:
    """Compare what a compiled program computes with the reference interpreter.

    The exit status is 1 when a result differs by more than roundings do.
    """
    source, name = _source(file, example)
    given = [_load(path) for path in inputs or []]
    with cli_mistakes.refusals(name):
        module = _parse(source)
        executable, _ = _compile(source, entry, threads, not no_cache)
        arguments = _arguments(executable.inputs, given, random, seed)
        got, _ = _run(executable, arguments, 1)
        want = _interpret(module, entry, arguments)
    if not cli_report.print_differences(cli_report.make_console(), executable.outputs, got, want):
        raise typer.Exit(cli_mistakes.INVALID)


@app.command(cls=SeveralInputs)
def profile(
    file: File = None,
    example: Example = "",
    inputs: Inputs = None,
    random: Random = False,
    seed: Seed = 0,
    repeat: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Calls.  [default: as many as a second takes]")
    ] = None,
    entry: Entry = "main",
    threads: Threads = None,
) -> None:
    """Print where the time of a program goes, step by step.

    Steps are numbered as in `show --stage plan`; `show --stage schedule` says why each runs as it does.
    """
    source, name = _source(file, example)
    given = [_load(path) for path in inputs or []]
    with cli_mistakes.refusals(name):
        executable, _ = _compile(source, entry, threads, cache=True)
        arguments = _arguments(executable.inputs, given, random, seed)
        with _progress("compiling again, with a clock"):
            measured = executable.profile()
        with measured, _progress("running"):
            executable(*arguments)
            measured.reset()  # the first call is a warm-up
            _, times = _timed(lambda: executable(*arguments), repeat, PROFILE_SECONDS)
    console = cli_report.make_console()
    cli_report.print_profile(console, name, executable, measured, times)


@app.command()
def show(
    stage: Annotated[
        str, typer.Option(metavar="|".join(STAGES), help="What to print.  [default: plan, unless there is a folder]")
    ] = "",
    file: File = None,
    example: Example = "",
    dump_dir: Annotated[
        Path | None, typer.Option(metavar="D", help="Write a file for every stage and every pass there.")
    ] = None,
    entry: Entry = "main",
    threads: Threads = None,
) -> None:
    """Print a program at a stage of its compilation."""
    if stage and stage not in STAGES:
        cli_mistakes.fail(f"no stage {stage!r}: there are {', '.join(STAGES)}")
    source, name = _source(file, example)
    with cli_mistakes.refusals(name):
        if dump_dir is not None:
            _dump(source, entry, dump_dir)
        if stage == "module":
            typer.echo(str(_parse(source)).rstrip("\n"))
        elif stage or dump_dir is None:
            executable, _ = _compile(source, entry, threads, cache=True)
            with _progress("lowering"):
                text = executable.text(stage or "plan")
            typer.echo(text.rstrip("\n"))


def _dump(source: Path | bytes, entry: str, folder: Path) -> None:
    from shlo_jit import pipeline
    from shlo_jit.check_options import compile_options
    from shlo_jit.stages import files as stage_files

    module, options = _parse(source), compile_options(entry)
    with _progress("lowering"):
        files = stage_files(lambda on_pass: pipeline.lower(module, options, on_pass=on_pass), options.target)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        cli_mistakes.fail(f"cannot write to {folder}: {error.strerror or error}")
    typer.echo(f"wrote {len(files)} files to {folder}")


@app.command()
def verify(
    file: File = None,
    example: Example = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check a program against the specification.

    The exit status is 1 when it is not valid; warnings do not count.
    """
    from shlo_jit import api

    source, name = _source(file, example)
    with _progress("verifying"), cli_mistakes.readable(name):
        findings = api.verify(source, warnings=True)
    findings = cli_mistakes.named(findings, name)
    wrong = any(d.severity == "error" for d in findings)
    if as_json:
        typer.echo(json.dumps([d.as_dict() for d in findings], indent=1))
    else:
        cli_mistakes.print_diagnostics(findings, sys.stdout)
        if not wrong:
            typer.echo(f"{name}: valid")
    if wrong:
        raise typer.Exit(cli_mistakes.INVALID)


@app.command()
def ops(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown table.")] = False,
) -> None:
    """Print every op that is known.

    With how it gets to machine code, and what element types it takes.
    """
    from shlo_jit import op_table

    if markdown:
        typer.echo(op_table.markdown())
        return
    console = cli_report.make_console()
    table = cli_report.make_table("op", "machine code", "element types of the operands")
    for row in op_table.rows():
        table.add_row(row.name, row.how or "-", row.elements)
    console.print(table)


@cache_app.command()
def info() -> None:
    """Where the object cache is and what it holds."""
    from shlo_jit.runtime import cache

    with cli_mistakes.refusals():
        found = cache.info()
    table = cli_report.make_table()
    table.add_row("folder", found.folder)
    table.add_row("entries", f"{found.entries:,}")
    table.add_row("size", f"{cli_report.size(found.nbytes)} of {cli_report.size(found.limit)}")
    cli_report.make_console().print(table)


@cache_app.command()
def clear() -> None:
    """Delete what the object cache holds."""
    from shlo_jit.runtime import cache

    with cli_mistakes.refusals():
        before = cache.info()
        cache.clear()
    typer.echo(f"deleted {before.entries:,} entries, {cli_report.size(before.nbytes)}, of {before.folder}")


# ---------------------------------------------------------------------- programs
def _source(file: Path | None, example: str) -> tuple[Path | bytes, str]:
    """What to compile, and its name for people."""
    if (file is None) == (not example):
        cli_mistakes.fail("give a FILE, or --example NAME")
    if example:
        try:
            return examples.path(example), f"{example} (example)"
        except ValueError as error:
            cli_mistakes.fail(str(error))
    assert file is not None
    if str(file) == "-":
        return sys.stdin.buffer.read(), "<stdin>"
    if not file.exists() or file.is_dir():
        cli_mistakes.fail(f"cannot read {file}: {'it is a folder' if file.is_dir() else 'no such file'}")
    if file.is_file():
        return file, str(file)
    from shlo_jit.sources import read_file

    with cli_mistakes.readable(str(file)):
        return read_file(str(file)), str(file)  # a pipe, which can be read once


def _parse(source: Path | bytes) -> Module:
    from shlo_jit import api

    with _progress("parsing"), cli_mistakes.readable(str(source) if isinstance(source, Path) else "<stdin>"):
        return api.parse(source)


def _compile(source: Path | bytes, entry: str, threads: int | None, cache: bool) -> tuple[Executable, float]:
    """The program, and how long it took to compile."""
    from shlo_jit import api

    with _progress("compiling"):
        start = time.perf_counter()
        executable = api.compile(source, entry, threads=threads, cache=cache)
        return executable, time.perf_counter() - start


def _run(executable: Executable, arguments: Sequence[Any], repeat: int | None) -> tuple[tuple[Any, ...], list[float]]:
    """Results of the last call, and the times of all."""
    with _progress("running"):
        results, times = _timed(lambda: executable(*arguments), repeat)
        return results if isinstance(results, tuple) else (results,), times


def _interpret(module: Module, entry: str, arguments: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """What the program means, by the reference interpreter."""
    from shlo_jit.passes.context import Context
    from shlo_jit.passes.frontend.first_platform import first_platform
    from shlo_jit.reference.interpreter import evaluate

    function = module.function(entry)
    assert function is not None  # it was compiled
    with _progress("interpreting"):
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


# ---------------------------------------------------------------------- inputs and outputs
def _load(path: Path) -> np.ndarray:
    import zipfile

    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
    except OSError as error:
        cli_mistakes.fail(f"cannot read {path}: {error.strerror or error}")
    except (ValueError, EOFError, zipfile.BadZipFile):
        cli_mistakes.fail(f"cannot read {path}: not a .npy file of numbers")
    if not isinstance(found, np.ndarray):
        cli_mistakes.fail(f"cannot read {path}: one array a file, as numpy.save writes it")
    return found


def _arguments(expected: Sequence[Signature], given: list[np.ndarray], random: bool, seed: int) -> list[np.ndarray]:
    """The inputs given, and made-up ones for the rest if that was asked for."""
    import numpy as np

    if len(given) > len(expected) or (len(given) < len(expected) and not random):
        hint = "" if len(given) > len(expected) else ": give --input for each, or --random for the rest"
        cli_mistakes.fail(f"the program takes {len(expected)} input(s), got {len(given)}{hint}")
    generator = np.random.default_rng(seed)
    arguments = [_random(generator, signature) for signature in expected]
    for i, (array, signature) in enumerate(zip(given, expected, strict=False)):
        # numpy.save knows no bfloat16 and the like: such arrays come back as raw bytes.
        raw = array.dtype.kind == "V" and array.dtype.itemsize == signature.dtype.itemsize
        arguments[i] = array.view(signature.dtype) if raw else array
    return arguments


def _random(generator: np.random.Generator, signature: Signature) -> np.ndarray:
    """Floats and complex numbers are normally distributed, integers in [0, 10) as far as the type goes."""
    import ml_dtypes
    import numpy as np

    from shlo_jit.ir.types import DTYPES

    shape, dtype = signature.shape, signature.dtype
    kind = next(d.kind for d in DTYPES.values() if d.numpy == dtype)
    if kind in "fc":
        values = generator.standard_normal(shape)
        return np.asarray(values if kind == "f" else values + 1j * generator.standard_normal(shape)).astype(dtype)
    high = 2 if kind == "b" else min(10, int(ml_dtypes.iinfo(dtype).max) + 1)
    return np.asarray(generator.integers(0, high, shape)).astype(dtype)


def _save(folder: Path, results: Sequence[np.ndarray]) -> None:
    import numpy as np

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for i, result in enumerate(results):
            np.save(folder / f"output{i}.npy", result)
    except OSError as error:
        cli_mistakes.fail(f"cannot write to {folder}: {error.strerror or error}")
    typer.echo(f"wrote {len(results)} file(s) to {folder}")


@contextlib.contextmanager
def _progress(what: str) -> Iterator[None]:
    """A spinner with the time, on a terminal, once it takes long."""
    if not sys.stderr.isatty():
        yield
        return
    import threading

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.add_task(what, total=None)
    timer = threading.Timer(PROGRESS_AFTER, progress.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        progress.stop()


def main() -> None:
    """Run the command and exit."""
    startup.started()
    try:
        app(prog_name="shlo-jit")
    except KeyboardInterrupt:
        sys.exit(startup.INTERRUPTED)


if __name__ == "__main__":
    main()
