"""Interface of a pretty form: a function that parses the text after the op's name, and one that prints it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from shlo_jit.ir.attributes import DenseArray, IntegerAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import FunctionType, Type

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser
    from shlo_jit.text.printer import Printer

Parse = Callable[["Parser", str], Op]
Print = Callable[["Printer", Op], "str | None"]


class Syntax(NamedTuple):
    """Pretty form of an op. `print` returns the text after the op's name, or None if the op does not match the form."""

    parse: Parse
    print: Print


class Argument(NamedTuple):
    """An argument of a region that is named in the op's own syntax."""

    key: str
    """The name with `%`."""
    value: Value
    at: int
    """Index of the name among the tokens."""
    location: Any = None


def parse_argument(p: Parser) -> Argument:
    """argument ::= `%name` `:` type location?"""
    at = p.operand()
    key = p.tokens[at]
    p.expect(":")
    value = Value(p.type(), name=key[1:])
    return Argument(key, value, at, p.location() if p.at_location() else None)


class NotPretty(Exception):
    """Raised during printing if the op does not match its pretty form."""


@functools.lru_cache(maxsize=4096)
def i64s(values: tuple[int, ...]) -> DenseArray:
    """Returns the unique object for `array<i64: ...>`: the verifier recognizes identical ops by object identity."""
    return DenseArray("i64", values)


@functools.lru_cache(maxsize=4096)
def i64(value: int) -> IntegerAttr:
    return IntegerAttr(value, "i64")


def typed(p: Parser, name: str, keys: list[int], attributes: dict[str, Any], *, same: bool) -> Op:
    """Parses `:` (function-type | type). Returns the op whose operands are the tokens `keys`.

    With `same`, a single type applies to all operands and the result.
    """
    tokens = p.tokens
    if tokens[p.i] != ":":
        p.fail("':'", hint=_type_hint(p, keys, same), code="syntax.missing_type")
    p.i += 1
    known = p.known_types
    if tokens[p.i] != "(":
        if not same:
            p.fail("'('", hint=_type_hint(p, keys, same), code="syntax.missing_type")
        type = known.get(tokens[p.i])
        if type is None:
            type = p.type()
        else:
            p.i += 1
        if isinstance(type, FunctionType):
            p.error("expected a value type", p.i - 1)
        return Op(name, p.resolve(keys, [type] * len(keys)), (type,), attributes)
    at = p.i
    p.i += 1
    i = p.i
    inputs: list[Type] = []
    # fast path: types seen before, one token each
    while (type := known.get(tokens[i])) is not None:
        inputs.append(type)
        i += 1
        if tokens[i] == ",":
            i += 1
        elif tokens[i] == ")" and tokens[i + 1] == "->":
            result = known.get(tokens[i + 2])
            if result is None:
                break
            p.i = i + 3
            if same and len(inputs) != len(keys):
                break
            return Op(name, p.resolve(keys, inputs), (result,), attributes)
        else:
            break
    p.i = at
    function = p.function_type()
    if same and len(function.inputs) != len(keys):
        p.error(f"custom op '{name}' {len(keys)} operands present, but expected {len(function.inputs)}", at)
    if same and len(function.results) != 1:
        p.error(f"custom op '{name}' expected single output", at)
    return Op(name, p.resolve(keys, function.inputs), function.results, attributes)


def _type_hint(p: Parser, keys: list[int], same: bool) -> str:
    """Suggests the type of an op whose operands are the tokens `keys`; empty if the type is present and something
    else is missing."""
    found = p.tokens[p.i]
    is_end = p.i == 0 or "\n" in p.source.text[p.end() : p.starts[p.i]]
    if not (is_end or found == "}" or not found or found.startswith(("tensor", "("))):
        return ""
    types = _types_of(p, keys)
    if not types:
        return "the type comes last, after a colon: ... : tensor<2xf32>"
    if same:
        return f"the type comes last, after a colon: write : {types[0]}"
    result = found if found.startswith("tensor") else "<type of the result>"
    return f"the types of operands and result come last: write : ({', '.join(types)}) -> {result}"


def _types_of(p: Parser, keys: list[int]) -> list[str]:
    """Returns the types of the operands; empty if one is unknown."""
    from shlo_jit.ir.type_text import type_text

    values = [p.scope.get(p.tokens[key]) for key in keys]
    types = [type_text(v.type) for v in values if v is not None]
    return types if len(types) == len(keys) else []


def list_of_types_hint(p: Parser, keys: list[int]) -> str:
    """Suggests the types of the returned values."""
    types = _types_of(p, keys)
    return f"the types come last, after a colon: write : {', '.join(types)}" if types else ""


def all_ints(attribute: Any) -> tuple[int, ...]:
    """Returns the values of a `DenseArray` of i64 for printing as `[...]`. Raises NotPretty."""
    if not isinstance(attribute, DenseArray) or attribute.dtype != "i64":
        raise NotPretty
    return attribute.values


def an_i64(attribute: Any, type: str = "i64") -> int:
    """Returns the value of an `IntegerAttr` of i64 for printing as a bare number. Raises NotPretty."""
    if not isinstance(attribute, IntegerAttr) or attribute.type != type:
        raise NotPretty
    return attribute.value
