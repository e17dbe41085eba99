"""Writer of portable artifacts: converts a `Module` to a file for a version of StableHLO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from shlo_jit.bytecode.builtin_kinds import BUILTIN
from shlo_jit.bytecode.container import IR, write_container, write_section
from shlo_jit.bytecode.op_attributes import NotRepresentable, to_stored
from shlo_jit.bytecode.op_table import FOREIGN, OPS
from shlo_jit.bytecode.output_tables import Namespace, Numbers, OutputTables
from shlo_jit.bytecode.reader import (
    CAST,
    HAS_DICTIONARY,
    HAS_OPERANDS,
    HAS_PROPERTIES,
    HAS_REGIONS,
    HAS_RESULTS,
)  # fmt: skip
from shlo_jit.bytecode.stream import Output
from shlo_jit.bytecode.versions import Version, bytecode_of, version_of
from shlo_jit.deep import deeply
from shlo_jit.errors import UnsupportedError, VerifyError, diagnose
from shlo_jit.ir.core import Block, Module, Op, Region, Value, walk

ISOLATED = ("func.func", "builtin.module")
"""Ops whose regions do not see outside values."""
SECTIONS_SINCE, ORDERS_SINCE, LOCATIONS_MAY_MISS, PROPERTIES_SINCE = 2, 3, 4, 5
"""First bytecode versions in which isolated regions have their own section, blocks give the use orders of arguments,
arguments may lack a location, and an op's attributes are stored without their names."""


@deeply
def write_artifact(module: Module, version: str) -> bytes:
    """Returns the bytes of a program for a version of StableHLO.

    Raises UnsupportedError for anything that the version cannot represent, VerifyError for invalid attributes,
    TypeError and ValueError for an invalid version.
    """
    return _Writer(module, version_of(version)).file()


class Line(NamedTuple):
    """An op, or a cast of a value between types of VHLO and builtin types of MLIR."""

    op: Op | None
    value: Value | None
    foreign: bool
    """Whether the results have builtin types of MLIR."""


Key = tuple[Value, bool]
"""A value, and whether it has the builtin type of MLIR instead of VHLO's."""


