"""Reader of portable artifacts: converts the ops and regions of a file to a `Module`.

    block  ::= (number of ops, whether it has arguments) arguments? op*
    op     ::= name mask location dictionary? properties? result-types? operands? regions?
    region ::= number of blocks (number of values, block*)?

Values are numbered and have no names. The numbers of a region continue after those of the enclosing region, or start at
0 if it does not see the values of that region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from shlo_jit.bytecode import container
from shlo_jit.bytecode.container import Container, read_container
from shlo_jit.bytecode.op_attributes import Plan, plan_of
from shlo_jit.bytecode.printed import PrintedSource
from shlo_jit.bytecode.stream import Bytes, Cursor, Damaged, long_varint, varint
from shlo_jit.bytecode.tables import Locations, Tables
from shlo_jit.bytecode.versions import DEFAULT, FIRST, LAST, is_known, version_of_producer
from shlo_jit.deep import NESTING_LIMIT, deeply
from shlo_jit.errors import Diagnostic, ParseError
from shlo_jit.ir.attributes import DictAttr
from shlo_jit.ir.collector import paused_collector
from shlo_jit.ir.core import Block, Module, Op, Region, Value
from shlo_jit.ir.types import Type
from shlo_jit.text.literals import Literal

HAS_DICTIONARY, HAS_RESULTS, HAS_OPERANDS, HAS_SUCCESSORS, HAS_REGIONS, HAS_ORDERS, HAS_PROPERTIES = (
    1, 2, 4, 8, 16, 32, 64,
)  # fmt: skip
NONE: Mapping[int, Literal] = MappingProxyType({})
ONE = 1 << 1 | 1
"""Encoding of the number 1."""
RARE = HAS_SUCCESSORS | HAS_ORDERS
SMALLEST_OP = 3
"""Minimum size of an op in bytes: name, mask, location."""
CAST = "builtin.unrealized_conversion_cast"
SPECIAL = {CAST, "stablehlo.return", "func.func", "builtin.module"}
"""Ops that need special treatment."""
KnownOp = tuple[str, dict[str, Any], bool]
"""Name and attributes of an op, and whether it is in SPECIAL."""


@deeply
@paused_collector()
def read_artifact(data: Bytes, name: str = "<bytes>", literals: Mapping[int, Literal] = NONE) -> Module:
    """Returns the program in a portable artifact. `literals` are those that were cut out, by the offset of their bytes.

    Raises ParseError with the byte offset of the error.
    """
    try:
        return _Reader(data, name, literals).module()
    except Damaged as damage:
        raise _refusal(data, name, damage) from None


def _refusal(data: Bytes, name: str, damage: Damaged) -> ParseError:
    """Returns the error for a damaged, truncated or unknown file, with the byte offset."""
    place = f"byte {damage.at}: {damage.message}"
    code, message = "file.damaged", f"the file is damaged; {place}"
    hint = "copy or write the file again"
    if damage.is_cut:
        code, message = "file.cut_off", f"the file is cut off after {len(data):,} bytes; {place}"
    elif damage.is_unknown:
        code, message = "file.unknown_artifact", place
    try:
        _, producer, _ = container.head(data)
        version = version_of_producer(producer)
        if version is None and not damage.is_cut:
            code = "file.mlir_bytecode"
            message = f"this is MLIR bytecode, but not a portable artifact of StableHLO; {place}"
            hint = f"it was written by {producer[:60]!r}: {_TO_ARTIFACT}"
        elif version is not None and not is_known(version):
            hint = f"write it for a known version, such as {DEFAULT}, or use a release of shlo_jit that knows {version}"
    except Damaged:
        pass
    return ParseError(Diagnostic(message, name, 0, 0, label="bytecode", hint=hint, code=code))


_TO_ARTIFACT = "write StableHLO with `stablehlo-translate --serialize --target=1.0.0 FILE`, or pass its text"


def _check_version(data: Bytes) -> None:
    """Raises Damaged for an unknown version of StableHLO. Bytecode of other producers has no such version."""
    _, producer, _ = container.head(data)
    version = version_of_producer(producer)
    if version is not None and not is_known(version):
        at = len(container.MAGIC) + 1
        message = f"the file is of StableHLO {version}, but only versions {FIRST} to {LAST} are supported"
        raise Damaged(message, at, is_unknown=True)


class _Reader:
    """State of the reader: the visible values, and caches of types, ops and attributes."""

    def __init__(self, data: Bytes, name: str, literals: Mapping[int, Literal]):
        self.data = data
        _check_version(data)
        self.file: Container = read_container(data)
        self.version = self.file.version
        self.tables = Tables(data, self.file, literals)
        self.source = PrintedSource(name)
        self.values: list[Value | None] = []
        """Values by number, including the visible ones of enclosing regions."""
        self.next = 0
        """The number of the next value that is defined."""
        self.ops = 0
        self.arguments = 0
        """Enclosing blocks."""
        self.depth = 0
        self.types: dict[int, Type] = {}
        """Types of values, by number."""
        self.plans: dict[int, Plan] = {}
        """Plans of the ops seen so far, by the number of their names."""
        self.known: dict[tuple[int, int, int], KnownOp] = {}
        """Ops seen so far, by the numbers of name, dictionary and properties."""

    def module(self) -> Module:
        c = self.file.ir
        block = self.block(c, "")
        c.done("the section of operations")
        if len(block.ops) != 1 or block.ops[0].name != "builtin.module":
            c.fail("expected exactly one module in the file")
        op = block.ops[0]
        locations = Locations(self.tables) if any(self.tables.places.values()) else {}
        module = Module(op, self.source, locations, scoped=True)
        self.source.module = module
        return module

    # ---- regions

    def region(self, c: Cursor, owner: str) -> Region:
        at = c.at
        blocks = c.count()
        if not blocks:
            return Region()
        if blocks > 1:
            c.fail("regions of several blocks are not valid in StableHLO", at)
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
            c.fail(f"{head >> 1} operations should follow, but {c.end - c.at} bytes are left", at)
        self.ops_of(c, head >> 1, owner, block.ops)
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
        """Assigns the next numbers to values."""
        first = self.next
        self.next += len(values)
        if self.next > len(self.values):
            raise Damaged("there are more values than the region declares", at)
        self.values[first : self.next] = values

    def value_type(self, number: int, at: int) -> Type:
        type = self.types.get(number)
        if type is None:
            type = self.tables.type(number, at)
            if not isinstance(type, Type):
                raise Damaged("expected the type of a value, found one of elements", at)
            self.types[number] = type
        return type

    def skip_orders(self, c: Cursor, values: int) -> None:
        """Skips the orders of use lists."""
        for _ in range(c.count() if values > 1 else 1):
            if values > 1:
                c.varint()
            for _ in range(c.varint() >> 1):
                c.varint()

    # ---- ops

    def ops_of(self, c: Cursor, count: int, owner: str, ops: list[Op]) -> None:  # noqa: C901, PLR0915
        """(name mask location dictionary? properties? result-types? operands? orders? regions?)*

        Most of the time is spent in this loop, and there in calls. Therefore it is long and decodes numbers inline. A
        read past the end of the section returns other bytes or raises IndexError; an op that ends there is rejected."""
        data, values, source = c.data, self.values, self.source
        places, types, known = self.tables.places, self.types, self.known
        at = start = c.at
        try:
            for _ in range(count):
                start = at
                number = data[at]
                if number & 1:
                    number, at = number >> 1, at + 1
                else:
                    number, at = long_varint(data, at)
                mask, place = data[at], data[at + 1]
                if place & 1:
                    place, at = place >> 1, at + 2
                else:
                    place, at = long_varint(data, at + 1)
                location = places[place] if place in places else self.tables.place(place, start)
                dictionary = properties = -1
                if mask & HAS_DICTIONARY:
                    dictionary, at = varint(data, at)
                if mask & HAS_PROPERTIES:
                    properties = data[at]
                    if properties & 1:
                        properties, at = properties >> 1, at + 1
                    else:
                        properties, at = long_varint(data, at)
                found = known.get((number, dictionary, properties))
                if found is None:
                    found = self.known_op(number, dictionary, properties, start)
                name, attributes, is_special = found
                result_types: list[Type] = []
                if mask & HAS_RESULTS:
                    number = data[at + 1]
                    if data[at] == ONE and number & 1 and number >> 1 in types:
                        result_types.append(types[number >> 1])
                        at += 2
                    else:
                        at = self.result_types(result_types, data, at)
                operands: list[Any] = []
                if mask & HAS_OPERANDS:
                    at = _read_operands(operands, values, data, at)
                    if None in operands:
                        c.fail("a value is used before it is defined", start)
                if mask & RARE:
                    c.at = at
                    self.skip_rare(c, mask, len(result_types), start)
                    at = c.at
                if at > c.end:
                    c.fail("the section ends in the middle of an operation", start)
                if is_special:
                    if name == CAST:
                        self.cast(mask, operands, result_types, start)
                        continue
                    if name == "stablehlo.return" and owner == "func.func":
                        name = "func.return"
                self.ops += 1
                op = Op(name, operands, result_types, attributes.copy(), None, source, self.ops, self.ops, location)
                ops.append(op)
                if len(result_types) == 1 and self.next < len(values):
                    values[self.next] = op.results[0]
                    self.next += 1
                elif result_types:
                    self.define(op.results, start)
                if mask & HAS_REGIONS:
                    c.at = at
                    op.regions = self.regions(c, name)
                    at = c.at
                if is_special:
                    self.complete(op, start)
        except IndexError:
            c.fail("an operand is not a visible value" if at < c.end else "the file ends in an operation", start)
        c.at = at

    def result_types(self, found: list[Type], data: Bytes, at: int) -> int:
        """Appends the result types to `found`. Returns the offset after them."""
        count, at = varint(data, at)
        for _ in range(count):
            start = at
            number, at = varint(data, at)
            found.append(self.value_type(number, start))
        return at

    def skip_rare(self, c: Cursor, mask: int, results: int, start: int) -> None:
        if mask & HAS_SUCCESSORS:
            c.fail("operations with successor blocks are not valid in StableHLO", start)
        self.skip_orders(c, results)

    def cast(self, mask: int, operands: list[Value], types: list[Type], start: int) -> None:
        """Reads a cast between types of StableHLO and VHLO, which are identical in memory."""
        if mask & HAS_REGIONS or [value.type for value in operands] != types:
            raise Damaged("a cast between different types", start)
        self.define(operands, start)

    def complete(self, op: Op, at: int) -> None:
        """Completes the regions of a function or module.

        A function has one region, which is empty for a declaration. A module has one, with a block even if it is empty.
        """
        if op.name == "func.func":
            op.regions = op.regions or [Region()]
        elif op.name == "builtin.module":
            if len(op.regions) != 1:
                raise Damaged(f"a module must have one region, not {len(op.regions)}", at)
            op.regions[0].blocks = op.regions[0].blocks or [Block()]

    def known_op(self, number: int, dictionary: int, properties: int, at: int) -> KnownOp:
        """Decodes an op with these numbers and caches it."""
        plan = self.plans.get(number) or self.plan(number, at)
        attributes: dict[str, Any] = {}
        if plan.names or dictionary >= 0:
            rest = self.dictionary(dictionary, at) if dictionary >= 0 else {}
            stored: list[Any] = []
            try:
                stored = self.properties(plan, properties, at) if properties >= 0 else plan.taken_from(rest)
                attributes = plan.attributes(stored, rest)
            except ValueError as refusal:
                raise Damaged(f"{plan.name}: {plan.refused(stored) if stored else ''}{refusal}", at) from None
        found = plan.name, attributes, plan.name in SPECIAL
        self.known[number, dictionary, properties] = found
        return found

    def regions(self, c: Cursor, name: str) -> list[Region]:
        at = c.at
        head = c.varint()
        n, isolated = head >> 1, head & 1
        if n > c.end - c.at:
            c.fail(f"{n} regions should follow, but {c.end - c.at} bytes are left", at)
        if not isolated:
            return [self.region(c, name) for _ in range(n)]
        inner = c
        if self.version >= 2:
            id, inner = container.section(c)
            if id != container.IR:
                c.fail("expected the regions of an operation", at)
        outer = self.values, self.next, self.arguments
        self.values, self.next, self.arguments = [], 0, 0
        regions = [self.region(inner, name) for _ in range(n)]
        self.values, self.next, self.arguments = outer
        if inner is not c:
            inner.done("the regions here")
        return regions

    # ---- attributes

    def plan(self, number: int, at: int) -> Plan:
        """Returns the plan to read the op with this number."""
        names = self.file.ops
        if number >= len(names):
            raise Damaged(f"number {number} of only {len(names)} names of operations", at)
        plan = plan_of(names[number])
        if plan is None:
            raise Damaged(f"the operation {names[number]} is unknown", at, is_unknown=True)
        self.plans[number] = plan
        return plan

    def dictionary(self, number: int, at: int) -> dict[str, Any]:
        value = self.tables.attribute(number, at)
        if not isinstance(value, DictAttr):
            raise Damaged(f"expected a dictionary, found another attribute (number {number})", at)
        return dict(value.items)

    def properties(self, plan: Plan, number: int, at: int) -> list[Any]:
        """Reads the consecutively stored attributes of an op, whose names are not in the file."""
        if number >= len(self.file.properties):
            count = len(self.file.properties)  # their section is the last one
            raise Damaged(f"number {number} of only {count} properties", at, is_cut=not count)
        c = self.tables
        c.at, c.end = self.file.properties[number]
        numbers = c.varints(len(plan.names))
        c.done(f"the properties of {plan.name}")
        found: list[Any] = []
        for i, index in enumerate(numbers):
            if i not in plan.optional:
                found.append(c.attribute(index, at))
            else:
                found.append(c.attribute(index >> 1, at) if index & 1 else None)
        return found


def _read_operands(found: list[Any], values: Sequence[Value | None], data: Bytes, at: int) -> int:
    """Appends the operands to `found`, None for a value that is not yet defined. Returns the offset after them."""
    count, at = varint(data, at)
    for _ in range(count):
        number = data[at]
        if number & 1:
            found.append(values[number >> 1])
            at += 1
        elif number & 2:
            found.append(values[(number | data[at + 1] << 8) >> 2])
            at += 2
        else:
            number, at = long_varint(data, at)
            found.append(values[number])
    return at
