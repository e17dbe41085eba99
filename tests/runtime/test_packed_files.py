"""Packed constants: their bytes in the memory report, in the object cache, and in exported libraries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir.types import DTYPES
from shlo_jit.reference.interpreter import evaluate
from shlo_jit.runtime.executable import Executable

SIZE = (600, 501)
NAMES = ["i2", "ui2", "i4", "ui4", "f4E2M1FN"]


def program(name: str, seed: int = 0) -> str:
    bits = DTYPES[name].bits
    data = np.random.default_rng(seed).integers(0, 1 << bits, SIZE, np.uint8)
    t = "x".join(map(str, SIZE))
    return f"""func.func @main(%x: tensor<{t}xf32>) -> tensor<{t}xf32> {{
      %w = stablehlo.constant dense<"0x{data.tobytes().hex()}"> : tensor<{t}x{name}>
      %c = stablehlo.convert %w : (tensor<{t}x{name}>) -> tensor<{t}xf32>
      %y = stablehlo.add %x, %c : tensor<{t}xf32>
      return %y : tensor<{t}xf32>
    }}"""


def nbytes(name: str) -> int:
    return -(-SIZE[0] * SIZE[1] * DTYPES[name].bits // 8)


X = np.random.default_rng(1).standard_normal(SIZE).astype(np.float32)


def files(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


@pytest.mark.parametrize("name", NAMES)
def test_memory_and_cache(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path))
    text = program(name)
    (want,) = evaluate(shlo_jit.parse(text), X)
    first, second = shlo_jit.compile(text), shlo_jit.compile(text)
    assert isinstance(first, Executable) and isinstance(second, Executable)
    assert first.memory.constants == nbytes(name)
    assert second.memory.constants == nbytes(name)
    assert first(X).tobytes() == second(X).tobytes() == want.tobytes()
    assert nbytes(name) <= files(tmp_path) <= nbytes(name) + (200 << 10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weights", ["embedded", "file"])
def test_exported_libraries(name: str, weights: str, tmp_path: Path) -> None:
    text = program(name)
    shlo_jit.export(text, tmp_path / "w.so", weights=weights)
    assert nbytes(name) <= files(tmp_path) <= nbytes(name) + (250 << 10)
    (want,) = evaluate(shlo_jit.parse(text), X)
    assert shlo_jit.load(tmp_path / "w.so")(X).tobytes() == want.tobytes()
