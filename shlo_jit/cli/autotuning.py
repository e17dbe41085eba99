"""The command `tune`, which searches for faster schedules by measuring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shlo_jit.cli import arrays, mistakes, programs, report
from shlo_jit.cli.constants import Constants
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
    Random,
    RoundActivations,
    Seed,
    Shapes,
    Threads,
    arithmetic,
)
from shlo_jit.cli.progress import seconds_bar

if TYPE_CHECKING:
    from shlo_jit.autotune.result import TuneResult

Seconds = Annotated[
    float,
    typer.Option(min=0.01, metavar="S", help="Time of the search; it ends earlier if nothing is left to try."),
]
AnyRounding = Annotated[
    bool,
    typer.Option("--any-rounding", help="Also try schedules that add up in another order; results change by rounding."),
]
SaveTo = Annotated[Path | None, typer.Option(metavar="F.json", help="File to write the schedule to, for --schedule.")]


def tune(
    file: File = None,
    example: Example = "",
    inputs: Inputs = None,
    shapes: Shapes = None,
    random: Random = False,
    seed: Seed = 0,
    seconds: Seconds = 60.0,
    any_rounding: AnyRounding = False,
    save: SaveTo = None,
    entry: Entry = "main",
    threads: Threads = None,
    dynamic: Dynamic = DynamicCode.SPECIALIZE,
    fold_scales: FoldScales = False,
    round_activations: RoundActivations = None,
    assume_finite: AssumeFinite = False,
    constants: Constants = None,
    as_json: AsJson = False,
) -> None:
    """Search for faster schedules of a program's steps, by measuring.

    The schedule is kept in the object cache, where --schedule tuned of the other commands finds it, and a later search
    starts from it. Ctrl-C ends the search with what was won until then.

    \b
    shlo-jit tune model.mlir --random --seconds 30
    shlo-jit run model.mlir --random --schedule tuned
    """
    from shlo_jit import api

    with mistakes.as_json(as_json):
        source, name = programs.source(file, example)
        given = [arrays.load(path) for path in inputs or []]
        arrays_given = read_constants(constants)
        modes = arithmetic(fold_scales, round_activations, assume_finite)
        with mistakes.refusals(name):
            made, _ = programs.compile(
                source, programs.Compilation(entry, threads, dynamic, modes, constants=arrays_given)
            )
            expected = arrays.with_shapes(made.inputs, given, shapes or [], takes_inputs=True)
            arguments = arrays.arguments(expected, given, random, seed)
            with seconds_bar("measuring the steps") as on_progress:
                found = api.tune(
                    source,
                    *arguments,
                    seconds=seconds,
                    any_rounding=any_rounding,
                    progress=on_progress,
                    entry=entry,
                    threads=threads,
                    dynamic=dynamic.value,
                    constants=arrays_given,
                    fold_scales=fold_scales,
                    round_activations=round_activations,
                    assume_finite=assume_finite,
                )
        if save is not None:
            with mistakes.writable(save):
                save.write_text(json.dumps(found.schedule, indent=1) + "\n", encoding="utf-8")
    (_print_json if as_json else _print)(name, found, save)


def _print_json(name: str, found: TuneResult, save: Path | None) -> None:
    printed = {"program": name, "threads": found.executable.threads, **found.as_dict()}
    typer.echo(json.dumps(printed, indent=1, allow_nan=False))


def _print(name: str, found: TuneResult, save: Path | None) -> None:
    """Prints the table of the steps, the times of calls, what was dropped, and where the schedule is."""
    console = report.make_console()
    rows = report.make_table()
    rows.add_column(style="dim")
    rows.add_row("program", name)
    rows.add_row("run", f"{found.summary()}, {report.threads_text(found.executable)}")
    console.print(rows, markup=False)
    console.print()
    console.print(found.table(), markup=False)
    for note in found.notes:
        console.print(note, markup=False)
    if found.is_stored:
        console.print("stored in the object cache: --schedule tuned uses it")
    if save is not None:
        console.print(f"wrote {save}", markup=False)
