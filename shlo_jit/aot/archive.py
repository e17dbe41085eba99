"""Static libraries in the `ar` format of System V and GNU, with the symbol index that linkers read."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import BinaryIO

MAGIC = b"!<arch>\n"
HEADER_BYTES = 60
_HEADER = "{name:<16}{date:<12}{user:<6}{group:<6}{mode:<8}{size:<10}`\n"


def _header(name: str, size: int) -> bytes:
    return _HEADER.format(name=name, date=0, user=0, group=0, mode=644, size=size).encode()


class Archive:
    """An archive with one member. The caller writes the member after construction and before `finish`."""

    def __init__(self, file: BinaryIO, member: str, symbols: Iterable[str]) -> None:
        """Writes the headers and the symbol index. `symbols`: those that the member defines. The member's name is cut
        to 15 letters."""
        names = sorted(symbols)
        texts = b"".join(name.encode() + b"\0" for name in names)
        texts += b"\0" * (len(texts) % 2)
        nbytes = 4 + 4 * len(names) + len(texts)
        file.write(MAGIC + _header("/", nbytes))
        at = file.tell() + nbytes
        file.write(struct.pack(f">{1 + len(names)}I", len(names), *[at] * len(names)) + texts)
        file.write(_header(member[:15] + "/", 0))
        self._file = file
        self._member = member[:15] + "/"
        self._start = file.tell()

    def finish(self) -> None:
        """Records the length of the member in its header."""
        nbytes = self._file.tell() - self._start
        self._file.write(b"\n" * (nbytes % 2))
        self._file.seek(self._start - HEADER_BYTES)
        self._file.write(_header(self._member, nbytes))
