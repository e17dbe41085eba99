"""Parser of types.

    type     ::= tensor | tuple | token | future | function | scalar | `!` alias | other
    tensor   ::= `tensor<` (extent `x`)* element (`,` encoding)? `>` | `tensor<*x` element `>`
    extent   ::= digits | `?`
    element  ::= scalar | `complex<f32>` | `complex<f64>` | quantized
    scalar   ::= `f32` | `i64` | `index` | ...
    encoding ::= `#stablehlo.bounds<` (digits | `?`), ... `>` | `#stablehlo.type_extensions<bounds = [...]>` | other

A `tensor<...>` is one token. Its text is the lookup key; only a text that has not been seen before is parsed. Types of
other dialects stay text (`OpaqueType`).
"""

from __future__ import annotations

import functools
import re
from typing import NoReturn

from shlo_jit.errors import ParseError, Source, Span, diagnose
from shlo_jit.ir.types import (
    DTYPES,
    MAX_RANK,
    TOKEN,
    DType,
    ElementType,
    FunctionType,
    FutureType,
    OpaqueType,
    QuantizedType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    storage_range,
    tensor,
)
from shlo_jit.text.lexer import Cursor, SyntaxRefusal

_EXTENT = re.compile(r"\s*(\?|\d+)\s*x\s*")
_UNRANKED = re.compile(r"\s*\*\s*x\s*")
_SCALAR = re.compile(r"(?:[su]?i\d{1,8}|bf16|tf32|f\d{1,3}(?:E\d{1,3}M\d{1,3}(?:FN|FNUZ|B11FNUZ|FNU)?)?|index|none)$")
_COMPLEX = re.compile(r"complex\s*<\s*(\w+)\s*>$")
_BOUNDS = re.compile(r"#stablehlo\.bounds\s*<([^<>]*)>$")
_EXTENSIONS = re.compile(r"#stablehlo\.type_extensions\s*<\s*bounds\s*=\s*\[([^\[\]]*)\]\s*>$")
_QUANTIZED = re.compile(
    r"""!quant\.uniform\s*<\s*
        (?P<storage>\w+) \s* (?:<\s*(?P<min>-?\d+)\s*:\s*(?P<max>-?\d+)\s*>)? \s*
        : \s*(?P<expressed>\w+)\s* (?::\s*(?P<axis>-?\d+)\s*)? ,
        (?P<parameters>[^<>]*) >$""",
    re.VERBOSE,
)
_PARAMETER = re.compile(r"([-+]?[\d.]+(?:[eE][-+]?\d+)?)(?:\s*:\s*(-?\d+))?$")
TYPES_OF_DIALECTS: dict[str, tuple[str, ...]] = {
    "stablehlo": (), "chlo": (), "func": (), "builtin": (), "arith": (), "sdy": (),
    "mhlo": ("async_bundle",), "quant": ("any", "uniform", "calibrated"),
}  # fmt: skip
"""Dialects all of whose types are known -> those types that are kept as text."""
MAX_EXTENT = 2**63 - 1
WIDEST_INTEGER = 2**24 - 1


class TypeRefusal(ValueError):
    """An invalid text of a type; `offset` is the position of the error in the text."""

    def __init__(self, message: str, offset: int = 0):
        super().__init__(message)
        self.offset = offset


def parse_type(p: Cursor, aliases: dict[str, Type], known: dict[str, Type]) -> Type:
    """Parses the type at the cursor. `known` maps the type texts seen so far in this program to their types."""
    token = p.peek()
    found = known.get(token)
    if found is not None:
        p.i += 1
        return found
    if token == "tensor" or token.startswith("tensor<"):
        return _tensor(p, aliases, known)
    p.deeper()
    try:
        return _other_type(p, token, aliases, known)
    finally:
        p.depth -= 1


