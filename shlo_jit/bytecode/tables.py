"""The types and attributes of a file that is read: each is decoded when it is first asked for, and once."""

from __future__ import annotations

from typing import Any

from shlo_jit.bytecode.builtin_kinds import BUILTIN
from shlo_jit.bytecode.container import Container, Entry
from shlo_jit.bytecode.kinds import Dialect, Kind
from shlo_jit.bytecode.locations import UNKNOWN, Location, location_text
from shlo_jit.bytecode.sdy_kinds import SDY
from shlo_jit.bytecode.stream import Cursor
from shlo_jit.bytecode.vhlo_kinds import VHLO
from shlo_jit.errors import StableHLOError
from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.text.parser import attribute_of_text
from shlo_jit.text.types import type_of_text

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (VHLO, BUILTIN, SDY)}
MISSING: Any = object()
DEEPEST = 400
"""How deep types and attributes may be in each other."""
LARGEST = 1 << 20
"""How many nodes the tree of one may have: those that are used twice count twice, as they do when it is printed."""


class Tables:
    """`Found` of the fields."""

    def __init__(self, data: memoryview, container: Container):
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
        self.names: dict[int, str] = {}
        """Of locations that have been met, and `unknown` for those that say nothing."""
        self.pending: list[int] = []
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
        value = self._read(entries[index], which)
        self.depth -= 1
        if self.size > LARGEST:
            here.fail(f"{what} {index} is larger than {LARGEST} of them")
        if isinstance(value, Location):
            value = self.place(index, at) or OpaqueAttr(f"loc({UNKNOWN})")
        sizes[index] = self.size
        self.size += outer
        self.values[which][index] = value
        return value

    def _read(self, entry: Entry, which: int) -> Any:
        c = Cursor(self.data, entry.start, entry.end)
        if not entry.encoded:
            return self._read_text(c, entry, which)
        kind = self._kind(c, entry, which)
        fields = [field.read(c, self) for field in kind.fields]
        try:
            value = kind.make(*fields)
        except ValueError as refusal:
            c.fail(f"{entry.dialect} {kind.name}: {refusal}", entry.start)
        c.done(f"the {kind.name} here")
        return value

    def _kind(self, c: Cursor, entry: Entry, which: int) -> Kind:
        dialect = DIALECTS.get(entry.dialect)
        if dialect is None:
            c.fail(f"dialect {entry.dialect} is not known here")
        code = c.varint()
        kind = (dialect.types if which else dialect.attributes).get(code)
        if kind is None:
            c.fail(f"{entry.dialect} has no {'type' if which else 'attribute'} {code} that is known here", entry.start)
        return kind

    def _read_text(self, c: Cursor, entry: Entry, which: int) -> Any:
        """What has no bytes of its own stands here as it is printed."""
        text = c.text()
        c.done("the text here")
        if not which and entry.dialect not in DIALECTS:
            return OpaqueAttr(text)
        try:
            return type_of_text(text) if which else attribute_of_text(text)
        except StableHLOError as error:
            c.fail(f"{text[:80]!r}: {error.diagnostics[0].message}", entry.start)

    # ---- locations

    def location(self, index: int, at: int) -> str:
        """How a location is named by others: `#loc3`, or `unknown`. Its own text is made later, by `named_locations`."""
        name = self.names.get(index)
        if name is None:
            entries = self.entries[0]
            if index >= len(entries):
                Cursor(self.data, at, at).fail(f"there are {len(entries)} attributes, and this is number {index}")
            name = UNKNOWN if self._is_unknown(entries[index]) else f"#loc{index}"
            self.names[index] = name
            if name != UNKNOWN:
                self.pending.append(index)
        return name

    def _is_unknown(self, entry: Entry) -> bool:
        c = Cursor(self.data, entry.start, entry.end)
        return entry.dialect == BUILTIN.name and entry.encoded and self._kind(c, entry, 0).name == UNKNOWN

    def place(self, index: int, at: int) -> OpaqueAttr | None:
        """The location of an op or argument; None for one that is not known."""
        found = self.places.get(index, MISSING)
        if found is MISSING:
            name = self.location(index, at)
            found = self.places[index] = None if name == UNKNOWN else OpaqueAttr(f"loc({name})")
        return found

    def named_locations(self) -> dict[str, str]:
        """Name to text of all locations that have been met, and those they are made of."""
        found: dict[str, str] = {}
        while self.pending:
            index = self.pending.pop()
            entry = self.entries[0][index]
            value = self._read(entry, 0)
            if not isinstance(value, Location):
                Cursor(self.data, entry.start, entry.end).fail(f"attribute {index} should be a location")
            found[f"loc{index}"] = f"loc({location_text(value)})"
        return found
