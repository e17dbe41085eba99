"""The commands for libraries: export and inspect."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shlo_jit.cli import export_shapes, mistakes, programs, report
from shlo_jit.cli.constants import Constants, bound, read_by_function
from shlo_jit.cli.options import (
    AsJson,
    AssumeFinite,
    Example,
    File,
    FoldScales,
    Reproducible,
    RoundActivations,
    arithmetic,
    word,
)
from shlo_jit.cli.progress import progress, steps

if TYPE_CHECKING:
    from shlo_jit.ir.core import Module

Library = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="LIBRARY", help="Library to write: .so, .o, .a, .wasm, .dylib or .dll."),
]
Header = Annotated[Path | None, typer.Option(metavar="H", help="C header to write.")]
Targets = Annotated[
    str,
    typer.Option(
        metavar="T[,T...]",
        help="Target, such as x86-64-v3, aarch64 or wasm32; several of one architecture are possible.",
    ),
]
Prefix = Annotated[str | None, typer.Option(metavar="NAME", help="Prefix of its symbols.  [default: the file's name]")]
Entries = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Function to export; may be given several times.  [default: main]"),
]
PlaceOfWeights = Annotated[
    str,
    typer.Option(
        metavar="embedded|file",
        parser=word("embedded", "file"),
        help="Place of the constants: in the library, or in a file next to it.",
    ),
]
WithThreads = Annotated[bool, typer.Option("--threads/--no-threads", help="Allow calls to use several threads.")]
Linker = Annotated[str | None, typer.Option(metavar="COMMAND", help="Linker to use.  [default: the first one found]")]
CustomCalls = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Target of a custom call that the host implements in C.")
]
Donated = Annotated[
    list[int] | None,
    typer.Option(min=0, metavar="N", help="Index of an argument whose memory may be reused for results."),
]
CallShapes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="8x16xf32[,T...]",
        help="Types of the inputs with unknown dimensions, or of all inputs, to compile for; may be given several "
        "times. An input of integers that sizes depend on is given by value: i32=8, or 2xi32=8x4.",
    ),
]
MovesFile = Annotated[
    Path | None,
    typer.Option(metavar="F.json", help="File with the moves of loop nests, as `tune --save` writes it."),
]


def export(
    output: Library,
    file: File = None,
    example: Example = "",
    header: Header = None,
    target: Targets = "native",
    name: Prefix = None,
    entry: Entries = None,
    weights: PlaceOfWeights = "embedded",
    threads: WithThreads = True,
    linker: Linker = None,
    custom_call: CustomCalls = None,
    donate: Donated = None,
    shapes: CallShapes = None,
    fold_scales: FoldScales = False,
    round_activations: RoundActivations = None,
    assume_finite: AssumeFinite = False,
    reproducible: Reproducible = False,
    schedule: MovesFile = None,
    constants: Constants = None,
    as_json: AsJson = False,
) -> None:
    """Compile a program to a library that C can call, without Python.

    Try: shlo-jit export --example mlp -o mlp.so --header mlp.h
    """
    from shlo_jit import api
    from shlo_jit.cli import inspection, library_report

    start = time.perf_counter()
    modes = arithmetic(fold_scales, round_activations, assume_finite, reproducible)
    with mistakes.as_json(as_json):
        source, source_name = programs.source(file, example)
        with mistakes.refusals(source_name):
            program = _read(source, entry or ["main"], constants, shapes)
    with (
        mistakes.as_json(as_json),
        mistakes.refusals(source_name),
        mistakes.writable(output),
        steps("lowering") as on_step,
    ):
        exported = api.export(
            program.module,
            output,
            header=header,
            target=target,
            name=name,
            entry=entry or "main",
            weights=weights,
            threads=threads,
            custom_calls=custom_call or (),
            donate=donate or (),
            linker=linker,
            shapes=program.calls,
            schedule=None if schedule is None else programs.moves(schedule),
            constants=program.constants,
            progress=on_step,
            **modes,
        )
        seconds = time.perf_counter() - start
        found = inspection.inspect(exported.library)
    if as_json:
        files = [str(path) for path in exported.files()]
        typer.echo(json.dumps({"files": files, "linker": exported.linker, **found.as_dict()}, indent=1))
    else:
        library_report.print_exported(report.make_console(), exported, found, seconds)


class Program(NamedTuple):
    """A program to export, with what belongs to its functions."""

    module: Module
    calls: Any
    """Shapes of the calls to compile code for, as `api.export` takes them; None without unknown dimensions."""
    constants: Any
    """Arrays for arguments, as `api.export` takes them."""


def _read(
    source: Path | bytes, entries: Sequence[str], constants: Sequence[str] | None, shapes: Sequence[str] | None
) -> Program:
    """Reads a program, and the constants and shapes that are given for its functions `entries`."""
    module = programs.parse(source)
    entries = [name.removeprefix("@") for name in entries]
    given = read_by_function(constants, entries)
    calls = None
    if shapes:
        calls = export_shapes.read({name: bound(module, name, given.get(name)) for name in entries}, entries, shapes)
    return Program(module, calls, given if len(entries) > 1 else given.get(entries[0]))


def inspect(
    library: Annotated[Path, typer.Argument(metavar="LIBRARY", help="Library that `shlo-jit export` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Print the functions, targets, sizes and needs of an exported library.

    Nothing in the library is run, so libraries for other machines can be inspected too.
    """
    from shlo_jit.cli import inspection, library_report

    with mistakes.as_json(as_json):
        programs.check_exists(library)
        with mistakes.refusals(str(library)), mistakes.readable(str(library)), progress("reading"):
            found = inspection.inspect(library)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=1))
    else:
        library_report.print_inspection(report.make_console(), found)
