"""Reason codes: each is a literal in the source, and the page that explains them lists each once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from printed_codes import codes

import shlo_jit
from shlo_jit.reasons import Reason

ROOT = Path(shlo_jit.__file__).parent
PAGE = ROOT.parent / "docs" / "reasons.md"
REASONS = ("Reason", "Refusal", "Refused", "NotSymbolic")
"""Classes whose constructor takes a code and a sentence."""
CODE = re.compile(r"[a-z]+(-[a-z0-9]+)*")


def name_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


@cache
def calls() -> tuple[tuple[str, ast.Call], ...]:
    """Calls in the package with their locations."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        found += [(f"{path.name}:{n.lineno}", n) for n in ast.walk(tree) if isinstance(n, ast.Call)]
    return tuple(found)


def created() -> Iterator[tuple[str, ast.Call]]:
    """The calls that create a reason; calls of a subclass's base constructor are excluded."""
    for place, call in calls():
        if name_of(call) in REASONS and not (call.args and ast.unparse(call.args[0]) == "code"):
            yield place, call


def labels() -> Iterator[str]:
    """Labels of programs that cannot be compiled."""
    for _, call in calls():
        if name_of(call) == "UnsupportedError" and call.args and isinstance(call.args[0], ast.Call):
            yield from _words(call.args[0], "label")
        if name_of(call) == "diagnose" and any(code.startswith("unsupported.") for code in _words(call, "code")):
            yield from _words(call, "label")


def _words(call: ast.Call, name: str) -> list[str]:
    """The value of a keyword that is a literal."""
    return [str(k.value.value) for k in call.keywords if k.arg == name and isinstance(k.value, ast.Constant)]


def explained() -> list[str]:
    """The codes of the page, in order."""
    return re.findall(r"^\| `([^`]+)` \| .+ \| .+ \|$", PAGE.read_text(), re.M)


def test_codes_are_literals_in_kebab_case() -> None:
    found = list(created())
    assert len(found) > 200
    for place, call in found:
        code = call.args[0] if call.args else None
        assert isinstance(code, ast.Constant) and isinstance(code.value, str), place
        assert CODE.fullmatch(code.value), (place, code.value)
        assert len(call.args) > 1 or call.keywords, f"{place}: a reason has a sentence"


def test_the_page_explains_every_code_once() -> None:
    used = {call.args[0].value for _, call in created() if isinstance(call.args[0], ast.Constant)} | {*labels()}
    on_page = Counter(explained())
    assert [code for code, times in on_page.items() if times > 1] == []
    assert sorted(used - {*on_page}) == [], "codes without an explanation in docs/reasons.md"
    assert sorted({*on_page} - used) == [], "docs/reasons.md explains codes that are not used"


def test_unsupported_programs_have_a_label() -> None:
    """Each `UnsupportedError` with a diagnostic has a label of its kind, so that no caller needs to match its
    sentence."""
    bare = [
        place
        for place, call in calls()
        if name_of(call) == "UnsupportedError"
        and call.args
        and isinstance(call.args[0], ast.Call)
        and name_of(call.args[0]) in ("diagnose", "Diagnostic")
        and "label" not in [k.arg for k in call.args[0].keywords]
    ]
    assert bare == []


@pytest.mark.parametrize("cause", [None, Reason("second", "because of that")])
def test_a_printed_reason_ends_with_its_code(cause: Reason | None) -> None:
    reason = Reason("the-first", "as it is", cause)
    assert codes(str(reason)) == [*reason.codes]
    assert reason.then(Reason("last", "at last")).codes == (*reason.codes, "last")
    assert reason.then(None) is reason
