"""The attributes of an op as files store them, and as StableHLO has them: rows of the table, applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shlo_jit.bytecode.forms import Form
from shlo_jit.bytecode.op_table import Stored, Versions
from shlo_jit.ir.attributes import ConvDims, Dense, StructAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.structs import STRUCTS

MISSING: Any = object()


# ---------------------------------------------------------------------- reading
def from_stored(row: Versions, number: int, stored: Mapping[str, Any]) -> dict[str, Any]:
    """StableHLO's attributes of version `number` of an op. Others in `stored` are kept. Raises ValueError."""
    rest = dict(stored)
    if not row.stored:
        return rest
    attributes: dict[str, Any] = {}
    structs: dict[str, Struct] = {}
    for s in row.stored:
        name, form, default, since, until, attribute, struct, field, kept = s
        if since <= number <= until:
            value = _read(name, form, rest)
            is_default = not kept and default is not None and default.is_it(value)
        else:
            value, is_default = None if default is None else default.make(NO_OP), True
        if struct:
            found = structs.setdefault(attribute, Struct(struct, {}, []))
            found.fields[field] = value
            found.defaults.append(is_default)
        elif until < len(row.since):
            if not is_default and isinstance(value, Dense) and value.array.size:
                raise ValueError(f"attribute {name} is none that StableHLO still has")
        elif not is_default:
            attributes[attribute or name] = value
    for attribute, struct in structs.items():
        if not all(struct.defaults):
            attributes[attribute] = make_struct(struct.name, struct.fields)
    if row.name == "stablehlo.custom_call":
        _keep_both_layouts(attributes, stored)
    for name, value in rest.items():
        if name in attributes:
            raise ValueError(f"attribute {name} is there twice")
        attributes[name] = value
    return attributes


class Struct(NamedTuple):
    """The fields of a struct that have been read, and which of them are defaults."""

    name: str
    fields: dict[str, Any]
    defaults: list[bool]


def _read(name: str, form: Form, rest: dict[str, Any]) -> Any:
    """The value of one attribute, which is taken out of `rest`."""
    value = rest.pop(name, MISSING)
    if value is MISSING:
        raise ValueError(f"there is no attribute {name}")
    try:
        return form.read(value)
    except ValueError as refusal:
        raise ValueError(f"attribute {name}: {refusal}") from None


NO_OP = Op("", [], [])
"""Asked for the defaults of attributes that later versions brought: these do not depend on the op."""


def make_struct(name: str, fields: dict[str, Any]) -> Any:
    if name == "conv":
        return ConvDims(**fields)
    if None in fields.values():
        raise ValueError(f"{name} has not all of its fields")
    return StructAttr(name, tuple((field, fields.get(field, 0)) for field, _, _ in STRUCTS[name]))


def _keep_both_layouts(attributes: dict[str, Any], stored: Mapping[str, Any]) -> None:
    """Of a custom call's layouts none are given, or those of operands and results."""
    if "operand_layouts" in attributes or "result_layouts" in attributes:
        attributes["operand_layouts"] = stored["operand_layouts"]
        attributes["result_layouts"] = stored["result_layouts"]


# ---------------------------------------------------------------------- writing
class Unsayable(Exception):
    """A version of StableHLO has no words for something."""


def to_stored(row: Versions, number: int, op: Op) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Version `number` of an op: the attributes that are stored, in their order, and those that the op's row does not
    know. Raises Unsayable for what that version cannot have, and ValueError for attributes of another kind."""
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
            raise Unsayable(f"attribute {attribute}" + (f" with {s.field}" if s.field else ""))
    rest = [(name, value) for name, value in op.attributes.items() if name not in known]
    return sorted(stored), rest


def _check_structs(row: Versions, op: Op) -> None:
    """Fields of structs that the op does not store have to say nothing. Raises Unsayable."""
    for attribute in {s.attribute for s in row.stored if s.struct}:
        value = op.attributes.get(attribute)
        if isinstance(value, StructAttr):
            stored = {s.field for s in row.stored if s.attribute == attribute}
            for field, content in value.fields:
                if field not in stored and content:
                    raise Unsayable(f"attribute {attribute} with {field} = {content}")


def _value(s: Stored, op: Op, attribute: str) -> Any:
    """As StableHLO has it; the default where it is not there."""
    value = op.attributes.get(attribute, MISSING)
    if value is MISSING:
        if s.default is None:
            raise ValueError(f"there is no attribute {attribute}")
        return s.default.make(op)
    if not s.struct:
        return value
    if s.struct == "conv":
        if not isinstance(value, ConvDims):
            raise ValueError(f"attribute {attribute} is no {s.struct}")
        return getattr(value, s.field)
    if not isinstance(value, StructAttr) or value.name != s.struct:
        raise ValueError(f"attribute {attribute} is no {s.struct}")
    return value.get(s.field)


def _written(s: Stored, value: Any, attribute: str) -> Any:
    try:
        return s.form.write(value)
    except (ValueError, KeyError, AttributeError) as refusal:
        raise ValueError(f"attribute {attribute}: {refusal}") from None
