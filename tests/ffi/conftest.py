"""The handlers of `handlers.cc`, compiled once."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("handlers.cc")


def compiler() -> list[str] | None:
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is not None:
        return [found]
    return [sys.executable, "-m", "ziglang", "c++"] if importlib.util.find_spec("ziglang") else None


@pytest.fixture(scope="session")
def handlers_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the shared library; tests that need one are skipped if it cannot be built."""
    jaxlib, command = importlib.util.find_spec("jaxlib"), compiler()
    if jaxlib is None or jaxlib.origin is None:
        pytest.skip("XLA's headers come with jaxlib, which is not installed")
    if command is None:
        pytest.skip("there is no C++ compiler")
    path = tmp_path_factory.mktemp("ffi") / "handlers.so"
    include = Path(jaxlib.origin).parent / "include"
    subprocess.run(
        [*command, "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread", f"-I{include}", SOURCE, "-o", path],
        check=True,
    )
    return path


@pytest.fixture
def throwing(handlers: ctypes.CDLL) -> ctypes.CDLL:
    """The library, if exceptions that it throws can be caught."""
    if "ziglang" in (compiler() or ()):
        pytest.skip("ziglang's C++ library finds no code that is not of a shared library")
    return handlers


@pytest.fixture(scope="session")
def handlers(handlers_path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(handlers_path))
