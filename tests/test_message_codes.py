"""Codes of messages: every exception about a program has one, and the page of codes lists their families."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import shlo_jit
from shlo_jit.builder import BuilderError
from shlo_jit.errors import ParseError, StableHLOError, UnsupportedError, VerifyError, diagnose, rule_code

PAGE = (Path(__file__).parents[1] / "docs" / "messages.md").read_text()


def code_of(text: str) -> str:
    with pytest.raises(StableHLOError) as caught:
        shlo_jit.compile(text)
    assert caught.value.code == caught.value.diagnostics[0].code
    return caught.value.code


def program(op: str) -> str:
    return f"func.func @main(%a: tensor<2x3xf32>) -> tensor<3x2xf32> {{\n  {op}\n  return %0 : tensor<3x2xf32>\n}}"


def test_codes_name_the_rule() -> None:
    transpose = "%0 = stablehlo.transpose %a, dims = [{}] : (tensor<2x3xf32>) -> tensor<3x2xf32>"
    assert code_of(program(transpose.format("0, 0"))) == "verify.transpose.C2"
    assert code_of(program('%0 = "stablehlo.transpose"(%a) : (tensor<2x3xf32>) -> tensor<3x2xf32>')) == (
        "verify.attribute"
    )


def test_every_message_has_a_code() -> None:
    for kind in (ParseError, VerifyError, UnsupportedError, StableHLOError, BuilderError):
        assert kind(diagnose("a message", None)).code == kind.family
        assert kind(diagnose("a message", None, code="some.code")).code == "some.code"
        assert f"| `{kind.family}` |" in PAGE
    assert rule_code("verify", "stablehlo.add", "C1") == "verify.add.C1"
    assert rule_code("verify", "stablehlo.add", "type") == "verify.type"
    assert rule_code("syntax", "", "syntax") == "syntax"


def test_findings_of_verify_have_codes_too() -> None:
    (found,) = shlo_jit.verify(program("%0 = stablehlo.tuple %a"))
    assert found.code and json.loads(json.dumps(found.as_dict()))["code"] == found.code


def test_codes_in_the_sources_are_on_the_page_and_the_other_way_around() -> None:
    package = Path(shlo_jit.__file__).parent
    families = "|".join(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    code = re.compile(rf'"((?:{families})\.[a-z0-9_]+)"')
    used = {found for file in package.rglob("*.py") for found in code.findall(file.read_text(encoding="utf-8"))}
    used |= {f"file.utf{n}" for n in (16, 32)}  # which is composed at run time
    listed = {*re.findall(rf"`((?:{families})\.[a-z0-9_]+)`", PAGE.partition("## Codes")[2])}
    assert sorted(used - listed) == [] and sorted(listed - used) == []
