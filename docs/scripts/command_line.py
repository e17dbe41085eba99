"""The reference of the command line, generated from the output of `--help`.

python docs/scripts/command_line.py            prints the generated part
python docs/scripts/command_line.py --write    writes it into docs/command_line.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from shlo_jit.cli import app

PAGE = Path(__file__).parents[1] / "command_line.md"
BEGIN, END = "<!-- commands: begin -->", "<!-- commands: end -->"


def markdown() -> str:
    """A section for each command, in the order of `shlo-jit --help`."""
    root = typer.main.get_command(app)
    return "\n\n".join(section(command, name) for name, command in commands(root, "shlo-jit"))


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The command and all its subcommands, with their full names."""
    yield name, command
    for below, other in getattr(command, "commands", {}).items():
        yield from commands(other, f"{name} {below}")


def section(command: Any, name: str) -> str:
    """Usage, description, arguments and options."""
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [f"| {_code(names)} | {_cell(text)} |" for names, text in records(command, context)]
    parts = [
        f"## {name}",
        f"```text\n{usage}\n```",
        *paragraphs(command.help),
        "\n".join(["| | |", "|---|---|", *rows]),
    ]
    return "\n\n".join(parts)


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a command's help. Examples, which Click recognizes by a mark before them, become blocks."""
    for paragraph in text.strip().split("\n\n"):
        is_example = paragraph.startswith("\b\n") or paragraph.startswith("Try: ")
        words = paragraph.removeprefix("\b\n").removeprefix("Try: ")
        yield f"```sh\n{words}\n```" if is_example else paragraph


def records(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Names and help of each parameter."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            yield record


def _code(text: str) -> str:
    return "`" + text.strip().replace("|", "\\|") + "`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")


def written_into(text: str) -> str:
    """Replaces the commands between the markers of a page."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{markdown()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(written_into(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(markdown())
