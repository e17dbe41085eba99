"""Facts about the collective ops of a compiled program, for messages and diagrams."""

from __future__ import annotations

from typing import NamedTuple


class Site(NamedTuple):
    """A collective op of a program; its number is its index in `Compiled.sites`."""

    op: str
    """Name of the op, without the dialect."""
    types: str
    """Types of its operands, such as `f32[1024], i32[]`."""
    nbytes: int
    """Total bytes of its operands."""
    place: str
    """Its place in the program's text, such as `line 12`; empty if unknown."""

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"{self.op} of {self.types or 'nothing'}{where}"