class _Writer:
    def __init__(self, module: Module, version: Version):
        self.module, self.version = module, version
        self.bytecode = bytecode_of(version)
        self.tables = OutputTables(version, module.locations)
        self.properties = Numbers()
        self.numbers: dict[Key, int] = {}
        self.ops = self._numbered_ops()

    def file(self) -> bytes:
        out = Output()
        out.varint(1 << 1)  # a block of one op, without arguments
        self.op(out, self.module.op, 0)
        return write_container(
            self.bytecode, f"StableHLO_v{self.version}", self.tables, list(self.ops), list(self.properties.known),
            bytes(out.data),
        )  # fmt: skip

    # ---- names

    def _numbered_ops(self) -> dict[str, int]:
        """Numbers the names of all ops, grouped by dialect."""
        names = {self.name_of(op): None for op in (self.module.op, *walk(self.module.body))}
        if any(name.startswith("sdy.") for name in names):
            names[CAST] = None
        return {name: i for i, name in enumerate(sorted(names, key=lambda name: name.partition(".")[0]))}

    def name_of(self, op: Op) -> str:
        """Returns the name of an op in the file."""
        row = OPS.get(op.name)
        if row is None:
            if op.name not in FOREIGN:
                self.refuse(op, f"portable artifacts cannot contain ops of dialect {op.dialect}")
            return op.name
        number = row.at(self.version)
        if not number:
            self.refuse(op, f"it requires version {row.since[0]} or later")
        return f"vhlo.{row.name.partition('.')[2]}_v{number}"

    def refuse(self, op: Op, why: str) -> NoReturn:
        what = f"{op.name} cannot be written for StableHLO {self.version}: {why}"
        raise UnsupportedError(diagnose(what, op.span, op=op.name, label="version"))

    # ---- regions

    def region(self, out: Output, op: Op, region: Region, first: int) -> None:
        """Writes a region. `first` is the number of its first value."""
        out.varint(len(region.blocks))
        if not region.blocks:
            return
        if len(region.blocks) > 1:
            self.refuse(op, "a region has several blocks")
        block = region.block
        foreign = is_foreign(op)
        outer = dict(self.numbers) if any(is_foreign(inner) for inner in block.ops) or foreign else self.numbers
        lines = list(self._with_casts(block, foreign))
        count = len(block.arguments) + sum(1 if line.op is None else len(line.op.results) for line in lines)
        out.varint(count)
        number = first
        for value in block.arguments:
            self.numbers[value, foreign] = number
            number += 1
        out.varint(len(lines) << 1 | bool(block.arguments))
        self.arguments(out, block, foreign)
        for line in lines:
            if line.op is None:
                assert line.value is not None
                self.cast(out, line.value, line.foreign)
                self.numbers[line.value, line.foreign] = number
                number += 1
                continue
            for value in line.op.results:
                self.numbers[value, line.foreign] = number
                number += 1
            self.op(out, line.op, first + count)
        self.numbers = outer

    def _with_casts(self, block: Block, foreign: bool) -> Iterator[Line]:
        """Yields the ops of a block, with casts before ops that use a value in a form that is not available yet."""
        there = {(value, foreign) for value in block.arguments}
        for op in block.ops:
            needs = is_foreign(op)
            for value in op.operands:
                key = (value, needs)
                if key not in there and key not in self.numbers:
                    there.add(key)
                    yield Line(None, value, needs)
            there.update((value, needs) for value in op.results)
            yield Line(op, None, needs)

    def arguments(self, out: Output, block: Block, foreign: bool) -> None:
        if not block.arguments:
            return
        namespace = self.namespace(foreign)
        out.varint(len(block.arguments))
        locations = block.locations or (None,) * len(block.arguments)
        for value, location in zip(block.arguments, locations, strict=True):
            type = namespace.type(value.type)
            if self.bytecode < LOCATIONS_MAY_MISS:
                out.varint(type)
                out.varint(self.tables.place(location))
                continue
            out.varint(type << 1 | (location is not None))
            if location is not None:
                out.varint(self.tables.place(location))
        if self.bytecode >= ORDERS_SINCE:
            out.byte(0)

    def namespace(self, foreign: bool) -> Namespace:
        return self.tables.builtin if foreign else self.tables.vhlo

    # ---- ops

    def cast(self, out: Output, value: Value, foreign: bool) -> None:
        out.varint(self.ops[CAST])
        out.byte(HAS_RESULTS | HAS_OPERANDS)
        out.varint(self.tables.place(None))
        out.varint(1)
        out.varint(self.namespace(foreign).type(value.type))
        out.varint(1)
        out.varint(self.numbers[value, not foreign])

    def op(self, out: Output, op: Op, first: int) -> None:
        """Writes an op. `first` is the number of the first value of its regions."""
        foreign = is_foreign(op)
        try:
            dictionary, properties = self.attributes(op)
            types = [self.namespace(foreign).type(value.type) for value in op.results]
        except NotRepresentable as refusal:
            self.refuse(op, str(refusal))
        except ValueError as refusal:
            raise VerifyError(diagnose(f"{op.name}: {refusal}", op.span, op=op.name, label="attribute")) from None
        mask = HAS_RESULTS * bool(types) | HAS_OPERANDS * bool(op.operands) | HAS_REGIONS * bool(op.regions)
        mask |= HAS_DICTIONARY * (dictionary is not None) | HAS_PROPERTIES * (properties is not None)
        out.varint(self.ops[self.name_of(op)])
        out.byte(mask)
        out.varint(self.tables.place(op.location))
        for number in (dictionary, properties):
            if number is not None:
                out.varint(number)
        for numbers in (types, [self.numbers[value, foreign] for value in op.operands]):
            if numbers:
                out.varint(len(numbers))
                for number in numbers:
                    out.varint(number)
        if op.regions:
            self.regions(out, op, first)

    def regions(self, out: Output, op: Op, first: int) -> None:
        isolated = op.name in ISOLATED
        out.varint(len(op.regions) << 1 | isolated)
        if not isolated:
            for region in op.regions:
                self.region(out, op, region, first)
            return
        inner = Output()
        for region in op.regions:
            self.region(inner, op, region, 0)
        if self.bytecode >= SECTIONS_SINCE:
            write_section(out, IR, inner.data)
        else:
            out.data += inner.data

    # ---- attributes

    def attributes(self, op: Op) -> tuple[int | None, int | None]:
        """Returns the numbers of an op's dictionary and properties. Raises NotRepresentable and ValueError."""
        row = OPS.get(op.name)
        if row is None:
            stored = [(name.rstrip("?"), op.attributes.get(name.rstrip("?"))) for name in FOREIGN[op.name]]
            rest = [(name, value) for name, value in op.attributes.items() if name not in dict(stored)]
            optional = [name.endswith("?") for name in FOREIGN[op.name]]
        else:
            for limit in row.limits:
                if self.version < limit.since and limit.applies(op):
                    raise NotRepresentable(f"{limit.what} requires version {limit.since} or later")
            stored, rest = to_stored(row, row.at(self.version), op)
            optional = [False] * len(stored)
        namespace = self.namespace(is_foreign(op))
        if self.bytecode < PROPERTIES_SINCE:
            return self.dictionary([*((n, v) for n, v in stored if v is not None), *rest], namespace), None
        properties = Output()
        for (name, value), may_miss in zip(stored, optional, strict=True):
            if value is None and not may_miss:
                raise ValueError(f"there is no attribute {name}")
            number = 0 if value is None else namespace.attribute(value)
            properties.varint(number if not may_miss else 0 if value is None else number << 1 | 1)
        found = self.properties(bytes(properties.data)) if stored else None
        return self.dictionary(rest, namespace), found

    def dictionary(self, items: list[tuple[str, Any]], namespace: Namespace) -> int | None:
        """Returns the number of a builtin dictionary whose values are encoded by the op's dialect."""
        if not items:
            return None
        out = Output()
        out.varint(DICTIONARY)
        out.varint(len(items))
        for name, value in sorted(items, key=lambda item: item[0].encode("utf-8", "surrogateescape")):
            out.varint(self.tables.builtin.attribute(name))
            out.varint(namespace.attribute(value))
        return self.tables.attributes((self.tables.builtin.dialect.name, bytes(out.data), True))


def is_foreign(op: Op) -> bool:
    """Whether an op uses values with builtin types of MLIR."""
    return op.name not in OPS


DICTIONARY = next(kind.code for kind in BUILTIN.attributes.values() if kind.name == "dictionary")
