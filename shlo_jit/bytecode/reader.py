"""A portable artifact to a `Module`: the ops and regions of a file.

    block  ::= (number of ops, whether there are arguments) arguments? op*
    op     ::= name mask location dictionary? properties? result-types? operands? regions?
    region ::= number of blocks (number of values, block*)?

Values have no names: each is the next number, from the outermost region that does not see those outside on.
"""

from __future__ import annotations

import re
from typing import Any

from shlo_jit.bytecode import container
from shlo_jit.bytecode.container import Container, read_container
from shlo_jit.bytecode.fields import ATTRIBUTE, OPTIONAL_ATTRIBUTE
from shlo_jit.bytecode.op_attributes import from_stored
from shlo_jit.bytecode.op_table import FOREIGN, STEMS, Versions
from shlo_jit.bytecode.printed import PrintedSource
from shlo_jit.bytecode.stream import Cursor, Damaged
from shlo_jit.bytecode.tables import Tables
from shlo_jit.bytecode.versions import LAST, version_of_producer
from shlo_jit.deep import NESTING_LIMIT, deeply
from shlo_jit.errors import Diagnostic, ParseError
from shlo_jit.ir.attributes import DictAttr
from shlo_jit.ir.collector import paused_collector
from shlo_jit.ir.core import Block, Module, Op, Region, Value
from shlo_jit.ir.types import Type
from shlo_jit.log import LOG

HAS_DICTIONARY, HAS_RESULTS, HAS_OPERANDS, HAS_SUCCESSORS, HAS_REGIONS, HAS_ORDERS, HAS_PROPERTIES = (
    1, 2, 4, 8, 16, 32, 64,
)  # fmt: skip
SMALLEST_OP = 3
"""Bytes: name, mask, location."""
CAST = "builtin.unrealized_conversion_cast"
_VERSIONED = re.compile(r"vhlo\.(.+)_v(\d{1,9})$")


@deeply
@paused_collector()
def read_artifact(data: bytes, name: str = "<bytes>") -> Module:
    """The program in a portable artifact. Raises ParseError, which says at which byte."""
    view = memoryview(data)
    try:
        return _Reader(view, name).module()
    except Damaged as damage:
        raise _refusal(view, name, damage) from None


def _refusal(data: memoryview, name: str, damage: Damaged) -> ParseError:
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

    def __init__(self, data: memoryview, name: str):
        self.data = data
        self.file: Container = read_container(data)
        self.version = self.file.version
        self.tables = Tables(data, self.file)
        self.source = PrintedSource(name)
        self.values: list[Value] = []
        self.ops = 0
        self.arguments = 0
        """Of the blocks around."""
        self.depth = 0
        self.rows: dict[int, tuple[str, Versions | None, int]] = {}
        """Name in StableHLO, row and version of the ops met, by their number."""
        self.attributes: dict[tuple[int, int, int], dict[str, Any]] = {}
        """Of an op with this name, dictionary and properties."""

    def module(self) -> Module:
        c = self.file.ir
        block = self.block(c, "")
        c.done("the section of operations")
        if len(block.ops) != 1 or block.ops[0].name != "builtin.module" or len(block.ops[0].regions) != 1:
            c.fail("the file has not one module")
        op = block.ops[0]
        if not op.regions[0].blocks:
            op.regions[0].blocks.append(Block())
        module = Module(op, self.source, self.tables.named_locations(), scoped=True)
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
        c.varint()
        before, arguments = len(self.values), self.arguments
        block = self.block(c, owner)
        del self.values[before:]
        self.arguments = arguments
        self.depth -= 1
        return Region([block])

    def block(self, c: Cursor, owner: str) -> Block:
        at = c.at
        head = c.varint()
        block = self.arguments_of(c) if head & 1 else Block()
        if (head >> 1) * SMALLEST_OP > c.end - c.at:
            c.fail(f"{head >> 1} operations should follow, and {c.end - c.at} bytes are left", at)
        ops = block.ops
        for _ in range(head >> 1):
            op = self.op(c, owner)
            if op is not None:
                ops.append(op)
        return block

    def arguments_of(self, c: Cursor) -> Block:
        tables = self.tables
        arguments: list[Value] = []
        locations: list[Any] = []
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
        self.values += arguments
        return Block(arguments, locations=tuple(locations) if any(locations) else ())

    def value_type(self, number: int, at: int) -> Type:
        type = self.tables.type(number, at)
        if not isinstance(type, Type):
            raise Damaged("this type is one of elements, not of values", at)
        return type

    def skip_orders(self, c: Cursor, values: int) -> None:
        """In which order the users of values are kept in memory."""
        for _ in range(c.count() if values > 1 else 1):
            if values > 1:
                c.varint()
            for _ in range(c.varint() >> 1):
                c.varint()

    # ---- ops

    def op(self, c: Cursor, owner: str) -> Op | None:
        start = c.at
        number = c.varint()
        mask = c.byte()
        at = c.at
        location = self.tables.place(c.varint(), at)
        name, row, version = self.rows.get(number) or self.row(number, start)
        at = c.at
        dictionary = c.varint() if mask & HAS_DICTIONARY else -1
        properties = c.varint() if mask & HAS_PROPERTIES else -1
        key = (number, dictionary, properties)
        attributes = self.attributes.get(key)
        if attributes is None:
            attributes = self.attributes[key] = self.attributes_of(name, row, version, dictionary, properties, at)
        types: list[Type] = []
        if mask & HAS_RESULTS:
            for _ in range(c.count()):
                at = c.at
                types.append(self.value_type(c.varint(), at))
        operands: list[Value] = []
        if mask & HAS_OPERANDS:
            values = self.values
            for _ in range(c.count()):
                at = c.at
                value = c.varint()
                if value >= len(values):
                    c.fail(f"value {value} is used before it is defined", at)
                operands.append(values[value])
        if mask & HAS_SUCCESSORS:
            c.fail("operations that go on in another block are not StableHLO", start)
        if mask & HAS_ORDERS:
            self.skip_orders(c, len(types))
        if name == CAST:
            return self.cast(c, mask, operands, types, start)
        if name == "stablehlo.return" and owner == "func.func":
            name = "func.return"
        self.ops += 1
        op = Op(name, operands, types, dict(attributes), None, self.source, self.ops, self.ops, location)
        self.values += op.results
        if mask & HAS_REGIONS:
            op.regions = self.regions(c, name)
        elif name == "func.func":
            op.regions = [Region()]
        return op

    def cast(self, c: Cursor, mask: int, operands: list[Value], types: list[Type], start: int) -> None:
        """From StableHLO's types to VHLO's or back, which are the same here."""
        if mask & HAS_REGIONS or [value.type for value in operands] != types:
            c.fail("a cast between types that are not the same", start)
        self.values += operands

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
        outer, self.values, arguments, self.arguments = self.values, [], self.arguments, 0
        regions = [self.region(inner, name) for _ in range(n)]
        self.values, self.arguments = outer, arguments
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
        names = FOREIGN[name] if row is None else tuple(s.name for s in row.stored_in(version))
        found: dict[str, Any] = {}
        for attribute in names:
            optional = attribute.endswith("?")
            value = (OPTIONAL_ATTRIBUTE if optional else ATTRIBUTE).read(c, self.tables)
            if value is not None:
                found[attribute.removesuffix("?")] = value
        c.done(f"the properties of {name}")
        return found
