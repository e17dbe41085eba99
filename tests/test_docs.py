"""The pages in docs match the compiler: dumps are regenerated, commands are run, and quoted words occur in the code.

`python tests/test_docs.py --update` rewrites the dumps in `docs/walkthrough.md` after an intended change of a stage.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shlo_jit import parse, passes, pipeline, stages
from shlo_jit.cli import app
from shlo_jit.codegen.target import resolve
from shlo_jit.ir.core import Op
from shlo_jit.options import CompileOptions
from shlo_jit.passes.context import Context
from shlo_jit.sources import Text
from shlo_jit.text.printer import print_op

DOCS = Path(__file__).parents[1] / "docs"
WALKTHROUGH = DOCS / "walkthrough.md"
DUMP = re.compile(r"<!-- dump: (\w+)(?: \| (.+?) \| (.+?))? -->\n```\w+\n(.*?)```", re.S)
"""A stage, patterns of the first and last line of an excerpt, and the excerpt."""
AS_LLVM_HAS_IT = ("llvm", "asm")
"""Stages with text of LLVM: the vector instructions of their excerpts are compared, not their registers."""


def dumps(text: str) -> list[re.Match[str]]:
    return list(DUMP.finditer(text))


@cache
def program_of_the_page() -> dict[str, str]:
    """The text of a program at every stage, for a fixed target; nothing is run.

    `passes`: those that changed something, with the number of ops after each.
    """
    first = dumps(WALKTHROUGH.read_text(encoding="utf-8"))[0]
    target = resolve("x86-64-v3")
    seen: list[str] = []
    lines: list[str] = []

    def on_pass(name: str, function: Op) -> None:
        if not seen or print_op(function) != seen[-1]:
            lines.append(f"{name:<16} {len(function.block().ops) - 1} ops")
        seen.append(print_op(function))

    lowered = pipeline.lower(
        pipeline.parsed(Text(first[4], "classifier.mlir")), CompileOptions(target), on_pass=on_pass
    )
    shown = {stage: stages.show(lowered, stage, target).rstrip("\n") + "\n" for stage in stages.STAGES}
    return shown | {"passes": "\n".join(lines) + "\n"}


def excerpt(match: re.Match[str]) -> str:
    """Expected contents of a block."""
    stage, begin, end, _ = match.groups()
    text = program_of_the_page()[stage]
    if begin is None:
        return text
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if re.search(begin, line))
    last = next(i for i, line in enumerate(lines) if i >= first and re.search(end, line))
    return "\n".join(lines[first : last + 1]) + "\n"


def vector_instructions(stage: str, text: str) -> Counter[str]:
    """Vector instructions by name and width."""
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


def test_the_page_on_executables_names_every_stage() -> None:
    text = (DOCS / "executables.md").read_text(encoding="utf-8")
    assert re.findall(r'^\| `"(\w+)"` \|', text, re.M) == list(stages.STAGES)


TERM = re.compile(r"^\| (?!word \|)([a-z][a-z ]*) \| (.+) \| `(\S+)` \|$", re.M)


@pytest.mark.parametrize(("term", "meaning", "file"), TERM.findall((DOCS / "glossary.md").read_text(encoding="utf-8")))
def test_a_term_is_in_its_file(term: str, meaning: str, file: str) -> None:
    """In its text or in its name, or the word for it that earlier versions printed."""
    text = f"{file}\n" + (DOCS.parent / "shlo_jit" / file).read_text(encoding="utf-8")
    stems = [
        re.escape(word.removesuffix("s")).replace("\\ ", r"[ _-]")
        for word in (term, *re.findall(r"formerly: ([^)]*)\)", meaning))
    ]
    assert re.search(rf"(?<![a-zA-Z])({'|'.join(stems)})(s|es|d)?(?![a-z])", text, re.I), (
        f"{file} says nothing of {term}"
    )


def test_every_row_of_the_glossary_is_held() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("| word |", "|---"))]
    assert len(TERM.findall(text)) == len(rows)


# ---------------------------------------------------------------------- commands
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", (DOCS / "debugging.md").read_text(encoding="utf-8"), re.S)
    for line in block.splitlines()
]
PROBES = {"perf": ["perf", "record", "-q", "-o", os.devnull, "true"], "gdb": ["gdb", "-batch", "-ex", "run", "true"]}
"""Tools that may be missing, or lack permissions: their commands run only if they work."""


def works(tool: str) -> bool:
    return (
        shutil.which(tool) is not None
        and subprocess.run(PROBES[tool], capture_output=True, check=False).returncode == 0
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program of the pages, and the contents of the repository."""
    made = tmp_path_factory.mktemp("docs")
    program = dumps(WALKTHROUGH.read_text(encoding="utf-8"))[0][4]
    (made / "classifier.mlir").write_text(program, encoding="utf-8")
    (made / "bin").mkdir()
    command = made / "bin" / "shlo-jit"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m shlo_jit "$@"\n')
    command.chmod(0o755)
    (made / "benchmarks").symlink_to(DOCS.parent / "benchmarks")
    return made


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    paths = {"PATH": os.pathsep.join(path), "PYTHONPATH": str(DOCS.parent)}
    line = ["bash", "-c", command]
    return subprocess.run(line, cwd=folder, env=os.environ | paths, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_commands_of_the_page_on_debugging(folder: Path) -> None:
    """Commands in order, because later ones use the files of earlier ones."""
    for command in COMMANDS:
        tool = next((tool for tool in PROBES if re.search(rf"\b{tool} ", command)), None)
        if tool is None or works(tool):
            done = run(command, folder)
            assert done.returncode == 0 and done.stdout + done.stderr, (command, done.stderr)


def test_code_of_the_page_on_debugging(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for code in re.findall(r"```python\n(.*?)```", (DOCS / "debugging.md").read_text(encoding="utf-8"), re.S):
        exec(code, {})


def test_code_of_the_page_on_custom_calls(capsys: pytest.CaptureFixture[str]) -> None:
    """Blocks in order: each prints the contents of the block after it."""
    pytest.importorskip("numba")
    page = (DOCS / "custom_calls.md").read_text(encoding="utf-8")
    pairs = re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", page, re.S)
    assert len(pairs) == page.count("```python")
    known: dict[str, object] = {}
    for code, shown in pairs:
        exec(code, known)
        assert capsys.readouterr().out == shown


@pytest.mark.slow
def test_the_first_file_that_agrees_names_the_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the page, with an incorrect pass."""
    honest = next(step for step in passes.PASSES if step.name == "promote")

    def promote(function: Op, context: Context) -> Op:
        text = print_op(honest.run(function, context)).replace("stablehlo.subtract", "stablehlo.maximum")
        wrong = parse(text).function("main")
        assert wrong is not None
        return wrong

    wrong = tuple(passes.Pass(promote, step.establishes) if step is honest else step for step in passes.PASSES)
    monkeypatch.setattr(passes, "PASSES", wrong)
    monkeypatch.chdir(folder)

    def invoke(*arguments: str) -> int:
        return CliRunner().invoke(app, arguments).exit_code

    assert invoke("show", "classifier.mlir", "--dump-dir", "wrong") == 0
    agree = [
        file.stem
        for file in sorted(Path("wrong").glob("*.mlir"))
        if invoke("run", str(file), "--random", "--check", "--no-cache", "--repeat", "1") == 0
    ]
    names = [file.stem for file in sorted(Path("wrong").glob("*.mlir"))]
    assert agree == names[next(i for i, name in enumerate(names) if name.endswith("-promote")) :]


def update() -> None:
    text = WALKTHROUGH.read_text(encoding="utf-8")
    for match in reversed(dumps(text)):
        text = text[: match.start(4)] + excerpt(match) + text[match.end(4) :]
    WALKTHROUGH.write_text(text, encoding="utf-8")


if __name__ == "__main__" and sys.argv[1:] == ["--update"]:
    update()
