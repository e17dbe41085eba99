"""Versions of StableHLO, and the bytecode version of each (StableHLO's `docs/bytecode.md`)."""

from __future__ import annotations

import re
from typing import NamedTuple


class Version(NamedTuple):
    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


FIRST = Version(0, 9)
"""The first version with compatibility guarantees."""
LAST = Version(1, 20)
"""The last version whose ops are known here."""
LAST_MINOR = {0: 20, 1: LAST.minor}
"""The last minor version of each major version."""
DEFAULT = "1.17.0"
"""The version that is written by default."""

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
_PRODUCER = re.compile(r"StableHLO_v(\d{1,4})\.(\d{1,4})\.(\d{1,4})")
BYTECODE = ((Version(0, 9), 0), (Version(0, 10), 1), (Version(0, 12), 3), (Version(0, 14), 4), (Version(0, 15), 6))
"""First version of StableHLO for each version of the bytecode."""


def version_of(text: object) -> Version:
    """Parses a version such as `1.17.0`. Raises TypeError, and ValueError if no such version can be written."""
    if not isinstance(text, str):
        raise TypeError(f"version: expected a text such as {DEFAULT!r}, got {type(text).__name__}")
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"version: expected three numbers such as {DEFAULT!r}, got {text!r}")
    version = Version(*(int(part or 0) for part in found.groups()))
    if not is_known(version):
        raise ValueError(f"version: expected {FIRST} to {LAST}, got {version}")
    return version


def is_known(version: Version) -> bool:
    """Whether this version is known here; the patch number is ignored."""
    return version >= FIRST and version.minor <= LAST_MINOR.get(version.major, -1)


def version_of_producer(text: str) -> Version | None:
    """Returns the version of StableHLO that wrote a file, from its producer; None if it is not a portable artifact."""
    found = _PRODUCER.fullmatch(text)
    return None if found is None else Version(*map(int, found.groups()))


def bytecode_of(version: Version) -> int:
    """Returns the bytecode version for a version of StableHLO."""
    return [number for since, number in BYTECODE if since <= version][-1]
