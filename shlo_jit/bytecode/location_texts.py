"""Conversion of locations, which give the origin of an op in its author's files, between texts and trees.

    location ::= `unknown` | alias | string | string `(` location `)`
               | string `:` line `:` column (`to` (line)? `:` column)?
               | `callsite` `(` location `at` location `)` | `fused` (`<` attribute `>`)? `[` location, ... `]`
    alias    ::= `#loc3`

A module keeps an op's location as text, `loc(#loc3)`, and the definition of `#loc3` in `Module.locations`. Files
contain the tree.
"""

from __future__ import annotations

import re
from typing import Any

from shlo_jit.bytecode.locations import UNKNOWN, Child, Location
from shlo_jit.ir.attribute_text import attribute_text, string_text
from shlo_jit.text.lexer import unescape
from shlo_jit.text.strings import STRING


def location_text(location: Child) -> str:
    """Returns the text of a location between `loc(` and `)`."""
    if isinstance(location, str):
        return location
    kind, parts = location
    if kind == UNKNOWN:
        return UNKNOWN
    if kind == "name":
        name, child = parts
        return string_text(name) if child == UNKNOWN else f"{string_text(name)}({location_text(child)})"
    if kind == "file":
        return f"{string_text(parts[0])}:{parts[1]}:{parts[2]}"
    if kind == "range":
        return _range_text(*parts)
    if kind == "callsite":
        return f"callsite({location_text(parts[0])} at {location_text(parts[1])})"
    metadata = f"<{attribute_text(parts[1])}>" if kind == "tagged" else ""
    return f"fused{metadata}[{', '.join(map(location_text, parts[0]))}]"


def _range_text(name: str, numbers: tuple[int, ...]) -> str:
    """Returns the text of a file range. `numbers` are line, column, an optional end line, and end column."""
    line, column, *end = (*numbers, 0, 0)[: max(2, len(numbers))]
    text = f"{string_text(name)}:{line}:{column}"
    if not end:
        return text
    return f"{text} to {end[0] if len(end) == 2 else ''}:{end[-1]}"


_TOKEN = re.compile(
    rf"\s*(?:(?P<string>{STRING})|(?P<alias>#[\w$.\-]+)|(?P<number>\d+)|(?P<word>\w+)|(?P<mark>[()\[\]<>:,]))"
)


class _Reader:
    """A cursor over the text of a location. Raises ValueError."""

    def __init__(self, text: str):
        self.text, self.at = text, 0

    def peek(self) -> str:
        found = _TOKEN.match(self.text, self.at)
        return found[0].strip() if found else ""

    def next(self) -> str:
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            raise ValueError(f"invalid location: {self.text[:80]}")
        self.at = found.end()
        return found[0].strip()

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.next()
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise ValueError(f"invalid location: {self.text[:80]}")

    def number(self) -> int:
        token = self.next()
        if not token.isdigit() or len(token) > 18:
            raise ValueError(f"invalid location: {self.text[:80]}")
        return int(token)

    def location(self) -> Child:
        token = self.next()
        if token == UNKNOWN or token[0] == "#":
            return token
        if token[0] == '"':
            return self.named(unescape(token))
        if token == "callsite":
            self.expect("(")
            callee = self.location()
            self.expect("at")
            caller = self.location()
            self.expect(")")
            return Location("callsite", (callee, caller))
        if token != "fused":
            raise ValueError(f"invalid location: {self.text[:80]}")
        return self.fused()

    def named(self, name: str) -> Location:
        if self.accept("("):
            child = self.location()
            self.expect(")")
            return Location("name", (name, child))
        if not self.accept(":"):
            return Location("name", (name, UNKNOWN))
        line = self.number()
        self.expect(":")
        column = self.number()
        if not self.accept("to"):
            return Location("file", (name, line, column))
        numbers = [line, column]
        if not self.accept(":"):
            numbers.append(self.number())
            self.expect(":")
        return Location("range", (name, (*numbers, self.number())))

    def fused(self) -> Location:
        metadata = self.metadata() if self.peek() == "<" else None
        self.expect("[")
        children: list[Child] = []
        while not self.accept("]"):
            children.append(self.location())
            if not self.accept(",") and self.peek() != "]":
                raise ValueError(f"invalid location: {self.text[:80]}")
        if metadata is None:
            return Location("fused", (tuple(children),))
        return Location("tagged", (tuple(children), metadata))

    def metadata(self) -> Any:
        """Parses `<` string `>`. Skips other attributes together with their brackets."""
        self.expect("<")
        token = self.next()
        if token[0] == '"' and self.accept(">"):
            return unescape(token)
        depth = 1 + (token == "<") - (token == ">")
        while depth:
            token = self.next()
            depth += (token == "<") - (token == ">")
        return None


def read_location(text: str) -> Child:
    """Parses `loc(...)` into a tree. Raises ValueError."""
    if not text.startswith("loc(") or not text.endswith(")"):
        raise ValueError(f"invalid location: {text[:80]}")
    reader = _Reader(text[4:-1])
    found = reader.location()
    if reader.text[reader.at :].strip():
        raise ValueError(f"invalid location: {text[:80]}")
    return found
