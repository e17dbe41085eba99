"""The commands for libraries: export and inspect."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from shlo_jit.cli import export_shapes, mistakes, programs, report
from shlo_jit.cli.constants import Constants, bound, read_by_function
from shlo_jit.cli.options import AsJson, AssumeFinite, Example, File, FoldScales, Reproducible, RoundActivations, word
from shlo_jit.cli.progress import progress, steps


def export(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="LIBRARY", help="Library to write: .so, .o, .a, .wasm, .dylib or .dll."),
    ],
    file: File = None,
    example: Example = "",
    header: Annotated[Path | None, typer.Option(metavar="H", help="C header to write.")] = None,
    target: Annotated[
        str,
        typer.Option(
            metavar="T[,T...]",
            help="Target, such as x86-64-v3, aarch64 or wasm32; several of one architecture are possible.",
        ),
    ] = "native",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Prefix of its symbols.  [default: the file's name]")
    ] = None,
    entry: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Function to export; may be given several times.  [default: main]"),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            metavar="embedded|file",
            parser=word("embedded", "file"),
            help="Place of the constants: in the library, or in a file next to it.",
        ),
    ] = "embedded",
    threads: Annotated[bool, typer.Option("--threads/--no-threads", help="Allow calls to use several threads.")] = True,
    linker: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Linker to use.  [default: the first one found]")
    ] = None,
    custom_call: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Target of a custom call that the host implements in C.")
    ] = None,
    donate: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Index of an argument whose memory may be reused for results."),
    ] = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="8x16xf32[,T...]",
            help="Types of the inputs with unknown dimensions, or of all inputs, to compile for; may be given several "
            "times. An input of integers that sizes depend on is given by value: i32=8, or 2xi32=8x4.",
        ),
    ] = None,
    fold_scales: FoldScales = False,
    round_activations: RoundActivations = None,
    assume_finite: AssumeFinite = False,
    reproducible: Reproducible = False,
    schedule: Annotated[
        Path | None,
        typer.Option(metavar="F.json", help="File with the moves of loop nests, as `tune --save` writes it."),
    ] = None,
    constants: Constants = None,
    as_json: AsJson = False,
) -> None:
    """Compile a program to a library that C can call, without Python.

    Try: shlo-jit export --example mlp -o mlp.so --header mlp.h
    """
    from shlo_jit import api
    from shlo_jit.cli import inspection, library_report

    start = time.perf_counter()
    with mistakes.as_json(as_json):
        source, source_name = programs.source(file, example)
        with mistakes.refusals(source_name):
            module = programs.parse(source)
            entries = [name.removeprefix("@") for name in entry or ["main"]]
            given = read_by_function(constants, entries)
            programs_of = {name: bound(module, name, given.get(name)) for name in entries} if shapes else {}
            calls = export_shapes.read(programs_of, entries, shapes) if shapes else None
    with (
        mistakes.as_json(as_json),
        mistakes.refusals(source_name),
        mistakes.writable(output),
        steps("lowering") as on_step,
    ):
        exported = api.export(
            module,
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
            shapes=calls,
            fold_scales=fold_scales,
            round_activations=round_activations,
            assume_finite=assume_finite,
            reproducible=reproducible,
            schedule=None if schedule is None else programs.moves(schedule),
            constants=given if len(entries) > 1 else given.get(entries[0]),
            progress=on_step,
        )
        seconds = time.perf_counter() - start
        found = inspection.inspect(exported.library)
    if as_json:
        files = [str(path) for path in (exported.library, exported.header, exported.weights) if path is not None]
        typer.echo(json.dumps({"files": files, "linker": exported.linker, **found.as_dict()}, indent=1))
    else:
        library_report.print_exported(report.make_console(), exported, found, seconds)


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
