"""Reads relocatable ELF objects, as LLVM writes them for x86-64 and AArch64: sections, symbols and relocations as
arrays.

Only the features of our objects are supported: 64 bits, little-endian, relocations with addends. Everything is checked
against the bounds of the file, so that a damaged object raises ValueError.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

X86_64, AARCH64 = 62, 183
"""Machine types."""
ABSOLUTE = 0xFFF1
"""Section number of a symbol whose value is not an offset."""
_RELOCATABLE = 1
_RELA, _NOBITS, _REL = 4, 8, 9
"""Section types: relocations with addends, zeros that are not in the file, relocations without addends."""
_SYMTAB = 2
_WRITE, _ALLOCATE = 1, 2
"""Section flags."""
_WEAK = 2
"""A symbol binding."""
_FUNCTION = 2
"""A symbol type."""
_END_OF_TABLE = 4
"""Bytes of the zero that terminates an unwind table."""

_HEADER = struct.Struct("<4s2B10x2H20xQ12x2H")
"""Magic, class, byte order, type, machine, offset of the section table, number of sections, index of the section with
their names."""
_SECTION = np.dtype("<u4, <u4, <u8, <u8, <u8, <u8, <u4, <u4, <u8, <u8")
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])


class _Row(NamedTuple):
    """A row of the section table."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


@dataclass
class Section:
    """A section that will be in memory."""

    data: bytes | memoryview
    """The contents; empty if they are all zeros."""
    size: int
    alignment: int
    writable: bool
    is_unwind_table: bool = False
    """Whether the section is an unwind table (`.eh_frame`), which zeros after it terminate."""
    relocations: np.ndarray = field(default_factory=lambda: np.empty(0, _RELOCATION))
    """An array with the fields offset, type, symbol, addend."""


@dataclass
class ObjectFile:
    machine: int
    sections: dict[int, Section]
    """Sections by number."""
    symbols: np.ndarray
    """An array with the fields section, value, info, size."""
    names: list[str]
    """Names of the symbols; empty for local ones."""
    texts: bytes
    """The string table that the symbols' field `name` points into."""

    def is_weak(self, symbol: int) -> bool:
        return int(self.symbols["info"][symbol]) >> 4 == _WEAK

    def functions(self) -> list[tuple[str, int, int, int]]:
        """Returns name, section number, offset in the section and size of every function, including local ones."""
        found = self.symbols[(self.symbols["info"] & 15 == _FUNCTION) & (self.symbols["section"] != 0)]
        columns = (found[name].tolist() for name in ("name", "section", "value", "size"))
        return [(_text(self.texts, name), *place) for name, *place in zip(*columns, strict=True)]


def _text(texts: bytes, start: int) -> str:
    return texts[start : texts.find(b"\0", start)].decode()


def read_object(data: bytes) -> ObjectFile:
    """Reads an object. Raises ValueError if the data are not such an object."""
    if len(data) < _HEADER.size:
        raise ValueError("not an ELF object")
    magic, width, order, kind, machine, start, count, names_at = _HEADER.unpack_from(data)
    if (magic, width, order, kind) != (b"\x7fELF", 2, 1, _RELOCATABLE):
        raise ValueError("not a relocatable 64-bit ELF object")
    table = [_Row(*row) for row in _rows(data, _SECTION, start, count).tolist()]
    section_names = bytes(_content(data, table[names_at])) if names_at < len(table) else b""
    sections = {number: _section(data, row, section_names) for number, row in enumerate(table) if row.flags & _ALLOCATE}
    symbols, texts = _symbols(data, table)
    names = [
        _text(texts, start) if info >> 4 else ""
        for start, info in zip(symbols["name"].tolist(), symbols["info"].tolist(), strict=True)
    ]
    for row in table:
        place = sections.get(row.info)
        if place is None or row.type not in (_RELA, _REL):
            continue
        if row.type == _REL:
            raise ValueError("ELF relocations without addends are not supported")
        place.relocations = _relocations(data, row, place, len(names))
    return ObjectFile(machine, sections, symbols, names, texts)


def _rows(data: bytes, dtype: np.dtype, offset: int, count: int) -> np.ndarray:
    if offset + count * dtype.itemsize > len(data):
        raise ValueError("an ELF table ends beyond the object")
    return np.frombuffer(data, dtype, count, offset)


def _content(data: bytes, row: _Row) -> memoryview:
    if row.offset + row.size > len(data):
        raise ValueError("an ELF section ends beyond the object")
    return memoryview(data)[row.offset : row.offset + row.size]


def _section(data: bytes, row: _Row, names: bytes) -> Section:
    if row.alignment & (row.alignment - 1):
        raise ValueError(f"an ELF section is aligned to {row.alignment}")
    content = memoryview(b"") if row.type == _NOBITS else _content(data, row)
    is_table = names.startswith(b".eh_frame\0", row.name)
    return Section(
        content, row.size + _END_OF_TABLE * is_table, max(1, row.alignment), bool(row.flags & _WRITE), is_table
    )


def _symbols(data: bytes, table: list[_Row]) -> tuple[np.ndarray, bytes]:
    """The symbol table, and the string table with its names."""
    for row in table:
        if row.type == _SYMTAB:
            if row.link >= len(table):
                raise ValueError("an ELF symbol table without names")
            texts = bytes(_content(data, table[row.link]))
            return _rows(data, _SYMBOL, row.offset, row.size // _SYMBOL.itemsize), texts
    return np.empty(0, _SYMBOL), b""


def _relocations(data: bytes, row: _Row, place: Section, symbols: int) -> np.ndarray:
    found = _rows(data, _RELOCATION, row.offset, row.size // _RELOCATION.itemsize)
    if (found["symbol"] >= symbols).any() or (found["offset"] + 4 > place.size).any():
        raise ValueError("an ELF relocation points nowhere")
    return found
