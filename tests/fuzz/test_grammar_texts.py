"""Texts that hypothesis makes from the grammar of record: parser and verifier answer each as documented."""

from __future__ import annotations

import functools
import importlib.resources

import pytest

hypothesis = pytest.importorskip("hypothesis")
lark = pytest.importorskip("lark")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.lark import from_lark
from mutate import check

RULES = ("start", "generic", "module", "func", "type", "attribute")
EXAMPLES = 15
HEADS = {"type": "func.func private @f(", "attribute": "module attributes {a = "}
TAILS = {"type": ")", "attribute": "} {}"}


@functools.cache
def grammar() -> lark.Lark:
    text = importlib.resources.files("shlo_jit.text").joinpath("stablehlo.lark").read_text("utf-8")
    return lark.Lark(text, parser="earley", lexer="dynamic", start=_rules(text))


def _rules(text: str) -> list[str]:
    """Those of `RULES` that the grammar has."""
    import re

    names = set(re.findall(r"^\??!?(\w+)\s*:", text, re.MULTILINE))
    return [name for name in RULES if name in names]


@pytest.mark.parametrize(
    "rule", _rules(importlib.resources.files("shlo_jit.text").joinpath("stablehlo.lark").read_text("utf-8"))
)
def test_texts_of_the_grammar(rule: str) -> None:
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )  # fmt: skip
    @given(from_lark(grammar(), start=rule, alphabet=st.characters(codec="ascii", min_codepoint=32)))
    def checks(text: str) -> None:
        check("\n" + HEADS.get(rule, "") + text + TAILS.get(rule, ""))

    checks()
