"""Hints for typical syntax mistakes: what to write where the parser could not continue.

The parser says what it expected and what it found. A row of `RULES` recognizes what the author probably meant.
This module is imported only after a text has been rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from shlo_jit.ops.name_hints import hint_for
from shlo_jit.suggest import closest
from shlo_jit.text.foreign_dialects import dialect_hint
from shlo_jit.text.lexer import SyntaxRefusal
from shlo_jit.text.type_hints import ARRAY_TYPE, type_hint


class SyntaxContext(NamedTuple):
    """The context of a syntax error, as seen by the rules."""

    expected: str
    token: str
    """The token that was found, or the invalid character."""
    line: str
    """The text of the token's line before the token."""
    rest: str
    """The text from the token on."""
    is_next_line: bool
    """Whether the token is on a later line than the missing text."""

    @property
    def wants_op(self) -> bool:
        return self.expected.endswith(("an operation", "is not closed)"))

    @property
    def is_word(self) -> bool:
        return re.match(r"[A-Za-z_]", self.token) is not None


class Hint(NamedTuple):
    code: str
    text: str


def hint_of(text: str, refusal: SyntaxRefusal) -> Hint:
    """Returns the code and the hint for a refusal; the hint is empty if no rule applies."""
    if refusal.hint:
        return Hint(refusal.code, refusal.hint)
    rest = text[refusal.found :]
    start = text.rfind("\n", 0, refusal.found) + 1
    context = SyntaxContext(
        refusal.expected,
        _token(rest, refusal),
        text[start : refusal.found],
        rest[:200],
        "\n" in text[refusal.start : refusal.found],
    )
    for rule in RULES:
        found = rule(context)
        if found is not None:
            return found
    return Hint(refusal.code, "")


def _token(rest: str, refusal: SyntaxRefusal) -> str:
    if "invalid character" in refusal.token:
        return rest[:1]
    return refusal.token.removeprefix("'").removesuffix("'") if rest else ""


# ---------------------------------------------------------------------- characters
_CHARACTERS = {
    "#": "comments begin with //",
    "'": 'the name of an op in the generic form is in double quotes: "stablehlo.add"(...)',
    "`": 'the name of an op in the generic form is in double quotes: "stablehlo.add"(...)',
    "“": 'write straight double quotes: "',
    "”": 'write straight double quotes: "',
    "‘": 'write straight double quotes: "',
    "’": 'write straight double quotes: "',
    "−": "write the ASCII minus sign: -",
    "–": "write the ASCII minus sign: -",
    "→": "write the arrow as ->",
    "×": "write the letter x between extents: tensor<2x3xf32>",
    "$": "names of values begin with %",
    ";": "ops end with their lines: remove the ';'",
}


def _character(s: SyntaxContext) -> Hint | None:
    if s.rest.startswith("/*"):
        return Hint("syntax.character", "comments begin with //")
    if s.token in _CHARACTERS:
        return Hint("syntax.character", _CHARACTERS[s.token])
    if len(s.token) == 1 and not s.token.isascii() and (s.token.isspace() or s.token == "\ufeff"):
        return Hint("syntax.character", f"replace the character U+{ord(s.token):04X} by an ordinary blank")
    return None


# ---------------------------------------------------------------------- where an op begins
_FUNCTION_WORDS = ("func", "def", "fn", "function", "define", "fun")


def _function(s: SyntaxContext) -> Hint | None:
    if s.wants_op and s.token in _FUNCTION_WORDS:
        return Hint("syntax.function", "functions are written: func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {")
    if s.expected.startswith("valid '@'") and s.is_word:
        return Hint("syntax.function", f"names of functions begin with @: write @{s.token}")
    if s.wants_op and "func.func" in s.line and s.token == ":":
        return Hint("syntax.function", "result types come after an arrow: func.func @main(...) -> tensor<2xf32> {")
    if s.wants_op and "func.func" in s.line and s.token == ",":
        return Hint("syntax.function", "several result types are in parentheses: -> (tensor<2xf32>, tensor<2xf32>)")
    return None


def _result_name(s: SyntaxContext) -> Hint | None:
    if s.wants_op and s.is_word and re.match(r"[\w.]+\s*=(?!=)", s.rest):
        return Hint("syntax.value_name", f"names of values begin with %: write %{s.token} = ...")
    if s.expected.endswith("after the name of a result"):
        return Hint("syntax.value_name", "write = between the names of the results and the op")
    return None


