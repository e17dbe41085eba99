"""The types and attributes of a file that is read: each is decoded when it is first asked for, and once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from shlo_jit.bytecode.builtin_kinds import BUILTIN
from shlo_jit.bytecode.container import Container, Entry
from shlo_jit.bytecode.kinds import Dialect, Kind
from shlo_jit.bytecode.locations import UNKNOWN, Location, location_text
from shlo_jit.bytecode.sdy_kinds import SDY
from shlo_jit.bytecode.stream import Cursor, Damaged
from shlo_jit.bytecode.vhlo_kinds import VHLO
from shlo_jit.errors import StableHLOError
from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.text.parser import attribute_of_text
from shlo_jit.text.types import type_of_text

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (VHLO, BUILTIN, SDY)}
MISSING: Any = object()
_UNKNOWN_BYTES = b"\x1f"
"""Of `loc(unknown)`, in its dialect."""
DEEPEST = 400
"""How deep types and attributes may be in each other."""
LARGEST = 1 << 17
"""How many nodes the tree of one may have: those that are used twice count twice, as they do when it is printed."""


class Tables:
    """`Found` of the fields."""

    def __init__(self, data: bytes, container: Container):
        self.data = data
        self.strings = container.strings
        self.entries = (container.attributes, container.types)
        self.values: tuple[list[Any], list[Any]] = (
            [MISSING] * len(container.attributes), [MISSING] * len(container.types),
        )  # fmt: skip
        self.sizes: tuple[list[int], list[int]] = ([0] * len(container.attributes), [0] * len(container.types))
        """Nodes of the tree of each that is decoded; 0 of one that is not, -1 of one that is being decoded."""
        self.size = 0
        """Nodes so far of the one that is being decoded."""
        self.depth = 0
        self.pending: list[int] = []
        """Locations that have been met, and whose texts have not been made."""
        self.places: dict[int, OpaqueAttr | None] = {}

    def string(self, index: int, at: int) -> str:
        if index >= len(self.strings):
            Cursor(self.data, at, at).fail(f"there are {len(self.strings)} texts, and this is number {index}")
        return self.strings[index]

    def attribute(self, index: int, at: int) -> Any:
        values = self.values[0]
        value = values[index] if index < len(values) else MISSING
        if value is not MISSING:
            self.size += self.sizes[0][index]
            return value
        return self._decoded(0, index, at)

    def type(self, index: int, at: int) -> Any:
        values = self.values[1]
        value = values[index] if index < len(values) else MISSING
        if value is not MISSING:
            self.size += self.sizes[1][index]
            return value
        return self._decoded(1, index, at)

    def _decoded(self, which: int, index: int, at: int) -> Any:
        """Attribute (0) or type (1) number `index`, which stands at `at`."""
        what = ("attribute", "type")[which]
        entries, sizes = self.entries[which], self.sizes[which]
        here = Cursor(self.data, at, at)
        if index >= len(entries):
            here.fail(f"there are {len(entries)} {what}s, and this is number {index}")
        if sizes[index] < 0:
            here.fail(f"{what} {index} is a part of itself")
        if self.depth >= DEEPEST:
            here.fail(f"types and attributes are more than {DEEPEST} deep in each other")
        outer, self.size, sizes[index] = self.size, 1, -1
        self.depth += 1
        value = self.read(entries[index], which)
        self.depth -= 1
        if self.size > LARGEST:
            here.fail(f"{what} {index} is larger than {LARGEST} of them")
        if isinstance(value, Location):
            value = self.place(index, at) or OpaqueAttr(f"loc({UNKNOWN})")
        sizes[index] = self.size
        self.size += outer
        self.values[which][index] = value
        return value

    def read(self, entry: Entry, which: int) -> Any:
        dialect, start, end, encoded = entry
        c = Cursor(self.data, start, end)
        if not encoded:
            return self._read_text(c, entry, which)
        kind = self._kind(c, entry, which)
        fields = [read(c, self) for read, _ in kind.fields]
        try:
            value = kind.make(*fields)
        except ValueError as refusal:
            c.fail(f"{dialect} {kind.name}: {refusal}", start)
        if c.at != end:
            c.done(f"the {kind.name} here")
        return value

    def _kind(self, c: Cursor, entry: Entry, which: int) -> Kind:
        dialect = DIALECTS.get(entry[0])
        if dialect is None:
            c.fail(f"dialect {entry[0]} is not known here")
        code = c.varint()
        kind = (dialect.types if which else dialect.attributes).get(code)
        if kind is None:
            c.fail(f"{entry[0]} has no {'type' if which else 'attribute'} {code} that is known here", entry[1])
        return kind

    def _read_text(self, c: Cursor, entry: Entry, which: int) -> Any:
        """What has no bytes of its own stands here as it is printed."""
        text = c.text()
        c.done("the text here")
        if not which and entry[0] not in DIALECTS:
            return OpaqueAttr(text)
        try:
            return type_of_text(text) if which else attribute_of_text(text)
        except StableHLOError as error:
            c.fail(f"{text[:80]!r}: {error.diagnostics[0].message}", entry[1])

    # ---- locations

    def location(self, index: int, at: int) -> str:
        """How a location is named by others: `#loc3`, or `unknown`. Its own text is made by `Locations`."""
        entries = self.entries[0]
        if index >= len(entries):
            Cursor(self.data, at, at).fail(f"there are {len(entries)} attributes, and this is number {index}")
        dialect, start, end, _ = entries[index]
        if self.data[start:end] == _UNKNOWN_BYTES and dialect == BUILTIN.name:
            return UNKNOWN
        self.pending.append(index)
        return f"#loc{index}"

    def place(self, index: int, at: int) -> OpaqueAttr | None:
        """The location of an op or argument; None for one that is not known."""
        found = self.places.get(index, MISSING)
        if found is MISSING:
            name = self.location(index, at)
            found = self.places[index] = None if name == UNKNOWN else OpaqueAttr(f"loc({name})")
        return found


class Locations(Mapping[str, str]):
    """Name to text of the locations that have been met, and of those they are made of. The texts are made when the
    first one is asked for, which few programs ever see; one that cannot be read is unknown."""

    def __init__(self, tables: Tables):
        self._tables = tables

    @cached_property
    def _texts(self) -> dict[str, str]:
        tables = self._tables
        found: dict[str, str] = {}
        while tables.pending:
            index = tables.pending.pop()
            name = f"loc{index}"
            if name in found:
                continue
            try:
                value = tables.read(tables.entries[0][index], 0)
            except Damaged:
                value = None
            found[name] = f"loc({location_text(value) if isinstance(value, Location) else UNKNOWN})"
        return found

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
