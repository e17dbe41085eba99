"""What there is to know about a program's collective ops once it is machine code: for messages and for pictures."""

from __future__ import annotations

from typing import NamedTuple


class Site(NamedTuple):
    """A place of a program where it meets others; its number is that in `Compiled.sites`."""

    op: str
    """Its name without the dialect."""
    types: str
    """Of its operands, `f32[1024], i32[]`."""
    nbytes: int
    """Of its operands."""
    place: str
    """Where the program's text has it, `line 12`; empty for what has no place."""

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"{self.op} of {self.types or 'nothing'}{where}"