def _tensor(p: Cursor, aliases: dict[str, Type], known: dict[str, Type]) -> Type:
    """tensor ::= one token, or several if its encoding contains strings or is deeply nested"""
    first = p.i
    token = p.next()
    if token == "tensor":
        if p.peek() != "<":
            from shlo_jit.text.type_hints import type_hint

            hint = type_hint(_first_type(p.source.text[p.starts[first] : p.starts[first] + 200]))
            p.fail("'<' in tensor type", hint=hint, code="syntax.tensor_type")
        p.skip_brackets()
        token = p.text_since(first)
    try:
        if "!" in token or "#" in token:
            result: Type = _tensor_text(token, aliases)
        else:
            result = _plain_tensor(token)
    except TypeRefusal as refusal:
        from shlo_jit.text.type_hints import type_hint

        hint = "" if "#" in token or "!" in token else type_hint(token)
        at = p.starts[first] + refusal.offset
        p.error(str(refusal), offset=at, hint=hint, code="syntax.tensor_type")
    known[token] = result
    return result


def _other_type(p: Cursor, token: str, aliases: dict[str, Type], known: dict[str, Type]) -> Type:
    """type ::= ... without tensors"""
    if token == "tuple":
        p.i += 1
        p.expect("<")
        return TupleType(tuple(_types_until(p, ">", aliases, known)))
    if token in ("!stablehlo.token", "!mhlo.token"):
        p.i += 1
        return TOKEN
    if token == "!stablehlo.future":
        p.i += 1
        p.expect("<")
        return FutureType(tuple(_types_until(p, ">", aliases, known)))
    if token == "(":
        return parse_function_type(p, aliases, known)
    if token[:1] == "!":
        if token[1:] in aliases:
            p.i += 1
            return aliases[token[1:]]
        if "." not in token:
            p.error(f"type alias '{token}' is not defined")
        dialect, _, mnemonic = token[1:].partition(".")
        if mnemonic not in TYPES_OF_DIALECTS.get(dialect, (mnemonic,)):
            p.error(f"unknown type `{mnemonic}` in dialect `{dialect}`")
        return _opaque(p)
    if token in ("memref", "vector", "complex"):
        return _opaque(p)
    if _SCALAR.match(token):
        if token.lstrip("sui").isdigit() and int(token.lstrip("sui")) > WIDEST_INTEGER:
            p.error(f"integer bitwidth is limited to {WIDEST_INTEGER} bits")
        p.i += 1
        return ScalarType(token)
    if token[:1].isalpha():
        from shlo_jit.text.type_hints import type_hint

        rest = p.source.text[p.starts[p.i] : p.starts[p.i] + 200].partition("\n")[0]
        is_name = p.tokens[p.i + 1] == ":"
        hint = f"names of arguments begin with %: write %{token}" if is_name else type_hint(_first_type(rest))
        message = f"expected non-function type, found unknown type '{token}'"
        p.error(message, hint=hint or type_hint(token), code="syntax.unknown_type")
    p.fail("non-function type")


def _first_type(text: str) -> str:
    """Returns the first word of a text and the brackets after it, which may be a type in another notation."""
    found = re.match(r"\w+\s*(?:<[^<>]*>|\[[^\[\]]*\]|\([^()]*\))?", text)
    return found[0] if found else ""


def _opaque(p: Cursor) -> Type:
    """Parses a type with or without `<...>` and keeps it as text."""
    first = p.i
    p.i += 1
    if p.peek() == "<":
        p.skip_brackets()
    text = p.text_since(first)
    return ScalarType(text.replace(" ", "")) if _COMPLEX.match(text) else OpaqueType(text)


def _types_until(p: Cursor, closer: str, aliases: dict[str, Type], known: dict[str, Type]) -> list[Type]:
    """types ::= (type (`,` type)*)? closer"""
    types: list[Type] = []
    if p.accept(closer):
        return types
    while True:
        types.append(parse_type(p, aliases, known))
        if p.accept(closer):
            return types
        if not p.accept(","):
            p.fail(f"'{closer}' or ','")


def parse_function_type(p: Cursor, aliases: dict[str, Type], known: dict[str, Type]) -> FunctionType:
    """function-type ::= `(` types `)` `->` (type | `(` types `)`)"""
    if not p.accept("("):
        p.fail("function type")
    inputs = _types_until(p, ")", aliases, known)
    if not p.accept("->"):
        p.fail("'->' in function type")
    return FunctionType(tuple(inputs), tuple(result_types(p, aliases, known)))


