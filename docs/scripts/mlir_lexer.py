"""Syntax highlighting of StableHLO, because Pygments has no MLIR lexer."""

from __future__ import annotations

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text
from sphinx.application import Sphinx


class MlirLexer(RegexLexer):
    name = "MLIR"
    aliases = ("mlir",)
    tokens = {  # noqa: RUF012  as in Pygments
        "root": [
            (r"//.*", Comment.Single),
            (r"\s+", Text),
            (r'"[^"\n]*"', String),
            (r"%[\w#.$-]+", Name.Variable),
            (r"@[\w.$-]+", Name.Function),
            (r"\^\w+", Name.Label),
            (r"#[\w.]+", Name.Attribute),
            (r"(?:tensor|tuple|memref|complex|vector)(?=<)", Keyword.Type),
            (r"(?:[\d?]+x)*(?:bf16|[fiu]\d+|ui\d+|f8\w+|index)\b", Keyword.Type),
            (r"-?\d+\.?\d*(?:[eE][+-]?\d+)?|0x[0-9A-Fa-f]+", Number),
            (r"[A-Za-z_][\w.$]*", Keyword),
            (r"->|[=:*]", Operator),
            (r".", Punctuation),
        ]
    }


def setup(app: Sphinx) -> dict[str, object]:
    app.add_lexer("mlir", MlirLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
