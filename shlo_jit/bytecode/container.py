"""Container format: splits a file into sections and assembles it from them (MLIR's `docs/BytecodeFormat.md`).

The sections hold the strings, names, types and attributes that the program refers to by number.

    file    ::= `ML\\xefR` version producer section*
    section ::= id length (alignment padding)? data

Types and attributes are not decoded here; only the positions of their bytes are determined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from shlo_jit.bytecode.stream import Bytes, Cursor, Damaged, Output

MAGIC = b"ML\xefR"
NEWEST = 6
"""Newest version of the bytecode that can be read."""
STRINGS, DIALECTS, ATTRIBUTES, OFFSETS, IR, RESOURCES, RESOURCE_OFFSETS, DIALECT_VERSION, PROPERTIES = range(9)
ALIGNED = 0x80
NEEDED = (STRINGS, DIALECTS, ATTRIBUTES, OFFSETS, IR)
TITLES = "strings dialects types offsets operations resources resource-offsets dialect-version properties".split()


Entry = tuple[str, int, int, int]
"""A type or attribute: the name of its dialect, start and end of its bytes, and whether it is encoded (otherwise it is
text)."""


class Container(NamedTuple):
    version: int
    producer: str
    strings: list[str]
    ops: list[str]
    """Names of ops, including their dialects."""
    attributes: list[Entry]
    types: list[Entry]
    properties: list[tuple[int, int]]
    """Start and end of the bytes of each entry."""
    ir: Cursor


def head(data: Bytes) -> tuple[int, str, Cursor]:
    """Returns the version of the bytecode, its producer, and the rest of the file."""
    c = Cursor(data, 0, len(data))
    if data[:4] != MAGIC:
        c.fail("this is not MLIR bytecode")
    c.at = len(MAGIC)
    at = c.at
    version = c.varint()
    if version > NEWEST:
        raise Damaged(f"bytecode of version {version} is newer than {NEWEST}", at, is_unknown=True)
    return version, c.text(), c


def read_container(data: Bytes) -> Container:
    """Splits a file into its sections. Raises Damaged."""
    version, producer, rest = head(data)
    found = _sections(rest)
    for needed in NEEDED:
        if needed not in found:
            rest.end_early(f"the file has no section of {TITLES[needed]}", len(data))
    strings = _strings(found[STRINGS])
    dialects, ops = _dialects(found[DIALECTS], version, strings)
    attributes, types = _entries(found[OFFSETS], found[ATTRIBUTES], dialects)
    properties = _properties(found[PROPERTIES]) if PROPERTIES in found else []
    return Container(version, producer, strings, ops, attributes, types, properties, found[IR])


def attribute_entries(found: Mapping[int, Cursor], version: int) -> list[Entry]:
    """Returns the positions of the attributes of a file with these sections, without reading the attributes' section.
    Raises Damaged."""
    dialects, _ = _dialects(found[DIALECTS], version, _strings(found[STRINGS]))
    return _entries(found[OFFSETS], found[ATTRIBUTES], dialects)[0]


def section(c: Cursor) -> tuple[int, Cursor]:
    """Reads the id of the next section, and returns it with a cursor over its data."""
    at = c.at
    id = c.byte()
    length = c.varint()
    if id & ALIGNED:
        alignment = c.varint()
        if not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
            c.fail(f"invalid alignment of a section: {alignment} bytes", at)
        c.skip(-c.at % alignment)
    if id & ~ALIGNED > PROPERTIES:
        c.fail(f"unknown section {id & ~ALIGNED}", at)
    return id & ~ALIGNED, c.part(length)


def _sections(c: Cursor) -> dict[int, Cursor]:
    found: dict[int, Cursor] = {}
    while c.at < c.end:
        at = c.at
        id, data = section(c)
        if id in found:
            c.fail(f"duplicate section of {TITLES[id]}", at)
        found[id] = data
    return found


def _strings(c: Cursor) -> list[str]:
    """strings ::= count length* byte*: lengths are in reverse order, each string ends with a zero byte"""
    lengths = c.varints(c.count())
    data, end = c.data, c.at
    if sum(lengths) != c.end - end:
        c.fail(f"the strings need {sum(lengths)} bytes, but {c.end - end} are left")
    strings: list[str] = []
    for length in reversed(lengths):
        start, end = end, end + length
        if not length or data[end - 1]:
            c.fail("a string does not end with a zero byte", end)
        strings.append(data[start : end - 1].decode("utf-8", "surrogateescape"))
    return strings


def _dialects(c: Cursor, version: int, strings: list[str]) -> tuple[list[str], list[str]]:
    """dialects ::= count dialect* number-of-ops? (dialect count name*)*"""
    dialects: list[str] = []
    for _ in range(c.count()):
        at = c.at
        number = c.varint()
        versioned = version >= 1 and number & 1
        dialects.append(_of(strings, number >> 1 if version >= 1 else number, c, at))
        if versioned:
            section(c)
    if version >= 4:
        c.varint()
    ops: list[str] = []
    while c.at < c.end:
        at = c.at
        name = _of(dialects, c.varint(), c, at)
        for _ in range(c.count()):
            at = c.at
            number = c.varint()
            ops.append(f"{name}.{_of(strings, number >> 1 if version >= 5 else number, c, at)}")
    return dialects, ops


def _of(table: list[str], index: int, c: Cursor, at: int) -> str:
    if index >= len(table):
        c.fail(f"number {index} of only {len(table)} strings or dialects", at)
    return table[index]


def _entries(offsets: Cursor, data: Cursor, dialects: list[str]) -> tuple[list[Entry], list[Entry]]:
    """offsets ::= attributes types (dialect count size*)*: the sizes of consecutive entries in `data`"""
    attributes, types = offsets.count(), offsets.count()
    entries: list[Entry] = []
    start = data.at
    while offsets.at < offsets.end:
        dialect = _of(dialects, offsets.varint(), offsets, offsets.at)
        for size in offsets.varints(offsets.count()):
            end = start + (size >> 1)
            entries.append((dialect, start, end, size & 1))
            start = end
    if start != data.end:
        offsets.fail(f"the types and attributes need {start - data.at} bytes, but there are {data.end - data.at}")
    if len(entries) != attributes + types:
        offsets.fail(f"expected {attributes} attributes and {types} types, found {len(entries)} together")
    return entries[:attributes], entries[attributes:]


def _properties(c: Cursor) -> list[tuple[int, int]]:
    """properties ::= count (length bytes)*"""
    found: list[tuple[int, int]] = []
    for _ in range(c.count()):
        n = c.varint()
        at = c.at
        c.skip(n)
        found.append((at, c.at))
    c.done("the section of properties")
    return found


# ---------------------------------------------------------------------- writing
class Tables(Protocol):
    """Tables of a file that is written; implemented by `output_tables.OutputTables`."""

    strings: Any
    dialects: Any
    attributes: Any
    types: Any


def write_section(out: Output, id: int, data: bytes | bytearray) -> None:
    out.byte(id)
    out.varint(len(data))
    out.data += data


def write_container(
    version: int, producer: str, tables: Tables, ops: Sequence[str], properties: Sequence[bytes], ir: bytes
) -> bytes:
    """Returns the bytes of a file. `ops` are grouped by dialect."""
    dialects, named = Output(), Output()
    for dialect, group in groupby(ops, lambda name: name.partition(".")[0]):
        names = [name.partition(".")[2] for name in group]
        named.varint(tables.dialects(dialect))
        named.varint(len(names))
        for name in names:
            number = tables.strings(name)
            named.varint(number << 1 | 1 if version >= 5 else number)
    offsets, data = Output(), Output()
    offsets.varint(len(tables.attributes.known))
    offsets.varint(len(tables.types.known))
    for part in (tables.attributes.known, tables.types.known):
        for dialect, group in groupby(part, lambda entry: entry[0]):
            listed = list(group)
            offsets.varint(tables.dialects(dialect))
            offsets.varint(len(listed))
            for _, payload, encoded in listed:
                offsets.varint(len(payload) << 1 | encoded)
                data.data += payload
    dialects.varint(len(tables.dialects.known))
    for dialect in tables.dialects.known:
        number = tables.strings(dialect)
        dialects.varint(number << 1 if version >= 1 else number)
    if version >= 4:
        dialects.varint(len(ops))
    dialects.data += named.data
    out = Output()
    out.data += MAGIC
    out.varint(version)
    out.text(producer)
    write_section(out, DIALECTS, dialects.data)
    write_section(out, ATTRIBUTES, data.data)
    write_section(out, OFFSETS, offsets.data)
    write_section(out, IR, ir)
    write_section(out, STRINGS, _write_strings(list(tables.strings.known)))
    if version >= 5:
        write_section(out, PROPERTIES, _write_properties(properties))
    return bytes(out.data)


def _write_strings(strings: Sequence[str]) -> bytearray:
    out = Output()
    texts = [text.encode("utf-8", "surrogateescape") + b"\0" for text in strings]
    out.varint(len(texts))
    for text in reversed(texts):
        out.varint(len(text))
    out.data += b"".join(texts)
    return out.data


def _write_properties(properties: Sequence[bytes]) -> bytearray:
    out = Output()
    out.varint(len(properties))
    for blob in properties:
        out.varint(len(blob))
        out.data += blob
    return out.data
