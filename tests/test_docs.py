"""The pages in docs show what the compiler does now: their dumps are made again, their commands run, their files exist.

`python tests/test_docs.py --update` rewrites the dumps in `docs/walkthrough.md` after a stage was changed on purpose.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from shlo_jit import pipeline, stages
from shlo_jit.codegen.target import resolve
from shlo_jit.ir.core import Op
from shlo_jit.options import CompileOptions
from shlo_jit.sources import Text
from shlo_jit.text.printer import print_op

DOCS = Path(__file__).parents[1] / "docs"
WALKTHROUGH = DOCS / "walkthrough.md"
DUMP = re.compile(r"<!-- dump: (\w+)(?: \| (.+?) \| (.+?))? -->\n```\w+\n(.*?)```", re.S)
"""A stage, where an excerpt of it begins and ends (the lines that these patterns match first), and what is shown."""
AS_LLVM_HAS_IT = ("llvm", "asm")
"""Stages whose text is LLVM's: of their excerpts the vector instructions are compared, not their registers."""


def dumps(text: str) -> list[re.Match[str]]:
    return list(DUMP.finditer(text))


@cache
def program_of_the_page() -> dict[str, str]:
    """Its text at every stage, for a target that is the same on every machine; nothing is run. `passes`: those that
    changed something, with the number of ops after each."""
    first = dumps(WALKTHROUGH.read_text(encoding="utf-8"))[0]
    target = resolve("x86-64-v3")
    seen: list[str] = []
    told: list[str] = []

    def on_pass(name: str, function: Op) -> None:
        if not seen or print_op(function) != seen[-1]:
            told.append(f"{name:<16} {len(function.block().ops) - 1} ops")
        seen.append(print_op(function))

    lowered = pipeline.lower(
        pipeline.parsed(Text(first[4], "classifier.mlir")), CompileOptions(target), on_pass=on_pass
    )
    shown = {stage: stages.show(lowered, stage, target).rstrip("\n") + "\n" for stage in stages.STAGES}
    return shown | {"passes": "\n".join(told) + "\n"}


def excerpt(match: re.Match[str]) -> str:
    """What a block should show."""
    stage, begin, end, _ = match.groups()
    text = program_of_the_page()[stage]
    if begin is None:
        return text
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if re.search(begin, line))
    last = next(i for i, line in enumerate(lines) if i >= first and re.search(end, line))
    return "\n".join(lines[first : last + 1]) + "\n"


def vector_instructions(stage: str, text: str) -> Counter[str]:
    """By name and width."""
    if stage == "asm":
        return Counter(m[1] for m in re.finditer(r"^\t(v\w+)\t.*%ymm", text, re.M))
    return Counter(m[0] for m in re.finditer(r"(load|fadd|phi) <\d+ x \w+>|@llvm\.\w+\.v\d+f\d+", text))


def test_every_stage_is_shown() -> None:
    shown = [m[1] for m in dumps(WALKTHROUGH.read_text(encoding="utf-8"))]
    assert list(dict.fromkeys(s for s in shown if s != "passes")) == list(stages.STAGES)


@pytest.mark.parametrize("number", range(len(dumps(WALKTHROUGH.read_text(encoding="utf-8")))))
def test_dump(number: int) -> None:
    match = dumps(WALKTHROUGH.read_text(encoding="utf-8"))[number]
    stage, shown, made = match[1], match[4], excerpt(match)
    if stage in AS_LLVM_HAS_IT:
        shown, made = vector_instructions(stage, shown), vector_instructions(stage, made)
        assert made
    assert shown == made, "where that is meant: python tests/test_docs.py --update"


TERM = re.compile(r"^\| (?!word \|)([a-z][a-z ]*) \| .+ \| `(\S+)` \|$", re.M)


@pytest.mark.parametrize(("term", "file"), TERM.findall((DOCS / "glossary.md").read_text(encoding="utf-8")))
def test_a_term_is_in_its_file(term: str, file: str) -> None:
    text = (DOCS.parent / "shlo_jit" / file).read_text(encoding="utf-8")
    stem = re.escape(term.removesuffix("s")).replace("\\ ", r"[ _]")
    assert re.search(rf"(?<![a-zA-Z]){stem}(s|es|d)?(?![a-z])", text, re.I), f"{file} says nothing of {term}"


def test_every_row_of_the_glossary_is_held() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("| word |", "|---"))]
    assert len(TERM.findall(text)) == len(rows)


def update() -> None:
    text = WALKTHROUGH.read_text(encoding="utf-8")
    for match in reversed(dumps(text)):
        text = text[: match.start(4)] + excerpt(match) + text[match.end(4) :]
    WALKTHROUGH.write_text(text, encoding="utf-8")


if __name__ == "__main__" and sys.argv[1:] == ["--update"]:
    update()
