"""Extended syntax errors: the tokens that the reference grammar accepts at the position of the error.

The hand-written parser has rejected the text and says what it expected. `stablehlo.lark`, fed with the text up to that
position, lists all acceptable tokens. Only this module imports Lark, and only when it is needed. The work is bounded:
a long text is parsed only from its last top-level function on, and at most `MAX_TEXT` characters of it.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from typing import TYPE_CHECKING

from shlo_jit.errors import Diagnostic, Source, Span, diagnose
from shlo_jit.text.lexer import SyntaxRefusal, without_comments

if TYPE_CHECKING:
    import lark

MAX_TEXT = 50_000
MAX_TOKENS = 12
"""Maximum number of token kinds to list; a longer list is not helpful."""

READABLE = {
    "SSA": "a value",
    "SYMBOL": "a symbol",
    "STRING": "a string",
    "INTEGER": "an integer",
    "FLOAT": "a float",
    "HEX": "a hexadecimal number",
    "CHECK_NUMBER": "a number",
    "NAME": "a name",
    "INT_LIST": "a list of integers",
    "TENSOR": "a tensor type",
    "SCALAR_TYPE": "a scalar type",
    "OPAQUE_TYPE": "a type",
    "BANG": "a dialect type",
    "DENSE": "a dense literal",
    "DENSE_ARRAY": "an array literal",
    "HASH": "an attribute alias",
    "HASH_GROUP": "a dialect attribute",
    "ENUM_GROUP": "a dialect attribute",
    "STRUCT": "a dialect attribute",
    "OPAQUE_WORD": "an attribute",
    "CONSTANT_WORD": "'true', 'false' or 'unit'",
    "BOOL": "'true' or 'false'",
    "FLAT_LOCATION": "a location",
    "CARET": "a block label",
    "LABEL": "a dimension",
    "FORMAT": "a format such as e5m10",
    "VISIBILITY": "'public', 'private' or 'nested'",
    "$END": "the end of the text",
}
_OPERATION = "an operation"
_WORD_END = r"(?![\w$.])"
_FUNCTION = re.compile(r"^[ \t]*func\.func\b", re.MULTILINE)


@functools.cache
def grammar() -> lark.Lark:
    """Builds the LALR parser of `stablehlo.lark`."""
    import lark

    text = importlib.resources.files("shlo_jit.text").joinpath("stablehlo.lark").read_text("utf-8")
    return lark.Lark(text, parser="lalr", lexer="contextual", maybe_placeholders=False, edit_terminals=_whole_words)


def _whole_words(terminal: lark.lexer.TerminalDef) -> None:
    """Makes a keyword match whole words only: `dim` must not match the beginning of `dims`."""
    import lark

    value = terminal.pattern.value
    if isinstance(terminal.pattern, lark.lexer.PatternStr) and value[-1].isalnum():
        terminal.pattern = lark.lexer.PatternRE(re.escape(value) + _WORD_END)
        terminal.priority = 3


def diagnosed(source: Source, refusal: SyntaxRefusal) -> Diagnostic:
    """Returns the diagnostic for a refusal."""
    from shlo_jit.text.syntax_hints import hint_of

    code, hint = hint_of(source.text, refusal)
    message = refusal.message if hint else explained(source, refusal)
    place, found, expected = Span(source, refusal.start, refusal.end), refusal.token, refusal.expected
    return diagnose(message, place, label="syntax", hint=hint, found=found, expected=expected, code=code)


def explained(source: Source, refusal: SyntaxRefusal) -> str:
    """Returns the message of `refusal`, extended by the tokens that the grammar accepts."""
    try:
        names = _acceptable(source.text, refusal.found)
    except ImportError:
        return refusal.message
    words = sorted(_readable(name) for name in names)
    words = [word for word in dict.fromkeys(words) if word not in refusal.message]
    if "one of" in refusal.message:  # an enum, named value by value
        words = [word for word in words if not word.startswith("one of")]
    if not words or len(words) > MAX_TOKENS or len(names) > 4 * MAX_TOKENS:
        return refusal.message
    return f"{refusal.message} (the grammar also allows {', '.join(words)})"


def _acceptable(text: str, end: int) -> set[str]:
    """Returns the names of the terminals that may follow `text[:end]`; empty if they are too expensive to find."""
    import lark

    start = 0
    if end > MAX_TEXT:
        places = [m.start() for m in _FUNCTION.finditer(text, end - MAX_TEXT, end)]
        if not places:
            return set()
        start = places[-1]
    parser = grammar().parse_interactive(without_comments(text[start:end]))
    try:
        parser.exhaust_lexer()
    except lark.exceptions.UnexpectedInput:
        return set()
    return set(parser.accepts())


def _readable(name: str) -> str:
    """Returns a readable name of a terminal."""
    if name in READABLE:
        return READABLE[name]
    definition = _definitions().get(name, "").removesuffix(_WORD_END).replace("\\", "")
    if not definition:
        return name.lower()
    if re.match(r"(?:stablehlo|chlo|sdy|tensor)\.\w+$", definition) or "." in definition[:14]:
        return _OPERATION
    words = re.match(r"\(\?:([A-Z_|]+)\)", definition)
    return f"one of {words[1].replace('|', ', ')}" if words else f"'{definition}'"


@functools.cache
def _definitions() -> dict[str, str]:
    """Returns the text or regular expression of each terminal, by name."""
    return {terminal.name: terminal.pattern.value for terminal in grammar().terminals}
