"""Pretty forms with regions: reduce and while; and `stablehlo.return`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.structs import int_list
from shlo_jit.ir.types import TensorType, Type, tensor
from shlo_jit.ops import OPS
from shlo_jit.text.syntax import (
    Argument,
    NotPretty,
    Syntax,
    all_ints,
    i64s,
    list_of_types_hint,
    parse_argument,
    typed,
)  # fmt: skip

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser
    from shlo_jit.text.printer import Printer


def parse_return(p: Parser, name: str) -> Op:
    """return ::= dictionary? (operands `:` types)?"""
    attributes = p.dictionary()
    keys = p.operands()
    if p.tokens[p.i] == "{":
        attributes.update(p.dictionary())
    if not keys:
        return Op(name, [], (), attributes)
    if not p.accept(":"):
        p.fail("':'", hint=list_of_types_hint(p, keys), code="syntax.missing_type")
    return Op(name, p.resolve(keys, p.type_list()), (), attributes)


def print_return(printer: Printer, op: Op) -> str | None:
    if op.results or op.regions:
        return None
    head = printer.dictionary(op)
    if not op.operands:
        return head
    types = ", ".join(printer.type(value.type) for value in op.operands)
    return f"{head} {printer.operands(op)} : {types}".lstrip()


# ---- reduce


def _may_be_applied(name: str) -> bool:
    """Whether `applies` may name an operation: a commutative one of StableHLO."""
    record = OPS.get(name) if name.startswith("stablehlo.") else None
    return record is not None and record.has("commutative")


def parse_reduce(p: Parser, name: str) -> Op:
    """reduce ::= pairs (`applies` op-name)? `across` `dimensions` `=` ints dictionary? `:` function-type reducer?
    pairs ::= `(` operand `init:` operand `)` (`,` ...)*
    """
    inputs: list[int] = []
    inits: list[int] = []
    while True:
        p.expect("(")
        inputs.append(p.operand())
        p.expect("init")
        p.expect(":")
        inits.append(p.operand())
        p.expect(")")
        if not p.accept(","):
            break
    inner = _applied(p) if p.accept("applies") else None
    p.expect("across")
    p.expect("dimensions")
    p.expect("=")
    attributes: dict[str, Any] = {"dimensions": i64s(p.ints())}
    attributes.update(p.dictionary())
    at = p.i + 1
    op = typed(p, name, inputs + inits, attributes, same=False)
    if inner is not None:
        op.regions.append(_applied_region(p, op, inner, at))
    else:
        op.regions.append(_reducer(p, len(inputs)))
    return op


def _applied(p: Parser) -> str:
    """op-name of an operation with two operands"""
    name = p.tokens[p.i]
    if not name[:1].isalpha() or not name.replace(".", "").isidentifier():
        p.fail("the name of an operation such as 'stablehlo.add'")
    if not _may_be_applied(name):
        p.error(
            "custom op 'stablehlo.reduce' expected the inner-op to be a commutative binary-op from the stablehlo "
            "dialect, with zero region, producing single result"
        )
    p.i += 1
    return name


def _applied_region(p: Parser, op: Op, inner: str, at: int) -> Region:
    """Returns the region that `applies op` abbreviates."""
    init = op.operands[-1].type
    if len(op.operands) != 2 or not isinstance(init, TensorType):
        p.error("'applies' requires exactly one input and its initial value", at)
    type: Type = tensor((), init.dtype)
    lhs, rhs = Value(type, name="lhs"), Value(type, name="rhs")
    body = Op(inner, [lhs, rhs], (type,), {}, [], p.source, p.starts[at], p.end())
    end = Op("stablehlo.return", [body.result], (), {}, [], p.source, p.starts[at], p.end())
    return Region([Block([lhs, rhs], [body, end])])


def _reducer(p: Parser, count: int) -> Region:
    """reducer ::= `reducer` (`(` argument `,` argument `)`)* region: one pair of arguments per input"""
    p.expect("reducer")
    lhs: list[Argument] = []
    rhs: list[Argument] = []
    at = p.i
    while p.accept("("):
        lhs.append(parse_argument(p))
        p.expect(",")
        rhs.append(parse_argument(p))
        p.expect(")")
    if len(lhs) != count:
        p.error(f"{count} input(s), but {len(lhs)} pair(s) of arguments in the reducer", at)
    return p.region(lhs + rhs)


def print_reduce(printer: Printer, op: Op) -> str | None:
    count = len(op.operands) // 2
    if not count or len(op.operands) % 2 or len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
        return None
    block = op.block()
    if len(block.arguments) != 2 * count:
        return None
    names = [printer.value(value) for value in op.operands]
    pairs = ", ".join(f"({names[i]} init: {names[count + i]})" for i in range(count))
    dims = int_list(all_ints(op.attributes.get("dimensions")))
    inner = applied_op(op)
    inner = inner if inner is not None and _may_be_applied(inner) else None
    tail = printer.spaced_dictionary(op, ("dimensions",)) + f" : {printer.function(op)}"
    if inner is not None:
        return f"{pairs} applies {inner} across dimensions = {dims}{tail}"
    names = printer.open_scope(block.arguments)
    types = [printer.type(value.type) for value in block.arguments]
    places = [printer.argument_location(block, i) for i in range(2 * count)]
    arguments = [f"{name}: {type}{place}" for name, type, place in zip(names, types, places, strict=True)]
    reducer = " ".join(f"({arguments[i]}, {arguments[count + i]})" for i in range(count))
    head = f"{pairs} across dimensions = {dims}{tail}\n{printer.indent} reducer{reducer} "
    return head + printer.opened_block(block)


def applied_op(op: Op) -> str | None:
    """Returns the name of the op that a reduce `applies` if its region consists only of that op."""
    block = op.block()
    if len(op.operands) != 2 or len(block.ops) != 2 or len(block.arguments) != 2:
        return None
    body, end = block.ops
    type = op.operands[1].type
    plain = not (body.attributes or body.regions or end.attributes or end.regions or end.results)
    if not plain or end.name != "stablehlo.return" or body.operands != block.arguments or end.operands != body.results:
        return None
    scalar = tensor((), type.dtype) if isinstance(type, TensorType) else None
    if len(body.results) != 1 or any(value.type != scalar for value in (*block.arguments, body.results[0])):
        return None
    return body.name


# ---- while


def parse_while(p: Parser, name: str) -> Op:
    """while ::= `(` (`%name` `=` operand (`,` ...)*)? `)` (`:` types)? (`attributes` dictionary)?
    `cond` region `do` region
    """
    p.expect("(")
    names: list[int] = []
    keys: list[int] = []
    if not p.accept(")"):
        while True:
            names.append(p.operand())
            p.expect("=")
            keys.append(p.operand())
            if p.accept(")"):
                break
            if not p.accept(","):
                p.fail("')' or ','")
    types: list[Type] = []
    if keys:
        p.expect(":")
        types = p.type_list()
    attributes: dict[str, Any] = {}
    if p.accept("attributes"):
        attributes = p.dictionary()
    operands = p.resolve(keys, types)
    p.expect("cond")
    regions = [p.region(_arguments(p, names, types))]
    p.expect("do")
    regions.append(p.region(_arguments(p, names, types)))
    return Op(name, operands, types, attributes, regions)


def _arguments(p: Parser, names: list[int], types: list[Type]) -> list[Argument]:
    return [
        Argument(p.tokens[at], Value(type, name=p.tokens[at][1:]), at) for at, type in zip(names, types, strict=True)
    ]


def print_while(printer: Printer, op: Op) -> str | None:
    types = [value.type for value in op.operands]
    if len(op.regions) != 2 or types != [value.type for value in op.results]:
        return None
    cond, body = (_only_block(region) for region in op.regions)
    for block in (cond, body):
        if [value.type for value in block.arguments] != types:
            return None
    operands = [printer.value(value) for value in op.operands]
    # both regions use the same argument names: the second gets the names chosen for the first
    names = printer.open_scope(body.arguments)
    pairs = ", ".join(f"{name} = {operand}" for name, operand in zip(names, operands, strict=True))
    head = f"({pairs})" + (" : " + ", ".join(map(printer.type, types)) if types else "")
    dictionary = printer.dictionary(op)
    if dictionary:
        head += f" attributes {dictionary}"
    printer.close_scope()
    printer.open_scope(cond.arguments, names)
    text = f"{head}\n{printer.indent}cond {printer.opened_block(cond)}"
    printer.open_scope(body.arguments, names)
    return f"{text} do {printer.opened_block(body)}"


def _only_block(region: Region) -> Block:
    if len(region.blocks) != 1:
        raise NotPretty
    return region.blocks[0]


SYNTAX: dict[str, Syntax] = {
    "stablehlo.return": Syntax(parse_return, print_return),
    "stablehlo.reduce": Syntax(parse_reduce, print_reduce),
    "stablehlo.while": Syntax(parse_while, print_while),
}
