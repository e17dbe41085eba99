"""Error exits of the command `shlo-jit`: a line, or diagnostics, and an exit status."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

import typer

from shlo_jit.errors import Diagnostic, ExecutionError, ExportError, InternalError, StableHLOError, printable
from shlo_jit.log import log

INVALID, USAGE = 1, 2
"""Exit statuses. INVALID: the program is refused, fails or differs. USAGE: the command cannot use its arguments."""


DEBUG_HINT = "\n  hint: `shlo-jit --debug COMMAND ...` prints the traceback"


def is_debug() -> bool:
    """Whether the command was started with --debug."""
    return log().isEnabledFor(logging.DEBUG)


class Failure(typer.Exit):
    """Exit of a command that has printed its errors to stderr. `errors`: the same errors for tools."""

    def __init__(self, status: int, errors: list[dict[str, Any]]) -> None:
        super().__init__(status)
        self.errors = errors


def fail(message: str, status: int = USAGE) -> NoReturn:
    """Prints a line and exits, by default for a mistake of the user."""
    typer.echo(printable(f"shlo-jit: error: {message}"), err=True)
    raise Failure(status, [{"message": message}])


@contextlib.contextmanager
def as_json(wanted: bool) -> Iterator[None]:
    """Also prints the errors that end the command as JSON, in place of results."""
    try:
        yield
    except Failure as failure:
        if wanted:
            typer.echo(json.dumps({"errors": failure.errors}, indent=1))
        raise


@contextlib.contextmanager
def refusals(name: str = "") -> Iterator[None]:
    """Ends the command for exceptions of the compiler and of programs.

    A refused program ends it with diagnostics. Invalid arguments, options and variables, files that change meanwhile,
    failures of a program, and a missing linker end it with a line. An internal error ends it with advice, and with
    --debug its traceback.
    """
    try:
        yield
    except StableHLOError as error:
        findings = named(error.diagnostics, name)
        print_diagnostics(findings, sys.stderr)
        raise Failure(INVALID, [d.as_dict() for d in findings]) from None
    except (TypeError, ValueError, ImportError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot read {error.filename or 'a file'}: {error.strerror or error}")
    except InternalError as error:
        log().debug("shlo_jit failed", exc_info=error.__cause__ or error)
        fail(f"{error}{'' if is_debug() else DEBUG_HINT}", INVALID)
    except (ExecutionError, ExportError, MemoryError) as error:
        text = str(error).partition("\n\n")[0]  # another process's traceback follows
        fail(text or "not enough memory", INVALID)


def named(findings: Sequence[Diagnostic], name: str) -> list[Diagnostic]:
    """Sets the name of what was read from stdin or a pipe."""
    return [dataclasses.replace(d, file=name) if d.file == "<bytes>" else d for d in findings]


@contextlib.contextmanager
def readable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fail(f"cannot read {name}: {error.strerror or error}")


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        folder = os.path.dirname(error.filename or os.fspath(path))  # files are first written beside their final paths
        fail(f"cannot write to {folder or '.'}: {error.strerror or error}")


def print_diagnostics(findings: Sequence[Diagnostic], stream: TextIO) -> None:
    """Prints diagnostics with their source line, rule and hint; in color on a terminal."""
    if not stream.isatty():
        for d in findings:
            print(d, file=stream)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for d in findings:
        head, *context = str(d).splitlines()
        text = Text(head)
        text.highlight_regex(r"^.*?:\d+:\d+:", "bold")
        text.highlight_regex(rf" {d.severity}:", "bold red" if d.severity == "error" else "bold yellow")
        console.print(text)
        for i, line in enumerate(context):
            console.print(Text(line, "bold green" if i == 1 and d.source_line else ""))
