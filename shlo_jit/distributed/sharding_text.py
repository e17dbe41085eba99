"""Reads the texts of shardings, Shardy's attributes and XLA's strings. Errors name their location."""

from __future__ import annotations

import re
from typing import NoReturn

from shlo_jit.errors import ParseError, Span, diagnose
from shlo_jit.ir.core import Op
from shlo_jit.text.lexer import unescape
from shlo_jit.text.strings import STRING

_TOKEN = re.compile(
    rf"""\s*(?: (?P<string>{STRING}) | (?P<symbol>@(?:[\w$.\-]+|{STRING})) | (?P<integer>\d{{1,18}}(?!\d))
    | (?P<word>[A-Za-z_][\w.]*) | (?P<mark><=|[<>\[\]{{}}():,=?]) )""",
    re.VERBOSE,
)


class Reader:
    """Tokens of a text in an op, and a cursor."""

    def __init__(self, op: Op, text: str):
        self.op = op
        self.text = text
        self.at = 0
        self.kind = self.token = ""
        self.start = 0
        self.next()

    def next(self) -> str:
        """Returns the current token and advances to the next one; "" at the end."""
        before = self.token
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            rest = self.text[self.at :]
            self.kind = self.token = ""
            self.start = self.at + len(rest) - len(rest.lstrip())
            if rest.strip():
                self.fail("a sharding")
        else:
            assert found.lastgroup is not None
            self.kind, self.token = found.lastgroup, found[found.lastgroup]
            self.start, self.at = found.start(found.lastgroup), found.end()
        return before

    def fail(self, expected: str) -> NoReturn:
        """Raises ParseError at the current token."""
        rest = self.text[self.start :].split()
        got = self.token or (rest[0] if rest else "") or "the end"
        span = self.op.span
        found = span.source.text.find(self.text, span.start, span.end) if span is not None else -1
        if span is not None and found >= 0:
            span = Span(span.source, found + self.start, found + self.start + max(1, len(self.token)))
        what = f"{self.op.name}: expected {expected}, got {got} in {self.text}"
        raise ParseError(diagnose(what, span, op=self.op.name, label="syntax", found=got, expected=expected))

    def accept(self, token: str) -> bool:
        if self.token != token:
            return False
        self.next()
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"'{token}'")

    def done(self) -> None:
        """Raises ParseError unless all tokens are consumed."""
        if self.token:
            self.fail("the end")

    def integer(self) -> int:
        return int(self.of_kind("integer", "a number"))

    def word(self) -> str:
        return self.of_kind("word", "a word")

    def string(self) -> str:
        return _bare(self.of_kind("string", "a name in quotes"))

    def symbol(self) -> str:
        return _bare(self.of_kind("symbol", "a symbol")[1:])

    def of_kind(self, kind: str, what: str) -> str:
        if self.kind != kind:
            self.fail(what)
        return self.next()

    def integers(self, end: str) -> tuple[int, ...]:
        """Parses integer (`,` integer)* end."""
        found = [self.integer()]
        while self.accept(","):
            found.append(self.integer())
        self.expect(end)
        return tuple(found)


def _bare(name: str) -> str:
    """Returns a name without its quotes."""
    return unescape(name) if name[:1] == '"' else name
