"""Damaged programs: a deterministic function from a number to a text.

    data = damaged(texts, number)      # str, or bytes that may not be UTF-8
    answer = check(data)               # "valid", "refused" or "invalid"; AssertionError for anything else

The number alone determines the damage, so that it reproduces a finding.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence

import shlo_jit

SECONDS = 2.0
LONGEST = 4_000_000
"""Maximum length; deep nesting that is doubled several times would be slow only because it is long."""
_TOKEN = re.compile(r'"[^"\n]*"|%?[\w.#$]+|->|::|\s+|.', re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.%#])-?\d+")
NUMBERS = ["0", "-1", "1", "2", "7", "65536", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
           "-9223372036854775809", "1000000000000000000", "9" * 30, "9" * 5000, "1e400", "0x7F", "0x" + "F" * 40]  # fmt: skip
PIECES = [
    *"(){}[]<>,:=?%@#!^\"-+*/|;x", "->", "::", "{-#", "#-}", "//", "/*", "\\", "\x00", "\x7f", "é", "\ud800", "\U0001f600",
    "tensor<", "tensor<2xf32>", "tensor<?xf32>", "tensor<*xf32>", "tensor<9223372036854775807x9223372036854775807xf32>",
    "tensor<1000000x1000000x1000000xi8>", "tensor<2x!quant.uniform<i8:f32:1, {0.5, 0.25}>>", "tensor<0xf32>", "i999999999",
    "dense<1> : tensor<1000000000000000000xi8>", "dense<", 'dense<"0x', "dense<[1, 2]>", "array<i64: 1>", "array<i64",
    "stablehlo.add", "stablehlo.while", "stablehlo.reduce", '"stablehlo.sort"', "func.func", "module", "return", "call",
    "loc(", "loc(unknown)", "attributes", "dims = [", "^bb0", "#stablehlo<", "#stablehlo.dot<", "true", "-nan", "unit",
    "!stablehlo.token", "tuple<", "!stablehlo.future<", "{-#\n dialect_resources: {", "over", "applies",
]  # fmt: skip
BRACKETS = ["(", "[", "{", "<", "tuple<", "tensor<", "({", "[[", "loc(", "dense<[", '"a.b"() ({', "{a = ", "!stablehlo.future<",
            "stablehlo.case %i ({", "module {", "module { module {", "func.func @f() {", "(() -> "]  # fmt: skip


def _drop(tokens: list[str], rng: random.Random) -> None:
    a = rng.randrange(len(tokens))
    del tokens[a : a + rng.choice([1, 1, 1, 2, 5, 20])]


def _double(tokens: list[str], rng: random.Random) -> None:
    a, n = rng.randrange(len(tokens)), rng.choice([1, 1, 2, 5, 20])
    tokens[a:a] = tokens[a : a + n] * rng.choice([1, 1, 1, 30])


def _swap(tokens: list[str], rng: random.Random) -> None:
    a, b = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    tokens[a], tokens[b] = tokens[b], tokens[a]


def _move(tokens: list[str], rng: random.Random) -> None:
    a, b, n = rng.randrange(len(tokens)), rng.randrange(len(tokens)), rng.choice([1, 2, 5, 20])
    part = tokens[a : a + n]
    del tokens[a : a + n]
    tokens[b:b] = part


def _number(tokens: list[str], rng: random.Random) -> None:
    places = [i for i, token in enumerate(tokens) if _NUMBER.search(token)]
    if places:
        i = rng.choice(places)
        new = rng.choice(NUMBERS)
        tokens[i] = _NUMBER.sub(new, tokens[i], count=1) if _NUMBER.search(tokens[i]) else new


def _digits(tokens: list[str], rng: random.Random) -> None:
    """Changes digits anywhere, including those of types and names."""
    places = [i for i, token in enumerate(tokens) if any(c.isdigit() for c in token)]
    if places:
        i = rng.choice(places)
        tokens[i] = re.sub(r"\d+", lambda m: rng.choice([m[0], m[0], rng.choice(NUMBERS)]), tokens[i])


def _insert(tokens: list[str], rng: random.Random) -> None:
    tokens.insert(rng.randrange(len(tokens) + 1), rng.choice(PIECES))


def _replace(tokens: list[str], rng: random.Random) -> None:
    tokens[rng.randrange(len(tokens))] = rng.choice(PIECES)


def _truncate(tokens: list[str], rng: random.Random) -> None:
    del tokens[rng.randrange(len(tokens)) :]


def _nest(tokens: list[str], rng: random.Random) -> None:
    depth = rng.choice([10, 90, 101, 1000, 10_000, 100_000])
    tokens.insert(rng.randrange(len(tokens) + 1), rng.choice(BRACKETS) * depth)


CHANGES: list[Callable[[list[str], random.Random], None]] = [
    _drop, _drop, _double, _swap, _swap, _move, _number, _number, _digits, _insert, _insert, _replace, _truncate,
]  # fmt: skip
"""Kinds of damage, repeated by frequency; deep nesting, which takes longer, is one in a hundred."""


def damaged(texts: Sequence[str], number: int) -> str | bytes:
    """Returns the damaged text with this number."""
    rng = random.Random(number)
    text = rng.choice(texts)
    if len(text) > 20_000:
        start = rng.randrange(len(text) - 20_000) if rng.random() < 0.3 else 0
        text = text[start : start + 20_000]
    tokens = _TOKEN.findall(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        if tokens:
            change = _nest if rng.random() < 0.01 else rng.choice(CHANGES)
            change(tokens, rng)
    text = "".join(tokens)[:LONGEST]
    kind = rng.random()
    if kind < 0.9:
        return text
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(rng.choice([1, 1, 3, 20])):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.choice([0, 1])] = bytes(rng.randrange(256) for _ in range(rng.choice([1, 1, 2, 8])))
    return bytes(data)


def check(data: str | bytes) -> str:
    """Parses and verifies; checks that an error has a position inside the text and takes at most `SECONDS`."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    start = time.process_time()
    try:
        # as bytes: a text of one word could be a file's name
        given = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
        found = shlo_jit.verify(shlo_jit.parse(given))
        answer = "invalid" if found else "valid"
    except shlo_jit.ParseError as error:
        found, answer = error.diagnostics, "refused"
    seconds = time.process_time() - start
    assert seconds <= SECONDS, f"took {seconds:.1f} s"
    assert found or answer == "valid"
    lines = text.split("\n")
    for diagnostic in found:
        assert 1 <= diagnostic.line <= len(lines), diagnostic
        assert 1 <= diagnostic.column <= len(lines[diagnostic.line - 1]) + 1, diagnostic
        assert diagnostic.message and str(diagnostic)
    return answer
