"""Irregular pretty forms: constant, compare, select, slice, tuples, complex, custom calls, barriers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shlo_jit.ir.attributes import Dense, EnumAttr, IntegerAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import TOKEN, FunctionType, TensorType, TupleType, Type
from shlo_jit.text.attributes import fits, parse_dense, parse_dictionary, parse_enum_value, parse_string
from shlo_jit.text.syntax import Syntax, all_ints, an_i64, i64s, typed

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser
    from shlo_jit.text.printer import Printer


def parse_constant(p: Parser, name: str) -> Op:
    """constant ::= dictionary? literal | `(` `)` properties? dictionary? `:` `(` `)` `->` type"""
    token = p.tokens[p.i]
    if token == "(":
        return _parse_typed_constant(p, name)
    attributes = p.dictionary()
    at = p.i
    token = p.tokens[at]
    value = parse_dense(p) if token.startswith("dense<") else p.attribute()
    if not isinstance(value, Dense):
        from shlo_jit.text.literal_hints import constant_hint

        hint = constant_hint(p.text_since(at))
        p.error("expected a 'dense' literal as the value of a constant", at, hint=hint, code="syntax.literal")
    attributes["value"] = value
    return Op(name, [], (value.type,), attributes)


def _parse_typed_constant(p: Parser, name: str) -> Op:
    """`(` `)` properties? dictionary? `:` `(` `)` `->` type: the form for a literal and a result of different types"""
    p.expect("(")
    p.expect(")")
    attributes: dict[str, Any] = {}
    if p.accept("<"):
        attributes = parse_dictionary(p)
        p.expect(">")
    attributes.update(p.dictionary())
    p.expect(":")
    type = p.function_type()
    return Op(name, p.resolve([], type.inputs), type.results, attributes)


def print_constant(printer: Printer, op: Op) -> str | None:
    value = op.attributes.get("value")
    if not isinstance(value, Dense) or op.operands or len(op.results) != 1:
        return None
    if value.type != op.result.type:
        properties = f"<{{value = {printer.attribute(value)}}}>"
        return f"() {properties}{printer.spaced_dictionary(op, ('value',))} : {printer.function(op)}"
    dictionary = printer.dictionary(op, ("value",))
    return (dictionary + " " if dictionary else "") + printer.attribute(value)


def parse_compare(p: Parser, name: str) -> Op:
    """compare ::= DIRECTION `,` operand `,` operand (`,` TYPE)? dictionary? `:` function-type"""
    direction = parse_enum_value(p, "comparison_direction")
    p.expect(",")
    lhs = p.operand()
    p.expect(",")
    keys = [lhs, p.operand()]
    attributes: dict[str, Any] = {"comparison_direction": direction}
    if p.accept(","):
        attributes["compare_type"] = parse_enum_value(p, "comparison_type")
    if p.tokens[p.i] == "{":
        attributes.update(p.dictionary())
    return typed(p, name, keys, attributes, same=False)


def print_compare(printer: Printer, op: Op) -> str | None:
    direction, kind = op.attributes.get("comparison_direction"), op.attributes.get("compare_type")
    if not isinstance(direction, EnumAttr) or not isinstance(kind, EnumAttr | None) or len(op.operands) != 2:
        return None
    text = f"{direction.value}, {printer.operands(op)}" + (f", {kind.value}" if kind else "")
    text += printer.spaced_dictionary(op, ("comparison_direction", "compare_type"))
    return f"{text} : {printer.function(op)}"


def parse_select(p: Parser, name: str) -> Op:
    """select ::= operand `,` operand `,` operand dictionary? `:` (type `,` type | function-type)"""
    keys = p.operands(3)
    if len(keys) > 3:
        p.i = keys[3] - 1
        p.fail("':'")
    attributes = p.dictionary() if p.tokens[p.i] == "{" else {}
    if p.tokens[p.i] == ":" and p.tokens[p.i + 1] != "(":
        p.i += 1
        at = p.i
        predicate = p.type()
        if not p.accept(","):
            p.error(f"custom op '{name}' expected functional type or list of two types", at)
        type = p.type()
        return Op(name, p.resolve(keys, (predicate, type, type)), (type,), attributes)
    return typed(p, name, keys, attributes, same=False)


def print_select(printer: Printer, op: Op) -> str | None:
    if len(op.operands) != 3 or len(op.results) != 1:
        return None
    text = printer.operands(op) + printer.spaced_dictionary(op)
    predicate, yes, no = (value.type for value in op.operands)
    if yes == no == op.result.type:
        return f"{text} : {printer.type(predicate)}, {printer.type(yes)}"
    return f"{text} : {printer.function(op)}"


def parse_slice(p: Parser, name: str) -> Op:
    """slice ::= operand `[` (range (`,` range)*)? `]` dictionary? `:` function-type
    range ::= integer `:` integer (`:` integer)?
    """
    keys = [p.operand()]
    starts: list[int] = []
    limits: list[int] = []
    strides: list[int] = []
    p.expect("[")
    if not p.accept("]"):
        while True:
            starts.append(p.integer())
            p.expect(":")
            limits.append(p.integer())
            strides.append(p.integer() if p.accept(":") else 1)
            if p.accept("]"):
                break
            if not p.accept(","):
                p.fail("']' or ','")
    attributes: dict[str, Any] = {
        "start_indices": i64s(tuple(starts)),
        "limit_indices": i64s(tuple(limits)),
        "strides": i64s(tuple(strides)),
    }
    if p.tokens[p.i] == "{":
        attributes.update(p.dictionary())
    return typed(p, name, keys, attributes, same=False)


def print_slice(printer: Printer, op: Op) -> str | None:
    names = ("start_indices", "limit_indices", "strides")
    starts, limits, strides = (all_ints(op.attributes.get(name)) for name in names)
    if not len(starts) == len(limits) == len(strides) or len(op.operands) != 1:
        return None
    ranges = [
        f"{start}:{limit}" + (f":{stride}" if stride != 1 else "")
        for start, limit, stride in zip(starts, limits, strides, strict=True)
    ]
    text = f"{printer.operands(op)} [{', '.join(ranges)}]{printer.spaced_dictionary(op, names)}"
    return f"{text} : {printer.function(op)}"


_FORMAT = re.compile(r"e(\d{1,9})m(\d{1,9})$")


def parse_reduce_precision(p: Parser, name: str) -> Op:
    """reduce_precision ::= operand `,` `format` `=` e5m10 dictionary? `:` (type | function-type)"""
    keys = [p.operand()]
    p.expect(",")
    p.expect("format")
    p.expect("=")
    m = _FORMAT.match(p.tokens[p.i])
    if not m:
        p.fail(f"exponent mantissa in format e#m#, saw {p.tokens[p.i][:40]}")
    p.i += 1
    attributes: dict[str, Any] = {
        "exponent_bits": IntegerAttr(int(m[1]), "i32"),
        "mantissa_bits": IntegerAttr(int(m[2]), "i32"),
    }
    attributes.update(p.dictionary())
    return typed(p, name, keys, attributes, same=True)


def print_reduce_precision(printer: Printer, op: Op) -> str | None:
    names = ("exponent_bits", "mantissa_bits")
    exponent, mantissa = (an_i64(op.attributes.get(name), "i32") for name in names)
    if exponent < 0 or mantissa < 0 or len(op.operands) != 1:
        return None
    text = f"{printer.operands(op)}, format = e{exponent}m{mantissa}{printer.spaced_dictionary(op, names)}"
    return f"{text} : {printer.same_or_function(op)}"


def parse_get_tuple_element(p: Parser, name: str) -> Op:
    """get_tuple_element ::= operand `[` integer `]` dictionary? `:` function-type"""
    keys = [p.operand()]
    at = p.i
    index = p.ints()
    if len(index) != 1:
        p.error("expected one index", at)
    if not fits(index[0], 32):
        p.error("the index does not fit 32 bits", at)
    attributes = {"index": IntegerAttr(index[0], "i32"), **p.dictionary()}
    return typed(p, name, keys, attributes, same=False)


def print_get_tuple_element(printer: Printer, op: Op) -> str | None:
    index = an_i64(op.attributes.get("index"), "i32")
    if len(op.operands) != 1:
        return None
    text = f"{printer.operands(op)}[{index}]{printer.spaced_dictionary(op, ('index',))}"
    return f"{text} : {printer.function(op)}"


def parse_tuple(p: Parser, name: str) -> Op:
    """tuple ::= operands dictionary? `:` (tuple-type | function-type)"""
    keys = p.operands()
    attributes = p.dictionary()
    p.expect(":")
    at = p.i
    type = p.type()
    if isinstance(type, FunctionType):
        return Op(name, p.resolve(keys, type.inputs), type.results, attributes)
    if not isinstance(type, TupleType):
        p.error(f"custom op '{name}' expected tuple type", at)
    _check_count(p, name, keys, type.types)
    return Op(name, p.resolve(keys, type.types), (type,), attributes)


def _check_count(p: Parser, name: str, keys: list[int], types: Sequence[Type]) -> None:
    if len(keys) != len(types):
        counts = f"got {len(keys)} operands and {len(types)} types"
        p.error(f"custom op '{name}' number of operands and types do not match: {counts}", keys[0] if keys else p.i - 1)


def print_tuple(printer: Printer, op: Op) -> str | None:
    type = op.results[0].type
    if not isinstance(type, TupleType) or tuple(value.type for value in op.operands) != type.types:
        return None
    text = printer.operands(op) + printer.spaced_dictionary(op)
    return f"{text} : {printer.type(type)}".lstrip()


def parse_complex(p: Parser, name: str) -> Op:
    """complex ::= operand `,` operand dictionary? `:` (tensor-type | function-type)"""
    keys = p.operands(2)
    attributes = p.dictionary()
    p.expect(":")
    at = p.i
    type = p.type()
    if isinstance(type, FunctionType):
        return Op(name, p.resolve(keys, type.inputs), type.results, attributes)
    if not isinstance(type, TensorType) or type.storage.part is type.storage:
        p.error(f"custom op '{name}' expected tensor with complex element type", at)
    part = _part_type(type)
    return Op(name, p.resolve(keys, (part, part)), (type,), attributes)


def _part_type(type: TensorType) -> TensorType:
    return TensorType(type.shape, type.storage.part, type.bounds, type.encoding)


def print_complex(printer: Printer, op: Op) -> str | None:
    type = op.results[0].type
    if not isinstance(type, TensorType) or not type.storage.is_complex or len(op.operands) != 2:
        return None
    text = printer.operands(op) + printer.spaced_dictionary(op)
    if all(value.type == _part_type(type) for value in op.operands):
        return f"{text} : {printer.type(type)}"
    return f"{text} : {printer.function(op)}"


def parse_custom_call(p: Parser, name: str) -> Op:
    """custom_call ::= symbol `(` operands `)` dictionary? `:` function-type"""
    target = p.symbol_name()
    p.expect("(")
    keys = p.operand_names(")")
    attributes = {"call_target_name": target, **p.dictionary()}
    return typed(p, name, keys, attributes, same=False)


def print_custom_call(printer: Printer, op: Op) -> str | None:
    target = op.attributes.get("call_target_name")
    if not isinstance(target, str):
        return None
    text = f"{printer.symbol(target)}({printer.operands(op)})"
    return f"{text}{printer.spaced_dictionary(op, ('call_target_name',))} : {printer.function(op)}"


def parse_composite(p: Parser, name: str) -> Op:
    """composite ::= string operands regions? dictionary? `:` function-type"""
    attributes: dict[str, Any] = {"name": parse_string(p)}
    keys = p.operands()
    regions = p.regions(name) if p.peek() == "(" else []
    attributes.update(p.dictionary())
    op = typed(p, name, keys, attributes, same=False)
    op.regions = regions
    return op


def print_composite(printer: Printer, op: Op) -> str | None:
    called = op.attributes.get("name")
    if not isinstance(called, str):
        return None
    text = f"{printer.attribute(called)} {printer.operands(op)}".rstrip()
    if op.regions:
        text += f" ({', '.join(map(printer.region, op.regions))})"
    return f"{text}{printer.spaced_dictionary(op, ('name',))} : {printer.function(op)}"


def parse_barrier(p: Parser, name: str) -> Op:
    """optimization_barrier ::= dictionary? operands `:` types | dictionary? `(` `)`
    | operands dictionary? `:` function-type
    """
    attributes = p.dictionary()
    if p.accept("("):
        p.expect(")")
        return Op(name, [], (), attributes)
    keys = p.operands(1)
    attributes.update(p.dictionary())
    p.expect(":")
    with p.reading(f"custom op '{name}' expected type list"):
        type = p.type()
        if isinstance(type, FunctionType):
            return Op(name, p.resolve(keys, type.inputs), type.results, attributes)
        types = p.type_list(type)
    _check_count(p, name, keys, types)
    return Op(name, p.resolve(keys, types), types, attributes)


def print_barrier(printer: Printer, op: Op) -> str | None:
    types: list[Type] = [value.type for value in op.operands]
    if types != [value.type for value in op.results]:
        return None
    head = printer.dictionary(op)
    head += " " if head else ""
    if not types:
        return f"{head}()"
    return f"{head}{printer.operands(op)} : {', '.join(map(printer.type, types))}"


def parse_after_all(p: Parser, name: str) -> Op:
    """after_all ::= operands dictionary? `:` (type | function-type)"""
    keys = p.operands()
    return typed(p, name, keys, p.dictionary(), same=True)


def print_after_all(printer: Printer, op: Op) -> str | None:
    if any(value.type != TOKEN for value in (*op.operands, *op.results)) or len(op.results) != 1:
        return None
    text = printer.operands(op) + printer.spaced_dictionary(op)
    return f"{text} : {printer.type(op.result.type)}".lstrip()


SYNTAX: dict[str, Syntax] = {
    "stablehlo.constant": Syntax(parse_constant, print_constant),
    "stablehlo.compare": Syntax(parse_compare, print_compare),
    "stablehlo.select": Syntax(parse_select, print_select),
    "stablehlo.slice": Syntax(parse_slice, print_slice),
    "stablehlo.reduce_precision": Syntax(parse_reduce_precision, print_reduce_precision),
    "stablehlo.get_tuple_element": Syntax(parse_get_tuple_element, print_get_tuple_element),
    "stablehlo.tuple": Syntax(parse_tuple, print_tuple),
    "stablehlo.complex": Syntax(parse_complex, print_complex),
    "stablehlo.custom_call": Syntax(parse_custom_call, print_custom_call),
    "stablehlo.composite": Syntax(parse_composite, print_composite),
    "stablehlo.optimization_barrier": Syntax(parse_barrier, print_barrier),
    "stablehlo.after_all": Syntax(parse_after_all, print_after_all),
}
