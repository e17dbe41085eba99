"""Programs from the object cache: without LLVM, and without reading the literals of unchanged files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit import sources, tuning
from shlo_jit.codegen import processor, target
from shlo_jit.runtime import background_store, known_files, machine
from shlo_jit.runtime.cache import ObjectCache, host_key

N = 48
WEIGHTS = np.random.default_rng(0).standard_normal((N, N)).astype(np.float32)


def program(weights: np.ndarray, result: str = "%0") -> str:
    """Returns x @ weights, or the weights themselves."""
    literal = weights.tobytes().hex().upper()
    return f"""func.func @main(%x: tensor<{N}x{N}xf32>) -> tensor<{N}x{N}xf32> {{
  %w = stablehlo.constant dense<"0x{literal}"> : tensor<{N}x{N}xf32>
  %0 = stablehlo.dot %x, %w : (tensor<{N}x{N}xf32>, tensor<{N}x{N}xf32>) -> tensor<{N}x{N}xf32>
  return {result} : tensor<{N}x{N}xf32>
}}"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Path of a program's file that counts as settled, with a separate cache."""
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "KNOWN_FILE_BYTES", 1000)
    monkeypatch.setattr(tuning, "SHARED_CONSTANT_BYTES", 1000)
    monkeypatch.setattr(known_files, "SETTLED_SECONDS", -1.0)
    file = tmp_path / "program.mlir"
    file.write_text(program(WEIGHTS), encoding="utf-8")
    return file


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list that grows with every text whose literals are searched."""
    calls: list[Any] = []
    function = sources.cut_bytes

    def counted(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    monkeypatch.setattr(sources, "cut_bytes", counted)
    return calls


def call(path: Path, **options: Any) -> np.ndarray:
    executable = shlo_jit.compile(path, **options)
    result = executable(np.eye(N, dtype=np.float32))
    assert isinstance(result, np.ndarray)
    return result


def test_a_file_that_is_as_it_was_is_not_read_again(path: Path, cut: list[Any]) -> None:
    for _ in range(3):
        np.testing.assert_array_equal(call(path), WEIGHTS)
    assert len(cut) == 1


def test_literals_are_read_when_they_are_wanted(path: Path, cut: list[Any]) -> None:
    """By a program that reads one unchanged, and by one that is compiled again."""
    path.write_text(program(WEIGHTS, "%w"), encoding="utf-8")
    for _ in range(3):
        np.testing.assert_array_equal(call(path), WEIGHTS)
    np.testing.assert_array_equal(
        call(path, target="x86-64-v3" if os.uname().machine == "x86_64" else "native"), WEIGHTS
    )
    assert len(cut) == 1


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_file_that_was_written_to_is_another(path: Path, cut: list[Any], keeps_time: bool) -> None:
    before = path.stat()
    np.testing.assert_array_equal(call(path), WEIGHTS)
    path.write_text(program(WEIGHTS[::-1]), encoding="utf-8")
    if keeps_time:  # the modification time of the file itself cannot be set back
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    np.testing.assert_array_equal(call(path), WEIGHTS[::-1])
    assert len(cut) == 2


def test_a_file_that_may_still_be_written_to_is_not_noted(
    path: Path, cut: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_files, "SETTLED_SECONDS", 1000.0)
    for _ in range(2):
        np.testing.assert_array_equal(call(path), WEIGHTS)
    assert len(cut) == 2


def test_nothing_is_noted_without_the_cache(path: Path, cut: list[Any], tmp_path: Path) -> None:
    for _ in range(2):
        np.testing.assert_array_equal(call(path, cache=False), WEIGHTS)
        shlo_jit.parse(path)
    assert len(cut) == 4 and not (tmp_path / "cache").exists()


def test_a_damaged_note_counts_for_nothing(path: Path, cut: list[Any], tmp_path: Path) -> None:
    np.testing.assert_array_equal(call(path), WEIGHTS)
    for entry in (tmp_path / "cache").glob("*.shlo"):
        data = bytearray(entry.read_bytes())
        data[-1] ^= 255
        data[40] ^= 255
        entry.write_bytes(data)
    np.testing.assert_array_equal(call(path), WEIGHTS)
    assert len(cut) == 2


# ---------------------------------------------------------------------- the machine
def test_the_machine_equals_llvms_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(target, "_host", [])
    said, asked = target.ask_llvm(), []
    monkeypatch.setattr(machine, "ask_llvm", lambda: asked.append(1) or said)
    for _ in range(3):
        machine.native.cache_clear()
        assert machine.native() == target.resolve("native")
        assert target.host() == said
    key = processor.description()
    if key is None:
        return
    assert len(asked) == 1
    ObjectCache(tmp_path).store(host_key(key), {"kind": "host", "triple": 1, "cpu": "", "features": {}}, [])
    machine.native.cache_clear()
    machine.native()
    assert len(asked) == 2 and target.host() == said


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be told where to run")
def test_the_processor_says_the_same_on_every_core() -> None:
    cores = os.sched_getaffinity(0)
    try:
        found = set()
        for core in cores:
            os.sched_setaffinity(0, {core})
            found |= {processor.description() for _ in range(20)}
        assert len(found) == 1
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.skipif(processor.description() is None, reason="LLVM is asked on such machines")
def test_a_start_from_the_cache_needs_no_llvm(tmp_path: Path) -> None:
    file = tmp_path / "program.mlir"
    file.write_text(program(WEIGHTS), encoding="utf-8")
    code = f"""
