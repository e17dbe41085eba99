"""The command itself, its own options, and the commands verify, refine, ops and cache."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from shlo_jit import startup
from shlo_jit.cli import (
    autotuning,
    converting,
    describing,
    exporting,
    mistakes,
    passing,
    programs,
    reducing,
    report,
    running,
    showing,
)
from shlo_jit.cli.options import AsJson, Commands, Entry, Example, File, SeveralInputs, Shapes
from shlo_jit.cli.progress import progress

app = typer.Typer(
    name="shlo-jit",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cache_app = typer.Typer(
    help="Print or clear the object cache.", cls=Commands, no_args_is_help=True, rich_markup_mode=None
)
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
    debug: Annotated[
        bool, typer.Option("--debug", help="Log cache hits, times of stages and tracebacks of failures to stderr.")
    ] = False,
) -> None:
    """Compile StableHLO programs (texts or portable artifacts) to machine code, and run them.

    Try: shlo-jit run --example mlp --random
    """
    if debug:
        import logging

        logging.basicConfig(format="%(message)s")
        logging.getLogger("shlo_jit").setLevel(logging.DEBUG)


app.command(cls=SeveralInputs)(running.run)
app.command(cls=SeveralInputs)(running.profile)
app.command(cls=SeveralInputs)(autotuning.tune)


app.command()(showing.show)


@app.command()
def verify(
    file: File = None,
    example: Example = "",
    as_json: AsJson = False,
) -> None:
    """Check a program against the specification.

    The exit status is 1 if the program is not valid. Warnings do not change it.
    """
    from shlo_jit import api

    with mistakes.as_json(as_json):
        source, name = programs.source(file, example)
        with progress("verifying"), mistakes.readable(name):
            findings = api.verify(source, warnings=True)
    findings = mistakes.named(findings, name)
    wrong = any(d.severity == "error" for d in findings)
    if as_json:
        typer.echo(json.dumps([d.as_dict() for d in findings], indent=1))
    else:
        mistakes.print_diagnostics(findings, sys.stdout)
        if not wrong:
            typer.echo(f"{name}: valid")
    if wrong:
        raise typer.Exit(mistakes.INVALID)


@app.command()
def refine(
    file: File = None,
    example: Example = "",
    shapes: Shapes = None,
    entry: Entry = "main",
) -> None:
    """Print a program with its unknown dimensions replaced by the given sizes.

    Try: shlo-jit refine model.mlir --shape 8x16xf32
    """
    source, name = programs.source(file, example)
    with mistakes.refusals(name):
        typer.echo(str(programs.refined(source, entry, shapes or [])).rstrip("\n"))


app.command("pass")(passing.run_passes)
app.command()(reducing.reduce)
app.command()(converting.convert)
app.command()(exporting.export)
app.command()(exporting.inspect)


app.command()(describing.info)


@app.command()
def ops(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """Print all known ops, how each is compiled, and its element types."""
    from shlo_jit import op_table

    if markdown:
        typer.echo(op_table.markdown())
        return
    console = report.make_console()
    table = report.make_table("op", "machine code", "element types of the operands")
    for row in op_table.rows():
        table.add_row(row.name, row.how or "-", row.elements)
    console.print(table)


@cache_app.command()
def info() -> None:
    """Print the folder, the number of entries and the size of the object cache."""
    from shlo_jit.runtime import cache

    with mistakes.refusals():
        found = cache.info()
    table = report.make_table()
    table.add_row("folder", found.folder)
    table.add_row("entries", f"{found.entries:,}")
    if found.schedules:
        table.add_row("of these", f"{found.schedules:,} tuned schedules")
    if found.unfinished:
        table.add_row("unfinished files", f"{found.unfinished:,}, of processes that are writing, or ended early")
    table.add_row("size", f"{report.size(found.nbytes)} of {report.size(found.limit)}")
    report.make_console().print(table)


@cache_app.command()
def clear() -> None:
    """Delete all entries of the object cache."""
    from shlo_jit.runtime import cache

    with mistakes.refusals():
        before = cache.info()
        cache.clear()
        after = cache.info()
    files = f"{before.entries - after.entries:,} entries"
    if before.unfinished > after.unfinished:
        files += f" and {before.unfinished - after.unfinished:,} unfinished files"
    typer.echo(f"deleted {files}, {report.size(before.nbytes - after.nbytes)}, of {before.folder}")


def main() -> None:
    """Run the command and exit."""
    startup.started()
    try:
        app(prog_name="shlo-jit")
    except KeyboardInterrupt:
        sys.exit(startup.INTERRUPTED)
