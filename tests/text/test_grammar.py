"""The hand-written parser and the reference grammar (stablehlo.lark) accept the same texts."""

from __future__ import annotations

import random
import subprocess
import sys

import corpus
import lark
import pytest

from shlo_jit.errors import ParseError, Source
from shlo_jit.text.explain import grammar
from shlo_jit.text.lexer import SyntaxRefusal, without_comments
from shlo_jit.text.parser import Parser

LONGEST = 60_000
"""Maximum length of a text; Lark needs a second for longer ones."""


def by_hand(text: str) -> str:
    """Returns whether a text is accepted, rejected by the syntax, or rejected by a rule outside the grammar."""
    try:
        Parser(Source(text)).module()
    except SyntaxRefusal:
        return "refused"
    except ParseError:
        return "rule"
    return "accepted"


def by_grammar(text: str) -> str:
    try:
        grammar().parse(without_comments(text))
    except lark.exceptions.UnexpectedInput:
        return "refused"
    return "accepted"


@pytest.mark.parametrize("text", corpus.own_texts())
def test_own_texts(text: str) -> None:
    assert by_hand(text) == "accepted"
    assert by_grammar(text) == "accepted"


@pytest.mark.parametrize("folder", corpus.FOLDERS)
@pytest.mark.sampled(3)
def test_shared_texts(folder: str) -> None:
    texts = corpus.shared_texts(folder)
    if not texts:
        pytest.skip("no shared folder next to the checkout")
    for name, text in texts:
        if len(text) <= LONGEST:
            hand = by_hand(text)
            assert (name, by_grammar(text)) == (name, "accepted" if hand == "rule" else hand)


@pytest.mark.parametrize("seed", range(8))
def test_without_a_token(seed: int) -> None:
    """Texts with a token removed, doubled or swapped with the next give the same answer."""
    rng = random.Random(seed)
    for text in corpus.own_texts():
        tokens = Parser(Source(text)).tokens
        tokens = [token for token in tokens if token]
        if len(tokens) < 4:
            continue
        i = rng.randrange(len(tokens) - 1)
        if seed % 3 == 0:
            del tokens[i]
        elif seed % 3 == 1:
            tokens.insert(i, tokens[i])
        else:
            tokens[i], tokens[i + 1] = tokens[i + 1], tokens[i]
        changed = " ".join(tokens)
        hand = by_hand(changed)
        if hand != "rule":
            assert (changed, by_grammar(changed)) == (changed, hand)


def test_importing_the_parser_does_not_import_lark() -> None:
    code = "import sys, shlo_jit.text.parser, shlo_jit.text.printer; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
