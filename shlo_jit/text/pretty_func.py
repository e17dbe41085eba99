"""Pretty forms of modules and functions: module, func.func, func.call, func.return, functions as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shlo_jit.ir.attributes import DictAttr, SymbolRef, TypeAttr
from shlo_jit.ir.core import Op, Region, Value
from shlo_jit.ir.types import FunctionType, Type
from shlo_jit.text.attributes import parse_dictionary, parse_symbol
from shlo_jit.text.pretty_control import parse_return, print_return
from shlo_jit.text.syntax import Argument, Syntax, typed

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser
    from shlo_jit.text.printer import Printer

VISIBILITIES = ("public", "private", "nested")


def parse_module_op(p: Parser, name: str) -> Op:
    """module ::= symbol? (`attributes` dictionary)? region"""
    attributes: dict[str, Any] = {}
    if p.tokens[p.i][:1] == "@":
        attributes["sym_name"] = p.symbol_name()
    if p.accept("attributes"):
        _merge(p, attributes)
    if p.tokens[p.i] != "{":
        p.fail("'{'" if attributes else "'{', '@name' or 'attributes'")
    region = p.region([], isolated=True)
    return Op("builtin.module", [], (), attributes, [region])


def print_module_op(printer: Printer, op: Op) -> str | None:
    if op.results or len(op.regions) != 1 or len(op.regions[0].blocks) != 1 or op.block().arguments:
        return None
    name = op.attributes.get("sym_name")
    text = f"{printer.symbol(name)} " if isinstance(name, str) else ""
    dictionary = printer.dictionary(op, ("sym_name",) if text else ())
    if dictionary:
        text += f"attributes {dictionary} "
    return text + printer.isolated_region(op.regions[0], [])


def _merge(p: Parser, attributes: dict[str, Any]) -> None:
    """Parses a dictionary and adds its entries, which must be new, to `attributes`."""
    at = p.i
    for key, value in parse_dictionary(p).items():
        if key in attributes:
            p.error(f"attribute '{key}' is given twice", at)
        attributes[key] = value


def parse_func(p: Parser, name: str) -> Op:
    """func ::= visibility? symbol `(` arguments `)` (`->` results)? (`attributes` dictionary)? region?"""
    attributes: dict[str, Any] = {}
    if p.tokens[p.i] in VISIBILITIES:
        attributes["sym_visibility"] = p.next()
    attributes = {"sym_name": p.symbol_name(), **attributes}
    arguments, inputs, argument_attributes = _parse_arguments(p)
    results: list[Type] = []
    result_attributes: list[DictAttr] = []
    if p.accept("->"):
        results, result_attributes = _parse_results(p)
    attributes["function_type"] = TypeAttr(FunctionType(tuple(inputs), tuple(results)))
    if any(d.items for d in argument_attributes):
        attributes["arg_attrs"] = tuple(argument_attributes)
    if any(d.items for d in result_attributes):
        attributes["res_attrs"] = tuple(result_attributes)
    if p.accept("attributes"):
        _merge(p, attributes)
    if p.tokens[p.i] != "{":
        return Op("func.func", [], (), attributes, [Region()])
    if len(arguments) != len(inputs):
        p.error("expected names for the arguments of a function with a body")
    return Op("func.func", [], (), attributes, [p.region(arguments, isolated=True)])


Arguments = tuple[list[Argument], list[Type], list[DictAttr]]


def _parse_arguments(p: Parser) -> Arguments:
    """arguments ::= ((`%name` `:`)? type dictionary? location? (`,` ...)*)?; names for all or for none"""
    arguments: list[Argument] = []
    inputs: list[Type] = []
    attributes: list[DictAttr] = []
    p.expect("(")
    if p.accept(")"):
        return arguments, inputs, attributes
    while True:
        at = p.i
        key = p.tokens[at] if p.tokens[at][:1] == "%" else ""
        if key:
            p.i += 1
            p.expect(":")
        elif arguments:
            p.fail("a named argument")
        type = p.type()
        inputs.append(type)
        attributes.append(DictAttr(tuple(parse_dictionary(p).items())) if p.tokens[p.i] == "{" else DictAttr(()))
        location = p.location() if p.at_location() else None
        if key:
            arguments.append(Argument(key, Value(type, name=key[1:]), at, location))
        if p.accept(")"):
            return arguments, inputs, attributes
        if not p.accept(","):
            p.fail("')' or ','")


def _parse_results(p: Parser) -> tuple[list[Type], list[DictAttr]]:
    """results ::= type | `(` (type dictionary? (`,` ...)*)? `)`"""
    if not p.accept("("):
        return [p.type()], []
    types: list[Type] = []
    attributes: list[DictAttr] = []
    if p.accept(")"):
        return types, attributes
    while True:
        types.append(p.type())
        attributes.append(DictAttr(tuple(parse_dictionary(p).items())) if p.tokens[p.i] == "{" else DictAttr(()))
        if p.accept(")"):
            return types, attributes
        if not p.accept(","):
            p.fail("')' or ','")


def drop_empty_dictionaries(attributes: dict[str, Any]) -> None:
    """Removes `arg_attrs` and `res_attrs` if all their dictionaries are empty."""
    for name in ("arg_attrs", "res_attrs"):
        value = attributes.get(name)
        if isinstance(value, tuple) and all(isinstance(d, DictAttr) and not d.items for d in value):
            del attributes[name]


INHERENT = ("sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs")


def print_func(printer: Printer, op: Op) -> str | None:
    type, name = op.attributes.get("function_type"), op.attributes.get("sym_name")
    visibility = op.attributes.get("sym_visibility")
    if not isinstance(type, TypeAttr) or not isinstance(type.type, FunctionType) or not isinstance(name, str):
        return None
    if len(op.regions) != 1 or visibility not in (None, *VISIBILITIES):
        return None
    function = type.type
    attributes = (op.attributes.get("arg_attrs"), function.inputs), (op.attributes.get("res_attrs"), function.results)
    if not all(_are_dictionaries(given, types) for given, types in attributes):
        return None
    region = op.regions[0]
    values = region.blocks[0].arguments if region.blocks else []
    if region.blocks and [value.type for value in values] != list(function.inputs):
        return None
    outer = printer.open_function()
    names = printer.open_scope(values)
    inputs = _with_attributes(printer, function.inputs, op.attributes.get("arg_attrs"))
    if names:
        places = [printer.argument_location(region.blocks[0], i) for i in range(len(names))]
        inputs = [f"{name}: {text}{place}" for name, text, place in zip(names, inputs, places, strict=True)]
    text = f"{visibility} " if visibility else ""
    text += f"{printer.symbol(name)}({', '.join(inputs)})" + _results_text(printer, function, op)
    dictionary = printer.dictionary(op, INHERENT)
    if dictionary:
        text += f" attributes {dictionary}"
    if region.blocks:
        text += " " + printer.opened_region(region)
    else:
        printer.close_scope()
    printer.close_function(outer)
    return text


def _results_text(printer: Printer, function: FunctionType, op: Op) -> str:
    if not function.results:
        return ""
    attributes = op.attributes.get("res_attrs")
    results = _with_attributes(printer, function.results, attributes)
    if len(results) == 1 and not attributes and not isinstance(function.results[0], FunctionType):
        return f" -> {results[0]}"
    return f" -> ({', '.join(results)})"


def _are_dictionaries(attributes: Any, types: tuple[Type, ...]) -> bool:
    """Whether `arg_attrs` or `res_attrs` are absent, or a dictionary for each type and not all of them empty."""
    if attributes is None:
        return True
    if not isinstance(attributes, tuple) or len(attributes) != len(types):
        return False
    return all(isinstance(d, DictAttr) for d in attributes) and any(d.items for d in attributes)


def _with_attributes(printer: Printer, types: tuple[Type, ...], attributes: Any) -> list[str]:
    """Returns the types, each followed by its dictionary of `arg_attrs` or `res_attrs`."""
    texts = [printer.type(type) for type in types]
    if attributes is None:
        return texts
    return [f"{text} {printer.attribute(d)}" if d.items else text for text, d in zip(texts, attributes, strict=True)]


def parse_call(p: Parser, name: str) -> Op:
    """call ::= symbol `(` operands `)` dictionary? `:` function-type"""
    callee: SymbolRef = parse_symbol(p)
    p.expect("(")
    keys = p.operand_names(")")
    attributes = {"callee": callee, **p.dictionary()}
    return typed(p, "func.call", keys, attributes, same=False)


def print_call(printer: Printer, op: Op) -> str | None:
    callee = op.attributes.get("callee")
    if not isinstance(callee, SymbolRef):
        return None
    text = f"{printer.attribute(callee)}({printer.operands(op)}){printer.spaced_dictionary(op, ('callee',))}"
    return f"{text} : {printer.function(op)}"


def parse_function_constant(p: Parser, name: str) -> Op:
    """constant ::= symbol dictionary? `:` function-type"""
    attributes = {"value": parse_symbol(p), **p.dictionary()}
    p.expect(":")
    return Op("func.constant", [], (p.function_type(),), attributes)


def print_function_constant(printer: Printer, op: Op) -> str | None:
    value = op.attributes.get("value")
    if not isinstance(value, SymbolRef) or op.operands or len(op.results) != 1:
        return None
    if not isinstance(op.result.type, FunctionType):
        return None
    dictionary = printer.spaced_dictionary(op, ("value",))
    return f"{printer.attribute(value)}{dictionary} : {printer.type(op.result.type)}"


def parse_call_indirect(p: Parser, name: str) -> Op:
    """call_indirect ::= operand `(` operands `)` dictionary? `:` function-type"""
    callee = p.operand()
    p.expect("(")
    keys = p.operand_names(")")
    attributes = p.dictionary()
    p.expect(":")
    type = p.function_type()
    operands = p.resolve([callee, *keys], [type, *type.inputs])
    return Op("func.call_indirect", operands, type.results, attributes)


def print_call_indirect(printer: Printer, op: Op) -> str | None:
    if not op.operands:
        return None
    callee, *operands = op.operands
    if callee.type != FunctionType(tuple(v.type for v in operands), tuple(v.type for v in op.results)):
        return None
    text = f"{printer.value(callee)}({', '.join(map(printer.value, operands))}){printer.spaced_dictionary(op)}"
    return f"{text} : {printer.type(callee.type)}"


def parse_func_return(p: Parser, name: str) -> Op:
    """return ::= dictionary? (operands `:` types)?"""
    return parse_return(p, "func.return")


SYNTAX: dict[str, Syntax] = {
    "builtin.module": Syntax(parse_module_op, print_module_op),
    "func.func": Syntax(parse_func, print_func),
    "func.call": Syntax(parse_call, print_call),
    "func.call_indirect": Syntax(parse_call_indirect, print_call_indirect),
    "func.constant": Syntax(parse_function_constant, print_function_constant),
    "func.return": Syntax(parse_func_return, print_return),
}
