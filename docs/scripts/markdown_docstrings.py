"""Conversion of docstrings from Markdown, which the pages also use, to reStructuredText for autodoc.

The differences in our docstrings are small: `code` has one backtick, and rows of `name: description` (with longer ones
indented) need no bullets to be a list.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

CODE = re.compile(r"(?<![`:])`([^`\n]+)`(?!`)")
ROW = re.compile(r"\w+: \S")


def as_restructured(lines: list[str]) -> list[str]:
    """Converts a docstring: code with two backticks, a bullet before each row of a list, empty lines around the
    list."""
    made: list[str] = []
    in_list = False
    for line in lines:
        row = ROW.match(line) is not None and (in_list or not made or not made[-1].strip())
        ends = in_list and not row and not line.startswith("  ")
        made += [""] if ends and line.strip() else []
        in_list = row or (in_list and not ends)
        made.append(("- " if row else "") + CODE.sub(r"``\1``", line))
    return made


def convert(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    lines[:] = as_restructured(lines)


def setup(app: Sphinx) -> dict[str, object]:
    app.connect("autodoc-process-docstring", convert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
