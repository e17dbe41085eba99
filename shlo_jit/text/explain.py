"""What was expected at a syntax error. (Placeholder until the grammar is in place.)"""

from __future__ import annotations

from shlo_jit.errors import Source
from shlo_jit.text.lexer import SyntaxRefusal


def explained(source: Source, refusal: SyntaxRefusal) -> str:
    return refusal.message
