"""Splits a large module into parts, so that several threads can generate code for it.

    define internal void @k1(...) { ... }     part 1: define hidden @k1, declare hidden @k2
    define internal void @k2(...) { ... }     part 2: define hidden @k2

Internal functions become hidden ones, which the linker (ours or ld) binds across parts and does not export. Functions
that are always inlined and constants are copied into every part that uses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from shlo_jit import tuning

_HEAD = re.compile(r"^define (?:(internal|private|external|hidden) )?(.*?@([\w.$-]+)\(.*)\{$")
_SYMBOL = re.compile(r"@([\w.$-]+)")


class _Function(NamedTuple):
    name: str
    internal: bool
    inline: bool
    signature: str
    """The head without `define`, linkage and brace."""
    text: str
    uses: frozenset[str]
    """All symbols in its text."""


def split(text: str, parts: int) -> list[str]:
    """Returns at most `parts` modules that are equivalent to `text` when linked together. Returns `text` alone if it is
    small, or cannot be split (variables with internal linkage)."""
    parts = min(parts, len(text) // tuning.SPLIT_TEXT_BYTES)
    if parts < 2:
        return [text]
    found = _functions(text)
    if found is None:
        return [text]
    rest, functions = found
    if any(line.startswith("@") and " constant " not in line for line in rest):
        return [text]
    constants = {line[1 : line.index(" ")]: line for line in rest if line.startswith("@")}
    other = [line for line in rest if not line.startswith("@")]
    return [_part(group, functions, constants, other) for group in _groups(functions.values(), parts)]


def _functions(text: str) -> tuple[list[str], dict[str, _Function]] | None:
    """The lines outside functions, and the functions; None for text that does not look like our builder's."""
    rest: list[str] = []
    functions: dict[str, _Function] = {}
    at = 0
    while True:
        start = text.find("\ndefine ", at) + 1
        rest += text[at : start or len(text)].splitlines()
        if not start:
            return rest, functions
        end = text.find("\n}", start)
        head = _HEAD.match(text[start : text.index("\n", start)])
        if end < 0 or head is None:
            return None
        at = end + 2
        linkage, signature, name = head.groups()
        body = text[start:at]
        uses = frozenset(_SYMBOL.findall(body)) - {name}
        inline = " alwaysinline" in signature
        functions[name] = _Function(name, linkage in ("internal", "private"), inline, signature, body, uses)


def _groups(functions: Iterable[_Function], parts: int) -> list[list[_Function]]:
    """Distributes the functions over parts of about equal size; those to be inlined are in none."""
    groups: list[list[_Function]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for function in sorted((f for f in functions if not (f.inline and f.internal)), key=lambda f: -len(f.text)):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(function)
        sizes[smallest] += len(function.text)
    return [group for group in groups if group]


def _part(group: list[_Function], functions: dict[str, _Function], constants: dict[str, str], other: list[str]) -> str:
    """The module with the functions of `group`, and all that these need of the rest."""
    own = {f.name for f in group}
    copies: list[_Function] = []
    seen: set[str] = set(own)
    waiting = list(group)
    used: set[str] = set()
    while waiting:
        for name in waiting.pop().uses - seen:
            seen.add(name)
            used.add(name)
            if name in functions and functions[name].inline and functions[name].internal:
                copies.append(functions[name])
                waiting.append(functions[name])
    copied = {f.name for f in copies}
    declared = [functions[n] for n in sorted(used) if n in functions and n not in copied]
    lines = [*other, *(line for name, line in constants.items() if name in used)]
    lines += [f"declare {'hidden ' if f.internal else ''}{f.signature.rstrip()}" for f in declared]
    lines += [f"define hidden {f.signature}{{" + f.text[f.text.index("\n") :] if f.internal else f.text for f in group]
    return "\n".join([*lines, *(f.text for f in copies), ""])
