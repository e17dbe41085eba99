"""The command `show`, which prints or draws a program at a stage of its compilation."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from shlo_jit.cli import arrays, mistakes, programs, report
from shlo_jit.cli.constants import Constants, bound
from shlo_jit.cli.constants import read as read_constants
from shlo_jit.cli.options import (
    AssumeFinite,
    Dynamic,
    DynamicCode,
    Entry,
    Example,
    File,
    FoldScales,
    Processes,
    Reproducible,
    RoundActivations,
    ScheduleFile,
    Seed,
    Shapes,
    Threads,
    arithmetic,
    word,
)
from shlo_jit.cli.progress import progress
from shlo_jit.cli.several import Grid, Several
from shlo_jit.stages import STAGES

if TYPE_CHECKING:
    from shlo_jit.lower.planned import PlannedFunction
    from shlo_jit.pictures.steps import Region, StepShare
    from shlo_jit.runtime.distributed import DistributedExecutable
    from shlo_jit.runtime.dynamic import DynamicExecutable
    from shlo_jit.runtime.executable import Executable
    from shlo_jit.runtime.front import Signature

PICTURES = {"graph": ("svg", "html", "dot"), "memory": ("svg", "html")}
"""Stages that can be drawn, and their formats."""
TEXT = "text"
Parts: TypeAlias = "list[tuple[str, list[PlannedFunction]]]"
"""For each part, the prefix of its steps' labels, and its functions."""
PROFILE_SECONDS = 0.5
"""Seconds for which a program is called to color a graph."""

Stage = Annotated[
    str,
    typer.Option(
        metavar="|".join([*STAGES, "graph"]),
        parser=word(*STAGES, "graph", ""),
        help="Stage to print.  [default: plan, or none with --dump-dir]",
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="text|svg|html|dot",
        parser=word("text", "svg", "html", "dot", ""),
        help="Format of the stages graph and memory.  [default: by the suffix of --output]",
    ),
]
OutputFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="F", help="File to write.  [default: print to stdout]")
]
ColorByTime = Annotated[
    bool,
    typer.Option("--profile", help="Run the program on made-up inputs, and colour the steps of the graph by time."),
]
DrawnSteps = Annotated[str, typer.Option(metavar="A-B", help="Draw these steps of the graph only (svg and dot).")]
DumpDir = Annotated[
    Path | None, typer.Option(metavar="D", help="Write a file for every stage and every pass to this folder.")
]
Rank = Annotated[int, typer.Option(min=0, metavar="R", help="Process to show, of a program for several processes.")]


def show(
    stage: Stage = "",
    file: File = None,
    example: Example = "",
    form: Format = "",
    output: OutputFile = None,
    profile: ColorByTime = False,
    steps: DrawnSteps = "",
    dump_dir: DumpDir = None,
    shapes: Shapes = None,
    seed: Seed = 0,
    entry: Entry = "main",
    threads: Threads = None,
    dynamic: Dynamic = DynamicCode.SPECIALIZE,
    fold_scales: FoldScales = False,
    round_activations: RoundActivations = None,
    assume_finite: AssumeFinite = False,
    reproducible: Reproducible = False,
    schedule: ScheduleFile = None,
    constants: Constants = None,
    processes: Processes = None,
    rank: Rank = 0,
) -> None:
    """Print a program at a stage of its compilation, or draw it.

    The stage graph is a picture: a box for each step of the plan, with its ops, shapes and bytes, and a line for each
    value from the step that writes it to the steps that read it. The stage memory may be a picture too: bytes against
    steps, with a rectangle for each value in the arena. An html page shows long programs in sections that open, and
    needs no other files. For a program that runs in several processes, --rank chooses the process.

    \b
    shlo-jit show model.mlir --stage graph -o model.html --profile
    shlo-jit show model.mlir --stage memory -o memory.svg
    shlo-jit show model.mlir --stage graph --format dot | dot -Tpdf -o model.pdf
    """
    how = _format(stage or "plan", form, output)
    if how in ("svg", "html") and output is None and sys.stdout.isatty():
        mistakes.fail(f"a picture needs a file: -o {stage}.{how}")
    if profile and stage != "graph":
        mistakes.fail("--profile is for --stage graph")
    only = _range(steps, stage, how)
    source, name = programs.source(file, example)
    modes = arithmetic(fold_scales, round_activations, assume_finite, reproducible)
    compilation = programs.Compilation(entry, threads, dynamic, modes, schedule, read_constants(constants))
    with mistakes.refusals(name):
        if dump_dir is not None:
            _dump(source, shapes or [], dump_dir, compilation)
        if stage == "module" and not shapes:
            _hand_out(str(bound(programs.parse(source), entry, compilation.constants)).rstrip("\n") + "\n", output)
        elif stage or dump_dir is None:
            view = View(os.path.basename(name), stage or "plan", how, seed if profile else None, only)
            made, _ = programs.compile_any(source, compilation, Grid(processes))
            _hand_out(_shown(made, view, rank, shapes or []), output)


class View(NamedTuple):
    """What is shown of a program."""

    name: str
    stage: str
    how: str
    """Format of the stage."""
    seed: int | None
    """Seed of the inputs on which steps are timed, whose colours are by time; None if they are not."""
    only: tuple[int, int] | None
    """Steps that are drawn; None for all."""


