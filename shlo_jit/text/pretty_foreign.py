"""Pretty forms of other dialects that occur in StableHLO text: sdy, check, interpreter, arith, shape, tensor.

    mesh        ::= symbol `=` mesh-text dictionary?
    manual      ::= `(` operands `)` `in_shardings` `=` list `out_shardings` `=` list `manual_axes` `=` set
                    reducer-like arguments region dictionary? `:` function-type
    named       ::= `<` string `>` `(` operands `)` ... region dictionary? `:` function-type
    trailing    ::= operand attribute-text `:` type
    check       ::= operand `,` (operand | literal) (`,` word `=` number)* `:` types
    unknown     ::= operands dictionary? `:` (function-type | types (`->` types)? | types `to` type)

Attributes of sdy stay text. An op of an unknown dialect must match `unknown`, a form common to many dialects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from shlo_jit.ir.attributes import Dense, FloatAttr, IntegerAttr, OpaqueAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import I1, INDEX, FunctionType, ScalarType, TensorType, Type
from shlo_jit.text.attributes import parse_string, parse_untyped
from shlo_jit.text.pretty_chlo import parse_unary, print_arrow
from shlo_jit.text.pretty_control import parse_return, print_return
from shlo_jit.text.syntax import Argument, NotPretty, Syntax, parse_argument, typed

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser
    from shlo_jit.text.printer import Printer


def _raw(p: Parser, prefix: str, suffix: str = ">") -> OpaqueAttr:
    """Parses a bracketed group as attribute text, e.g. `[<@mesh, [{}]>]` as `#sdy.sharding_per_value<[...]>`."""
    first = p.i
    if p.tokens[p.i][:1] == "[" and len(p.tokens[p.i]) > 1:
        p.i += 1
    elif p.tokens[p.i] in ("<", "[", "{"):
        p.skip_brackets()
    else:
        p.fail("'<', '[' or '{'")
    return OpaqueAttr(prefix + p.text_since(first) + suffix)


def _bare(attribute: Any, prefix: str, suffix: str = ">") -> str:
    """Returns the text between prefix and suffix of an attribute that `_raw` parsed. Raises NotPretty."""
    text = attribute.text if isinstance(attribute, OpaqueAttr) else ""
    if not (text.startswith(prefix) and text.endswith(suffix)):
        raise NotPretty
    return text[len(prefix) : len(text) - len(suffix)]


def parse_mesh(p: Parser, name: str) -> Op:
    """mesh"""
    attributes: dict[str, Any] = {"sym_name": p.symbol_name()}
    p.expect("=")
    attributes["mesh"] = _raw(p, "#sdy.mesh", "")
    attributes.update(p.dictionary())
    return Op(name, [], (), attributes)


def print_mesh(printer: Printer, op: Op) -> str | None:
    name = op.attributes.get("sym_name")
    if not isinstance(name, str) or op.operands or op.results or op.regions:
        return None
    mesh = _bare(op.attributes.get("mesh"), "#sdy.mesh", "")
    return f"{printer.symbol(name)} = {mesh}{printer.spaced_dictionary(op, ('sym_name', 'mesh'))}"


SHARDINGS = "#sdy.sharding_per_value<"
AXES = "#sdy<manual_axes"
MANUAL = (("in_shardings", SHARDINGS), ("out_shardings", SHARDINGS), ("manual_axes", AXES))


def parse_manual(p: Parser, name: str) -> Op:
    """manual"""
    p.expect("(")
    keys = p.operand_names(")")
    attributes: dict[str, Any] = {}
    for word, prefix in MANUAL:
        p.expect(word)
        p.expect("=")
        attributes[word] = _raw(p, prefix)
    return _parse_body(p, name, keys, attributes)


def _parse_body(p: Parser, name: str, keys: list[int], attributes: dict[str, Any]) -> Op:
    """`(` arguments `)` region dictionary? `:` function-type"""
    p.expect("(")
    arguments: list[Argument] = []
    while not p.accept(")"):
        arguments.append(parse_argument(p))
        if not p.accept(",") and p.tokens[p.i] != ")":
            p.fail("')' or ','")
    region = p.region(arguments)
    attributes.update(p.dictionary())
    op = typed(p, name, keys, attributes, same=False)
    op.regions.append(region)
    return op


def print_manual(printer: Printer, op: Op) -> str | None:
    shardings = [f"{word}={_bare(op.attributes.get(word), prefix)}" for word, prefix in MANUAL]
    head = f"({printer.operands(op)}) {' '.join(shardings)}"
    return _print_body(printer, op, head, tuple(word for word, _ in MANUAL))


def _print_body(printer: Printer, op: Op, head: str, skip: tuple[str, ...]) -> str | None:
    if len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
        return None
    block = op.block()
    names = printer.open_scope(block.arguments)
    arguments = ", ".join(
        f"{name}: {printer.type(value.type)}{printer.argument_location(block, i)}"
        for i, (name, value) in enumerate(zip(names, block.arguments, strict=True))
    )
    body = printer.opened_block(block)
    return f"{head} ({arguments}) {body}{printer.spaced_dictionary(op, skip)} : {printer.function(op)}"


def parse_named(p: Parser, name: str) -> Op:
    """named ::= `<` string `>` `(` operands `)` (`in_shardings` `=` list)? (`out_shardings` `=` list)? body"""
    p.expect("<")
    attributes: dict[str, Any] = {"name": parse_string(p)}
    p.expect(">")
    p.expect("(")
    keys = p.operand_names(")")
    for word, prefix in MANUAL[:2]:
        if p.accept(word):
            p.expect("=")
            attributes[word] = _raw(p, prefix)
    return _parse_body(p, name, keys, attributes)


def print_named(printer: Printer, op: Op) -> str | None:
    called = op.attributes.get("name")
    if not isinstance(called, str):
        return None
    head = f"<{printer.attribute(called)}>({printer.operands(op)})"
    for word, prefix in MANUAL[:2]:
        if word in op.attributes:
            head += f" {word}={_bare(op.attributes[word], prefix)}"
    return _print_body(printer, op, head, ("name", "in_shardings", "out_shardings"))


def parse_sharding_constraint(p: Parser, name: str) -> Op:
    """trailing"""
    keys = [p.operand()]
    attributes: dict[str, Any] = {"sharding": _raw(p, "#sdy.sharding", "")}
    attributes.update(p.dictionary())
    return typed(p, name, keys, attributes, same=True)


def print_sharding_constraint(printer: Printer, op: Op) -> str | None:
    if not _is_unary(op):
        return None
    sharding = _bare(op.attributes.get("sharding"), "#sdy.sharding", "")
    text = f"{printer.operands(op)} {sharding}{printer.spaced_dictionary(op, ('sharding',))}"
    return f"{text} : {printer.same_or_function(op)}"


def _is_unary(op: Op) -> bool:
    return len(op.operands) == 1 and len(op.results) == 1 and not op.regions


AXIS_LISTS = "#sdy<list_of_axis_ref_lists"
AXIS_LIST = "#sdy<axis_ref_list"
COLLECTIVES = {
    "sdy.all_gather": ("gathering_axes", AXIS_LISTS),
    "sdy.all_slice": ("slicing_axes", AXIS_LISTS),
    "sdy.all_to_all": ("params", "#sdy<all_to_all_param_list"),
    "sdy.all_reduce": ("reduction_axes", AXIS_LIST),
}


def parse_sdy_collective(p: Parser, name: str) -> Op:
    """collective ::= axes operand `out_sharding` `=` sharding dictionary? `:` type"""
    attribute, prefix = COLLECTIVES[name]
    attributes: dict[str, Any] = {attribute: _raw(p, prefix)}
    keys = [p.operand()]
    p.expect("out_sharding")
    p.expect("=")
    attributes["out_sharding"] = _raw(p, "#sdy.sharding", "")
    attributes.update(p.dictionary())
    return typed(p, name, keys, attributes, same=True)


def print_sdy_collective(printer: Printer, op: Op) -> str | None:
    if not _is_unary(op):
        return None
    attribute, prefix = COLLECTIVES[op.name]
    axes = _bare(op.attributes.get(attribute), prefix)
    sharding = _bare(op.attributes.get("out_sharding"), "#sdy.sharding", "")
    text = f"{axes} {printer.operands(op)} out_sharding={sharding}"
    return f"{text}{printer.spaced_dictionary(op, (attribute, 'out_sharding'))} : {printer.same_or_function(op)}"


def parse_sharding_group(p: Parser, name: str) -> Op:
    """sharding_group ::= operand `group_id` `=` integer dictionary? `:` type"""
    keys = [p.operand()]
    p.expect("group_id")
    p.expect("=")
    attributes: dict[str, Any] = {"group_id": IntegerAttr(p.integer()), **p.dictionary()}
    p.expect(":")
    return Op(name, p.resolve(keys, [p.type()]), (), attributes)


def parse_propagation_barrier(p: Parser, name: str) -> Op:
    """propagation_barrier ::= operand `allowed_direction` `=` WORD dictionary? `:` type"""
    keys = [p.operand()]
    p.expect("allowed_direction")
    p.expect("=")
    attributes: dict[str, Any] = {"allowed_direction": OpaqueAttr(f"#sdy<propagation_direction {p.word()}>")}
    attributes.update(p.dictionary())
    return typed(p, name, keys, attributes, same=True)


def print_generic(printer: Printer, op: Op) -> str | None:
    """Returns None: the op is always printed in the generic form."""
    return None


# ---- literals of other dialects


def parse_constant(p: Parser, name: str) -> Op:
    """constant ::= dictionary? attribute"""
    attributes = p.dictionary()
    at = p.i
    value = p.attribute()
    type = _type_of(value)
    if type is None:
        p.error("expected a literal with its type", at)
    return Op(name, [], (type,), {"value": value, **attributes})


def _type_of(value: Any) -> Type | None:
    if isinstance(value, Dense):
        return value.type
    if isinstance(value, bool):
        return ScalarType("i1")
    return ScalarType(value.type) if isinstance(value, IntegerAttr | FloatAttr) else None


def print_constant(printer: Printer, op: Op) -> str | None:
    value = op.attributes.get("value")
    if op.operands or op.regions or len(op.results) != 1 or _type_of(value) != op.result.type:
        return None
    head = printer.dictionary(op, ("value",))
    return (head + " " if head else "") + printer.attribute(value)


# ---- check and interpreter, the dialects of StableHLO's own tests


def parse_check(p: Parser, name: str) -> Op:
    """check"""
    keys = [p.operand()]
    attributes: dict[str, Any] = {}
    while p.accept(","):
        if p.tokens[p.i][:1] == "%" and not attributes:
            keys.append(p.operand())
        elif p.tokens[p.i].startswith("dense") and not attributes:
            attributes["value"] = p.attribute()
        else:
            word = p.word()
            p.expect("=")
            attributes[word] = parse_untyped(p)
    attributes.update(p.dictionary())
    if not isinstance(attributes.get("value"), Dense) or p.tokens[p.i] == ":":
        p.expect(":")
        types = p.type_list()
    else:
        types = [attributes["value"].type]
    if len(types) == 1:
        types *= len(keys)
    operands = p.resolve(keys, types)
    results = [operands[0].type] if name == "interpreter.probe" else []
    return Op(name, operands, results, attributes)


# ---- everything else


def _no_form(p: Parser, name: str, at: int) -> NoReturn:
    """Rejects an op of another dialect, with a hint about what to do with programs in that dialect."""
    from shlo_jit.text.foreign_dialects import dialect_hint

    message = f"the pretty form of '{name}' is unknown; write the op in the generic form"
    p.error(message, at, hint=dialect_hint(name), code="file.other_dialect")


def parse_unknown(p: Parser, name: str) -> Op:
    """unknown"""
    at = p.i - 1
    if name.partition(".")[0] in ("stablehlo", "chlo", "func", "builtin", "sdy"):
        p.fail("an operation", at)
    keys = p.operands()
    while p.accept(","):
        if p.tokens[p.i][:1] != "%":
            _no_form(p, name, at)
        keys += p.operands()
    attributes = p.dictionary()
    if not p.accept(":"):
        _no_form(p, name, at)
    type = p.type()
    if isinstance(type, FunctionType):
        return Op(name, p.resolve(keys, type.inputs), type.results, attributes)
    types = p.type_list(type)
    if p.accept("->"):
        results: list[Type] = p.result_types() if p.tokens[p.i] == "(" else p.type_list()
    elif p.accept("to"):
        results = [p.type()]
    else:
        results = [types[0]]
    if len(types) == 1:
        types *= len(keys)
    return Op(name, p.resolve(keys, types), results, attributes)


def print_unary(printer: Printer, op: Op) -> str | None:
    return print_arrow(printer, op) if _is_unary(op) else None


def parse_dim(p: Parser, name: str) -> Op:
    """tensor.dim ::= operand `,` operand dictionary? `:` type"""
    keys = p.operands(2)
    attributes = p.dictionary()
    p.expect(":")
    index = ScalarType("index")
    return Op(name, p.resolve(keys, [p.type(), index]), (index,), attributes)


PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def parse_compare(p: Parser, name: str) -> Op:
    """arith.cmpi ::= WORD `,` operand `,` operand dictionary? `:` type"""
    at = p.i
    word = p.word()
    if word not in PREDICATES:
        p.error(f"expected one of {', '.join(PREDICATES)}", at)
    p.expect(",")
    keys = p.operands(2)
    attributes = {"predicate": IntegerAttr(PREDICATES.index(word)), **p.dictionary()}
    p.expect(":")
    type = p.type()
    bit = TensorType(type.shape, I1) if isinstance(type, TensorType) else ScalarType("i1")
    return Op(name, p.resolve(keys, [type, type]), (bit,), attributes)


def parse_select(p: Parser, name: str) -> Op:
    """arith.select ::= operand `,` operand `,` operand dictionary? `:` (type `,`)? type"""
    keys = p.operands(3)
    attributes = p.dictionary()
    p.expect(":")
    condition, *more = p.type_list()
    type = more[0] if more else condition
    return Op(name, p.resolve(keys, [condition if more else ScalarType("i1"), type, type]), (type,), attributes)


def parse_extract(p: Parser, name: str) -> Op:
    """tensor.extract ::= operand `[` operands `]` dictionary? `:` type"""
    keys = [p.operand()]
    p.expect("[")
    keys += p.operand_names("]")
    attributes = p.dictionary()
    p.expect(":")
    type = p.type()
    if not isinstance(type, TensorType):
        p.fail("a tensor type")
    indices = [ScalarType("index")] * (len(keys) - 1)
    element = type.storage.name if type.storage is not INDEX else "index"
    return Op(name, p.resolve(keys, [type, *indices]), (ScalarType(element),), attributes)


def parse_from_elements(p: Parser, name: str) -> Op:
    """tensor.from_elements ::= operands dictionary? `:` type"""
    keys = p.operands()
    attributes = p.dictionary()
    p.expect(":")
    type = p.type()
    if not isinstance(type, TensorType):
        p.fail("a tensor type")
    elements: list[Type] = [ScalarType(type.storage.name)] * len(keys)
    return Op(name, p.resolve(keys, elements), (type,), attributes)


SYNTAX: dict[str, Syntax] = {
    "sdy.mesh": Syntax(parse_mesh, print_mesh),
    "sdy.manual_computation": Syntax(parse_manual, print_manual),
    "sdy.named_computation": Syntax(parse_named, print_named),
    "sdy.sharding_constraint": Syntax(parse_sharding_constraint, print_sharding_constraint),
    "sdy.reshard": Syntax(parse_sharding_constraint, print_sharding_constraint),
    "sdy.sharding_group": Syntax(parse_sharding_group, print_generic),
    "sdy.propagation_barrier": Syntax(parse_propagation_barrier, print_generic),
    "sdy.constant": Syntax(parse_constant, print_constant),
    "sdy.return": Syntax(parse_return, print_return),
    **{name: Syntax(parse_sdy_collective, print_sdy_collective) for name in COLLECTIVES},
    "arith.constant": Syntax(parse_constant, print_constant),
    "shape.shape_of": Syntax(parse_unary, print_unary),
    "tensor.dim": Syntax(parse_dim, print_generic),
    "tensor.extract": Syntax(parse_extract, print_generic),
    "tensor.from_elements": Syntax(parse_from_elements, print_generic),
    "arith.cmpi": Syntax(parse_compare, print_generic),
    "arith.select": Syntax(parse_select, print_generic),
    **{
        f"check.expect_{name}": Syntax(parse_check, print_generic)
        for name in ("eq", "eq_const", "almost_eq", "almost_eq_const", "close", "serialized_eq")
    },
    "interpreter.probe": Syntax(parse_check, print_generic),
}
