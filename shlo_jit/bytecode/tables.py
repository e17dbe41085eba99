"""Tables of a file that is read: types and attributes are decoded once, on first use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from shlo_jit.bytecode.builtin_kinds import BUILTIN
from shlo_jit.bytecode.container import Container, Entry
from shlo_jit.bytecode.kinds import Dialect, Kind
from shlo_jit.bytecode.locations import UNKNOWN, Location
from shlo_jit.bytecode.stream import Bytes, Cursor, Damaged
from shlo_jit.bytecode.vhlo_kinds import VHLO
from shlo_jit.errors import StableHLOError
from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.ir.types import MAX_PARTS
from shlo_jit.text.literals import Literal
from shlo_jit.text.parser import attribute_of_text
from shlo_jit.text.types import type_of_text

ATTRIBUTE, TYPE = range(2)
WORDS = ("attribute", "type")
KINDS: tuple[dict[tuple[str, int], Kind], ...] = ({}, {})
"""Kinds of attributes and of types, by dialect and number."""
DIALECTS: set[str] = set()
"""Dialects whose kinds are loaded."""
RARE = {"sdy": "sdy_kinds", "stablehlo": "stablehlo_kinds"}
"""Rarely used dialects -> modules with their kinds, which are imported on demand."""


def _add(dialect: Dialect) -> None:
    for known, kinds in zip(KINDS, (dialect.attributes, dialect.types), strict=True):
        known.update({(dialect.name, code): kind for code, kind in kinds.items()})
    DIALECTS.add(dialect.name)


_add(VHLO)
_add(BUILTIN)
_UNKNOWN_BYTES = b"\x1f"
"""Encoding of `loc(unknown)` in its dialect."""
DEEPEST = 400
"""Maximum nesting of types and attributes."""


class Tables(Cursor):
    """Types and attributes of a file, and a cursor over the bytes of the one being decoded, from which fields are
    read."""

    __slots__ = ("depth", "entries", "literals", "places", "size", "sizes", "strings", "values")

    def __init__(self, data: Bytes, container: Container, literals: Mapping[int, Literal]):
        super().__init__(data, 0, 0)
        self.literals = literals
        """Literals whose bytes are not in the data, by offset."""
        self.strings = container.strings
        self.entries = (container.attributes, container.types)
        self.values: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        self.sizes: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """Number of nodes in the tree of each decoded entry; -1 for one that is being decoded."""
        self.size = 0
        """Number of nodes so far in the entry being decoded."""
        self.depth = 0
        self.places: dict[int, OpaqueAttr | None] = {}
        """Locations seen so far; `Locations` creates their texts."""

    def blob(self, n: int) -> memoryview | Literal:
        """Consumes the next n bytes. Returns a view of them, or the literal that was cut out there."""
        literal = self.literals.get(self.at)
        if literal is None or literal.nbytes != n:
            return self.take(n)
        self.skip(n)
        return literal

    def attribute(self, index: int, at: int) -> Any:
        """Returns attribute number `index`. `at` is the offset of the reference to it, for messages."""
        values = self.values[ATTRIBUTE]
        if index not in values:
            return self._decoded(ATTRIBUTE, index, at)
        self.size += self.sizes[ATTRIBUTE][index]
        return values[index]

    def type(self, index: int, at: int) -> Any:
        values = self.values[TYPE]
        if index not in values:
            return self._decoded(TYPE, index, at)
        self.size += self.sizes[TYPE][index]
        return values[index]

    def _decoded(self, which: int, index: int, at: int) -> Any:
        entries, sizes = self.entries[which], self.sizes[which]
        if index >= len(entries):
            self.fail(f"number {index} of only {len(entries)} {WORDS[which]}s", at)
        if index in sizes:
            self.fail(f"{WORDS[which]} {index} contains itself", at)
        if self.depth >= DEEPEST:
            self.fail(f"types and attributes are nested more than {DEEPEST} levels deep", at)
        outer = self.at, self.end, self.size
        self.size, sizes[index] = 1, -1
        self.depth += 1
        value = self.read(entries[index], which)
        self.depth -= 1
        if self.size > MAX_PARTS:
            self.fail(f"{WORDS[which]} {index} has more than {MAX_PARTS} nodes", at)
        if isinstance(value, Location):
            value = self.place(index, at) or OpaqueAttr(f"loc({UNKNOWN})")
        sizes[index] = size = self.size
        self.at, self.end, self.size = outer
        self.size += size
        self.values[which][index] = value
        return value

    def read(self, entry: Entry, which: int) -> Any:
        """Decodes the type or attribute in these bytes and moves the cursor after it."""
        dialect, self.at, self.end, encoded = entry
        if not encoded:
            return self._read_text(dialect, which)
        code = self.varint()
        kind = KINDS[which].get((dialect, code)) or self._rare_kind(dialect, code, which, entry[1])
        try:
            value = kind.read(self)
        except ValueError as refusal:
            self.fail(f"{dialect} {kind.name}: {refusal}", entry[1])
        if self.at != self.end:
            self.done(f"the {kind.name} here")
        return value

    def _rare_kind(self, dialect: str, code: int, which: int, at: int) -> Kind:
        if dialect in RARE and dialect not in DIALECTS:
            module = importlib.import_module(f"shlo_jit.bytecode.{RARE[dialect]}")
            _add(getattr(module, dialect.upper()))
        if dialect not in DIALECTS:
            self.fail(f"unknown dialect {dialect}", at)
        if (dialect, code) not in KINDS[which]:
            self.fail(f"unknown {WORDS[which]} {code} of dialect {dialect}", at)
        return KINDS[which][dialect, code]

    def _read_text(self, dialect: str, which: int) -> Any:
        """Reads a type or attribute that has no binary encoding and is stored as text."""
        start = self.at
        text = self.text()
        self.done("the text here")
        if which == ATTRIBUTE and dialect not in DIALECTS and dialect not in RARE:
            return OpaqueAttr(text)
        try:
            return type_of_text(text) if which == TYPE else attribute_of_text(text)
        except StableHLOError as error:
            self.fail(f"{text[:80]!r}: {error.diagnostics[0].message}", start)

    # ---- locations

    def location(self, index: int, at: int) -> str:
        """Returns the name by which others refer to a location: `#loc3` or `unknown`. `Locations` creates its text."""
        return UNKNOWN if self.place(index, at) is None else f"#loc{index}"

    def place(self, index: int, at: int) -> OpaqueAttr | None:
        """Returns the location of an op or argument; None if it is unknown."""
        if index in self.places:
            return self.places[index]
        entries = self.entries[ATTRIBUTE]
        if index >= len(entries):
            self.fail(f"number {index} of only {len(entries)} attributes", at)
        dialect, start, end, _ = entries[index]
        is_known = end - start > 1 or self.data[start:end] != _UNKNOWN_BYTES or dialect != BUILTIN.name
        self.places[index] = found = OpaqueAttr(f"loc(#loc{index})") if is_known else None
        return found


class Locations(Mapping[str, str]):
    """Texts, by name, of the locations seen so far and of the locations that they contain.

    The texts are created on first use, since few programs need them. A location that cannot be decoded is unknown.
    """

    def __init__(self, tables: Tables):
        self._tables = tables

    @cached_property
    def _texts(self) -> dict[str, str]:
        tables = self._tables
        found: dict[str, str] = {}
        pending = list(tables.places)
        while pending:
            for index in pending:
                found[f"loc{index}"] = f"loc({self._text(index)})"
            pending = list(tables.places)[len(found) :]  # the locations that these contain
        return found

    def _text(self, index: int) -> str:
        from shlo_jit.bytecode.location_texts import location_text  # few programs need it

        tables = self._tables
        try:
            value = tables.read(tables.entries[ATTRIBUTE][index], ATTRIBUTE)
        except Damaged:
            tables.depth = 0
            return UNKNOWN
        return location_text(value) if isinstance(value, Location) else UNKNOWN

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
