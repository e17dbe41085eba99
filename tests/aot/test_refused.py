"""Refusals: files that cannot be loaded, and options of an export."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from building import AFFINE, affine_arguments, exported

import shlo_jit
from shlo_jit.runtime.library_file import check_loadable, read_library


# ---------------------------------------------------------------------- what cannot be loaded
def test_files_that_are_no_libraries(tmp_path: Path) -> None:
    path = exported(AFFINE, tmp_path)
    data = path.read_bytes()
    wrong = tmp_path / "wrong.so"
    for content, message in (
        (b"", "shlo_jit"),
        (b"hello" * 100, "shlo_jit"),
        (data[: len(data) // 2], "truncated"),
        (data[:-1], "truncated"),
        (data.replace(b'"interface":1', b'"interface":9'), "version 9 "),
        (data.replace(b'"functions":', b'"functiens":'), "metadata.*damaged"),
        (data.replace(b'[["x",[4]', b'[["x",[9]'), "metadata.*damaged"),
        (data.replace(b'{"', b'<"', 1), "damaged"),
        (data[:18] + b"\xb7\0" + data[20:], "aarch64"),
    ):
        wrong.write_bytes(content)
        with pytest.raises(shlo_jit.LibraryError, match=message):
            shlo_jit.load(wrong)
    with pytest.raises(FileNotFoundError):
        shlo_jit.load(tmp_path / "nothing.so")
    with pytest.raises(shlo_jit.LibraryError, match="shlo_jit"):
        shlo_jit.load(_libc())
    shlo_jit.export(AFFINE, tmp_path / "model.a")
    with pytest.raises(shlo_jit.LibraryError, match=r"archive; .*\.so or \.o"):
        shlo_jit.load(tmp_path / "model.a")


@pytest.mark.parametrize("ending", [".so", ".o"])
def test_damaged_files(ending: str, tmp_path: Path) -> None:
    """Files that are truncated, or changed anywhere but in the code, raise LibraryError and nothing else."""
    path, random = exported(AFFINE, tmp_path, ending), np.random.default_rng(1)
    data = path.read_bytes()
    refused = 0
    for _ in range(500):
        damaged = bytearray(data[: random.integers(len(data))] if random.random() < 0.3 else data)
        for at in random.integers(min(len(damaged), 4096), size=random.integers(9)) if damaged else ():
            damaged[at] = random.integers(256)
        path.write_bytes(damaged)
        try:
            check_loadable(read_library(path))
        except shlo_jit.LibraryError:
            refused += 1
    assert 100 < refused < 500


def _libc() -> str:
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if "libc.so" in line or "libc-" in line)


def test_another_processor(tmp_path: Path) -> None:
    """A library for another processor refuses to run, and the error names the missing features."""
    path = exported(AFFINE, tmp_path, target="x86-64-v2+sse4a+xop+fma4+tbm")
    with pytest.raises(shlo_jit.LibraryError, match=r"features.*x86-64-v2\+"):
        shlo_jit.load(path)


# ---------------------------------------------------------------------- options
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"path": "model.xyz"}, shlo_jit.ExportError, "expected a file that ends in one of"),
        ({"path": "model.dll"}, shlo_jit.ExportError, r"name ends in \.so"),
        ({"path": 3}, TypeError, "path: "),
        ({"weights": "nowhere"}, ValueError, "weights: .*'embedded'.*'file'"),
        ({"threads": 2}, TypeError, "threads: "),
        ({"name": "a b"}, ValueError, "name: .*identifier"),
        ({"target": "x86-64-v3,aarch64"}, ValueError, "different machines"),
        ({"target": "x86-64-v3,x86-64-v3"}, ValueError, "twice"),
        ({"target": "zx81"}, ValueError, "zx81"),
        ({"entry": "other"}, shlo_jit.StableHLOError, "@other.*@main"),
        ({"entry": []}, ValueError, "entry: .*different"),
        ({"custom_calls": "my_op"}, TypeError, "custom_calls: .*names"),
        ({"donate": [9]}, ValueError, "argument 9"),
        ({"linker": 1}, TypeError, "linker: "),
        ({"header": "./model.so"}, shlo_jit.ExportError, "coincide"),
        ({"header": "model.weights", "weights": "file"}, shlo_jit.ExportError, "coincide"),
        ({"path": "no/such/folder/model.so"}, FileNotFoundError, "no/such/folder"),
    ],
)
def test_options(options: dict, error: type[Exception], message: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        shlo_jit.export(AFFINE, **{"path": "model.so", **options})
    assert not list(tmp_path.iterdir())


def test_what_is_no_regular_file_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    with pytest.raises(OSError, match=r"pipe\.so.*regular"):
        shlo_jit.export(AFFINE, tmp_path / "pipe.so")
    assert (tmp_path / "pipe.so").is_fifo()


def test_without_a_linker(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("shlo_jit.aot.linking._has_zig", lambda: False)
    with pytest.raises(shlo_jit.ExportError, match="pip install ziglang"):
        exported(AFFINE, tmp_path)
    assert shlo_jit.load(exported(AFFINE, tmp_path, ".o"))(*affine_arguments())[0].tolist() == [1, 3, 5, 7]