def result_types(p: Cursor, aliases: dict[str, Type], known: dict[str, Type]) -> list[Type]:
    """results ::= type | `(` types `)`"""
    if p.accept("("):
        return _types_until(p, ")", aliases, known)
    return [parse_type(p, aliases, known)]


def is_type_start(token: str) -> bool:
    """Whether a type may begin with `token`. Function types, which begin with `(`, are not considered."""
    return (
        token.startswith(("tensor<", "!"))
        or token in ("tensor", "tuple", "memref", "vector", "complex")
        or _SCALAR.match(token) is not None
    )


@functools.lru_cache(maxsize=65536)
def _plain_tensor(text: str) -> TensorType:
    return _tensor_text(text, {})


def _tensor_text(text: str, aliases: dict[str, Type]) -> TensorType:
    """Parses the text of a whole tensor type. Raises TypeRefusal."""
    inner_end = len(text) - 1
    at = text.index("<") + 1
    unranked = _UNRANKED.match(text, at)
    extents: list[int | None] = []
    if unranked:
        at = unranked.end()
    else:
        while m := _EXTENT.match(text, at, inner_end):
            extents.append(_extent(m[1], at))
            at = m.end()
        if len(extents) > MAX_RANK:
            raise TypeRefusal(f"a tensor may have at most {MAX_RANK} dimensions, found {len(extents)}", at)
    element_end = _element_end(text, at, inner_end)
    dtype = _element(text[at:element_end].strip(), at, aliases)
    shape = None if unranked else tuple(extents)
    encoding = text[element_end + 1 : inner_end].strip()
    if not encoding:
        if element_end != inner_end:
            raise TypeRefusal("expected an encoding attribute after ','", element_end)
        return tensor(shape, dtype)
    if unranked:
        raise TypeRefusal("an unranked tensor has no encoding", element_end)
    return _encoded(shape, dtype, encoding, element_end + 1)


def _encoded(shape: tuple[int | None, ...] | None, dtype: ElementType, encoding: str, at: int) -> TensorType:
    m = _BOUNDS.match(encoding) or _EXTENSIONS.match(encoding)
    if m:
        parts = [part.strip() for part in m[1].split(",")] if m[1].strip() else []
        old = m.re is _EXTENSIONS  # its negative numbers mean no bound
        bounds = tuple(None if old and part.startswith("-") else _bound(part, at) for part in parts)
        assert shape is not None
        if len(bounds) != len(shape):
            message = f"Bounds length is {len(bounds)}, expected to be equal to rank({len(shape)}) of the tensor"
            raise TypeRefusal(message, at)
        for d, (n, bound) in enumerate(zip(shape, bounds, strict=True)):
            if n is not None and bound is not None:
                raise TypeRefusal(f"Static dimension {d} cannot have a bound, use `?` instead of a bound", at)
        return TensorType(shape, dtype, bounds)
    if encoding[0] != "#" and not encoding[0].isalnum() and encoding[0] not in '"{[@':
        raise TypeRefusal("expected an encoding attribute", at)
    return TensorType(shape, dtype, None, encoding)


def _extent(text: str, at: int) -> int | None:
    if text == "?":
        return None
    if len(text) > 19 or int(text) > MAX_EXTENT:
        raise TypeRefusal("the extent of a dimension must fit 64 bits", at)
    return int(text)


def _bound(text: str, at: int) -> int | None:
    if text != "?" and not text.isdigit():
        raise TypeRefusal(f"expected '?' or a number as a bound, found '{text}'", at)
    return _extent(text, at)


def _element_end(text: str, at: int, end: int) -> int:
    """Returns the offset of the `,` that ends the element type, or `end`."""
    depth = 0
    for i in range(at, end):
        c = text[i]
        if c == "<":
            depth += 1
        elif c == ">" and text[i - 1] != "-":
            depth -= 1
        elif c == "," and depth == 0:
            return i
    return end


