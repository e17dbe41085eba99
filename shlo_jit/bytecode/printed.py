"""The source of a program that was no text: the text it would have been, made when somebody asks for a place in it.

An op of such a program has its number, in the order of the text, where others have the place of their text.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shlo_jit.deep import deeply
from shlo_jit.errors import Source
from shlo_jit.ir.attributes import Dense, OpaqueAttr

if TYPE_CHECKING:
    from shlo_jit.ir.core import Module, Op

MOST_ELEMENTS = 64
"""Of a literal that is written out."""
LONGEST_LOCATION = 300
_MARK = "\x01(\\d+)\x02|\x03"
_ALIAS = r"#(loc\d+)"


class PrintedSource(Source):
    """`module`, which is there when the program has been read."""

    def __init__(self, name: str):
        super().__init__("", name)
        self.module: Module | None = None
        self._ends: dict[int, tuple[int, int]] = {}
        self._numbers: list[int] = []
        self._printed = False

    @property
    def text(self) -> str:
        self._print()
        return self._text

    @text.setter
    def text(self, value: str) -> None:
        self._text = value

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Of an op's number, where its text is; that of the op around it where it is not printed by itself."""
        self._print()
        at = bisect.bisect_right(self._numbers, start)
        return self._ends[self._numbers[at - 1]] if at else (0, 0)

    def _print(self) -> None:
        if self._printed or self.module is None:
            return
        self._printed = True
        marked = _marked(self.module)
        parts: list[str] = []
        opened: list[tuple[int, int]] = []
        length = last = 0
        for mark in re.finditer(_MARK, marked):
            parts.append(marked[last : mark.start()])
            length += len(parts[-1])
            last = mark.end()
            if mark[1]:
                opened.append((int(mark[1]), length))
            else:
                number, start = opened.pop()
                self._ends[number] = (start, length)
        self._text = "".join(parts) + marked[last:]
        self._line_starts = None
        self._numbers = sorted(self._ends)


@deeply
def _marked(module: Module) -> str:
    """The text with a mark at both ends of every op, in the lines that `str(module)` has."""
    from shlo_jit.text.printer import Printer, aliases

    class Plain(Printer):
        def attribute(self, value: Any) -> str:
            if isinstance(value, Dense) and value.type.is_static and value.type.size > MOST_ELEMENTS:
                return f"dense<...> : {self.type(value.type)}"
            return super().attribute(value)

    class Marking(Plain):
        def op(self, op: Op) -> str:
            return f"\x01{op.start}\x02{super().op(op)}\x03"

        def location(self, op: Op) -> str:
            return f" {_resolved(op.location, module.locations)}" if isinstance(op.location, OpaqueAttr) else ""

    return "\n".join([*aliases(module.locations, Plain().op(module.op)), Marking().op(module.op), ""])


def _resolved(location: OpaqueAttr, known: Mapping[str, str]) -> str:
    """A location with the text of those that it names."""
    text = location.text
    while len(text) < LONGEST_LOCATION and (alias := re.search(_ALIAS, text)):
        inner = known.get(alias[1], "loc(unknown)")[4:-1]
        text = text[: alias.start()] + inner + text[alias.end() :]
    return text if len(text) < LONGEST_LOCATION else text[:LONGEST_LOCATION] + "...)"
