"""Parser of the structs of StableHLO and CHLO: dimension numbers, channel handles, algorithms.

    struct    ::= `#stablehlo.gather<` (field `=` value (`,` field `=` value)*)? `>`
    conv-dims ::= `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]` | `raw` field `=` value, ...

A parsed struct has all fields in the order of `STRUCTS`; omitted fields have their defaults.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from shlo_jit.ir.attributes import ConvDims, FloatAttr, StructAttr, TypeAttr
from shlo_jit.ir.structs import BOOL, CONV_FIELDS, DIMS, FLOAT, INT, STRUCTS, SUB_AXIS, TYPE

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser

TITLES = {
    "stablehlo.dot": "dot dimension numbers",
    "stablehlo.gather": "gather dimension numbers",
    "stablehlo.scatter": "scatter dimension numbers",
    "stablehlo.output_operand_alias": "output operand alias",
    "chlo.ragged_dot": "ragged dot dimension numbers",
}


def parse_struct(p: Parser, name: str) -> StructAttr:
    """Parses a struct. An error message says which struct was being parsed, as MLIR does."""
    with p.reading(f"failed parsing {TITLES.get(name, name)} attribute"):
        return _parse_struct(p, name)


def _parse_struct(p: Parser, name: str) -> StructAttr:
    """struct ::= `<` (field `=` value (`,` field `=` value)*)? `>`"""
    schema = STRUCTS[name]
    kinds = {field: kind for field, kind, _ in schema}
    at = p.i
    p.expect("<")
    values: dict[str, Any] = {}
    while not p.accept(">"):
        field = p.tokens[p.i]
        if field not in kinds:
            p.error(f"expected one of: {', '.join(f'`{kind}`' for kind in kinds)}, found '{field}'")
        if field in values:
            p.error(f"field '{field}' is given twice")
        p.i += 1
        p.expect("=")
        values[field] = _field(p, kinds[field])
        if not p.accept(",") and p.tokens[p.i] != ">":
            p.fail("'>'")
    return _complete(p, name, values, at)


def _complete(p: Parser, name: str, values: dict[str, Any], at: int) -> StructAttr:
    """Returns the struct with all fields in order and defaults filled in."""
    fields: list[tuple[str, Any]] = []
    for field, _, default in STRUCTS[name]:
        value = values.get(field, default)
        if value is None:
            p.error(f"#{name} has no field '{field}'", at)
        fields.append((field, value))
    return StructAttr(name, tuple(fields))


def _field(p: Parser, kind: str) -> Any:
    """value of a field ::= ints | integer | `true` | `false` | type | float | attribute"""
    if kind == DIMS:
        return p.ints()
    if kind == INT:
        return p.integer()
    if kind == BOOL:
        if p.peek() not in ("true", "false"):
            p.fail("'true' or 'false'")
        return p.next() == "true"
    if kind == TYPE:
        return TypeAttr(p.type())
    if kind == FLOAT:
        number = p.attribute()
        return number.value if isinstance(number, FloatAttr) else p.fail("a float", p.i - 1)
    if kind == SUB_AXIS and p.peek() == "(":
        return _sub_axis(p)
    return p.attribute()


def _sub_axis(p: Parser) -> StructAttr:
    """sub-axis ::= `(` pre-size `)` size"""
    p.expect("(")
    pre_size = p.integer()
    p.expect(")")
    return StructAttr("stablehlo.sub_axis_info", (("pre_size", pre_size), ("size", p.integer())))


@functools.lru_cache(maxsize=1024)
def dot_dimensions(
    lhs_batch: tuple[int, ...], rhs_batch: tuple[int, ...], lhs_contract: tuple[int, ...], rhs_contract: tuple[int, ...]
) -> StructAttr:
    """Returns the dimension numbers of a `dot_general`."""
    names = [field for field, _, _ in STRUCTS["stablehlo.dot"]]
    values = (lhs_batch, rhs_batch, lhs_contract, rhs_contract)
    return StructAttr("stablehlo.dot", tuple(zip(names, values, strict=True)))


def parse_conv_dims(p: Parser) -> ConvDims:
    """conv-dims ::= `raw` field (`,` field)* | dims `x` dims `->` dims"""
    if p.accept("raw"):
        return _raw_conv_dims(p)
    lhs = _labels(p, ("b", "f"))
    p.expect("x")
    kernel = _labels(p, ("i", "o"))
    p.expect("->")
    output = _labels(p, ("b", "f"))
    return ConvDims(*lhs, *kernel, *output)


def _raw_conv_dims(p: Parser) -> ConvDims:
    """field ::= name `=` (integer | ints)"""
    values: dict[str, Any] = {}
    kinds = dict(CONV_FIELDS)
    at = p.i - 1
    while p.tokens[p.i] in kinds:
        name = p.next()
        p.expect("=")
        values[name] = _field(p, kinds[name])
        if not p.accept(","):
            break
    missing = [name for name in kinds if name not in values]
    if missing:
        p.error(f"#stablehlo.conv has no field '{missing[0]}'", at)
    return ConvDims(**values)


def _labels(p: Parser, wanted: tuple[str, str]) -> tuple[int, int, tuple[int, ...]]:
    """dims ::= `[` (label | integer | `?`) (`,` ...)* `]`: returns the positions of both labels and of 0, 1, ..."""
    at = p.i
    places: dict[str, int] = {}
    for place, (label, label_at) in enumerate(_label_list(p)):
        remaining = [w for w in wanted if w not in places]
        if label.isdigit() and label in places:
            p.error(f"Duplicate entries for spatial dimension {label}", label_at)
        if not label.isdigit() and label not in (*remaining, "?"):
            if not remaining:
                p.error(f"Unexpected keyword {label}", label_at)
            p.error(f"Unexpected dimension {label}, expecting {', '.join(remaining)}", label_at)
        places[label] = place
    missing = [w for w in wanted if w not in places]
    if missing:
        p.error(f"Expected dimensions {', '.join(missing)} not specified", at)
    spatial = sorted(int(label) for label in places if label.isdigit())
    missing = [str(n) for n in range(spatial[-1] if spatial else 0) if n not in spatial][:10]
    if missing:
        p.error(f"Expected spatial dimensions {', '.join(missing)} not specified", at)
    return places[wanted[0]], places[wanted[1]], tuple(places[str(n)] for n in spatial)


def _label_list(p: Parser) -> list[tuple[str, int]]:
    """Parses a list of dimensions. Returns the entries with their token indices."""
    token = p.tokens[p.i]
    if len(token) > 1 and token[0] == "[":
        return [(str(value), p.i - 1) for value in p.ints()]
    p.expect("[")
    labels: list[tuple[str, int]] = []
    while not p.accept("]"):
        label = p.next()
        if label[:1] == "-" and label[1:].isdigit():
            p.error(f"Unexpected dimension {label}", p.i - 1)
        if label != "?" and not label.isidentifier() and not (label.isdigit() and len(label) < 6):
            p.fail("a dimension: b, f, i, o or a number", p.i - 1)
        labels.append((label, p.i - 1))
        if not p.accept(",") and p.peek() != "]":
            p.fail("']' or ','")
    return labels
