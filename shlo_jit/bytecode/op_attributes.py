"""Conversion of an op's attributes between their form in files and in StableHLO, as given by the table of ops."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from shlo_jit.bytecode.kinds import itself
from shlo_jit.bytecode.op_table import FOREIGN, STEMS, Stored, Versions
from shlo_jit.ir.attributes import ConvDims, Dense, StructAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.structs import STRUCTS

MISSING: Any = object()
FieldPlan = tuple[int, Callable[[Any], Any], Callable[[Any], bool], str]
"""A field: index among the stored attributes, conversion, test for the default, name in StableHLO."""
_VERSIONED = re.compile(r"vhlo\.(.+)_v(\d{1,9})$")


# ---------------------------------------------------------------------- reading
class Plan:
    """Instructions to read the attributes of an op in a file."""

    __slots__ = ("dropped", "fields", "name", "names", "optional", "structs")

    def __init__(self, name: str, names: Sequence[str]):
        self.name = name
        """Name of the op in StableHLO."""
        self.names = tuple(name.removesuffix("?") for name in names)
        """Names of the stored attributes, in the order of files."""
        self.optional = {i for i, name in enumerate(names) if name.endswith("?")}
        """Indices of the stored attributes that may be missing."""
        self.fields: list[FieldPlan] = []
        """Stored attributes that are also attributes in StableHLO."""
        self.structs: list[StructPlan] = []
        self.dropped: list[str] = []
        """Attributes that StableHLO no longer has."""

    def attributes(self, stored: Sequence[Any], rest: dict[str, Any]) -> dict[str, Any]:
        """Converts the stored attributes to StableHLO's and adds the `rest` unchanged. Raises ValueError."""
        found: dict[str, Any] = {}
        for index, read, is_default, attribute in self.fields:
            value = read(stored[index])
            if not is_default(value):
                found[attribute] = value
        for struct in self.structs:
            struct.add(stored, found)
        for name in self.dropped:
            value = found.pop(name, None)
            if isinstance(value, Dense) and value.array.size:
                raise ValueError(f"StableHLO no longer has the attribute {name}")
        if self.name == "stablehlo.custom_call" and ("operand_layouts" in found or "result_layouts" in found):
            for name in ("operand_layouts", "result_layouts"):  # either both are present, or neither
                found[name] = stored[self.names.index(name)]
        for name, value in rest.items():
            if name in found or name in self.names:
                raise ValueError(f"attribute {name} is present twice")
            found[name] = value
        return found

    def refused(self, stored: Sequence[Any]) -> str:
        """Returns the name of the first stored attribute that cannot be read, for a message."""
        for index, read, _, _ in (*self.fields, *(field for struct in self.structs for field in struct.fields)):
            try:
                read(stored[index])
            except ValueError:
                return f"attribute {self.names[index]}: "
        return ""

    def taken_from(self, dictionary: dict[str, Any]) -> list[Any]:
        """Removes and returns the stored attributes if a file has all of them in a dictionary. Raises ValueError."""
        values: list[Any] = []
        for i, name in enumerate(self.names):
            if name not in dictionary and i not in self.optional:
                raise ValueError(f"there is no attribute {name}")
            values.append(dictionary.pop(name, None))
        return values


class StructPlan:
    """A struct of StableHLO whose fields are separate attributes in files."""

    __slots__ = ("attribute", "constants", "fields", "name")

    def __init__(self, name: str, attribute: str):
        self.name, self.attribute = name, attribute
        self.fields: list[FieldPlan] = []
        self.constants: dict[str, Any] = {}
        """Defaults of fields that were added in later versions."""

    def add(self, stored: Sequence[Any], found: dict[str, Any]) -> None:
        """Adds the struct to an op's attributes, unless all fields are the defaults."""
        fields = self.constants.copy()
        is_given = False
        for index, read, is_default, field in self.fields:
            fields[field] = value = read(stored[index])
            is_given = is_given or not is_default(value)
        if is_given:
            found[self.attribute] = make_struct(self.name, fields)


def make_struct(name: str, fields: dict[str, Any]) -> Any:
    if name == "conv":
        return ConvDims(**fields)
    if None in fields.values():
        raise ValueError(f"fields of {name} are missing")
    return StructAttr(name, tuple([(field, fields.get(field, 0)) for field, _, _ in STRUCTS[name]]))