def _shown(made: Executable | DynamicExecutable | Several, view: View, rank: int, shapes: list[str]) -> str:
    """A program as text or drawn."""
    if isinstance(made, Several):
        with made.executable as executable:
            return _of_rank(executable, rank, view)
    if rank:
        mistakes.fail(f"--rank {rank}: the program runs in one process")
    expected = arrays.with_shapes(made.inputs, [], shapes)
    if view.how != TEXT:
        return _draw(made, expected, view)
    with progress("lowering"):
        return programs.text_of(made, view.stage, [signature.shape for signature in expected]).rstrip("\n") + "\n"


def _format(stage: str, form: str, output: Path | None) -> str:
    """Format of a stage. Ends the command if the stage does not have it."""
    forms = (() if stage == "graph" else (TEXT,)) + PICTURES.get(stage, ())
    suffix = output.suffix.removeprefix(".").lower() if output is not None else ""
    if stage in PICTURES and not form and suffix not in ("", "txt", *forms):
        mistakes.fail(f"--output {output}: the stage {stage} is written as {', '.join(forms)}")
    wanted = form or (suffix if suffix in forms else forms[0])
    if wanted not in forms:
        mistakes.fail(f"--format {wanted}: the stage {stage} is shown as {', '.join(forms)}")
    return wanted


def _range(steps: str, stage: str, how: str) -> tuple[int, int] | None:
    if not steps:
        return None
    if stage != "graph" or how == "html":
        mistakes.fail("--steps is for --stage graph as svg or dot")
    first, _, last = steps.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or int(first) > int(last or first):
        mistakes.fail(f"--steps {steps}: expected numbers of steps, such as 10-25")
    return int(first), int(last or first)


def _hand_out(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    with mistakes.writable(output):
        output.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {output}")


def _draw(made: Executable | DynamicExecutable, expected: Sequence[Signature], view: View) -> str:
    executable, _ = programs.for_shapes(made, [signature.shape for signature in expected])
    assert not isinstance(executable, Several)  # those are shown by rank
    times = None if view.seed is None else _times(executable, expected, view.seed)
    with progress("planning"):
        parts: Parts = executable.planned()  # type: ignore[union-attr]
    about = f"{report.threads_text(executable)}, {_totals(executable.cost_analysis())}"  # type: ignore[union-attr]
    return _drawn(parts, about, view, times)


def _of_rank(executable: DistributedExecutable, rank: int, view: View) -> str:
    """Shows the program of a process, as text or drawn. Raises ValueError if there is no such rank."""
    if view.seed is not None:
        mistakes.fail("--profile: the program runs in several processes; `run --trace` shows when their steps run")
    if view.how == TEXT:
        with progress("lowering"):
            return executable.text(view.stage, rank).rstrip("\n") + "\n"
    with progress("planning"):
        parts = [("", executable.planned(rank))]
    about = f"process {rank} of {len(executable.processes)}, {_totals(executable.cost_analysis(rank))}"
    return _drawn(parts, about, view, None)


def _drawn(parts: Parts, about: str, view: View, times: Mapping[str, StepShare] | None) -> str:
    from shlo_jit.pictures import graph, memory

    if view.stage == "memory":
        if view.how == "html":
            return memory.memory_html(view.name, about, [functions for _, functions in parts])
        return memory.memory_svg(view.name, [f for _, functions in parts for f in functions])
    regions = _regions(parts, times)
    if view.how == "html":
        timed = "" if times is None else ", with their times in a call and their shares of all steps' time"
        return graph.graph_html(view.name, f"Steps in the order in which they run{timed}; {about}.", regions)
    draw = graph.graph_dot if view.how == "dot" else graph.graph_svg
    return draw(view.name, regions, view.only)


def _regions(parts: Parts, times: Mapping[str, StepShare] | None) -> list[Region]:
    from shlo_jit.pictures.steps import regions_of

    return [region for prefix, functions in parts for region in regions_of(functions, prefix, times)]


def _totals(costs: Mapping[str, float]) -> str:
    """Data that a call moves, and operations that it computes, as text."""
    from shlo_jit.pictures.drawing import bytes_text, count_text

    return f"{count_text(costs['flops'])} flops, {bytes_text(costs['bytes accessed'])} read and written"


def _times(executable: Any, expected: Sequence[Signature], seed: int) -> dict[str, StepShare]:
    """Measures the times of the steps, by label."""
    from shlo_jit.cli.timing import profiled
    from shlo_jit.pictures.steps import shares_of

    measured, calls = profiled(executable, arrays.arguments(expected, [], True, seed), None, PROFILE_SECONDS)
    return shares_of(measured.steps, len(calls))


def _dump(source: Path | bytes, shapes: list[str], folder: Path, how: programs.Compilation) -> None:
    """Writes the stages of a program to a folder."""
    from shlo_jit import pipeline
    from shlo_jit.check_options import compile_options
    from shlo_jit.stages import files as stage_files

    module = programs.refined(bound(programs.parse(source), how.entry, how.constants), how.entry, shapes)
    options = compile_options(how.entry, **how.arithmetic)
    with progress("lowering"):
        files = stage_files(lambda on_pass: pipeline.lower(module, options, on_pass=on_pass), options.target)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        mistakes.fail(f"cannot write to {folder}: {error.strerror or error}")
    typer.echo(f"wrote {len(files)} files to {folder}")