import sys
import threading
import time
import numpy as np
import shlo_jit
exe = shlo_jit.compile({str(file)!r}, threads=2)
exe(np.zeros(({N}, {N}), np.float32))
unwanted = ("llvmlite.binding", "ml_dtypes", "logging", "shlo_jit.ir.core", "shlo_jit.verify.verifier", "shlo_jit.lower")
print(*[name for name in unwanted if name in sys.modules])
assert shlo_jit.verify({str(file)!r}) == []
"""
    environment = {**os.environ, "SHLO_JIT_CACHE_DIR": str(tmp_path / "cache")}
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        for _ in range(2)
    ]
    assert runs[1].stdout == "\n"


# ---------------------------------------------------------------------- stored entries
def test_large_constants_are_stored_in_the_background(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A thread stores them; a request for the program meanwhile waits."""
    monkeypatch.setattr(tuning, "BACKGROUND_STORE_BYTES", 1)
    started, store = threading.Event(), ObjectCache.store

    def slow(*args: Any) -> bool:
        started.set()
        time.sleep(0.2)
        return store(*args)

    monkeypatch.setattr(ObjectCache, "store", slow)
    exe = shlo_jit.compile(path)
    np.testing.assert_array_equal(exe(np.eye(N, dtype=np.float32)), WEIGHTS)  # type: ignore[arg-type]
    assert started.is_set()
    monkeypatch.setattr("shlo_jit.pipeline.lower", None)  # a caller that uses it fails
    np.testing.assert_array_equal(call(path), WEIGHTS)
    background_store.wait_for()


def test_panels_are_identified_by_their_source(path: Path, tmp_path: Path) -> None:
    """Programs that read the same weights in the same way share them; others do not."""

    def constants() -> int:
        return len([*(tmp_path / "cache").glob("constant-*")])

    call(path)
    assert constants() == 1
    again = tmp_path / "again.mlir"
    again.write_text(program(WEIGHTS).replace("return %0", "%1 = stablehlo.abs %0 : tensor<48x48xf32>\n  return %1"))
    np.testing.assert_array_equal(call(again), np.abs(WEIGHTS))
    assert constants() == 1
    again.write_text(program(WEIGHTS).replace("stablehlo.dot %x, %w", "stablehlo.dot %w, %x"))
    np.testing.assert_array_equal(call(again), WEIGHTS)
    again.write_text(
        program(WEIGHTS).replace(
            "stablehlo.dot %x, %w :", "stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] :"
        )
    )
    np.testing.assert_array_equal(call(again), WEIGHTS.T)
    assert constants() == 2
