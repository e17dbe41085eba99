"""How the command `shlo-jit` ends when something is wrong: a line, or diagnostics, and an exit status."""

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
"""Exit statuses: the program is refused, fails or differs; the command was given something it cannot use."""


DEBUG_HINT = "\n  hint: `shlo-jit --debug COMMAND ...` prints the traceback"


def is_debug() -> bool:
    """Whether the command was started with --debug."""
    return log().isEnabledFor(logging.DEBUG)


class Failure(typer.Exit):
    """The end of a command that has said on stderr what is wrong. `errors`: the same for tools."""

    def __init__(self, status: int, errors: list[dict[str, Any]]) -> None:
        super().__init__(status)
        self.errors = errors


def fail(message: str, status: int = USAGE) -> NoReturn:
    """A line; by default, of the user's mistake."""
    typer.echo(printable(f"shlo-jit: error: {message}"), err=True)
    raise Failure(status, [{"message": message}])


@contextlib.contextmanager
def as_json(wanted: bool) -> Iterator[None]:
    """Print what ends the command as JSON too, where results would have been."""
    try:
        yield
    except Failure as failure:
        if wanted:
            typer.echo(json.dumps({"errors": failure.errors}, indent=1))
        raise


@contextlib.contextmanager
def refusals(name: str = "") -> Iterator[None]:
    """Programs that are refused end the command with their diagnostics; arguments, options and variables that do not
    fit, what stops a program, and a missing linker, with a line; a defect of ours with what to do, and with --debug its
    traceback."""
    try:
        yield
    except StableHLOError as error:
        findings = named(error.diagnostics, name)
        print_diagnostics(findings, sys.stderr)
        raise Failure(INVALID, [d.as_dict() for d in findings]) from None
    except (TypeError, ValueError, ImportError) as error:
        fail(str(error))
    except InternalError as error:
        log().debug("shlo_jit failed", exc_info=error.__cause__ or error)
        fail(f"{error}{'' if is_debug() else DEBUG_HINT}", INVALID)
    except (ExecutionError, ExportError, MemoryError) as error:
        text = str(error).partition("\n\n")[0]  # behind it, another process's traceback
        fail(text or "not enough memory", INVALID)


def named(findings: Sequence[Diagnostic], name: str) -> list[Diagnostic]:
    """With the name of what was read from stdin or a pipe."""
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
        folder = os.path.dirname(error.filename or os.fspath(path))  # files are written beside their places first
        fail(f"cannot write to {folder or '.'}: {error.strerror or error}")


def print_diagnostics(findings: Sequence[Diagnostic], stream: TextIO) -> None:
    """With the place in the text, the rule and what to do; in colour on a terminal."""
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
