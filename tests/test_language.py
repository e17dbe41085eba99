"""Words that a reader of compilers cannot search for, or takes for something else, stay out of prose.

A short list of words that this project once had in the place of the field's own, no style cop. What is checked: docstrings
and comments of the package, and the pages of documentation outside code blocks.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import shlo_jit

ROOT = Path(shlo_jit.__file__).parent
REPOSITORY = ROOT.parent
WORDS = {
    r"(?<!half )(?<!quarter )(?<!\bin )\bturns?\b(?! (into|on|off|out|to|it|them)\b)": "a loop has iterations",
    r"\bdear(er|est|ly)?\b": "what costs much is expensive",
    r"\bbehind\b": "in time and in order it is `after`; of an interface, write who implements it",
    r"\btold\b": "functions are called, threads are notified, users are shown a message",
    r"\b(gone|goes|go|going) over\b": "loops iterate over, or traverse",
    r"\bin one go\b": "in one pass, with one call",
    r"\bas good as\b": "nearly",
}
"""Pattern -> what to write."""
OPENINGS = re.compile(r"(Of|By|In|As of|With|That|Who|Whose)\b(?! (general|memory|place|this|these)\b)")
"""A docstring that begins so is half a sentence, whose other half is the name: it must stand on its own."""
Prose = Iterator[tuple[int, str]]


def docstrings(tree: ast.AST) -> Prose:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value


def comments(source: str) -> Prose:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def paragraphs(page: str) -> Prose:
    """The lines of a page that are no code."""
    is_code = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`|\(formerly: [^)]*\)", "``", line)


def found_in(prose: Prose) -> Iterator[str]:
    for line, text in prose:
        for pattern, instead in WORDS.items():
            for match in re.finditer(pattern, text, re.IGNORECASE):
                yield f"{line + text.count(chr(10), 0, match.start())}: {match[0]!r}: {instead}"


@pytest.mark.parametrize(
    "package", sorted(p.name for p in ROOT.iterdir() if p.is_dir() and (p / "__init__.py").exists())
)
def test_prose_of_a_package(package: str) -> None:
    check_modules(sorted((ROOT / package).rglob("*.py")))


def test_prose_of_single_modules() -> None:
    check_modules(sorted(ROOT.glob("*.py")))


def check_modules(paths: list[Path]) -> None:
    found = []
    for path in paths:
        source = path.read_text()
        texts = list(docstrings(ast.parse(source)))
        found += [f"{path.name}:{place}" for place in found_in(iter([*texts, *comments(source)]))]
        found += [f"{path.name}:{line}: begins with {text[:20]!r}" for line, text in texts if OPENINGS.match(text)]
    assert not found, "\n" + "\n".join(found)


def test_prose_of_pages() -> None:
    pages = [p for p in sorted((REPOSITORY / "docs").rglob("*.md")) if p.name != "changelog.md"]
    found = []
    for page in [REPOSITORY / "README.md", *pages]:
        found += [f"{page.name}:{place}" for place in found_in(paragraphs(page.read_text()))]
    assert not found, "\n" + "\n".join(found)


def test_the_words_are_found() -> None:
    bad = [
        "each turn of the loop",
        "Turns of it",
        "an exponential is dear",
        "behind the product",
        "is told of",
        "goes over",
    ]
    good = ["turns it off", "this turns into a copy", "a half turn", "in turn", "after", "dearth"]
    assert [text for text in bad if not list(found_in(iter([(1, text)])))] == []
    assert [text for text in good if list(found_in(iter([(1, text)])))] == []
