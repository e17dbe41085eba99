"""`case(expected, body)`: a program holds, or breaks exactly one constraint, named by op and label."""

from __future__ import annotations

import pytest

from shlo_jit.ir.verifier import verify_module
from shlo_jit.text.parser import parse_module


def found(text: str) -> list[str]:
    return [d.message for d in verify_module(parse_module(text))]


def in_function(body: str) -> str:
    """A function around ops; the first line of `body` has its arguments."""
    arguments, _, ops = body.partition("\n")
    return f"func.func @main({arguments}) {{\n{ops}\n  func.return\n}}"


def check_case(expected: str, body: str) -> None:
    """`expected` is `op label`, or empty when the program holds."""
    messages = found(in_function(body))
    if not expected:
        assert messages == []
    else:
        assert [m.partition(":")[0] for m in messages] == [expected], messages


@pytest.fixture
def case():
    return check_case