@functools.cache
def plan_of(name: str) -> Plan | None:
    """Returns the plan to read an op with this name in files; None if it is unknown."""
    if name in FOREIGN:
        plan = Plan(name, FOREIGN[name])
        plan.fields = [(i, itself, lambda value: value is None, name) for i, name in enumerate(plan.names)]
        return plan
    m = _VERSIONED.match(name)
    row = STEMS.get(m[1]) if m else None
    number = int(m[2]) if m else 0
    return _plan(row, number) if row is not None and 1 <= number <= len(row.since) else None


def _plan(row: Versions, number: int) -> Plan:
    plan = Plan(row.name, row.names_in(number))
    structs: dict[str, StructPlan] = {}
    for s in row.stored:
        index = plan.names.index(s.name) if s.name in plan.names else -1
        struct = structs.setdefault(s.attribute, StructPlan(s.struct, s.attribute)) if s.struct else None
        if index >= 0:
            is_default = _never if s.kept or s.default is None else s.default.is_it
            fields, name = (struct.fields, s.field) if struct else (plan.fields, s.attribute or s.name)
            fields.append((index, s.form.read, is_default, name))
            if s.until < len(row.since):
                plan.dropped.append(name)
        elif struct and s.default is not None:
            struct.constants[s.field] = s.default.make(NO_OP)
    plan.structs = list(structs.values())
    return plan


def _never(value: Any) -> bool:
    """Test for the default of an attribute that has none."""
    return False


NO_OP = Op("", [], [])
"""Argument for the defaults of attributes that were added in later versions; these do not depend on the op."""


# ---------------------------------------------------------------------- writing
class NotRepresentable(Exception):
    """Raised if a version of StableHLO cannot represent something."""


def to_stored(row: Versions, number: int, op: Op) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Returns the stored attributes of version `number` of an op, in order, and the attributes unknown to its row.

    Raises NotRepresentable for attributes that this version cannot represent, and ValueError for attributes of a wrong
    kind.
    """
    stored: list[tuple[str, Any]] = []
    known: set[str] = set()
    _check_structs(row, op)
    for s in row.stored:
        attribute = s.attribute or s.name
        known.add(attribute)
        value = _value(s, op, attribute)
        if s.since <= number <= s.until:
            stored.append((s.name, _written(s, value, attribute)))
        elif attribute in op.attributes and (s.default is None or not s.default.is_it(value)):
            raise NotRepresentable(f"attribute {attribute}" + (f" with {s.field}" if s.field else ""))
    rest = [(name, value) for name, value in op.attributes.items() if name not in known]
    return sorted(stored), rest


def _check_structs(row: Versions, op: Op) -> None:
    """Checks that struct fields which the op does not store are empty. Raises NotRepresentable."""
    for attribute in {s.attribute for s in row.stored if s.struct}:
        value = op.attributes.get(attribute)
        if isinstance(value, StructAttr):
            stored = {s.field for s in row.stored if s.attribute == attribute}
            for field, content in value.fields:
                if field not in stored and content:
                    raise NotRepresentable(f"attribute {attribute} with {field} = {content}")


def _value(s: Stored, op: Op, attribute: str) -> Any:
    """Returns the value of an attribute in StableHLO's form; the default if it is absent."""
    value = op.attributes.get(attribute, MISSING)
    if value is MISSING:
        if s.default is None:
            raise ValueError(f"there is no attribute {attribute}")
        return s.default.make(op)
    if not s.struct:
        return value
    if s.struct == "conv":
        if not isinstance(value, ConvDims):
            raise ValueError(f"attribute {attribute} is not a {s.struct}")
        return getattr(value, s.field)
    if not isinstance(value, StructAttr) or value.name != s.struct:
        raise ValueError(f"attribute {attribute} is not a {s.struct}")
    return value.get(s.field)


def _written(s: Stored, value: Any, attribute: str) -> Any:
    try:
        return s.form.write(value)
    except (ValueError, KeyError, AttributeError) as refusal:
        raise ValueError(f"attribute {attribute}: {refusal}") from None
