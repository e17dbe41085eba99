"""The command `pass`, which runs single passes."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from shlo_jit.cli import mistakes, programs, report
from shlo_jit.cli.options import Entry, Example, File, Shapes
from shlo_jit.cli.progress import progress
from shlo_jit.suggest import did_you_mean

if TYPE_CHECKING:
    from shlo_jit.ir.core import Module, Op

INLINE = "inline"


def run_passes(
    file: File = None,
    example: Example = "",
    passes: Annotated[str, typer.Option(metavar="A,B,...", help="Passes to run, in this order.")] = "",
    list_passes: Annotated[
        bool, typer.Option("--list", help="Print all passes, in the order in which compile runs them.")
    ] = False,
    shapes: Shapes = None,
    entry: Entry = "main",
) -> None:
    """Run single passes on a program, and print the resulting program.

    A pass may rely on what earlier passes guarantee: `show --dump-dir` writes the input of each pass when a program is
    compiled. The result is verified; the exit status is 1 if it is not valid. `inline` keeps the entry and the
    functions that it still calls; the other passes run on every function.

    \b
    shlo-jit pass --list
    shlo-jit pass model.mlir --passes inline,expand,simplify
    """
    if list_passes:
        _print_list()
        return
    names = [name for name in passes.split(",") if name]
    if not names:
        mistakes.fail("give --passes A,B,..., or --list")
    known = _known()
    unknown = [name for name in names if name not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known) or "`shlo-jit pass --list` prints their names"
        mistakes.fail(f"no pass {unknown[0]!r}; {hint}")
    source, name = programs.source(file, example)
    with mistakes.refusals(name):
        module = programs.refined(source, entry, shapes or [])
        with progress("running passes"):
            made = _through(module, entry, names)
        typer.echo(str(made).rstrip("\n"))
        _check(made)


def _known() -> dict[str, str]:
    """Maps each pass's name to its description, in the order in which they run."""
    from shlo_jit.passes import PASSES
    from shlo_jit.passes.frontend.inline import inline

    return {run.__name__: _summary(run) for run in (inline, *(step.run for step in PASSES))}


def _summary(run: object) -> str:
    """Returns the first sentence of the docstring of a pass's file, without the name of the pass, which it starts
    with."""
    text = (inspect.getmodule(run).__doc__ or "").partition("\n\n")[0]  # type: ignore[union-attr]
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def _print_list() -> None:
    rows = report.make_table("pass", "what it does")
    for name, summary in _known().items():
        rows.add_row(name, summary)
    report.make_narrow_console().print(rows, markup=False)


def _through(module: Module, entry: str, names: list[str]) -> Module:
    from shlo_jit.ir.core import is_declaration
    from shlo_jit.passes import PASSES
    from shlo_jit.passes.context import Context
    from shlo_jit.passes.frontend.inline import inline

    runs = {step.name: step.run for step in PASSES}
    for name in names:
        functions = [*module.functions()]
        if name == INLINE:
            function = module.function(entry)
            if function is None:
                mistakes.fail(f"no function @{entry}")
            *callees, main = inline(module, function)
            made = [main, *callees]
        else:
            context = Context(module)
            with _failing(name):
                made = [f if is_declaration(f) else runs[name](f, context) for f in functions]
        module = _with_functions(module, made)
    return module


@contextlib.contextmanager
def _failing(name: str) -> Iterator[None]:
    """Reports an unexpected exception of a pass as an InternalError: earlier passes may not have run."""
    from shlo_jit.errors import InternalError, StableHLOError

    try:
        yield
    except StableHLOError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise InternalError(f"{name} failed ({what}); it may need what earlier passes guarantee") from error


def _with_functions(module: Module, functions: list[Op]) -> Module:
    """A program of these functions and the other ops of the module."""
    from shlo_jit.ir.core import Block, Module, Op, Region

    others = [op for op in module.body.ops if op.name not in ("func.func", "builtin.module")]
    body = Region([Block([], [*others, *functions])])
    return Module(Op("builtin.module", [], [], module.op.attributes, [body]), module.source, module.locations)


def _check(module: Module) -> None:
    """Ends the command if a program is not valid. Ops may have other locations than in the program's text."""
    import sys

    from shlo_jit.verify.verifier import verify_module

    found = verify_module(module, is_registered=lambda target: True)
    if found:
        mistakes.print_diagnostics(found, sys.stderr)
        raise typer.Exit(mistakes.INVALID)
