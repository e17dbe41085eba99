"""External requirements of exported libraries: symbols they do not define, and shared libraries they name. Read from
ELF files, archives of them and WebAssembly, without any tool."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from shlo_jit.errors import LibraryError

_HEADER = struct.Struct("<40xQ10xHHH")
"""Header of ELF: offset of the table of sections, size of its rows, their number, and that of the section of names."""
_SECTION = struct.Struct("<IIQQQQIIQQ")
"""Name, type, flags, address, offset in the file, bytes, link, info, alignment, size of entries."""
_SYMBOL = struct.Struct("<IBBHQQ")
"""Name, binding and type, visibility, section, value, size."""
_DYNAMIC = struct.Struct("<qQ")
"""Tag, value."""
_SYMTAB, _DYNAMIC_TABLE, _DYNSYM = 2, 6, 11
"""Types of sections."""
_NEEDED = 1
"""Tag of the name of a shared library."""
_MEMBER_BYTES = 60
"""Size of the header of a file in an archive; it has the file's size at 48."""
_TABLES = (b"/ ", b"//")
"""Names of members that are not objects: the tables of symbols and of long names."""
_IMPORTS = 2
"""A section of WebAssembly."""
_KINDS = {0: "function", 1: "table", 2: "memory", 3: "global", 4: "tag"}
"""Kinds of imports in WebAssembly."""


class Needs(NamedTuple):
    """Symbols and libraries that must be available when a library is linked or loaded."""

    symbols: tuple[str, ...]
    """Functions, by their names in the object file, in alphabetical order."""
    libraries: tuple[str, ...]
    """Shared libraries, such as `libc.so.6`: a shared ELF library names them, others do not."""


def needs(path: str | os.PathLike[str]) -> Needs | None:
    """Returns the requirements of a file; None if its format is not supported. Raises LibraryError for a damaged file,
    and OSError."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _archive_needs(data) if data[:8] == b"!<arch>\n" else _object_needs(data)
        except (struct.error, IndexError, ValueError):
            raise LibraryError(f"cannot read the symbols of {os.fsdecode(path)}: it is damaged") from None


Bytes = bytes | mmap.mmap


def _object_needs(data: Bytes) -> Needs | None:
    if data[:4] == b"\x7fELF":
        return _elf_needs(data)
    if data[:4] == b"\0asm":
        return Needs(tuple(sorted(set(_wasm_functions(data)))), ())
    return None


def _archive_needs(data: Bytes) -> Needs | None:
    """Returns the combined requirements of the objects in an archive."""
    at, symbols = 8, set[str]()
    while at < len(data):
        size = int(data[at + 48 : at + 58])
        if data[at : at + 2] not in _TABLES:
            found = _object_needs(data[at + _MEMBER_BYTES : at + _MEMBER_BYTES + size])
            if found is None:
                return None
            symbols.update(found.symbols)
        at += _MEMBER_BYTES + size + size % 2
    return Needs(tuple(sorted(symbols)), ())


# ---------------------------------------------------------------------- ELF
def _elf_needs(data: Bytes) -> Needs:
    sections = list(_sections(data))
    kinds = [section[1] for section in sections]
    table = _DYNSYM if _DYNSYM in kinds else _SYMTAB
    symbols: set[str] = set()
    libraries: list[str] = []
    for _, kind, _, _, start, size, link, *_ in sections:
        if kind == table:
            for name, _, _, section, _, _ in _SYMBOL.iter_unpack(data[start : start + size]):
                if name and not section:
                    symbols.add(_text(data, sections[link][4] + name))
        elif kind == _DYNAMIC_TABLE:
            for tag, value in _DYNAMIC.iter_unpack(data[start : start + size]):
                if tag == _NEEDED:
                    libraries.append(_text(data, sections[link][4] + value))
    symbols.discard("_GLOBAL_OFFSET_TABLE_")  # defined by the linker
    return Needs(tuple(sorted(symbols)), tuple(libraries))


def _sections(data: Bytes) -> Iterator[tuple[int, ...]]:
    start, size, count, _ = _HEADER.unpack_from(data)
    for number in range(count):
        yield _SECTION.unpack_from(data, start + number * size)


def _text(data: Bytes, start: int) -> str:
    return data[start : data.find(b"\0", start)].decode()


# ---------------------------------------------------------------------- WebAssembly
def _wasm_functions(data: Bytes) -> Iterator[str]:
    """Yields `module.name` of the functions that a module imports."""
    at = 8
    while at < len(data):
        section = data[at]
        size, at = _number(data, at + 1)
        if section == _IMPORTS:
            yield from _wasm_imports(data, at)
        at += size


def _wasm_imports(data: Bytes, at: int) -> Iterator[str]:
    count, at = _number(data, at)
    for _ in range(count):
        words = []
        for _ in range(2):
            size, at = _number(data, at)
            words.append(data[at : at + size].decode())
            at += size
        kind = _KINDS.get(data[at], "")
        if kind == "function":
            _, at = _number(data, at + 1)
            yield ".".join(words)
        elif kind in ("table", "memory"):
            at = _limits(data, at + (2 if kind == "table" else 1))
        elif kind == "global":
            at += 3
        else:
            _, at = _number(data, at + 2)


def _limits(data: Bytes, at: int) -> int:
    """Returns the offset after the limits of a table or memory."""
    has_maximum = data[at] & 1
    _, at = _number(data, at + 1)
    return _number(data, at)[1] if has_maximum else at


def _number(data: Bytes, at: int) -> tuple[int, int]:
    """Returns an unsigned number in LEB128, and the offset after it."""
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return found, at
