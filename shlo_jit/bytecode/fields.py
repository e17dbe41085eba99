"""Fields of the payloads of types and attributes: one record per kind of field, for reading and writing.

A payload is a sequence of fields. Other attributes, types and strings are in tables of the file, and are referred to by
their numbers in these tables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shlo_jit.bytecode.stream import SIGN, WIDEST, Output
from shlo_jit.ir.types import DTYPES, MAX_RANK, ScalarType, Type

DYNAMIC = -SIGN
"""Encoding of an unknown extent or bound."""
WIDEST_NUMBER = 4096
"""Bits of the widest integer that can be read."""


if TYPE_CHECKING:
    from typing import Protocol

    from shlo_jit.bytecode.tables import Tables

    class OutputTables(Protocol):
        """Tables of a file that is written."""

        def attribute(self, value: Any) -> int: ...
        def type(self, value: Any) -> int: ...
        def string(self, value: str) -> int: ...
        def location(self, value: Any) -> int: ...


class Field:
    """A field: `read` returns its value at a cursor, `write` writes a value."""

    __slots__ = ("read", "write")

    def __init__(self, read: Callable[[Tables], Any], write: Callable[[Output, OutputTables, Any], None]):
        self.read, self.write = read, write


def _read_attribute(c: Tables) -> Any:
    at = c.at
    return c.attribute(c.varint(), at)


def _read_type(c: Tables) -> Any:
    at = c.at
    return c.type(c.varint(), at)


def _read_string(c: Tables) -> str:
    at = c.at
    index = c.varint()
    if index >= len(c.strings):
        c.fail(f"number {index} of only {len(c.strings)} strings", at)
    return c.strings[index]


def _read_location(c: Tables) -> str:
    at = c.at
    return c.location(c.varint(), at)


ATTRIBUTE = Field(_read_attribute, lambda out, tables, value: out.varint(tables.attribute(value)))
TYPE = Field(_read_type, lambda out, tables, value: out.varint(tables.type(value)))
LOCATION = Field(_read_location, lambda out, tables, value: out.varint(tables.location(value)))
"""A location inside another one: its name, or `unknown`."""


def of(*classes: type) -> Field:
    """Returns the field of an attribute that must be of one of these classes."""

    def read(c: Tables) -> Any:
        at = c.at
        value = _read_attribute(c)
        if not isinstance(value, classes):
            c.fail(f"unexpected kind of attribute: {type(value).__name__}", at)
        return value

    return Field(read, ATTRIBUTE.write)


NAME = of(str)
"""A string attribute."""
STRING = Field(_read_string, lambda out, tables, value: out.varint(tables.string(value)))
COUNT = Field(lambda c: c.varint(), lambda out, tables, value: out.varint(value))
SIGNED = Field(lambda c: c.signed(), lambda out, tables, value: out.signed(value))
BYTE = Field(lambda c: c.byte(), lambda out, tables, value: out.byte(value))


def listed(field: Field, least: int = 1) -> Field:
    """Returns the field of a list: a count, then that many of `field`. `least` is the minimum size of one in bytes."""
    read_one, write_one = field.read, field.write

    def read(c: Tables) -> tuple[Any, ...]:
        return tuple([read_one(c) for _ in range(c.count(least))])

    def write(out: Output, tables: OutputTables, values: tuple[Any, ...]) -> None:
        out.varint(len(values))
        for value in values:
            write_one(out, tables, value)

    return Field(read, write)


def pairs(first: Field, second: Field) -> Field:
    """Returns the field of a list of pairs."""
    return listed(
        Field(
            lambda c: (first.read(c), second.read(c)),
            lambda out, tables, value: (first.write(out, tables, value[0]), second.write(out, tables, value[1]))[0],
        ),
        least=2,
    )


def _numbered(table: Callable[[Tables], Callable[[int, int], Any]], field: Field) -> Field:
    """Returns the field of a list of table entries, whose numbers are read in bulk."""

    def read(c: Tables) -> tuple[Any, ...]:
        at, entry = c.at, table(c)
        return tuple([entry(index, at) for index in c.varints(c.count())])

    return Field(read, listed(field).write)


ATTRIBUTES = _numbered(lambda c: c.attribute, ATTRIBUTE)
TYPES = _numbered(lambda c: c.type, TYPE)


# ---------------------------------------------------------------------- optional fields
def _read_optional_attribute(c: Tables) -> Any:
    at = c.at
    marked = c.varint()
    return c.attribute(marked >> 1, at) if marked & 1 else None


def _write_optional_attribute(out: Output, tables: OutputTables, value: Any) -> None:
    out.varint(0 if value is None else tables.attribute(value) << 1 | 1)


def _read_optional_count(c: Tables) -> int | None:
    marked = c.varint()
    return marked >> 1 if marked & 1 else None


def _write_optional_count(out: Output, tables: OutputTables, value: int | None) -> None:
    out.varint(0 if value is None else value << 1 | 1)


def _flagged(flag: Field) -> Field:
    """Returns the field of an optional attribute after a flag that tells whether it is present."""

    def read(c: Tables) -> Any:
        return _read_attribute(c) if flag.read(c) else None

    def write(out: Output, tables: OutputTables, value: Any) -> None:
        flag.write(out, tables, value is not None)
        if value is not None:
            ATTRIBUTE.write(out, tables, value)

    return Field(read, write)


OPTIONAL_ATTRIBUTE = Field(_read_optional_attribute, _write_optional_attribute)
"""An optional attribute; the lowest bit of its number tells whether it is present."""
FLAGGED_ATTRIBUTE, BYTE_FLAGGED_ATTRIBUTE = map(_flagged, (COUNT, BYTE))
OPTIONAL_COUNT = Field(_read_optional_count, _write_optional_count)


def _read_extents(c: Tables) -> tuple[int | None, ...]:
    at = c.at
    extents: list[int | None] = []
    rank = c.count()
    if rank > MAX_RANK:
        c.fail(f"a tensor may have at most {MAX_RANK} dimensions, found {rank}", at)
    for number in c.varints(rank):
        if not number & 1:
            extents.append(number >> 1)
        elif number == WIDEST:
            extents.append(None)
        else:
            c.fail(f"{-(number >> 1) - 1} is not a valid extent", at)
    return tuple(extents)


def _write_extents(out: Output, tables: OutputTables, extents: tuple[int | None, ...]) -> None:
    out.varint(len(extents))
    for extent in extents:
        out.signed(DYNAMIC if extent is None else extent)


EXTENTS = Field(_read_extents, _write_extents)
"""Extents of dimensions, or their bounds; None if unknown."""


# ---------------------------------------------------------------------- numbers and bytes
def _read_f64(c: Tables) -> float:
    return struct.unpack("<d", struct.pack("<Q", c.signed() & (1 << 64) - 1))[0]


def _write_f64(out: Output, tables: OutputTables, value: float) -> None:
    out.signed(struct.unpack("<q", struct.pack("<d", value))[0])


F64 = Field(_read_f64, _write_f64)


def bits_of(type: Type) -> int | None:
    """Returns the width of a number type in bits; None for other types."""
    if not isinstance(type, ScalarType):
        return None
    if type.name in ("index", "none"):
        return 64 if type.name == "index" else None
    found = DTYPES.get(type.name)
    if found is not None:
        return found.bits
    digits = type.name.lstrip("sui")
    return 19 if type.name == "tf32" else int(digits) if digits.isdigit() else None


def _read_number(c: Tables) -> tuple[Type, int]:
    at = c.at
    type = _read_type(c)
    bits = bits_of(type)
    if bits is None:
        c.fail("expected the type of a number", at)
    if bits <= 8:
        return type, c.byte() & (1 << bits) - 1
    if bits <= 64:
        return type, c.signed() & (1 << bits) - 1
    words = c.count()
    if words > -(-bits // 64) or bits > WIDEST_NUMBER:
        c.fail(f"numbers of {bits} bits in {words} words are not supported", at)
    return type, sum((c.signed() & (1 << 64) - 1) << 64 * i for i in range(words)) & (1 << bits) - 1


def _write_number(out: Output, tables: OutputTables, value: tuple[Type, int]) -> None:
    type, number = value
    bits = bits_of(type)
    assert bits is not None, type
    out.varint(tables.type(type))
    if bits <= 8:
        out.byte(number)
    elif bits <= 64:
        out.signed(number - (1 << bits) if number >> bits - 1 else number)
    else:
        words = [number >> at & (1 << 64) - 1 for at in range(0, bits, 64)]
        out.varint(len(words))
        for word in words:
            out.signed(word - (1 << 64) if word >> 63 else word)


NUMBER = Field(_read_number, _write_number)
"""A number: its type and its bits."""


def _write_blob(out: Output, tables: OutputTables, value: bytes | memoryview) -> None:
    out.varint(len(value))
    out.data += value


BLOB = Field(lambda c: c.take(c.varint()), _write_blob)
ELEMENTS = Field(lambda c: c.blob(c.varint()), _write_blob)
"""BLOB: a byte count, then the bytes, which are read as a view. ELEMENTS: a blob that may have been cut out of the
file."""

LOCATIONS = listed(LOCATION)
COUNTS, SIGNEDS, F64S = map(listed, (COUNT, SIGNED, F64))
