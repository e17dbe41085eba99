"""Runs the code blocks of a docs page in order, and compares the output with that on the page.

python tests/page_runner.py docs/tutorials/first_program.md             reports differences
python tests/page_runner.py docs/tutorials/first_program.md --update    and writes the output into the page

A block ```sh is a shell script, a block ```python is run in one namespace with those before it, both in a folder of the
page. A block ```text after one of them is its output: `...` in it matches anything on a line, and alone on a line any
number of lines. Comments above a block have these meanings:

    <!-- file: dense.mlir -->    the block is written into that file, and not run
    <!-- fails -->               the exit status is not 0, or an exception is raised; its last lines are the output
    <!-- roughly -->             numbers, widths of columns and rules may differ
    <!-- not run -->             the block is not run
    <!-- needs: torch, cc -->    at the beginning of a page: modules, or commands, that it requires
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?P<notes>(?:^<!-- [^\n]* -->\n)*)^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.S | re.M)
NUMBER = re.compile(r"-?\d[\d,]*(\.\d*)?(e[+-]?\d+)?")
NOT_RUN = 77
"""Exit status of a page that was not run."""
UNIT = re.compile(r"\b(?:ns|us|ms|s|B|KiB|MiB|GiB)\b")


class Block(NamedTuple):
    language: str
    text: str
    notes: dict[str, str]
    line: int
    span: tuple[int, int]
    """Range of its text in the page."""


def blocks(page: str) -> Iterator[Block]:
    for match in BLOCK.finditer(page):
        notes = {}
        for note in re.findall(r"<!-- (.*?) -->", match["notes"]):
            name, _, value = note.partition(": ")
            notes[name] = value
        line = page.count("\n", 0, match.start("text")) + 1
        yield Block(match["language"], match["text"], notes, line, match.span("text"))


def missing(page: str) -> list[str]:
    """Requirements of the page that are missing, or cannot be imported."""
    needs = re.search(r"<!-- needs: (.*?) -->", page)
    names = [name.strip() for name in needs[1].split(",")] if needs else []
    return [name for name in names if shutil.which(name) is None and not can_be_imported(name)]


def can_be_imported(name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception:  # any exception of torchax with an incompatible torch
        return False
    return True


# ---------------------------------------------------------------------- running
def shell(block: Block, environment: dict[str, str]) -> tuple[bool, str]:
    line = ["bash", "-e", "-c", block.text]
    done = subprocess.run(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode == 0, done.stdout


def python(block: Block, page: Path, namespace: dict[str, Any]) -> tuple[bool, str]:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)
    except Exception as error:
        if "fails" not in block.notes:
            traceback.print_exc()
        return False, printed.getvalue() + "".join(traceback.format_exception_only(error))
    return True, printed.getvalue()


def commands_of(folder: Path) -> dict[str, str]:
    """The environment of the shell, with the `shlo-jit` and `python` of this environment."""
    folder.mkdir()
    for name, words in (("shlo-jit", f"{sys.executable} -m shlo_jit"), ("python", sys.executable)):
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / name).chmod(0o755)
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}


def run(page: Path, folder: Path) -> Iterator[tuple[Block, str]]:
    """Yields every block of output with the actual output. Raises RuntimeError if a block ends unexpectedly."""
    environment = commands_of(folder / ".commands")
    namespace: dict[str, Any] = {"__name__": "__page__"}
    printed: str | None = None
    for block in blocks(page.read_text(encoding="utf-8")):
        if "file" in block.notes:
            (folder / block.notes["file"]).write_text(block.text, encoding="utf-8")
        elif "not run" in block.notes:
            printed = None
        elif block.language == "text":
            if printed is not None:
                yield block, printed
        elif block.language in ("sh", "python"):
            well, printed = shell(block, environment) if block.language == "sh" else python(block, page, namespace)
            if well == ("fails" in block.notes):
                raise RuntimeError(f"{page}:{block.line}: {'all is well' if well else 'failed'}\n{printed}")


# ---------------------------------------------------------------------- comparing
def agree(shown: str, printed: str, roughly: bool) -> bool:
    return re.fullmatch(pattern(shown, roughly), plain(printed, roughly), re.S) is not None


def plain(text: str, roughly: bool) -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    if not roughly:
        return "\n".join(lines)
    lines = [UNIT.sub("u", NUMBER.sub("0", re.sub("[─-]{3,}", "---", line))) for line in lines]
    return "\n".join(re.sub(r" (?=[],])", "", " ".join(line.split())) for line in lines)


def pattern(shown: str, roughly: bool) -> str:
    parts = []
    for line in plain(shown, roughly).splitlines():
        parts.append(r"(?:[^\n]*\n)*?" if line == "..." else r"[^\n]*".join(map(re.escape, line.split("..."))) + "\n")
    made = "".join(parts)
    return made.removesuffix("\n") if made.endswith("\n") else made + r"[^\n]*"


def differences(page: Path, folder: Path) -> list[tuple[Block, str]]:
    return [(b, printed) for b, printed in run(page, folder) if not agree(b.text, printed, "roughly" in b.notes)]


def main(arguments: list[str]) -> int:
    page = Path(arguments[0]).resolve()
    text = page.read_text(encoding="utf-8")
    if absent := missing(text):
        print(f"needs {', '.join(absent)}")
        return NOT_RUN
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path[0] = folder  # as of Python there
        found = differences(page, Path(folder))
        os.chdir(ROOT)
    for block, printed in found:
        print(f"{page}:{block.line}: shown\n{block.text}printed\n{printed}")
    if arguments[1:] == ["--update"]:
        for block, printed in reversed(found):
            lines = "".join(line.rstrip() + "\n" for line in printed.replace(str(page), "...").splitlines())
            text = text[: block.span[0]] + lines + text[block.span[1] :]
        page.write_text(text, encoding="utf-8")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
