"""The pages as a whole: links are valid, generated parts are up to date, Sphinx builds them without a warning."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import shlo_jit
from shlo_jit import jax as front

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CHANGELOG.md", "examples/README.md", "benchmarks/RESULTS.md", "benchmarks/NOTES.md")
    ),
    *sorted(DOCS.rglob("*.md")),
]


def script(name: str) -> ModuleType:
    """A module of docs/scripts."""
    specification = importlib.util.spec_from_file_location(name, DOCS / "scripts" / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------- links
@cache
def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as the repository's web view and MyST generate them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    heads = (re.sub(r"[`*]|\[(.*?)\]\(.*?\)", r"\1", head) for head in re.findall(r"^#+ (.*)$", text, re.M))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = {
        line
        for block in re.findall(r"```{toctree}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.S)
        for line in block.splitlines()
        if line and not line.startswith(":")
    }
    there = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")}
    assert there - listed == {"index", "scaling/collectives"} and listed <= there


def test_readme_has_every_tutorial() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in DOCS.glob("tutorials/*.md") if f"(docs/tutorials/{page.name})" not in text] == []


# ---------------------------------------------------------------------- generated parts
def test_the_page_of_the_command_line_is_what_help_says() -> None:
    page = DOCS / "command_line.md"
    text = page.read_text(encoding="utf-8")
    assert script("command_line").written_into(text) == text, "run: python docs/scripts/command_line.py --write"


def test_the_picture_shows_the_stages() -> None:
    """Compares everything but instructions, which are LLVM's."""
    stages_picture = script("stages_picture")
    shown, made = (
        [
            [text.text for text in panel.iter("{http://www.w3.org/2000/svg}text")]
            for panel in ElementTree.fromstring(svg)
        ]
        for svg in (stages_picture.FILE.read_text(encoding="utf-8"), stages_picture.picture(stages_picture.panels()))
    )
    assert shown[:-1] == made[:-1], "run: python docs/scripts/stages_picture.py"
    assert len(shown[-1]) == len(made[-1])


@pytest.mark.parametrize(("module", "prefix"), [(shlo_jit, "shlo_jit"), (front, "shlo_jit.jax")])
def test_every_public_name_is_on_the_page_of_the_interface(module: ModuleType, prefix: str) -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    names = [name for name in module.__all__ if name != "__version__"]
    assert [name for name in names if not re.search(rf":: {re.escape(prefix)}\.{name}\b", text)] == []


def test_docstrings_become_restructured_text() -> None:
    pytest.importorskip("sphinx")
    lines = ["One `word`.", "", "name: what", "  more", "other: it is `that`", "", "Raises `x`: no list."]
    expected = ["One ``word``.", "", "- name: what", "  more", "- other: it is ``that``", "", "Raises ``x``: no list."]
    assert script("markdown_docstrings").as_restructured(lines) == expected


# ---------------------------------------------------------------------- building
class Loaded(HTMLParser):
    """Resources that a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.found.append(given.get("src") or "")
        elif tag == "link" and given.get("rel") not in ("next", "prev", "index", "search", "canonical"):
            self.found.append(given.get("href") or "")


@pytest.mark.slow
def test_pages_are_built_without_a_warning_and_load_nothing_from_the_network(tmp_path: Path) -> None:
    for needed in ("sphinx", "myst_parser", "furo", "jax"):
        pytest.importorskip(needed)
    line = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(tmp_path / "read"), str(DOCS)]
    done = subprocess.run([*line, str(tmp_path / "html")], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert [url for url in loaded.found if re.match(r"(https?:)?//", url)] == [], page.name
    assert not [sheet for sheet in tmp_path.rglob("*.css") if re.search(r"url\(['\"]?(https?:)?//", sheet.read_text())]


# ---------------------------------------------------------------------- what is installed
@pytest.mark.slow
def test_the_wheel_has_what_runs_and_nothing_else(tmp_path: Path) -> None:
    """The wheel has modules, data that they read, and the marker of typed packages.

    It is built in a copy, since setuptools keeps its folder.
    """
    pytest.importorskip("setuptools", minversion="77")
    names = ["shlo_jit", "jax_plugins", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"]
    for name in names:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    line = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "made", "."]
    subprocess.run(line, cwd=tmp_path, check=True)
    (wheel,) = (tmp_path / "made").glob("*.whl")
    files = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    needed = {
        str(path.relative_to(ROOT))
        for package in ("shlo_jit", "jax_plugins")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == needed
    assert "shlo_jit/py.typed" in files
