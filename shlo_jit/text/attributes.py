"""Parser of attributes.

    attribute  ::= string | number | `true` | `false` | `unit` | array | dictionary | dense | dense-array | symbol
                 | `#` alias | dialect-attribute | type | location
    number     ::= (integer | float) (`:` type)?
    array      ::= `[` (attribute (`,` attribute)*)? `]`
    dictionary ::= `{` (entry (`,` entry)*)? `}`
    entry      ::= (name | string) (`=` attribute)?
    dialect-attribute ::= `#stablehlo<precision HIGH>` | `#stablehlo.gather<...>` | `#other.dialect<...>`

`ir/attributes.py` describes the in-memory form of each kind. Structs are normalized: they have all fields in the order
of `STRUCTS`, and omitted fields have their defaults. Lists of dimensions in a struct are tuples of Python ints.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from shlo_jit.ir.attributes import (
    UNIT,
    DenseArray,
    DictAttr,
    EnumAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    SymbolRef,
    TypeAttr,
)
from shlo_jit.ir.structs import ENUMS_WITH_OWN_NAME, STRUCTS
from shlo_jit.ir.types import ScalarType, TensorType
from shlo_jit.text.dense import LiteralRefusal, decode_dense, float_value
from shlo_jit.text.lexer import unescape
from shlo_jit.text.resources import parse_resource
from shlo_jit.text.structs import parse_conv_dims, parse_struct
from shlo_jit.text.types import is_type_start

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser

ENCODINGS = ("stablehlo.bounds", "stablehlo.type_extensions")
"""Attributes that encode a tensor type; anywhere else they are kept as text."""

_NUMBER = re.compile(r"[-+]?\d")
_ARRAY = re.compile(r"array<\s*([su]?i\d{1,4}|f\d{1,3}|bf16)\s*(?::([^<>]*))?>$")
CONSTANTS = {"true": True, "false": False, "unit": UNIT}


def parse_attribute(p: Parser) -> Any:
    """attribute"""
    token = p.tokens[p.i]
    first = token[:1]
    if first == '"':
        return _string_attribute(p)
    if _NUMBER.match(token) or token == "-":
        return _number(p)
    if token in CONSTANTS:
        p.i += 1
        return CONSTANTS[token]
    if token.startswith("dense<"):
        return parse_dense(p)
    if token.startswith("array<"):
        return _dense_array(p)
    if first == "[":
        return _array(p)
    if first == "{":
        return DictAttr(tuple(parse_dictionary(p).items()))
    if first == "@":
        return parse_symbol(p)
    if first == "#":
        return _alias_or_dialect(p)
    return _keyword_attribute(p, token)


def _keyword_attribute(p: Parser, token: str) -> Any:
    """attribute ::= ... those that start with a word: types, locations, resources, affine maps"""
    if is_type_start(token) or token == "(":
        return TypeAttr(p.type())
    if token.startswith("loc(") or token == "loc":
        return p.location()
    if token == "dense_resource":
        return parse_resource(p)
    if token in ("affine_map", "affine_set", "opaque", "sparse", "distinct", "strided"):
        return _opaque(p)
    if token == "dense":
        p.error("the literal is not well-formed")
    p.fail("attribute value")


def _opaque(p: Parser) -> OpaqueAttr:
    """Parses a keyword or `#name`, the bracketed groups after it and a trailing type; keeps all of it as text."""
    first = p.i
    p.i += 1
    while p.tokens[p.i] in ("<", "["):
        p.skip_brackets()
    if p.accept(":"):
        p.type()
    return OpaqueAttr(p.text_since(first))


def parse_string(p: Parser) -> str:
    """string"""
    token = p.tokens[p.i]
    if token[:1] != '"' or len(token) < 2 or token[-1] != '"':
        p.fail("a string")
    p.i += 1
    return unescape(token)


def _string_attribute(p: Parser) -> Any:
    """string (`:` type)?"""
    first = p.i
    text = parse_string(p)
    if p.tokens[p.i] == ":" and is_type_start(p.tokens[p.i + 1]):
        p.i += 1
        p.type()
        return OpaqueAttr(p.text_since(first))
    return text


def _number(p: Parser) -> Any:
    """number ::= (integer | float) (`:` type)?"""
    at = p.i
    token = p.tokens[at]
    p.i += 1
    if token == "-":
        token += p.next()
    type_name = ""
    if p.accept(":"):
        type = p.type()
        if not isinstance(type, ScalarType):
            hint = f"write dense<{token}> : {p.tokens[p.i - 1]}"
            p.error("expected a scalar type after a number", p.i - 1, hint=hint, code="syntax.literal")
        type_name = type.name
    is_float_type = type_name in ("bf16", "tf32") or type_name.startswith("f")
    if "." in token or (is_float_type and "0x" in token):
        return _float_attribute(p, token, type_name or "f64", at)
    if is_float_type:
        p.error(f"unexpected decimal integer literal for a floating point value of type {type_name}", at)
    return _integer_attribute(p, token, type_name or "i64", at)


def parse_untyped(p: Parser) -> Any:
    """Parses a string, integer or float without the optional type of other contexts; a float is an f64."""
    at = p.i
    token = p.tokens[at]
    if token[:1] == '"':
        return parse_string(p)
    if not _NUMBER.match(token):
        p.fail("a number or a string")
    p.i += 1
    is_float = "." in token
    value = _float_attribute(p, token, "f64", at) if is_float else _integer_attribute(p, token, "i64", at)
    if p.tokens[p.i] == ":" and p.tokens[p.i + 1] in ("f64", "i64"):
        p.i += 2
    return value


def _float_attribute(p: Parser, token: str, type_name: str, at: int) -> FloatAttr:
    value = float_value(token, type_name) if type_name[0] in "bft" else None
    if value is None:
        p.error(f"'{token}' is not a number of type {type_name}", at)
    return FloatAttr(value, type_name)


def _integer_attribute(p: Parser, token: str, type_name: str, at: int) -> IntegerAttr | bool:
    if len(token) > 60:
        p.error("the number has too many digits", at)
    try:
        value = int(token, 16) if "0x" in token else int(token)
    except ValueError:
        p.fail("a number", at)
    digits = type_name.lstrip("sui")
    if type_name != "index" and not digits.isdigit():
        p.error(f"a number is not a value of type {type_name}", at)
    if not fits(value, 64 if type_name == "index" else int(digits)):
        p.error(f"integer constant out of range for attribute: {token} does not fit {type_name}", at)
    if type_name == "i1":
        return bool(value)
    return one_integer(as_signed(value, type_name), type_name)


@functools.lru_cache(maxsize=4096)
def one_integer(value: int, type_name: str) -> IntegerAttr:
    """Returns the unique object for this value: the verifier recognizes identical ops by object identity."""
    return IntegerAttr(value, type_name)


def parse_dense(p: Parser) -> Any:
    """dense ::= `dense<` literal `>` `:` tensor-type"""
    at = p.i
    token = p.tokens[at]
    p.i += 1
    p.expect(":")
    type = p.type()
    if not isinstance(type, TensorType):
        return OpaqueAttr(p.text_since(at))
    try:
        return decode_dense(token, type)
    except LiteralRefusal as refusal:
        p.error(str(refusal), offset=p.starts[at] + refusal.offset, hint=refusal.hint, code="syntax.literal")


@functools.lru_cache(maxsize=16384)
def _array_text(text: str) -> DenseArray | str:
    """Returns the value of `array<...>`, or an error message."""
    m = _ARRAY.match(text)
    if not m:
        return "expected 'array<type: elements>' with an integer or float type"
    name, body = m[1], (m[2] or "").strip()
    parts = [part.strip() for part in body.split(",")] if body else []
    if name == "i1":
        wrong = next((part for part in parts if part not in ("true", "false", "0", "1")), None)
        values: tuple[Any, ...] = tuple(part in ("true", "1") for part in parts)
    elif "f" in name:
        numbers = [float_value(part, name) for part in parts]
        wrong = next((part for part, number in zip(parts, numbers, strict=True) if number is None), None)
        values = tuple(numbers)
    else:
        wrong = next((part for part in parts if not fits_integer(part, name)), None)
        values = () if wrong is not None else tuple(as_signed(int(part), name) for part in parts)
    if wrong is not None:
        return f"'{wrong[:40]}' is not an element of type {name}"
    return DenseArray(name, values)


def fits_integer(part: str, type_name: str) -> bool:
    """Whether a decimal number fits an integer type."""
    if not re.fullmatch(r"[-+]?\d{1,20}", part):
        return False
    return fits(int(part), int(type_name.lstrip("sui")))


def as_signed(value: int, type_name: str) -> int:
    """Reinterprets a number of a signless type as signed: 255 of i8 becomes -1. Numbers of `ui8` stay as they are."""
    bits = 64 if type_name == "index" else int(type_name.lstrip("sui"))
    return value - (1 << bits) if type_name[0] == "i" and value >> (bits - 1) == 1 else value


def fits(value: int, bits: int) -> bool:
    """Whether a signed or unsigned integer with this number of bits can hold the value."""
    return value.bit_length() <= bits if value >= 0 else (-value - 1).bit_length() < bits


def _dense_array(p: Parser) -> DenseArray:
    """dense-array ::= `array<` type (`:` element (`,` element)*)? `>`"""
    found = _array_text(p.tokens[p.i])
    if isinstance(found, str):
        p.error(found)
    p.i += 1
    return found


def _array(p: Parser) -> tuple[Any, ...]:
    """array ::= `[` (attribute (`,` attribute)*)? `]`; a list of plain integers is one token"""
    token = p.tokens[p.i]
    if len(token) > 1:
        return tuple(IntegerAttr(value) for value in parse_ints(p))
    p.i += 1
    if p.accept("]"):
        return ()
    p.deeper()
    items = [parse_attribute(p)]
    while p.accept(","):
        items.append(parse_attribute(p))
    if not p.accept("]"):
        p.fail("']' or ','")
    p.depth -= 1
    return tuple(items)


@functools.lru_cache(maxsize=16384)
def _ints_text(text: str) -> tuple[int, ...] | None:
    values = tuple(int(part) for part in text[1:-1].split(","))
    return values if all(-(2**63) <= value < 2**63 for value in values) else None


def parse_ints(p: Parser) -> tuple[int, ...]:
    """ints ::= `[` (integer (`,` integer)*)? `]`"""
    token = p.tokens[p.i]
    if token == "[":
        p.i += 1
        values: list[int] = []
        if p.accept("]"):
            return ()
        while True:
            values.append(p.integer())
            if p.accept("]"):
                return tuple(values)
            if not p.accept(","):
                p.fail("']' or ','")
    if token[:1] != "[":
        p.fail("'[' and integers")
    found = None if len(token) > 30 and _has_long_number(token) else _ints_text(token)
    if found is None:
        p.error("an integer in the list does not fit 64 bits")
    p.i += 1
    return found


def _has_long_number(token: str) -> bool:
    return any(len(part) > 22 for part in token.split(","))


def parse_symbol(p: Parser) -> SymbolRef:
    """symbol ::= `@name` (`::` `@name`)*"""
    path = [p.symbol_name()]
    while p.accept("::"):
        path.append(p.symbol_name())
    return SymbolRef(tuple(path))


def parse_dictionary(p: Parser) -> dict[str, Any]:
    """dictionary ::= `{` (entry (`,` entry)*)? `}`"""
    p.expect("{")
    entries: dict[str, Any] = {}
    if p.accept("}"):
        return entries
    p.deeper()
    while True:
        at = p.i
        name = _entry_name(p)
        if name in entries:
            p.error(f"duplicate key '{name}' in dictionary attribute", at)
        entries[name] = parse_attribute(p) if p.accept("=") else UNIT
        if p.accept("}"):
            p.depth -= 1
            return entries
        if not p.accept(","):
            p.fail("'}' or ','")


def _entry_name(p: Parser) -> str:
    """name | string"""
    token = p.tokens[p.i]
    if token[:1] == '"':
        return parse_string(p)
    if not (token[:1].isalpha() or token[:1] == "_") or token[-1] in ")>":
        p.fail("an attribute name")
    p.i += 1
    return token


def _alias_or_dialect(p: Parser) -> Any:
    """`#` alias | `#dialect<mnemonic ...>` | `#dialect.mnemonic<...>`"""
    at = p.i
    name = p.tokens[at][1:]
    if name in p.attribute_aliases:
        p.i += 1
        return p.attribute_aliases[name]
    if name in STRUCTS and p.tokens[at + 1] == "<":
        p.i += 1
        return parse_struct(p, name)
    if name == "stablehlo.conv" and p.tokens[at + 1] == "<":
        p.i += 2
        dims = parse_conv_dims(p)
        p.expect(">")
        return dims
    if name in ("stablehlo", "chlo") and p.tokens[at + 1] == "<":
        return _enum(p, name)
    dialect, _, mnemonic = name.partition(".")
    if mnemonic in ENUMS_WITH_OWN_NAME:
        p.i += 1
        p.expect("<")
        value = p.word()
        p.expect(">")
        return _one_enum(dialect, mnemonic, value)
    if dialect in ("stablehlo", "chlo") and name not in ENCODINGS:
        p.error(f"unknown attribute `{mnemonic}` in dialect `{dialect}`", at)
    if "." not in name and p.tokens[at + 1] != "<":
        if name.startswith("loc"):
            p.i += 1
            return OpaqueAttr(f"loc(#{name})")
        p.error(f"attribute alias '#{name}' is not defined")
    return _opaque(p)


def _enum(p: Parser, dialect: str) -> Any:
    """enum ::= `#stablehlo<` mnemonic VALUE `>`"""
    p.i += 2
    mnemonic = p.word()
    value = p.word()
    p.expect(">")
    _check_enum(p, mnemonic, value)
    return _one_enum(dialect, mnemonic, value)


@functools.lru_cache(maxsize=1024)
def _one_enum(dialect: str, mnemonic: str, value: str) -> EnumAttr:
    """Returns the unique object for this value: the verifier recognizes identical ops by object identity."""
    return EnumAttr(dialect, mnemonic, value)


ENUMS = {
    "comparison_direction": ("EQ", "NE", "GE", "GT", "LE", "LT"),
    "comparison_type": ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
    "precision": ("DEFAULT", "HIGH", "HIGHEST"),
    "fft_type": ("FFT", "IFFT", "RFFT", "IRFFT"),
    "transpose": ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    "rng_distribution": ("UNIFORM", "NORMAL"),
    "rng_algorithm": ("DEFAULT", "THREE_FRY", "PHILOX"),
    "result_accuracy_mode": (),
    "custom_call_api_version": (),
}
"""Values of the enums of StableHLO and CHLO; an empty tuple means that the verifier checks the value."""


def _check_enum(p: Parser, mnemonic: str, value: str) -> None:
    if mnemonic not in ENUMS:
        p.error(f"unknown attribute `{mnemonic}` in dialect `stablehlo`", p.i - 3)
    allowed = ENUMS[mnemonic]
    if allowed and value not in allowed:
        p.error(f"expected {enum_title(mnemonic)} to be one of: {', '.join(allowed)}, found '{value}'", p.i - 2)


def enum_title(mnemonic: str, dialect: str = "stablehlo") -> str:
    """Name of an enum as it appears in MLIR's messages."""
    return f"::mlir::{dialect}::" + "".join(word.capitalize() for word in mnemonic.split("_"))


def parse_enum_value(p: Parser, mnemonic: str, dialect: str = "stablehlo") -> EnumAttr:
    """Parses a bare VALUE of the enum `mnemonic`, as in pretty forms."""
    token = p.tokens[p.i]
    if token not in ENUMS[mnemonic]:
        p.fail(f"{enum_title(mnemonic, dialect)} to be one of: {', '.join(ENUMS[mnemonic])}")
    p.i += 1
    return _one_enum(dialect, mnemonic, token)
