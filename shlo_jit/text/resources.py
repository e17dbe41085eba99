"""Resources: literals whose data is at the end of the text.

    resource  ::= `dense_resource<` name `>` `:` type
    resources ::= `{-#` ... name `:` "0x..." ... `#-}`

The blob starts with four bytes that give its alignment. A literal is decoded after the whole text has been read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shlo_jit.ir.attributes import Dense
from shlo_jit.text.dense import LiteralRefusal, from_bytes
from shlo_jit.text.lexer import unescape

if TYPE_CHECKING:
    from shlo_jit.text.parser import Parser

ALIGNMENT_BYTES = 4


def parse_resource(p: Parser) -> Dense:
    """resource"""
    at = p.i
    p.i += 1
    p.expect("<")
    name = _name(p)
    p.expect(">")
    p.expect(":")
    type = p.tensor_type()

    def decode() -> np.ndarray:
        data = p.resources.get(name)
        if data is None:
            p.error(f"resource '{name}' is not defined", at)
        try:
            return from_bytes(data, type)
        except LiteralRefusal as refusal:
            p.error(str(refusal), at)

    value = Dense(type, decode=decode)
    p.unread.append(value)
    return value


def _name(p: Parser) -> str:
    """name | string"""
    token = p.next()
    return unescape(token) if token[0] == '"' else token


def parse_resources(p: Parser) -> None:
    """resources. Only the blobs are kept; the names of the dialects around them are ignored."""
    first = p.i
    while p.peek() != "#-}":
        if not p.peek():
            p.error("'{-#' is not closed", first)
        at = p.i
        name = _name(p)
        if p.peek() == ":" and p.tokens[p.i + 1].startswith('"0x'):
            p.i += 1
            p.resources[name] = _blob(p, at)
    p.i += 1


def _blob(p: Parser, at: int) -> bytes:
    """Returns the bytes of a resource, without those that give its alignment."""
    token = p.next()
    try:
        return bytes.fromhex(token[3:-1])[ALIGNMENT_BYTES:]
    except ValueError:
        p.error("expected a string of hexadecimal digits", at)
