"""Arguments and options that several commands have."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from shlo_jit import examples
from shlo_jit.options import Arithmetic
from shlo_jit.suggest import did_you_mean


def word(*words: str) -> Callable[[Any], str]:
    """Returns a parser for an option that takes one of some words. Its message suggests the nearest word."""

    def parse(value: Any) -> str:
        if value not in words:
            hint = did_you_mean(str(value), filter(None, words))
            expected = ", ".join(filter(None, words))
            raise typer.BadParameter(f"{value!r}: expected {expected}{f'; {hint}' if hint else ''}")
        return words[words.index(value)]

    return parse


class Commands(TyperGroup):
    """A command group that suggests the nearest command for an unknown one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hint = did_you_mean(args[0], self.commands) or f"commands are {', '.join(self.commands)}"
            ctx.fail(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


class SeveralInputs(TyperCommand):
    """Accepts `--input a.npy b.npy` for `--input a.npy --input b.npy`, and likewise `--expected`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        option = ""
        """The option that preceding arguments may belong to."""
        for arg in args:
            if option and arg.endswith(".npy") and spread[-1] != option:
                spread.append(option)
            if arg.startswith("-"):
                option = arg if arg in ("--input", "--expected") else ""
            spread.append(arg)
        return super().parse_args(ctx, spread)


File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="StableHLO program: a text or a portable artifact; - reads stdin.")
]
Runnable = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="StableHLO program (a text or a portable artifact; - reads stdin), or an exported library."
    ),
]
Example = Annotated[
    str, typer.Option(metavar="NAME", help=f"Use an example instead of FILE: {', '.join(examples.names())}.")
]
OutputText = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="F.mlir", help="File to write.  [default: print to stdout]")
]
Entry = Annotated[str, typer.Option(metavar="NAME", help="Function to compile.")]
Threads = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Threads that a call may use.  [default: all CPUs]")
]
Inputs = Annotated[
    list[Path] | None,
    typer.Option("--input", metavar="X.npy ...", help="Files of the inputs, in order, as numpy.save writes them."),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="8x16xf32", help="Type of an input with unknown dimensions; once per such input, in order."
    ),
]
Random = Annotated[bool, typer.Option("--random", help="Make up random values for the inputs that are not given.")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the made-up inputs.")]
Processes = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Number of processes; they are the partitions of one replica.")
]
Transport = Annotated[
    str | None,
    typer.Option(
        metavar="processes|threads|mpi",
        parser=word("processes", "threads", "mpi"),
        help="How the processes run.  [default: SHLO_JIT_TRANSPORT, mpi under mpiexec, else processes]",
    ),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compile even if the object cache has the code.")]
FoldScales = Annotated[
    bool,
    typer.Option(
        "--fold-scales", help="Multiply factors of channels into constant weights; results change by rounding."
    ),
]
RoundActivations = Annotated[
    str | None,
    typer.Option(
        metavar="int8",
        parser=word("int8"),
        help="Round the activations of products with low-bit weights to 8 bits; see docs/accuracy.md.",
    ),
]
AssumeFinite = Annotated[
    bool,
    typer.Option("--assume-finite", help="Skip what masks by position leave out, without a check that it is finite."),
]
Reproducible = Annotated[
    bool,
    typer.Option(
        "--reproducible", help="Give each row of a result the same bits whatever the others are, and on every target."
    ),
]
ScheduleFile = Annotated[
    Path | None,
    typer.Option(
        "--schedule",
        metavar="F.json|tuned",
        help="File with the moves of steps, as `show --stage moves` prints them, or `tuned` for those that `tune` "
        "has stored.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result, or the errors, as JSON.")]


class DynamicCode(enum.StrEnum):
    """Strategy of compilation for unknown dimensions."""

    SPECIALIZE = "specialize"
    SYMBOLIC = "symbolic"


Dynamic = Annotated[
    DynamicCode,
    typer.Option(
        parser=lambda text: DynamicCode(word(*DynamicCode)(text)),
        metavar="specialize|symbolic",
        help="Code for unknown dimensions: for the sizes of each call, or once for any size of the first dimension.",
    ),
]


def arithmetic(
    fold_scales: bool, round_activations: str | None, assume_finite: bool, reproducible: bool = False
) -> Arithmetic:
    """The options of the command line that may change the bits of results, as `compile` and `export` take them."""
    return Arithmetic(
        fold_scales=fold_scales,
        round_activations=round_activations,
        assume_finite=assume_finite,
        reproducible=reproducible,
    )
