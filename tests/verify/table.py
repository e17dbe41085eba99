"""Programs of one op for the tests of constraints: one that satisfies a rule, and one with an edit that breaks it.

    rules("stablehlo.dot", {"": '"stablehlo.dot"(%a, %b) : (...) -> ...'}, ("C2", "tensor<3x4xf32>", "tensor<5x4xf32>"))

A text is the op in its generic form. Its operands are the arguments of the enclosing function, with the types of the
op's signature, unless the part before `;;` defines them. A rule is a label, optionally with the name of the text it
modifies (`C2 wide`), and one or more pairs of old and new fragments of that text.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OPERANDS = re.compile(r'"[\w.-]+"\(([^()]*)\)')


class Case(NamedTuple):
    op: str
    label: str
    good: str
    bad: str


CASES: list[Case] = []


def rules(op: str, texts: dict[str, str] | str, *edits: tuple[str, ...]) -> None:
    """Adds the cases of an op."""
    texts = {"": texts} if isinstance(texts, str) else texts
    for rule, *pieces in edits:
        label, _, base = rule.partition(" ")
        good = bad = texts[base]
        for old, new in zip(pieces[::2], pieces[1::2], strict=True):
            assert old in bad, (op, rule, old)
            bad = bad.replace(old, new)
        CASES.append(Case(op, label, program(good), program(bad)))


def call(op: str, operands: int, attributes: str = "", types: str = "", body: str = "") -> str:
    """Returns an op in its generic form, with operands %a, %b, ..."""
    names = ", ".join(f"%{chr(ord('a') + i)}" for i in range(operands))
    braces = f" {{{attributes}}}" if attributes else ""
    return f'"{op}"({names}){body and " " + body}{braces} : {types}'


def program(text: str) -> str:
    """Returns a function that contains the op."""
    head, _, op = text.rpartition(";;")
    signature = op.rsplit(" : (", 1)[1]
    types = split_types(signature[: _closing(signature)])
    found = _OPERANDS.search(op)
    names = [n.strip() for n in found[1].split(",") if n.strip()] if found else []
    defined = set(re.findall(r"^\s*(%\w+) =", head, re.MULTILINE))
    arguments = {n: t for n, t in zip(names, types, strict=False) if n not in defined}
    listed = ", ".join(f"{n}: {t}" for n, t in arguments.items())
    return f"func.func @main({listed}) {{\n{head}{op}\nfunc.return\n}}"


def _closing(text: str) -> int:
    depth = 1
    for i, c in enumerate(text):
        depth += {"(": 1, ")": -1}.get(c, 0)
        if depth == 0:
            return i
    raise ValueError(text)


def split_types(text: str) -> list[str]:
    """Splits types at commas outside brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += {"<": 1, ">": -1, "{": 1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]
