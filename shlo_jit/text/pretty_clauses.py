"""Regular pretty forms: operands, clauses `word = value`, attributes, type.

    regular ::= operand (`,` operand)* (`,` word `=` value)* dictionary? `:` signature
    value   ::= ints | integer | `true` | `false` | ENUM | string

A row of `FORMS` fully describes the syntax of such an op. `signature` is SAME (one type for all operands and the
result, or a function type), FUNCTION (a function type), RESULT (the type of the result; such ops have no operands).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shlo_jit.ir.attributes import EnumAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.structs import int_list
from shlo_jit.text.attributes import parse_enum_value, parse_string
from shlo_jit.text.syntax import NotPretty, Syntax, all_ints, an_i64, i64, i64s, typed

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser
    from shlo_jit.text.printer import Printer

SAME, FUNCTION, RESULT = "same", "function", "result"
INTS, INTEGER, BOOL, TEXT = "ints", "integer", "bool", "text"


class Clause(NamedTuple):
    word: str
    attribute: str
    kind: str
    """INTS, INTEGER, BOOL, TEXT or the mnemonic of an enum."""
    optional: bool = False


class Form(NamedTuple):
    operands: int
    """Number of operands; -1 for any number."""
    signature: str
    clauses: tuple[Clause, ...] = ()


FORMS: dict[str, Form] = {
    "stablehlo.iota": Form(0, RESULT, (Clause("dim", "iota_dimension", INTEGER),)),
    "stablehlo.dynamic_iota": Form(1, FUNCTION, (Clause("dim", "iota_dimension", INTEGER),)),
    "stablehlo.create_token": Form(0, RESULT),
    "stablehlo.partition_id": Form(0, RESULT),
    "stablehlo.replica_id": Form(0, RESULT),
    "stablehlo.broadcast": Form(1, FUNCTION, (Clause("sizes", "broadcast_sizes", INTS),)),
    "stablehlo.broadcast_in_dim": Form(1, FUNCTION, (Clause("dims", "broadcast_dimensions", INTS),)),
    "stablehlo.dynamic_broadcast_in_dim": Form(2, FUNCTION, (Clause("dims", "broadcast_dimensions", INTS),)),
    "stablehlo.transpose": Form(1, FUNCTION, (Clause("dims", "permutation", INTS),)),
    "stablehlo.reverse": Form(1, SAME, (Clause("dims", "dimensions", INTS),)),
    "stablehlo.pad": Form(
        2,
        FUNCTION,
        (
            Clause("low", "edge_padding_low", INTS),
            Clause("high", "edge_padding_high", INTS),
            Clause("interior", "interior_padding", INTS),
        ),
    ),
    "stablehlo.concatenate": Form(-1, FUNCTION, (Clause("dim", "dimension", INTEGER),)),
    "stablehlo.dynamic_slice": Form(-1, FUNCTION, (Clause("sizes", "slice_sizes", INTS),)),
    "stablehlo.get_dimension_size": Form(1, FUNCTION, (Clause("dim", "dimension", INTEGER),)),
    "stablehlo.set_dimension_size": Form(2, FUNCTION, (Clause("dim", "dimension", INTEGER),)),
    "stablehlo.cholesky": Form(1, SAME, (Clause("lower", "lower", BOOL, optional=True),)),
    "stablehlo.einsum": Form(2, FUNCTION, (Clause("config", "einsum_config", TEXT),)),
    "stablehlo.unary_einsum": Form(1, FUNCTION, (Clause("config", "einsum_config", TEXT),)),
    "stablehlo.fft": Form(1, FUNCTION, (Clause("type", "fft_type", "fft_type"), Clause("length", "fft_length", INTS))),
    "stablehlo.rng": Form(3, FUNCTION, (Clause("distribution", "rng_distribution", "rng_distribution"),)),
    "stablehlo.rng_bit_generator": Form(1, FUNCTION, (Clause("algorithm", "rng_algorithm", "rng_algorithm"),)),
    "stablehlo.torch_index_select": Form(
        2, FUNCTION, (Clause("dim", "dim", INTEGER), Clause("batch_dims", "batch_dims", INTEGER))
    ),
    "stablehlo.dynamic_update_slice": Form(-1, FUNCTION),
    "stablehlo.dynamic_pad": Form(5, FUNCTION),
    "stablehlo.real_dynamic_slice": Form(4, FUNCTION),
    "stablehlo.bitcast_convert": Form(1, FUNCTION),
    "stablehlo.dynamic_reshape": Form(2, FUNCTION),
    "stablehlo.reshape": Form(1, FUNCTION),
    "stablehlo.clamp": Form(3, SAME),
}

_UNARY = """abs cbrt ceil convert cosine count_leading_zeros exponential exponential_minus_one floor imag is_finite log
log_plus_one logistic negate not popcnt real round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh
uniform_dequantize uniform_quantize"""
UNARY = _UNARY.split()
_BINARY = """add and atan2 divide maximum minimum multiply or power remainder shift_left shift_right_arithmetic
shift_right_logical subtract xor"""
BINARY = _BINARY.split()
FORMS.update({f"stablehlo.{name}": Form(1, SAME) for name in UNARY})
FORMS.update({f"stablehlo.{name}": Form(2, SAME) for name in BINARY})


def _parser(form: Form) -> Any:
    """Returns the parse function of a row."""
    count, signature, clauses = form
    if signature == RESULT:
        return lambda p, name: _parse_result_only(p, name, clauses)
    same = signature == SAME
    if not clauses and count > 0:
        return lambda p, name: _parse_plain(p, name, count, same)
    return lambda p, name: _parse_regular(p, name, count, clauses, same)


def _parse_plain(p: Parser, name: str, count: int, same: bool) -> Op:
    """operand (`,` operand)* dictionary? `:` signature"""
    tokens = p.tokens
    i = p.i
    keys: list[int] = []
    while True:
        if tokens[i][:1] != "%":
            p.i = i
            p.fail("SSA operand")
        keys.append(i)
        i += 1
        if len(keys) == count:
            break
        if tokens[i] != ",":
            p.i = i
            p.fail("','")
        i += 1
    p.i = i
    attributes = p.dictionary() if tokens[i] == "{" else {}
    return typed(p, name, keys, attributes, same=same)


def _parse_regular(p: Parser, name: str, count: int, clauses: tuple[Clause, ...], same: bool) -> Op:
    """regular"""
    keys = p.operands(0 if count < 0 else count)
    if 0 <= count < len(keys):
        p.i = keys[count] - 1
        p.fail(f"'{clauses[0].word}'" if clauses else "':'")
    attributes = _parse_clauses(p, clauses, bool(keys))
    if p.tokens[p.i] == "{":
        _merge(p, attributes)
    return typed(p, name, keys, attributes, same=same)


def _parse_result_only(p: Parser, name: str, clauses: tuple[Clause, ...]) -> Op:
    """(word `=` value)? dictionary? `:` type"""
    attributes = _parse_clauses(p, clauses, False)
    if p.tokens[p.i] == "{":
        _merge(p, attributes)
    p.expect(":")
    return Op(name, [], (p.type(),), attributes)


def _merge(p: Parser, attributes: dict[str, Any]) -> None:
    at = p.i
    for key, value in p.dictionary().items():
        if key in attributes:
            p.error(f"attribute '{key}' is given twice", at)
        attributes[key] = value


def _parse_clauses(p: Parser, clauses: tuple[Clause, ...], comma: bool) -> dict[str, Any]:
    """(`,` word `=` value)*"""
    attributes: dict[str, Any] = {}
    for word, attribute, kind, optional in clauses:
        if optional and p.tokens[p.i] != ",":
            continue
        if comma:
            p.expect(",")
        p.expect(word)
        p.expect("=")
        attributes[attribute] = _parse_value(p, kind)
        comma = True
    return attributes


def _parse_value(p: Parser, kind: str) -> Any:
    """value"""
    if kind == INTS:
        return i64s(p.ints())
    if kind == INTEGER:
        return i64(p.integer())
    if kind == BOOL:
        if p.peek() not in ("true", "false"):
            p.fail("'true' or 'false'")
        return p.next() == "true"
    if kind == TEXT:
        return parse_string(p)
    return parse_enum_value(p, kind)


def _printer(form: Form) -> Any:
    """Returns the print function of a row."""
    return lambda printer, op: _print_regular(printer, op, form)


def _print_regular(printer: Printer, op: Op, form: Form) -> str | None:
    count, signature, clauses = form
    if (count >= 0 and len(op.operands) != count) or op.regions:
        return None
    parts = [printer.operands(op)] if op.operands else []
    for word, attribute, kind, optional in clauses:
        value = op.attributes.get(attribute)
        if value is None and optional:
            continue
        parts.append(f"{word} = {_print_value(printer, value, kind)}")
    head = " ".join([", ".join(parts), printer.dictionary(op, [clause.attribute for clause in clauses])]).strip()
    head = f"{head} : " if head else ": "
    if signature == RESULT:
        return None if len(op.results) != 1 else head + printer.type(op.result.type)
    return head + (printer.same_or_function(op) if signature == SAME else printer.function(op))


def _print_value(printer: Printer, value: Any, kind: str) -> str:
    if kind == INTS:
        return int_list(all_ints(value))
    if kind == INTEGER:
        return str(an_i64(value))
    if kind == BOOL and isinstance(value, bool):
        return "true" if value else "false"
    if kind == TEXT and isinstance(value, str):
        return printer.attribute(value)
    if isinstance(value, EnumAttr) and value.mnemonic == kind:
        return value.value
    raise NotPretty


SYNTAX: dict[str, Syntax] = {name: Syntax(_parser(form), _printer(form)) for name, form in FORMS.items()}
