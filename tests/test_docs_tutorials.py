"""Tutorials, and reference pages with programs: their files are written, their commands and code run in order, and the
output is the one shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import page_runner
import pytest

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = (
    "usage",
    "executables",
    "unknown_dimensions",
    "programs",
    "host_functions",
    "cache",
    "schedules",
    "autotuning",
    "constants",
)
"""Other pages whose code is run, too."""
PAGES = [*sorted((DOCS / "tutorials").glob("*.md")), *(DOCS / f"{name}.md" for name in REFERENCE)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial(page: Path) -> None:
    line = [sys.executable, page_runner.__file__, str(page)]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == page_runner.NOT_RUN:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("shown", "printed", "roughly"),
    [
        ("one\n", "one  \n", False),
        ("one ... three\n", "one two three\n", False),
        ("one\n...\nfour\n", "one\ntwo\nthree\nfour\n", False),
        ("one\n...\n", "one\ntwo\nthree\n", False),
        ("run  1.5 ms\n-----\n", "run    17 us\n--------\n", True),
    ],
)
def test_output_agrees(shown: str, printed: str, roughly: bool) -> None:
    assert page_runner.agree(shown, printed, roughly)


@pytest.mark.parametrize(
    ("shown", "printed", "roughly"),
    [("1\n", "2\n", False), ("one\n", "one\ntwo\n", False), ("1 a\n", "1 b\n", True), ("a ... c\n", "a\nc\n", False)],
)
def test_output_differs(shown: str, printed: str, roughly: bool) -> None:
    assert not page_runner.agree(shown, printed, roughly)
