"""Pretty forms of CHLO.

unary     ::= operand dictionary? `:` type `->` type
binary    ::= operand `,` operand dictionary? `:` type `,` type `->` type
broadcast ::= operand (`,` operand)* dictionary? `:` function-type
top_k     ::= `(` operand `,` `k` `=` integer `)` dictionary? `:` type `->` `(` types `)`
constant  ::= literal dictionary?
scan      ::= `(` operands `)` `inits` `(` operands `)` `dimension` `=` integer (`attributes` dictionary)?
              region `:` function-type
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shlo_jit.ir.attributes import Dense, DenseArray, IntegerAttr
from shlo_jit.ir.core import Op
from shlo_jit.text.attributes import parse_dense
from shlo_jit.text.syntax import NotPretty, Syntax, an_i64, i64, typed

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser
    from shlo_jit.text.printer import Printer

_UNARY = """_asin_acos_kernel acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc is_inf
is_neg_inf is_pos_inf lgamma sinh square tan"""
UNARY = _UNARY.split()
_BINARY = "mulhi next_after polygamma zeta"
BINARY = _BINARY.split()
_BROADCASTING = """add and atan2 compare complex divide maximum minimum multiply next_after or polygamma power remainder
shift_left shift_right_arithmetic shift_right_logical subtract xor zeta"""
BROADCASTING = _BROADCASTING.split()


def _parse_arrow(p: Parser, name: str, count: int) -> Op:
    """operand (`,` operand)* dictionary? `:` type (`,` type)* `->` (type | `(` types `)`)"""
    keys = p.operands(count)
    if len(keys) > count:
        p.i = keys[count] - 1
        p.fail("':'")
    attributes = p.dictionary()
    if p.tokens[p.i] == ":" and p.tokens[p.i + 1] == "(":
        return typed(p, name, keys, attributes, same=False)
    p.expect(":")
    inputs = p.type_list()
    if not p.accept("->"):
        p.fail("'->'")
    return Op(name, p.resolve(keys, inputs), p.result_types(), attributes)


def parse_unary(p: Parser, name: str) -> Op:
    """unary"""
    return _parse_arrow(p, name, 1)


def parse_binary(p: Parser, name: str) -> Op:
    """binary"""
    return _parse_arrow(p, name, 2)


def print_arrow(printer: Printer, op: Op) -> str | None:
    if len(op.results) != 1 or not op.operands:
        return None
    types = ", ".join(printer.type(value.type) for value in op.operands)
    text = printer.operands(op) + printer.spaced_dictionary(op)
    return f"{text} : {types} -> {printer.results_type(op)}"


def parse_broadcast(p: Parser, name: str) -> Op:
    """broadcast, of two operands"""
    return _parse_broadcast(p, name, 2)


def parse_broadcast_select(p: Parser, name: str) -> Op:
    """broadcast, of three operands"""
    return _parse_broadcast(p, name, 3)


def _parse_broadcast(p: Parser, name: str, count: int) -> Op:
    keys = p.operands(count)
    if len(keys) > count:
        p.i = keys[count] - 1
        p.fail("':'")
    return typed(p, name, keys, p.dictionary(), same=False)


def print_broadcast(printer: Printer, op: Op) -> str | None:
    return f"{printer.operands(op)}{printer.spaced_dictionary(op)} : {printer.function(op)}" if op.operands else None


def parse_constant(p: Parser, name: str) -> Op:
    """constant"""
    at = p.i
    value = parse_dense(p) if p.tokens[at].startswith("dense<") else p.attribute()
    if not isinstance(value, Dense):
        p.error("expected a 'dense' literal as the value of a constant", at)
    return Op(name, [], (value.type,), {"value": value, **p.dictionary()})


def print_constant(printer: Printer, op: Op) -> str | None:
    value = op.attributes.get("value")
    if not isinstance(value, Dense) or op.operands or value.type != op.result.type:
        return None
    return printer.attribute(value) + printer.spaced_dictionary(op, ("value",))


def parse_top_k(p: Parser, name: str) -> Op:
    """top_k"""
    p.expect("(")
    keys = [p.operand()]
    p.expect(",")
    p.expect("k")
    p.expect("=")
    attributes: dict[str, Any] = {"k": i64(p.integer())}
    p.expect(")")
    attributes.update(p.dictionary())
    p.expect(":")
    inputs = [p.type()]
    p.expect("->")
    return Op(name, p.resolve(keys, inputs), p.result_types(), attributes)


def print_top_k(printer: Printer, op: Op) -> str | None:
    if len(op.operands) != 1:
        return None
    text = f"({printer.operands(op)}, k = {an_i64(op.attributes.get('k'))}){printer.spaced_dictionary(op, ('k',))}"
    return f"{text} : {printer.type(op.operands[0].type)} -> {printer.results_type(op)}"


def parse_scan(p: Parser, name: str) -> Op:
    """scan"""
    p.expect("(")
    inputs = p.operand_names(")")
    p.expect("inits")
    p.expect("(")
    inits = p.operand_names(")")
    p.expect("dimension")
    p.expect("=")
    attributes: dict[str, Any] = {"dimension": i64(p.integer())}
    if p.accept("attributes"):
        attributes.update(p.dictionary())
    region = p.region()
    at = p.i
    op = typed(p, name, inputs + inits, attributes, same=False)
    op.regions.append(region)
    carries = len(inits)
    if carries > len(op.results):
        p.error("expected a result of scan for each of its initial values", at)
    # MLIR separates the two groups of operands and results by these attributes
    op.attributes["operandSegmentSizes"] = DenseArray("i32", (len(inputs), carries))
    op.attributes["resultSegmentSizes"] = DenseArray("i32", (len(op.results) - carries, carries))
    return op


SEGMENTS = ("operandSegmentSizes", "resultSegmentSizes")


def print_scan(printer: Printer, op: Op) -> str | None:
    sizes = op.attributes.get("operandSegmentSizes")
    dimension = op.attributes.get("dimension")
    if not isinstance(sizes, DenseArray) or len(sizes.values) != 2 or not isinstance(dimension, IntegerAttr):
        return None
    results = op.attributes.get("resultSegmentSizes")
    if len(op.regions) != 1 or results != DenseArray("i32", (len(op.results) - sizes.values[1], sizes.values[1])):
        raise NotPretty
    if sum(sizes.values) != len(op.operands) or min(sizes.values) < 0:
        return None
    names = [printer.value(value) for value in op.operands]
    count = sizes.values[0]
    text = f"({', '.join(names[:count])}) inits ({', '.join(names[count:])}) dimension = {an_i64(dimension)}"
    dictionary = printer.dictionary(op, ("dimension", *SEGMENTS))
    if dictionary:
        text += f" attributes {dictionary}"
    return f"{text} {printer.region(op.regions[0])} : {printer.function(op)}"


SYNTAX: dict[str, Syntax] = {
    **{f"chlo.{name}": Syntax(parse_unary, print_arrow) for name in UNARY},
    **{f"chlo.{name}": Syntax(parse_binary, print_arrow) for name in BINARY},
    **{f"chlo.broadcast_{name}": Syntax(parse_broadcast, print_broadcast) for name in BROADCASTING},
    "chlo.broadcast_select": Syntax(parse_broadcast_select, print_broadcast),
    "chlo.constant": Syntax(parse_constant, print_constant),
    "chlo.top_k": Syntax(parse_top_k, print_top_k),
    "chlo.scan": Syntax(parse_scan, print_scan),
}
