"""Arguments and options that several commands have."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from shlo_jit import examples


class SeveralInputs(TyperCommand):
    """Takes `--input a.npy b.npy` for `--input a.npy --input b.npy`, and so `--expected`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        option = ""
        """That the arguments before may belong to."""
        for arg in args:
            if option and arg.endswith(".npy") and spread[-1] != option:
                spread.append(option)
            if arg.startswith("-"):
                option = arg if arg in ("--input", "--expected") else ""
            spread.append(arg)
        return super().parse_args(ctx, spread)


File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="StableHLO, as text or as an artifact; - reads stdin.")
]
Runnable = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="StableHLO, as text or as an artifact (- reads stdin), or an exported library."
    ),
]
Example = Annotated[str, typer.Option(metavar="NAME", help=f"One of ours instead: {', '.join(examples.names())}.")]
Entry = Annotated[str, typer.Option(metavar="NAME", help="The function to compile.")]
Threads = Annotated[int | None, typer.Option(min=1, metavar="N", help="Threads a call may use.  [default: all CPUs]")]
Inputs = Annotated[list[Path] | None, typer.Option("--input", metavar="X.npy ...", help="Inputs, in order.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="8x16xf32", help="Type of an input with unknown dimensions that was not given; in order."
    ),
]
Random = Annotated[bool, typer.Option("--random", help="Make up the inputs that were not given.")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Of the inputs made up.")]
Processes = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Run it in so many processes, as partitions of one replica.")
]
Transport = Annotated[
    str | None,
    typer.Option(
        metavar="processes|threads|mpi",
        help="How processes run.  [default: SHLO_JIT_TRANSPORT, mpi under mpiexec, else processes]",
    ),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compile even what the object cache knows.")]
FoldScales = Annotated[
    bool,
    typer.Option("--fold-scales", help="Factors of channels go into constant weights: results change by roundings."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what was found as JSON; what is wrong, too.")]


class DynamicCode(enum.StrEnum):
    """What code is made for, of a program with unknown dimensions."""

    SPECIALIZE = "specialize"
    SYMBOLIC = "symbolic"


Dynamic = Annotated[
    DynamicCode,
    typer.Option(help="Of unknown dimensions: make code for the sizes at hand, or once for any size of the first."),
]