def _element(text: str, at: int, aliases: dict[str, Type]) -> ElementType:
    """element ::= scalar | complex | quantized | alias"""
    found = DTYPES.get(text)
    if found is not None:
        return found
    if text.startswith("!"):
        alias = aliases.get(text[1:])
        if isinstance(alias, OpaqueType):
            return _quantized(alias.text, at)
        return _quantized(text, at)
    m = _COMPLEX.match(text)
    if m and (found := DTYPES.get(f"complex<{m[1]}>")):
        return found
    if text.startswith("si") and (found := DTYPES.get(text[1:])):
        return found
    if not text:
        raise TypeRefusal("expected an element type", at)
    raise TypeRefusal(f"unknown element type '{_short(text)}'", at)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _quantized(text: str, at: int) -> QuantizedType:
    """quantized ::= `!quant.uniform<` storage (`<` min `:` max `>`)? `:` expressed (`:` axis)? `,` parameters `>`"""
    m = _QUANTIZED.match(text)
    if not m:
        raise TypeRefusal(f"unknown element type '{_short(text)}'", at)
    storage = _storage(m["storage"], at)
    expressed = DTYPES.get(m["expressed"])
    if expressed is None or not expressed.is_float:
        raise TypeRefusal(f"expected a float type as expressed type, found '{m['expressed']}'", at)
    low, high = storage_range(storage)
    if m["min"] is not None:
        low, high = _within(m, low, high, at)
    axis = None if m["axis"] is None else _extent(m["axis"].lstrip("-"), at)
    if axis is not None and m["axis"].startswith("-"):
        raise TypeRefusal(f"illegal quantized dimension: -{axis}", at)
    scales, zeros = _parameters(m["parameters"].strip(), axis is not None, at)
    return QuantizedType(storage, expressed, low, high, scales, zeros, axis, not m["storage"].startswith("ui"))


def _storage(name: str, at: int) -> DType:
    plain = name
    if name[:1] == "u" and not name.startswith("ui"):
        plain = "ui" + name[1:]
    found = DTYPES.get(plain.removeprefix("s"))
    if found is None or found.kind not in "iu":
        raise TypeRefusal(f"expected an integer type as storage type, found '{name}'", at)
    # `si8` can be parsed, but no tensor may have it: the verifier distinguishes it from i8 by name
    return DType(name, found.kind, found.bits, found.numpy) if name[0] == "s" else found


def _within(m: re.Match[str], low: int, high: int, at: int) -> tuple[int, int]:
    if len(m["min"]) > 20 or len(m["max"]) > 20:
        raise TypeRefusal("the storage range does not fit the storage type", at)
    smallest, largest = int(m["min"]), int(m["max"])
    if smallest < low or largest > high or smallest >= largest:
        raise TypeRefusal(f"illegal storage range {smallest}:{largest} of '{m['storage']}'", at)
    return smallest, largest


def _parameters(text: str, per_axis: bool, at: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """parameters ::= scale (`:` zero)? | `{` (scale (`:` zero)?), ... `}`"""
    if per_axis != text.startswith("{"):
        raise TypeRefusal("expected parameters in '{}' for quantization along an axis, and only for that", at)
    if per_axis and not text.endswith("}"):
        raise TypeRefusal("expected '}' after quantization parameters", at)
    inner = text.strip("{}").strip()
    scales: list[float] = []
    zeros: list[int] = []
    for part in inner.split(",") if inner else []:
        m = _PARAMETER.match(part.strip())
        if not m or m[1].count(".") > 1 or len(part) > 80:
            _bad_parameter(part, at)
        try:
            scales.append(float(m[1]))
        except ValueError:
            _bad_parameter(part, at)
        zeros.append(int(m[2] or 0))
    if not scales:
        raise TypeRefusal("expected quantization parameters", at)
    return tuple(scales), tuple(zeros)


def _bad_parameter(part: str, at: int) -> NoReturn:
    raise TypeRefusal(f"expected 'scale:zero_point', found '{_short(part.strip())}'", at)


def type_of_text(text: str) -> Type:
    """Returns the type that makes up the whole text. Raises ParseError."""
    source = Source(text, "<type>")
    p = Cursor(source)
    try:
        found = parse_type(p, {}, {})
        if p.peek():
            p.fail("the end of the type")
    except SyntaxRefusal as refusal:
        raise ParseError(diagnose(refusal.message, Span(source, refusal.start, refusal.end), label="syntax")) from None
    return found