def _operation(s: SyntaxContext) -> Hint | None:
    if not s.wants_op:
        return None
    if s.token == "}" and not s.line.strip():
        return Hint("syntax.brackets", "there is one '}' more than there are '{'")
    if not s.is_word:
        return None
    if s.token in ("ENTRY", "ROOT", "HloModule"):
        return Hint("file.hlo_text", "this looks like HLO: pass the StableHLO program that it was compiled from")
    name = s.token.rstrip(".")
    foreign = dialect_hint(name)
    if foreign and name.partition(".")[0] not in ("stablehlo", "chlo"):
        return Hint("file.other_dialect", foreign)
    return Hint("syntax.unknown_op", _op_hint(name))


def _op_hint(name: str) -> str:
    from shlo_jit.ops.record import OPS

    if name in OPS:
        return f'{name} has the generic form only: "{name}"(...) : (...) -> ...'
    if name in ("end", "endfunc"):
        return "functions and regions end with }"
    return hint_for(name)


# ---------------------------------------------------------------------- types
def _missing_type(s: SyntaxContext) -> Hint | None:
    if s.expected != "':'":
        return None
    if "func.func" in s.line and s.token.startswith("tensor"):
        return Hint("syntax.function", "write : between an argument's name and its type: %x: tensor<2xf32>")
    if s.is_next_line or s.token in ("}", "") or s.token.startswith(("tensor", "(")):
        return Hint("syntax.missing_type", "the type comes last, after a colon: ... : tensor<2xf32>")
    return None


def _other_type(s: SyntaxContext) -> Hint | None:
    """Recognizes types in the notations of HLO, NumPy and Python."""
    if s.expected in ("')' or ','", "'}' or an operation", "'<' in tensor type") or s.wants_op:
        near = s.line[-40:] + s.rest
        for m in ARRAY_TYPE.finditer(near[:120]):
            if m.start() <= min(40, len(s.line)) + 1 <= m.end() + 1 and (hint := type_hint(m[0])):
                return Hint("syntax.unknown_type", hint)
    if s.expected == "')' or ','" and s.token.startswith("%"):
        return Hint("syntax.function", "the name comes before the type: %x: tensor<2xf32>")
    if s.expected == "non-function type":
        return Hint("syntax.unknown_type", type_hint(s.rest.split()[0] if s.rest.split() else ""))
    return None


# ---------------------------------------------------------------------- operands and attributes
def _operand(s: SyntaxContext) -> Hint | None:
    if s.expected == "','" and s.token.startswith("%"):
        return Hint("syntax.operand", "write , between the operands")
    if "SSA operand" not in s.expected:
        return None
    if s.token == "(":
        what = "operands have no parentheses in this form: stablehlo.add %x, %y : tensor<2xf32>"
        generic = 'in the generic form the name is in quotes: "stablehlo.add"(%x, %y) : ...'
        return Hint("syntax.operand", f"{what}; {generic}")
    if s.is_word:
        return Hint("syntax.value_name", f"names of values begin with %: write %{s.token}")
    if re.match(r"[-+.\d]", s.token):
        return Hint("syntax.operand", "operands are values: define one with stablehlo.constant dense<...>")
    return None


_CLAUSES = {
    "dims": "write dims = [1, 0]",
    "dim": "write dim = 0",
    "init": "write initial values after init: stablehlo.reduce(%x init: %c) ...",
    "sizes": "write sizes = [2, 3]",
    "across": "write across dimensions = [0]",
}


def _clause(s: SyntaxContext) -> Hint | None:
    m = re.fullmatch(r"'(\w+)'", s.expected)
    if m and m[1] in _CLAUSES:
        return Hint("syntax.clause", _CLAUSES[m[1]])
    if s.expected == "'[' and integers":
        return Hint("syntax.clause", "write lists of integers in square brackets: [1, 0]")
    if s.expected == "','" and s.token == ":" and "dot_general" in s.line:
        return Hint("syntax.clause", "say which dimensions are multiplied: contracting_dims = [1] x [0]")
    return None


_COMPARISONS = {"<": "LT", "<=": "LE", ">": "GT", ">=": "GE", "==": "EQ", "=": "EQ", "!=": "NE", "!": "NE"}


def _word(s: SyntaxContext) -> Hint | None:
    _, known, words = s.expected.partition("to be one of: ")
    if not known:
        return None
    meant = _COMPARISONS.get(s.token) or closest(s.token.strip("\"'"), words.split(", "))
    if s.token[:1] == '"':
        meant = closest(s.token.strip('"'), words.split(", "))
    return Hint("syntax.word", f"write {meant}" if meant in words.split(", ") else f"write one of {words}")


def _end_of_text(s: SyntaxContext) -> Hint | None:
    return Hint("syntax.end_of_text", "the text ends here: is it complete?") if not s.token else None


RULES: tuple[Callable[[SyntaxContext], Hint | None], ...] = (
    _word, _function, _result_name, _missing_type, _other_type, _character, _operation, _operand, _clause, _end_of_text,
)  # fmt: skip
"""Rules in order of priority: the first that applies gives the hint."""
