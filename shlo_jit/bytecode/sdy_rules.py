"""Texts of Shardy's sharding rules, which relate dimensions of operands and results.

rule    ::= `#sdy.op_sharding_rule<` `(` mapping, ... `)->(` mapping, ... `)` sizes factors* (`, custom`)? `>`
mapping ::= `[` dimension, ... `]`    dimension ::= factor factor* | `{}`     sizes ::= `{i=4, j=8}`
factors ::= (`reduction` | `need_replication` | `permutation` | `blocked_propagation`) `={i, j}`
"""

from __future__ import annotations

import re
from typing import Any

from shlo_jit.ir.attributes import OpaqueAttr

WORDS = ("reduction", "need_replication", "permutation", "blocked_propagation")
NAME = "#sdy.op_sharding_rule"
_FIRST, _LAST = ord("i"), ord("z")
_FACTOR = re.compile(r"([i-z])(?:_(\d{1,9}))?")
_RULE = re.compile(rf"{NAME}<\((.*)\)->\((.*)\) \{{([^{{}}]*)\}}((?: \w+=\{{[^{{}}]*\}})*)(, custom)?>$")
_GIVEN = re.compile(r"(\w+)=\{([^{}]*)\}")
_MAPPING = re.compile(r"\[([^\[\]]*)\]")


def factor_name(index: int) -> str:
    """Returns the name of a factor: `i` to `z`, then `z_1`, `z_2` and so on."""
    if index < 0:
        raise ValueError("the number of a factor must not be negative")
    most = _LAST - _FIRST
    return chr(_FIRST + index) if index <= most else f"z_{index - most}"


def factors_in(text: str) -> tuple[int, ...]:
    """Returns the numbers of the factors in a text."""
    return tuple(ord(m[1]) - _FIRST + int(m[2] or 0) for m in _FACTOR.finditer(text))


def dimension_text(factors: tuple[int, ...]) -> str:
    return "".join(map(factor_name, factors)) or "{}"


def mapping_text(dimensions: tuple[str, ...]) -> str:
    return f"[{', '.join(dimensions)}]"


def mapping_parts(text: str) -> list[str]:
    parts = [part.strip() for part in text[1:-1].split(",")] if text[1:-1].strip() else []
    if "{}" in parts:
        raise ValueError("a dimension of a rule without factors cannot be written")
    return parts


def rule_text(sizes: tuple[int, ...], operands: list[str], results: list[str], *rest: Any) -> str:
    """Returns the text of a rule. `rest` has a list of factors for each of `WORDS`, and whether the rule is custom."""
    *lists, custom = rest
    named = ", ".join(f"{factor_name(i)}={size}" for i, size in enumerate(sizes))
    given = "".join(
        f" {word}={{{', '.join(map(factor_name, factors))}}}"
        for word, factors in zip(WORDS, lists, strict=True)
        if factors
    )
    end = ", custom" if custom else ""
    return f"{NAME}<({', '.join(operands)})->({', '.join(results)}) {{{named}}}{given}{end}>"


def rule_parts(text: str) -> tuple[Any, ...]:
    """Parses the fields of a rule, with mappings as texts. Raises ValueError."""
    found = _RULE.match(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} cannot be parsed")
    sizes = tuple(int(part.partition("=")[2]) for part in found[3].split(",")) if found[3].strip() else ()
    lists: dict[str, tuple[int, ...]] = {word: () for word in WORDS}
    for word, factors in _GIVEN.findall(found[4]):
        if word not in lists:
            raise ValueError(f"{word[:40]!r} of a rule cannot be written")
        lists[word] = factors_in(factors)
    mappings = [tuple(OpaqueAttr(m[0]) for m in _MAPPING.finditer(part)) for part in found.group(1, 2)]
    return sizes, *mappings, *lists.values(), int(found[5] is not None)
