"""Pretty forms of contractions: dot, dot_general, convolution."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from shlo_jit.ir.attributes import ConvDims, Dense, DenseArray, EnumAttr, StructAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.structs import conv_dims_text, int_list
from shlo_jit.ir.types import DTYPES, tensor
from shlo_jit.text.attributes import parse_enum_value, parse_ints
from shlo_jit.text.structs import dot_dimensions, parse_conv_dims, parse_struct
from shlo_jit.text.syntax import NotPretty, Syntax, all_ints, i64s, typed

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser
    from shlo_jit.text.printer import Printer

I1_BOOLS = {"true": True, "false": False}


def _pair(p: Parser) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """ints `x` ints"""
    lhs = parse_ints(p)
    p.expect("x")
    return lhs, parse_ints(p)


def _precision(p: Parser) -> tuple[EnumAttr, ...]:
    """`precision` `=` `[` (PRECISION (`,` PRECISION)*)? `]`; the caller has consumed the first word"""
    p.expect("=")
    p.expect("[")
    values: list[EnumAttr] = []
    if p.accept("]"):
        return ()
    while True:
        values.append(parse_enum_value(p, "precision"))
        if p.accept("]"):
            return _one_tuple(tuple(values))
        if not p.accept(","):
            p.fail("']' or ','")


@functools.lru_cache(maxsize=64)
def _one_tuple(values: tuple[EnumAttr, ...]) -> tuple[EnumAttr, ...]:
    """Returns the unique object for this value: the verifier recognizes identical ops by object identity."""
    return values


def _two_operands(p: Parser) -> list[int]:
    keys = [p.operand()]
    p.expect(",")
    keys.append(p.operand())
    return keys


def parse_dot(p: Parser, name: str) -> Op:
    """dot ::= operand `,` operand (`,` precision)? dictionary? `:` function-type"""
    keys = _two_operands(p)
    attributes: dict[str, Any] = {}
    if p.accept(","):
        p.expect("precision")
        attributes["precision_config"] = _precision(p)
    attributes.update(p.dictionary())
    return typed(p, name, keys, attributes, same=False)


def parse_dot_general(p: Parser, name: str) -> Op:
    """dot_general ::= operand `,` operand (`,` `batching_dims` `=` ints `x` ints)?
    `,` `contracting_dims` `=` ints `x` ints (`,` precision)? (`,` `algorithm` `=` `<` fields `>`)?
    dictionary? `:` function-type
    """
    keys = _two_operands(p)
    p.expect(",")
    lhs_batch, rhs_batch = (), ()
    if p.accept("batching_dims"):
        p.expect("=")
        lhs_batch, rhs_batch = _pair(p)
        p.expect(",")
    if not p.accept("contracting_dims"):
        p.fail("'contracting_dims'" if lhs_batch or rhs_batch else "'batching_dims' or 'contracting_dims'")
    p.expect("=")
    lhs_contract, rhs_contract = _pair(p)
    attributes: dict[str, Any] = {
        "dot_dimension_numbers": dot_dimensions(lhs_batch, rhs_batch, lhs_contract, rhs_contract)
    }
    while p.accept(","):
        if "precision_config" not in attributes and "algorithm" not in attributes and p.accept("precision"):
            attributes["precision_config"] = _precision(p)
        elif "algorithm" not in attributes and p.accept("algorithm"):
            p.expect("=")
            attributes["algorithm"] = _algorithm(p)
        else:
            p.fail("'algorithm'" if "precision_config" in attributes else "'precision' or 'algorithm'")
    attributes.update(p.dictionary())
    return typed(p, name, keys, attributes, same=False)


def _algorithm(p: Parser) -> Any:
    """algorithm ::= `<` field `=` value, ... `>`"""
    if p.peek() != "<":
        return p.attribute()
    return parse_struct(p, "stablehlo.dot_algorithm")


def print_dot(printer: Printer, op: Op) -> str | None:
    if len(op.operands) != 2:
        return None
    head = printer.operands(op) + _print_precision(op) + printer.spaced_dictionary(op, ("precision_config",))
    return f"{head} : {printer.function(op)}"


def _print_precision(op: Op) -> str:
    config = op.attributes.get("precision_config")
    if config is None:
        return ""
    if not isinstance(config, tuple) or not all(isinstance(e, EnumAttr) and e.dialect == "stablehlo" for e in config):
        raise NotPretty
    return f", precision = [{', '.join(e.value for e in config)}]"


def print_dot_general(printer: Printer, op: Op) -> str | None:
    dims = op.attributes.get("dot_dimension_numbers")
    if not isinstance(dims, StructAttr) or len(op.operands) != 2:
        return None
    lhs_batch, rhs_batch, lhs, rhs = (value for _, value in dims.fields)
    text = printer.operands(op)
    if lhs_batch or rhs_batch:
        text += f", batching_dims = {int_list(lhs_batch)} x {int_list(rhs_batch)}"
    text += f", contracting_dims = {int_list(lhs)} x {int_list(rhs)}" + _print_precision(op)
    algorithm = op.attributes.get("algorithm")
    if algorithm is not None:
        if not isinstance(algorithm, StructAttr):
            return None
        text += f", algorithm = <{printer.struct_fields(algorithm)}>"
    text += printer.spaced_dictionary(op, ("dot_dimension_numbers", "precision_config", "algorithm"))
    return f"{text} : {printer.function(op)}"


# ---- convolution

WINDOW = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}


def parse_convolution(p: Parser, name: str) -> Op:
    """convolution ::= `(` operands `)` `dim_numbers` `=` conv-dims `,` `window` `=` `{` window `}`
    dictionary? `:` function-type
    """
    p.expect("(")
    keys = p.operand_names(")")
    p.expect("dim_numbers")
    p.expect("=")
    attributes: dict[str, Any] = {}
    dims = parse_conv_dims(p)
    p.expect(",")
    p.expect("window")
    p.expect("=")
    p.expect("{")
    if not p.accept("}"):
        while True:
            _window_entry(p, attributes)
            if p.accept("}"):
                break
            if not p.accept(","):
                p.fail("'}' or ','")
    attributes["dimension_numbers"] = dims
    attributes.update(p.dictionary())
    return typed(p, name, keys, attributes, same=False)


def _window_entry(p: Parser, attributes: dict[str, Any]) -> None:
    """window ::= (`stride` | `lhs_dilate` | `rhs_dilate`) `=` ints | `pad` `=` pairs | `reverse` `=` booleans"""
    word = p.peek()
    if word not in WINDOW:
        p.fail(f"one of {', '.join(WINDOW)}")
    if WINDOW[word] in attributes:
        p.error(f"custom op 'stablehlo.convolution' Unexpected keyword {word}")
    p.i += 1
    p.expect("=")
    if word == "pad":
        attributes["padding"] = _pairs(p)
    elif word == "reverse":
        attributes["window_reversal"] = DenseArray("i1", _booleans(p))
    else:
        attributes[WINDOW[word]] = i64s(parse_ints(p))


def _pairs(p: Parser) -> Dense:
    """pairs ::= `[` (`[` integer `,` integer `]` (`,` ...)*)? `]`"""
    p.expect("[")
    rows: list[tuple[int, ...]] = []
    if not p.accept("]"):
        while True:
            at = p.i
            row = parse_ints(p)
            if len(row) != 2:
                p.error("expected padding as pairs of integers", at)
            rows.append(row)
            if p.accept("]"):
                break
            if not p.accept(","):
                p.fail("']' or ','")
    array = np.array(rows, np.int64).reshape(len(rows), 2)
    return Dense(tensor((len(rows), 2), DTYPES["i64"]), array)


def _booleans(p: Parser) -> tuple[bool, ...]:
    """booleans ::= `[` ((`true` | `false` | `0` | `1`) (`,` ...)*)? `]`"""
    if len(p.peek()) > 1 and p.peek()[0] == "[":
        return tuple(value != 0 for value in parse_ints(p))
    p.expect("[")
    values: list[bool] = []
    if p.accept("]"):
        return ()
    while True:
        if p.peek() not in I1_BOOLS:
            p.fail("'true' or 'false'")
        values.append(I1_BOOLS[p.next()])
        if p.accept("]"):
            return tuple(values)
        if not p.accept(","):
            p.fail("']' or ','")


def print_convolution(printer: Printer, op: Op) -> str | None:
    dims = op.attributes.get("dimension_numbers")
    if not isinstance(dims, ConvDims) or len(op.operands) != 2:
        return None
    numbers = conv_dims_text(dims)
    if numbers is None:
        return None
    window: list[str] = []
    for word, attribute in WINDOW.items():
        value = op.attributes.get(attribute)
        if value is not None:
            window.append(f"{word} = {_print_window_value(word, value)}")
    text = f"({printer.operands(op)}) dim_numbers = {numbers}, window = {{{', '.join(window)}}}"
    text += printer.spaced_dictionary(op, ("dimension_numbers", *WINDOW.values()))
    return f"{text} : {printer.function(op)}"


def _print_window_value(word: str, value: Any) -> str:
    if word == "pad":
        if not isinstance(value, Dense) or value.type.dtype != DTYPES["i64"] or value.array.shape[1:] != (2,):
            raise NotPretty
        return "[" + ", ".join(f"[{int(low)}, {int(high)}]" for low, high in value.array) + "]"
    if word == "reverse":
        if not isinstance(value, DenseArray) or value.dtype != "i1":
            raise NotPretty
        return "[" + ", ".join("true" if v else "false" for v in value.values) + "]"
    return int_list(all_ints(value))


SYNTAX: dict[str, Syntax] = {
    "stablehlo.dot": Syntax(parse_dot, print_dot),
    "stablehlo.dot_general": Syntax(parse_dot_general, print_dot_general),
    "stablehlo.convolution": Syntax(parse_convolution, print_convolution),
}
