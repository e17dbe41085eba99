"""Damaged texts raise ParseError with a position inside the text, and nothing else."""

from __future__ import annotations

import gc
import random

import corpus
import pytest

from shlo_jit.errors import ParseError
from shlo_jit.text.parser import parse_module

PIECES = [
    *"(){}[]<>,:=?", "->", '"', "%0", "tensor<2xf32>", "dense<1>", "@x", "#a", "loc(", "0x", "-1", "1.5",
    "stablehlo.add", "\\", "//", "^bb0", "\x00", "é", "attributes", "!t", "f32",
]  # fmt: skip


def damaged(text: str, rng: random.Random) -> str:
    """Returns the text with some characters removed, inserted or moved, or truncated."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        a = rng.randrange(len(text) + 1)
        b = min(len(text), a + rng.choice([1, 1, 2, 5, 30]))
        c = rng.randrange(len(text) + 1)
        choices = [
            text[:a] + text[b:],
            text[:a] + rng.choice(PIECES) + text[a:],
            text[:a] + rng.choice(PIECES) + text[b:],
            text[:a] + text[c : c + b - a] + text[a:],
            text[:a],
        ]
        text = rng.choice(choices) or text
    return text


def check(text: str) -> bool:
    """Returns whether the text is accepted, and checks that an error has a position in the text."""
    try:
        parse_module(text)
    except ParseError as error:
        diagnostic = error.diagnostics[0]
        lines = text.split("\n")
        assert 1 <= diagnostic.line <= len(lines)
        assert 1 <= diagnostic.column <= len(lines[diagnostic.line - 1]) + 1
        assert str(error)
        return False
    return True


@pytest.mark.parametrize("seed", range(5))
def test_damaged_own_texts(seed: int) -> None:
    rng = random.Random(seed)
    texts = [text for text in corpus.own_texts() if text]
    answers = [check(damaged(text, rng)) for text in texts]
    assert not all(answers)


@pytest.mark.parametrize("folder", corpus.FOLDERS)
def test_damaged_shared_texts(folder: str) -> None:
    texts = corpus.shared_texts(folder)
    if not texts:
        pytest.skip("no shared folder next to the checkout")
    rng = random.Random(1)
    for _, text in rng.sample(texts, min(150, len(texts))):
        check(damaged(text[:20_000], rng))


def test_every_beginning_of_a_program() -> None:
    text = corpus.PROGRAMS[4]
    start = text.index("manual_computation")
    assert not any(check(text[:end]) for end in range(start, len(text) - 1))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        parse_module("module {}")
        assert gc.isenabled() == enabled
        with pytest.raises(ParseError):
            parse_module("module {")
        assert gc.isenabled() == enabled
    finally:
        gc.enable() if before else gc.disable()
