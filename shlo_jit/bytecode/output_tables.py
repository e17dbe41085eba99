"""Tables of a file that is written: types and attributes are numbered on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shlo_jit.bytecode import builtin_kinds, sdy_kinds, stablehlo_kinds, vhlo_kinds
from shlo_jit.bytecode.builtin_kinds import BUILTIN
from shlo_jit.bytecode.kinds import Dialect, Kind
from shlo_jit.bytecode.location_texts import read_location
from shlo_jit.bytecode.locations import UNKNOWN, Location
from shlo_jit.bytecode.op_attributes import NotRepresentable
from shlo_jit.bytecode.stream import Output
from shlo_jit.bytecode.versions import Version
from shlo_jit.ir.attributes import ConvDims, Dense, DenseArray, EnumAttr, OpaqueAttr, StructAttr, SymbolRef
from shlo_jit.ir.type_text import type_text
from shlo_jit.ir.types import DTYPES, ScalarType, TokenType, Type, tensor


class Numbers:
    """Assigns consecutive numbers to values; equal values have the same number."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self.known.setdefault(value, len(self.known))


class OutputTables:
    """All tables of a file for a version of StableHLO, and the location aliases of its module."""

    def __init__(self, version: Version, locations: Mapping[str, str]):
        self.version = version
        self.strings = Numbers()
        self.dialects = Numbers()
        self.attributes, self.types = Numbers(), Numbers()
        """Entries: dialect, bytes, and whether these are encoded (otherwise they are text)."""
        self.builtin = Namespace(self, BUILTIN, builtin_kinds.name_of_kind)
        self.sdy = Namespace(self, sdy_kinds.SDY, sdy_kinds.name_of_kind)
        self.vhlo = Namespace(self, vhlo_kinds.VHLO, vhlo_kinds.name_of_kind_in_vhlo)
        self.stablehlo = Namespace(self, stablehlo_kinds.STABLEHLO, stablehlo_kinds.name_of_kind)
        self.aliases = locations
        self.places: dict[str, int] = {}
        self.following: set[str] = set()
        """Aliases that are being resolved; a cyclic one becomes an unknown location."""

    def place(self, location: Any) -> int:
        """Returns the number of an op's location; the unknown location if it is missing or cannot be parsed."""
        text = location.text if isinstance(location, OpaqueAttr) else ""
        number = self.places.get(text)
        if number is None:
            number = self.places[text] = self.location(self._tree(text))
        return number

    @staticmethod
    def _tree(text: str) -> Location | str:
        try:
            return read_location(text)
        except ValueError:
            return UNKNOWN

    def location(self, value: Location | str) -> int:
        """Returns the number of a location that is part of another one."""
        if isinstance(value, Location):
            return self.builtin.attribute(value)
        name = value.removeprefix("#")
        if name not in self.aliases or name in self.following:
            return self.builtin.attribute(Location(UNKNOWN, ()))
        self.following.add(name)
        number = self.place(OpaqueAttr(self.aliases[name]))
        self.following.discard(name)
        return number


class Namespace:
    """Encodes values with the kinds of one dialect; implements `fields.OutputTables`."""

    def __init__(self, tables: OutputTables, dialect: Dialect, name_of: Callable[[Any], str]):
        self.tables, self.dialect, self.name_of = tables, dialect, name_of
        self.attribute_kinds = {kind.name: kind for kind in dialect.attributes.values()}
        self.type_kinds = {kind.name: kind for kind in dialect.types.values()}
        self.seen: dict[int, tuple[Any, int]] = {}
        """Id of a value -> the value and its number."""

    def string(self, value: str) -> int:
        return self.tables.strings(value)

    def location(self, value: Any) -> int:
        return self.tables.location(value)

    def attribute(self, value: Any) -> int:
        """Returns the number of an attribute. Raises NotRepresentable."""
        found = self.seen.get(id(value))
        if found is not None:
            return found[1]
        number = self._attribute(value)
        self.seen[id(value)] = (value, number)
        return number

    def _attribute(self, value: Any) -> int:
        tables = self.tables
        if isinstance(value, OpaqueAttr) and value.text.startswith("loc("):
            return tables.place(value)
        if self is tables.vhlo:
            value = _without_kinds(value)
        owner = self._owner(value)
        if owner is not self:
            return owner.attribute(value)
        return tables.attributes((self.dialect.name, self._payload(value, self.attribute_kinds), True))

    def _owner(self, value: Any) -> Namespace:
        """Returns the namespace of the dialect that encodes an attribute."""
        tables = self.tables
        is_bounds = isinstance(value, OpaqueAttr) and value.text.startswith(vhlo_kinds.BOUNDS)
        if isinstance(value, OpaqueAttr) and not is_bounds:
            return tables.sdy
        if self is tables.vhlo:
            return self
        return tables.stablehlo if is_bounds or isinstance(value, EnumAttr | StructAttr | ConvDims) else tables.builtin

    def type(self, value: Any) -> int:
        found = self.seen.get(id(value))
        if found is None:
            found = self.seen[id(value)] = (value, self._type(value))
        return found[1]

    def _type(self, value: Type) -> int:
        tables = self.tables
        if isinstance(value, TokenType) and self is not tables.vhlo:
            own = tables.stablehlo
            return tables.types((own.dialect.name, own._payload(value, own.type_kinds), True))
        if self is tables.sdy or self is tables.stablehlo:
            return tables.builtin.type(value)
        if self is tables.builtin and isinstance(value, ScalarType) and value.name in DTYPES and "E" in value.name:
            return tables.types((self.dialect.name, type_text(value).encode() + b"\0", False))
        return tables.types((self.dialect.name, self._payload(value, self.type_kinds), True))

    def _payload(self, value: Any, kinds: Mapping[str, Kind]) -> bytes:
        try:
            name = self.name_of(value)
            kind = kinds.get(name)
            if kind is None:
                raise NotRepresentable(f"{self.dialect.name} has no {name}")
            if self.tables.version < kind.since:
                raise NotRepresentable(f"{name} requires version {kind.since} or later")
            parts = kind.parts(value)
        except ValueError as refusal:
            raise NotRepresentable(str(refusal)) from None
        out = Output()
        out.varint(kind.code)
        for field, part in zip(kind.fields, parts, strict=True):
            field.write(out, self, part)
        return bytes(out.data)


def _without_kinds(value: Any) -> Any:
    """Replaces an attribute of a kind that VHLO lacks by VHLO's substitute, as MLIR does."""
    if isinstance(value, DenseArray):
        dtype = DTYPES.get(value.dtype)
        if dtype is not None:
            return Dense(tensor((len(value.values),), dtype), np.array(value.values, dtype.numpy))
    if isinstance(value, SymbolRef) and len(value.path) == 1:
        return value.name
    return value
