"""The command `reduce`, which makes a failing program smaller."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shlo_jit.cli import mistakes, programs, report
from shlo_jit.cli.options import Entry, Example, File, OutputText, Seed
from shlo_jit.cli.progress import steps
from shlo_jit.suggest import did_you_mean

if TYPE_CHECKING:
    from shlo_jit.ir.core import Module
    from shlo_jit.shrink.failing import Command, ReadyMade
    from shlo_jit.shrink.search import Progress, Size

Test = Annotated[
    str,
    typer.Option(
        metavar="CMD", help="Command that ends with status 0 if the program fails; {} is replaced by its file."
    ),
]
Crash = Annotated[bool, typer.Option("--crash", help="Keep what ends in an InternalError or in a signal.")]
Wrong = Annotated[bool, typer.Option("--wrong", help="Keep what gives other results than the reference interpreter.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Number of programs tried at a time.  [default: all CPUs]")
]
TimeOut = Annotated[
    float,
    typer.Option(
        "--time-out",
        min=0.1,
        metavar="S",
        help="Seconds per program; one that takes longer does not count as failing.",
    ),
]


def reduce(
    file: File = None,
    example: Example = "",
    test: Test = "",
    crash: Crash = False,
    wrong: Wrong = False,
    output: OutputText = None,
    jobs: Jobs = None,
    time_out: TimeOut = 60.0,
    seed: Seed = 0,
    entry: Entry = "main",
) -> None:
    """Make a program that fails smaller, as long as it still fails.

    Ops, functions, results, loop states and attributes are removed, control flow is replaced by a branch or body,
    extents become small and constants simple, until no such step works any more. Every program that is tried is
    valid. The result does not depend on --jobs. Ctrl-C ends the search with the smallest program so far.

    \b
    shlo-jit reduce model.mlir --crash -o small.mlir
    shlo-jit reduce model.mlir --wrong --seed 3 -o small.mlir
    shlo-jit reduce model.mlir -o small.mlir \\
        --test "shlo-jit run {} --random 2>&1 | grep -q 'no lowering'"

    With --crash, a program counts as failing if it fails in the same function of the compiler as the first one, or
    ends by the same signal. With --wrong, arguments are made up from --seed; a program whose branches depend on rounded
    numbers may differ although it is right.
    """
    if [bool(test), crash, wrong].count(True) != 1:
        mistakes.fail("give one of --test CMD, --crash, --wrong")
    source, name = programs.source(file, example)
    jobs = jobs or len(os.sched_getaffinity(0))
    with mistakes.refusals(name), tempfile.TemporaryDirectory(prefix="shlo_jit-reduce-") as folder:
        module = programs.parse(source)
        if module.function(entry) is None:
            known = [str(f.attributes["sym_name"]) for f in module.functions()]
            hint = did_you_mean(entry, known) or f"the program has {', '.join('@' + n for n in known) or 'none'}"
            mistakes.fail(f"no function @{entry}; {hint}")
        with _failing(test, "crash" if crash else "wrong", entry, seed, Path(folder), time_out, jobs) as fails:
            found = _reduce(module, name, entry, fails, jobs)
    text = str(found).rstrip("\n") + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return
    with mistakes.writable(output):
        output.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {output}")


@contextlib.contextmanager
def _failing(
    test: str, kind: str, entry: str, seed: int, folder: Path, time_out: float, jobs: int
) -> Iterator[Command | ReadyMade]:
    from shlo_jit.shrink.failing import PLACE, Command, ReadyMade

    if test:
        if PLACE not in test:
            mistakes.fail("--test: expected {} in the command, which is replaced by the file's name")
        yield Command(test, folder, time_out)
        return
    made = ReadyMade(kind, entry, seed, folder, time_out, jobs)
    try:
        yield made
    finally:
        made.close()


def _reduce(module: Module, name: str, entry: str, fails: Command | ReadyMade, jobs: int) -> Module:
    from shlo_jit.shrink.failing import ReadyMade
    from shlo_jit.shrink.search import Search

    with steps("trying the original program") as on_step:
        if isinstance(fails, ReadyMade):
            fails.signature = fails.signature_of(str(module))
            why = "" if fails.signature else "does not fail as required"
        else:
            why = _why_not(fails, fails.status(str(module)))
        if why:
            typer.echo(f"{name}: {why}", err=True)
            raise typer.Exit(mistakes.INVALID)
        search = Search(module, entry, fails, jobs, _reporting(on_step), fails.stop)
        try:
            search.run()
        except KeyboardInterrupt:
            typer.echo("interrupted: this is the smallest so far", err=True)
    _print_summary(fails.signature if isinstance(fails, ReadyMade) else "", search.first, search.size, search.tried)
    return search.module


def _why_not(command: Command, status: int | None) -> str:
    """Reason why a program does not count as failing; empty if it fails."""
    if status is None:
        return f"does not fail as required: the command took longer than {command.time_out:g} s (--time-out)"
    return f"does not fail as required: the command ended with status {status}" if status else ""


def _reporting(on_step: Callable[[str, int, int], None]) -> Callable[[Progress], None]:
    def on_progress(progress: Progress) -> None:
        left = f"{progress.size.ops:,} of {progress.first.ops:,} ops left"
        on_step(f"{left}, {progress.tried:,} programs tried; fewer {progress.what}", 0, 0)

    return on_progress


def _print_summary(signature: str, first: Size, size: Size, tried: int) -> None:
    """Prints a summary to stderr, because the program may go to stdout."""
    from rich.console import Console

    rows = report.make_table("", "before", "after")
    for label, field in (("ops", "ops"), ("results", "results"), ("elements", "elements")):
        rows.add_row(label, f"{getattr(first, field):,}", f"{getattr(size, field):,}")
    console = Console(file=sys.stderr, highlight=False, width=None if sys.stderr.isatty() else 80)
    if signature:
        console.print(f"fails: {signature}", markup=False)
    console.print(rows)
    console.print(f"{tried:,} programs tried")
