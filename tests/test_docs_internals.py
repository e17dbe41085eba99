"""The pages about the packages: each package has one, and the files that a page names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import shlo_jit

PACKAGE = Path(shlo_jit.__file__).parent
DOCS = PACKAGE.parent / "docs"
PAGES = sorted((DOCS / "internals").glob("*.md"))
FILE = re.compile(r"`((?:\w+/)*\w+\.(?:py|lark))`")


def packages() -> set[str]:
    return {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists() and path.name != "examples"}


def test_every_package_has_a_page() -> None:
    assert packages() <= {page.stem for page in PAGES}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_on_a_page_are_there(page: Path) -> None:
    """A file is named relative to the page's package, or to the package as a whole."""
    roots = [PACKAGE / page.stem, PACKAGE, PACKAGE / "kernels", PACKAGE / "kernels" / "convolution",
             PACKAGE / "kernels" / "gemm", PACKAGE.parent]  # fmt: skip
    names = FILE.findall(page.read_text(encoding="utf-8"))
    assert names
    assert [name for name in names if not any((root / name).exists() for root in roots)] == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("page", [page for page in PAGES if page.stem in packages()], ids=lambda page: page.stem)
def test_a_page_says_what_goes_in_and_out(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "- **In**:" in text and "- **Out**:" in text
    assert re.search(r"[Ss]tart\s+reading", text)
