"""docs/export.md: its files are written, its commands and programs run in order. docs/c_interface.md declares what the
headers do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shlo_jit
from shlo_jit import examples
from shlo_jit.codegen import abi
from shlo_jit.codegen.library_format import INTERFACE_VERSION, LibraryStatus
from shlo_jit.kernels.threads.workers import STACK_BYTES
from shlo_jit.runtime.library_symbols import Needs, needs

DOCS = Path(__file__).parents[1] / "docs"
PAGE = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in ("export.md", "c_interface.md"))
BLOCK = re.compile(r"(?:<!-- file: (\S+) -->\n)?```(\w+)\n(.*?)```", re.S)
"""A file to write, code to run, or output."""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the commands of the page are for Linux"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page's programs."""
    made = tmp_path_factory.mktemp("export")
    (made / "shlo-jit").write_text(f'#!/bin/sh\nexec {sys.executable} -m shlo_jit "$@"\n')
    (made / "shlo-jit").chmod(0o755)
    return made


def run(words: list[str], folder: Path) -> str:
    """Output of a command that succeeds."""
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(Path(shlo_jit.__file__).parents[1])}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_page_from_top_to_bottom(folder: Path) -> None:
    pytest.importorskip("jax")
    printed = ""
    for file, language, text in BLOCK.findall(PAGE):
        if file:
            (folder / file).write_text(text)
        elif language == "sh":
            printed = [run(["bash", "-c", line], folder) for line in text.splitlines()][-1]
        elif language == "python":
            run([sys.executable, "-c", text], folder)
        elif language == "text":
            assert printed == text
    # Statements about the last program.
    assert needs(folder / "whole.o") == Needs((), ())


def test_declarations_are_those_of_the_header(tmp_path: Path) -> None:
    texts = {file: text for file, _, text in BLOCK.findall(PAGE)}
    shlo_jit.export(texts["dense.mlir"], tmp_path / "dense.o", header=tmp_path / "dense.h")
    shlo_jit.export(texts["rows.mlir"], tmp_path / "rows.o", header=tmp_path / "rows.h", shapes=[["3x4xf32"]])
    header = (tmp_path / "dense.h").read_text() + (tmp_path / "rows.h").read_text()
    shown = [line for file, language, text in BLOCK.findall(PAGE) if language == "c" and not file
             for line in text.splitlines()]  # fmt: skip
    assert [line for line in shown if line not in header] == []
    assert set(re.findall(r"\b(dense_\w+)\(", header)) == set(re.findall(r"\b(dense_\w+)\(", "\n".join(shown)))
    of_sizes = {n for n in re.findall(r"\brows_(\w+)\(", header) if f"dense_{n}(" not in header}
    assert {n for n in re.findall(r"\brows_(\w+)\(", "\n".join(shown))} == {"main", *of_sizes}
    options = re.search(r"typedef struct \{([^}]*)\} shlo_options;", header)
    assert options is not None
    for field in re.findall(r"^ [^;]*?(\w+);", options[1], re.M):
        assert f"`{field}`" in PAGE


def test_statuses_and_figures() -> None:
    rows = re.findall(r"^\| `SHLO_(\w+)` = (\d+) \| (.*) \|$", PAGE, re.M)
    assert rows == [(s.name, str(int(s)), s.text) for s in LibraryStatus]
    assert f"version of this interface, {INTERFACE_VERSION} as" in PAGE
    assert abi.ALIGNED_RESULT_BYTES == 8 << 20 and abi.ALIGNMENT == 64 and "outputs of 8 MiB and\n  more" in PAGE
    assert STACK_BYTES == 2 << 20 and "have 2 MiB of their own" in PAGE


@pytest.mark.parametrize("target", re.findall(r"^\| (?:macOS|Windows) \| `(\S+)` \|", PAGE, re.M))
def test_other_systems_are_linked(target: str, folder: Path) -> None:
    pytest.importorskip("ziglang")
    ending, magic = {"m": (".dylib", b"\xcf\xfa\xed\xfe"), "w": (".dll", b"MZ")}[target.partition("-")[2][0]]
    path = folder / f"dense{ending}"
    text = next(text for file, _, text in BLOCK.findall(PAGE) if file == "dense.mlir")
    assert shlo_jit.export(text, path, target=target).linker == "ziglang"
    assert path.read_bytes().startswith(magic)


@pytest.mark.parametrize("target", ["x86_64-none:x86-64-v3", "aarch64-none", "riscv64-none"])
def test_bare_metal_needs_no_library(target: str, tmp_path: Path) -> None:
    shlo_jit.export(examples.path("attention"), tmp_path / "attention.o", target=target)
    found = needs(tmp_path / "attention.o")
    assert found is not None and found.symbols == ()
