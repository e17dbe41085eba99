"""Source of a program that was not read from text: its printed text, created when a position in it is requested.

For an op of such a program, its number in the order of the text replaces the position in the text.
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
"""Maximum size of a literal that is written out, in elements."""
LONGEST_LOCATION = 300
_MARK = "\x01(\\d+)\x02|\x03"
_ALIAS = r"#(loc\d+)"


class PrintedSource(Source):
    """Printed text of `module`, which is set after the program has been read."""

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
        """Returns the text range of the op with number `start`; of the enclosing op if it is not printed separately."""
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
    """Returns the text with a mark at both ends of every op, with the same lines as `str(module)`."""
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
    """Returns the text of a location with the aliases in it expanded."""
    text = location.text
    while len(text) < LONGEST_LOCATION and (alias := re.search(_ALIAS, text)):
        inner = known.get(alias[1], "loc(unknown)")[4:-1]
        text = text[: alias.start()] + inner + text[alias.end() :]
    return text if len(text) < LONGEST_LOCATION else text[:LONGEST_LOCATION] + "...)"
