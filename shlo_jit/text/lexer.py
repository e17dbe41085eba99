"""Lexer: one regular expression, run once over the whole text.

Types `tensor<...>`, integer lists `[0, 1]` and `array<...>` are single tokens here, although MLIR's lexer splits them.
They make up most of a real program and repeat so often that a dict lookup replaces parsing them. Literals `dense<...>`
and flat locations `loc(...)` are single tokens, too. Comments are blanked beforehand, which keeps all offsets valid.

Every token includes the white space after it until `tokenize` has summed up the lengths: `findall` and `accumulate`
run at C speed, whereas asking a match object for every start would double the time.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NoReturn

from shlo_jit.errors import Diagnostic, ParseError, Source, Span, diagnose
from shlo_jit.text.literals import OPENER, Cut, CutSource, token_of
from shlo_jit.text.strings import STRING

_ID = r"[A-Za-z0-9_$.\-]+"
_NESTED = r"[^<>\"]*(?:<[^<>\"]*(?:<[^<>\"]*(?:<[^<>\"]*>[^<>\"]*)*>[^<>\"]*)*>[^<>\"]*)*"

_GOOD = rf"""
      %{_ID}(?:\#\d+)?                                  # SSA value
    | tensor<{_NESTED}>                                 # ranked or unranked tensor type
    | dense<[^"<>]*(?:{STRING}[^"<>]*)*>                # literal
    | array<[^"<>]*>
    | loc\([^()"]*(?:{STRING}[^()"]*)*\)                # location without nesting
    | [A-Za-z_][A-Za-z0-9_$.]*                          # keyword, op name, attribute name
    | \[[ ]?-?\d+(?:,[ ]?-?\d+)*[ ]?\]                  # list of integers
    | ->|::|{{-\#|\#-}}|==|<=|>=
    | 0x[0-9A-Fa-f]+
    | [-+]?[0-9]+(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?)?
    | {STRING}
    | [@\#!^](?:{_ID})
    | @{STRING}
    | [][(){{}}<>=,:?*+\-/|;]
"""
# An unknown token swallows the rest of the text; the parser stops there.
_TOKEN = re.compile(rf"(?:{_GOOD}|(?s:.+))[ \t\r\n]*", re.VERBOSE)
_VALID = re.compile(_GOOD, re.VERBOSE)
_COMMENT = re.compile(rf"{STRING}|//[^\n]*")
_ESCAPE = re.compile(r'\\(?:([0-9A-Fa-f]{2})|([nt"\\])|(.))', re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_LEADING = re.compile(r"[ \t\r\n]*")

OPENERS = {"(": ")", "[": "]", "{": "}", "<": ">"}
CLOSERS = frozenset(OPENERS.values())
INVALID = "\0"
"""Prefix of a token that swallowed the rest of a text, so that it cannot be mistaken for a valid one."""
LONGEST_MESSAGE = 600
DEPTH_LIMIT = 100
"""Maximum nesting of attributes and types; for regions it is `deep.NESTING_LIMIT`."""


def tokenize(text: str, cuts: Sequence[Cut] = ()) -> tuple[list[str], list[int]]:
    """Returns the tokens of `text` and the offset of each. Empty tokens at the end of the list permit lookahead.
    `cuts` are the literals that were cut out of the text."""
    text = without_comments(text)
    tokens: list[str] = []
    starts: list[int] = []
    done = 0
    for cut in cuts:
        if text.startswith(OPENER.decode(), cut.at):  # not inside a comment
            _tokenize_part(text, done, cut.at, tokens, starts)
            tokens.append(token_of(text, cut))
            starts.append(cut.at)
            done = cut.end
    _tokenize_part(text, done, len(text), tokens, starts)
    tokens += ("", "", "", "")
    starts += [len(text)] * 4
    return tokens, starts


def without_comments(text: str) -> str:
    """Replaces comments by blanks, which keeps offsets valid."""
    if "/" in text and "//" in text:  # the first test is the cheap one
        return _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else " " * len(m[0]), text)
    return text


def _tokenize_part(text: str, start: int, end: int, tokens: list[str], starts: list[int]) -> None:
    """Appends the tokens of `text[start:end]`."""
    leading = _LEADING.match(text, start, end)
    assert leading is not None
    padded = _TOKEN.findall(text, leading.end(), end)
    starts += itertools.accumulate(map(len, padded[:-1]), initial=leading.end()) if padded else ()
    tokens += map(str.rstrip, padded)
    if padded and not _VALID.match(tokens[-1]):
        tokens[-1] = INVALID + tokens[-1]


class SyntaxRefusal(Exception):
    """A syntax error, propagated from where it is detected to `parse_module`, which explains and reports it."""

    def __init__(self, expected: str, token: str, start: int, end: int, found: int, hint: str = ""):
        self.message = f"expected {_cut(expected)}, found {token}"
        super().__init__(self.message)
        self.expected = expected
        self.token = token
        self.start = start
        self.end = end
        self.found = found
        """Offset of the unexpected token: `start`, or later in the text."""
        self.hint = hint
        """Correction to suggest, if the parser knows one; otherwise `syntax_hints.py` may find one."""
        self.code = "syntax"
        self.context: list[Diagnostic] = []
        """Diagnostics about the enclosing constructs that were being parsed."""


class Cursor:
    """A position in the tokens of a source. `i` is the index of the next token."""

    __slots__ = ("depth", "i", "source", "starts", "tokens")

    def __init__(self, source: Source):
        self.source = source
        self.tokens, self.starts = tokenize(source.text, source.cuts if isinstance(source, CutSource) else ())
        self.i = 0
        self.depth = 0

    def peek(self) -> str:
        return self.tokens[self.i]

    def next(self) -> str:
        """Consumes and returns the next token, whatever it is."""
        token = self.tokens[self.i]
        if not token:
            self.fail("a token")
        self.i += 1
        return token

    def accept(self, token: str) -> bool:
        """Consumes `token` if it is next. Returns whether it was."""
        if self.tokens[self.i] == token:
            self.i += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Consumes `token`, which must be next."""
        if self.tokens[self.i] != token:
            self.fail(f"'{token}'")
        self.i += 1

    def deeper(self) -> None:
        """Enters a nested construct; the caller decrements `depth` when it leaves."""
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            self.error(f"nested too deeply (more than {DEPTH_LIMIT} levels)")

    def end(self) -> int:
        """Returns the offset just after the token before the cursor."""
        last = max(0, self.i - 1)
        return self.starts[last] + len(self.tokens[last])

    def span(self, first: int, last: int | None = None) -> Span:
        """Returns the span of the tokens `first` to `last`, or of one token."""
        last = first if last is None else last
        return Span(self.source, self.starts[first], self.starts[last] + min(len(self.tokens[last]), 80))

    def fail(self, expected: str, at: int | None = None, hint: str = "", code: str = "syntax") -> NoReturn:
        """Rejects the token at the cursor (or at index `at`), where something else was expected."""
        raise self._refusal(expected, at, hint, code)

    def _refusal(self, expected: str, at: int | None, hint: str, code: str) -> SyntaxRefusal:
        at = self.i if at is None else at
        token = self.tokens[at]
        start = self.starts[at] if token else len(self.source.text.rstrip())
        end = start + max(1, min(len(token), 80))
        before = self.starts[at - 1] + len(self.tokens[at - 1]) if at else 0
        is_word = bool(token) and expected.endswith("an operation")  # then the word itself is wrong
        if at and not is_word and "\n" in self.source.text[before:start]:
            # the missing token belongs at the end of the previous line
            refusal = SyntaxRefusal(expected, _show(token), before, before + 1, start, hint)
        else:
            refusal = SyntaxRefusal(expected, _show(token), start, end, start, hint)
        refusal.code = code
        return refusal

    def error(
        self, message: str, at: int | None = None, offset: int | None = None, *, hint: str = "", code: str = "syntax"
    ) -> NoReturn:
        """Reports an error that the grammar permits but other rules do not: at the cursor, at token `at` or at a text
        offset. The hint says what to write."""
        at = self.i if at is None else at
        span = self.span(at) if offset is None else Span(self.source, offset, offset + 1)
        raise ParseError(diagnose(_cut(message), span, label="syntax", hint=hint, code=code))

    @contextlib.contextmanager
    def reading(self, failure: str) -> Iterator[None]:
        """Adds `failure`, at the position reached, to the diagnostics of an error raised inside."""
        try:
            yield
        except SyntaxRefusal as refusal:
            refusal.context.append(self.diagnostic(failure, None))
            raise
        except ParseError as error:
            raise ParseError([*error.diagnostics, self.diagnostic(failure, None)]) from None

    def diagnostic(self, message: str, at: int | None = None) -> Diagnostic:
        return diagnose(message, self.span(self.i if at is None else at), label="syntax")

    def integer(self) -> int:
        """integer ::= `-`? (decimal | hex)"""
        token = self.tokens[self.i]
        try:
            value = int(token, 16) if token.startswith("0x") else int(token)
        except ValueError:
            if token[-1:].isdigit() and "." not in token and not token[0].isalpha():
                self.error("the number has too many digits")
            self.fail("an integer")
        if not -(2**63) <= value < 2**63:
            self.error("integer value too large")
        self.i += 1
        return value

    def skip_brackets(self) -> None:
        """Skips a bracketed group whose opening bracket is next. Unbalanced brackets are an error."""
        first = self.i
        stack: list[str] = []
        tokens = self.tokens
        while True:
            token = tokens[self.i]
            if token in OPENERS:
                stack.append(OPENERS[token])
            elif token in CLOSERS:
                if token != stack[-1]:
                    self.fail(f"'{stack[-1]}'")
                stack.pop()
            elif not token:
                self.error(f"'{tokens[first]}' is not closed", first)
            elif is_invalid(token):
                self.fail(f"'{stack[-1]}'")
            self.i += 1
            if not stack:
                return

    def text_since(self, first: int) -> str:
        """Returns the source text of the tokens from `first` up to the cursor, each run of white space as one blank."""
        text = self.source.between(self.starts[first], self.end())
        if "\n" in text or "  " in text or "//" in text:
            text = _COMMENT_OR_SPACE.sub(lambda m: m[0] if m[0][0] == '"' else " ", text)
        return text


_COMMENT_OR_SPACE = re.compile(rf"{STRING}|(?:\s|//[^\n]*)+")


def _cut(message: str) -> str:
    """Truncates a message that quotes long names or types."""
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."


def unescape(token: str) -> str:
    """Returns the characters of a string token. `\\HH` is a byte; bytes that are not UTF-8 stay as surrogates."""
    body = token[1:-1]
    if "\\" not in body:
        return body
    data = bytearray()
    at = 0
    for m in _ESCAPE.finditer(body):
        data += body[at : m.start()].encode("utf-8", "surrogateescape")
        if m[1]:
            data.append(int(m[1], 16))
        else:
            data += (_ESCAPED.get(m[2]) or "\\" + m[3]).encode("utf-8", "surrogateescape")
        at = m.end()
    data += body[at:].encode("utf-8", "surrogateescape")
    return bytes(data).decode("utf-8", "surrogateescape")


def is_invalid(token: str) -> bool:
    """Whether the token is the rest of a text that the lexer could not tokenize."""
    return token[:1] == INVALID


def _show(token: str) -> str:
    """Returns a token for a message: shortened and quoted. The empty token is the end of the text."""
    if not token:
        return "the end of the text"
    if is_invalid(token):
        return "a string that is not closed" if token[1:2] == '"' else f"the invalid character {token[1:2]!r}"
    return f"'{token if len(token) <= 40 else token[:37] + '...'}'"
