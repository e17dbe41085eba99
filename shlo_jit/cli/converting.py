"""The command `convert`: writes a program as text or as a portable artifact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shlo_jit.cli import mistakes, programs
from shlo_jit.cli.options import Example, File

TEXT = ".mlir"
"""File suffix of texts; any other suffix means an artifact."""


def convert(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write: a text (.mlir, or - for stdout), else an artifact."
        ),
    ],
    file: File = None,
    example: Example = "",
    version: Annotated[
        str, typer.Option(metavar="V", help="Oldest version of StableHLO that can read the artifact.")
    ] = "1.17.0",
) -> None:
    """Convert a program to StableHLO text or to a portable artifact.

    Try: shlo-jit convert --example mlp -o mlp.mlirbc
    """
    source, name = programs.source(file, example)
    with mistakes.refusals(name):
        module = programs.parse(source)
        if str(output) == "-":
            sys.stdout.write(str(module))
            return
        data = str(module).encode() if output.suffix == TEXT else module.serialize(version)
    with mistakes.writable(output):
        output.write_bytes(data)
    typer.echo(f"wrote {output}: {len(data):,} bytes")
