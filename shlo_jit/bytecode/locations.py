"""Locations in the form of files: trees."""

from __future__ import annotations

from typing import Any, NamedTuple


class Location(NamedTuple):
    """A node of the tree. Children are nodes or texts (`#loc3`, `unknown`)."""

    kind: str
    """`file` (name, line, column), `range` (name, numbers), `name`, `callsite`, `fused`, `tagged`."""
    parts: tuple[Any, ...]


Child = Location | str
UNKNOWN = "unknown"
