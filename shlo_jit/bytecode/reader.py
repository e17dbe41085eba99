"""A portable artifact to a `Module`: the ops and regions of a file.

    block  ::= (number of ops, whether there are arguments) arguments? op*
    op     ::= name mask location dictionary? properties? result-types? operands? regions?
    region ::= number of blocks (number of values, block*)?

Values have no names. Each is a number: those of a region come after all of the region around it, or start at 0 where it
does not see that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from shlo_jit.bytecode import container
from shlo_jit.bytecode.container import Container, read_container
from shlo_jit.bytecode.fields import ATTRIBUTE, OPTIONAL_ATTRIBUTE
from shlo_jit.bytecode.op_attributes import from_stored
from shlo_jit.bytecode.op_table import FOREIGN, STEMS, Versions
from shlo_jit.bytecode.printed import PrintedSource
from shlo_jit.bytecode.stream import Cursor, Damaged, counted, long_varint
from shlo_jit.bytecode.tables import MISSING, Locations, Tables
from shlo_jit.bytecode.versions import LAST, version_of_producer
from shlo_jit.deep import NESTING_LIMIT, deeply
from shlo_jit.errors import Diagnostic, ParseError
from shlo_jit.ir.attributes import DictAttr, OpaqueAttr
from shlo_jit.ir.collector import paused_collector
from shlo_jit.ir.core import Block, Module, Op, Region, Value
from shlo_jit.ir.types import Type
from shlo_jit.log import LOG

HAS_DICTIONARY, HAS_RESULTS, HAS_OPERANDS, HAS_SUCCESSORS, HAS_REGIONS, HAS_ORDERS, HAS_PROPERTIES = (
    1, 2, 4, 8, 16, 32, 64,
)  # fmt: skip
ONE = 1 << 1 | 1
"""The number 1, written."""
SMALLEST_OP = 3
"""Bytes: name, mask, location."""
CAST = "builtin.unrealized_conversion_cast"
_VERSIONED = re.compile(r"vhlo\.(.+)_v(\d{1,9})$")


@deeply
@paused_collector()
def read_artifact(data: bytes, name: str = "<bytes>") -> Module:
    """The program in a portable artifact. Raises ParseError, which says at which byte."""
    try:
        return _Reader(data, name).module()
    except Damaged as damage:
        raise _refusal(data, name, damage) from None


def _refusal(data: bytes, name: str, damage: Damaged) -> ParseError:
    hint = ""
    try:
        _, producer, _ = container.head(data)
        version = version_of_producer(producer)
        if version is None:
            hint = f"the file was written by {producer[:60]!r}, and is no portable artifact of StableHLO"
        elif version > LAST:
            hint = f"the file was written by StableHLO {version}; versions up to {LAST} are known here"
    except Damaged:
        pass
    message = f"byte {damage.at}: {damage.message}"
    return ParseError(Diagnostic(message, name, 0, 0, label="bytecode", hint=hint))


class _Reader:
    """Where it is in the ops, and the values that can be seen there."""

    def __init__(self, data: bytes, name: str):
        self.data = data
        self.file: Container = read_container(data)
        self.version = self.file.version
        self.tables = Tables(data, self.file)
        self.source = PrintedSource(name)
        self.values: list[Value | None] = []
        """By number; those of the regions around, too, as far as they can be seen."""
        self.next = 0
        """The number of the next value that is defined."""
        self.ops = 0
        self.arguments = 0
        """Of the blocks around."""
        self.depth = 0
        self.types: dict[int, Type] = {}
        """Of values, by their number."""
        self.rows: dict[int, tuple[str, Versions | None, int]] = {}
        """Name in StableHLO, row and version of the ops met, by their number."""
        self.known: dict[tuple[int, int, int], tuple[str, dict[str, Any]]] = {}
        """Name and attributes of an op with this name, dictionary and properties."""

    def module(self) -> Module:
        c = self.file.ir
        block = self.block(c, "")
        c.done("the section of operations")
        if len(block.ops) != 1 or block.ops[0].name != "builtin.module":
            c.fail("the file has not one module")
        op = block.ops[0]
        module = Module(op, self.source, Locations(self.tables), scoped=True)
        self.source.module = module
        version = version_of_producer(self.file.producer)
        if version is not None and version > LAST:
            LOG.info("%s was written by StableHLO %s; versions up to %s are known", self.source.name, version, LAST)
        return module

    # ---- regions

    def region(self, c: Cursor, owner: str) -> Region:
        at = c.at
        blocks = c.count()
        if not blocks:
            return Region()
        if blocks > 1:
            c.fail("regions of several blocks are not StableHLO", at)
        self.depth += 1
        if self.depth > NESTING_LIMIT:
            c.fail(f"nested too deeply (more than {NESTING_LIMIT} regions)", at)
        outer = self.next, self.arguments
        self.next = len(self.values)
        self.values += [None] * c.count()
        first = self.next
        block = self.block(c, owner)
        del self.values[first:]
        self.next, self.arguments = outer
        self.depth -= 1
        return Region([block])

    def block(self, c: Cursor, owner: str) -> Block:
        at = c.at
        head = c.varint()
        block = self.arguments_of(c) if head & 1 else Block()
        if (head >> 1) * SMALLEST_OP > c.end - c.at:
            c.fail(f"{head >> 1} operations should follow, and {c.end - c.at} bytes are left", at)
        try:
            self.ops_of(c, head >> 1, owner, block.ops)
        except IndexError:
            c.fail("the file ends in the middle of an operation", at)
        return block

    def arguments_of(self, c: Cursor) -> Block:
        tables = self.tables
        arguments: list[Value] = []
        locations: list[Any] = []
        first = c.at
        for _ in range(c.count()):
            at = c.at
            number, located = c.varint(), True
            if self.version >= 4:
                number, located = number >> 1, number & 1
            arguments.append(Value(self.value_type(number, at), None, 0, f"arg{self.arguments}"))
            self.arguments += 1
            at = c.at
            locations.append(tables.place(c.varint(), at) if located else None)
        if self.version >= 3 and c.byte():
            self.skip_orders(c, len(arguments))
        self.define(arguments, first)
        return Block(arguments, locations=tuple(locations) if any(locations) else ())

    def define(self, values: Sequence[Value | None], at: int) -> None:
        """Give values the next numbers."""
        first = self.next
        self.next += len(values)
        if self.next > len(self.values):
            raise Damaged("there are more values than the region says", at)
        self.values[first : self.next] = values

    def value_type(self, number: int, at: int) -> Type:
        type = self.types.get(number)
        if type is None:
            type = self.tables.type(number, at)
            if not isinstance(type, Type):
                raise Damaged("this type is one of elements, not of values", at)
            self.types[number] = type
        return type

    def skip_orders(self, c: Cursor, values: int) -> None:
        """In which order the users of values are kept in memory."""
        for _ in range(c.count() if values > 1 else 1):
            if values > 1:
                c.varint()
            for _ in range(c.varint() >> 1):
                c.varint()

    # ---- ops

    def ops_of(self, c: Cursor, count: int, owner: str, ops: list[Op]) -> None:
        """op*, which most of the time goes into. Past the end of the section there are other bytes, or an IndexError:
        an op that ends there is refused."""
        values, source = self.values, self.source
        for _ in range(count):
            start = c.at
            mask, name, attributes, location = self.head(c)
            types = self.result_types(c) if mask & HAS_RESULTS else []
            operands = self.operands(c) if mask & HAS_OPERANDS else []
            if mask & HAS_SUCCESSORS:
                c.fail("operations that go on in another block are not StableHLO", start)
            if mask & HAS_ORDERS:
                self.skip_orders(c, len(types))
            if c.at > c.end:
                c.fail("the operations end in the middle of one", start)
            if name == CAST:
                self.cast(c, mask, operands, types, start)
                continue
            if name == "stablehlo.return" and owner == "func.func":
                name = "func.return"
            self.ops += 1
            op = Op(name, operands, types, dict(attributes), None, source, self.ops, self.ops, location)
            if len(types) == 1 and self.next < len(values):
                values[self.next] = op.results[0]
                self.next += 1
            elif types:
                self.define(op.results, start)
            if mask & HAS_REGIONS:
                op.regions = self.regions(c, name)
            elif name == "func.func":
                op.regions = [Region()]
            if name == "builtin.module":
                self.check_module(c, op, start)
            ops.append(op)

    def check_module(self, c: Cursor, op: Op, at: int) -> None:
        """A module has one region, which has a block even where nothing is in it."""
        if len(op.regions) != 1:
            c.fail(f"a module has one region, not {len(op.regions)}", at)
        if not op.regions[0].blocks:
            op.regions[0].blocks.append(Block())

    def head(self, c: Cursor) -> tuple[int, str, dict[str, Any], OpaqueAttr | None]:
        """name mask location dictionary? properties?: the mask, and what the op's numbers stand for"""
        data, start = c.data, c.at
        number = data[start]
        if number & 1:
            number, at = number >> 1, start + 1
        else:
            number, at = long_varint(data, start)
        mask, place = data[at], data[at + 1]
        if place & 1:
            place, at = place >> 1, at + 2
        else:
            place, at = long_varint(data, at + 1)
        location = self.tables.places.get(place, MISSING)
        if location is MISSING:
            location = self.tables.place(place, start)
        dictionary = properties = -1
        if mask & HAS_DICTIONARY:
            dictionary, at = long_varint(data, at)
        if mask & HAS_PROPERTIES:
            properties, at = long_varint(data, at)
        c.at = at
        found = self.known.get((number, dictionary, properties))
        name, attributes = found or self.known_op(number, dictionary, properties, start)
        return mask, name, attributes, location

    def result_types(self, c: Cursor) -> list[Type]:
        data, at = c.data, c.at
        if data[at] == ONE and data[at + 1] & 1:
            numbers = (data[at + 1] >> 1,)
            c.at = at + 2
        else:
            numbers, c.at = counted(data, at)
        try:
            return [self.types[number] for number in numbers]
        except KeyError:
            return [self.value_type(number, at) for number in numbers]

    def operands(self, c: Cursor) -> list[Value]:
        at, values = c.at, self.values
        numbers, c.at = counted(c.data, at)
        try:
            found = [values[number] for number in numbers]
        except IndexError:
            c.fail("an operand is none of the values here", at)
        if None in found:
            c.fail("a value is used before it is defined", at)
        return found  # type: ignore[return-value]

    def known_op(self, number: int, dictionary: int, properties: int, at: int) -> tuple[str, dict[str, Any]]:
        """Name and attributes of an op with these numbers, from now on known."""
        name, row, version = self.rows.get(number) or self.row(number, at)
        found = name, self.attributes_of(name, row, version, dictionary, properties, at)
        self.known[number, dictionary, properties] = found
        return found

    def cast(self, c: Cursor, mask: int, operands: list[Value], types: list[Type], start: int) -> None:
        """From StableHLO's types to VHLO's or back, which are the same here."""
        if mask & HAS_REGIONS or [value.type for value in operands] != types:
            c.fail("a cast between types that are not the same", start)
        self.define(operands, start)

    def regions(self, c: Cursor, name: str) -> list[Region]:
        at = c.at
        head = c.varint()
        n, isolated = head >> 1, head & 1
        if n > c.end - c.at:
            c.fail(f"{n} regions should follow, and {c.end - c.at} bytes are left", at)
        if not isolated:
            return [self.region(c, name) for _ in range(n)]
        inner = c
        if self.version >= 2:
            id, inner = container.section(c)
            if id != container.IR:
                c.fail("the regions of an operation should be here", at)
        outer = self.values, self.next, self.arguments
        self.values, self.next, self.arguments = [], 0, 0
        regions = [self.region(inner, name) for _ in range(n)]
        self.values, self.next, self.arguments = outer
        if inner is not c:
            inner.done("the regions here")
        return regions

    def row(self, number: int, at: int) -> tuple[str, Versions | None, int]:
        """What is known of op number `number`."""
        names = self.file.ops
        if number >= len(names):
            raise Damaged(f"there are {len(names)} names of operations, and this is number {number}", at)
        name = names[number]
        found: tuple[str, Versions | None, int]
        if name in FOREIGN:
            found = (name, None, 0)
        else:
            m = _VERSIONED.match(name)
            row = STEMS.get(m[1]) if m else None
            if m is None or row is None or not 1 <= int(m[2]) <= len(row.since):
                raise Damaged(f"the operation {name} is not known here", at)
            found = (row.name, row, int(m[2]))
        self.rows[number] = found
        return found

    # ---- attributes

    def attributes_of(
        self, name: str, row: Versions | None, version: int, dictionary: int, properties: int, at: int
    ) -> dict[str, Any]:
        """Of an op with a dictionary and properties of these numbers; -1 where there is none."""
        found: dict[str, Any] = {}
        if dictionary >= 0:
            value = self.tables.attribute(dictionary, at)
            if not isinstance(value, DictAttr):
                raise Damaged(f"attribute {dictionary} is not the dictionary that should be here", at)
            found = dict(value.items)
        if properties >= 0:
            found.update(self.properties(name, row, version, properties, at))
        if row is None:
            return found
        try:
            return from_stored(row, version, found)
        except ValueError as refusal:
            raise Damaged(f"{name}: {refusal}", at) from None

    def properties(self, name: str, row: Versions | None, version: int, number: int, at: int) -> dict[str, Any]:
        """The attributes that are stored by themselves, one after the other without their names."""
        if number >= len(self.file.properties):
            raise Damaged(f"there are {len(self.file.properties)} properties, and this is number {number}", at)
        c = Cursor(self.data, *self.file.properties[number])
        found: dict[str, Any] = {}
        if row is not None:
            names = row.names_in(version)
            for attribute, index in zip(names, c.varints(len(names)), strict=True):
                found[attribute] = self.tables.attribute(index, at)
        else:
            for attribute in FOREIGN[name]:
                value = (OPTIONAL_ATTRIBUTE if attribute[-1] == "?" else ATTRIBUTE).read(c, self.tables)
                if value is not None:
                    found[attribute.removesuffix("?")] = value
        c.done(f"the properties of {name}")
        return found
