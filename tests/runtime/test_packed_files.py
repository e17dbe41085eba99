"""Packed constants: their bytes in the memory report, in the object cache, and in exported libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.bytecode.writer import write_artifact
from shlo_jit.codegen.target import resolve
from shlo_jit.ir.types import DTYPES
from shlo_jit.options import CompileOptions
from shlo_jit.pipeline import lower, parsed
from shlo_jit.reference.interpreter import evaluate
from shlo_jit.runtime.executable import Executable
from shlo_jit.sources import Text, read_source

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


@pytest.mark.parametrize("kind", ["text", "artifact"])
@pytest.mark.parametrize("name", NAMES)
def test_program_files(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Literals are packed as they are read from files. A program that has read them once can do so again."""
    monkeypatch.setattr(tuning, "NARROW_LITERAL_BYTES", 1000)
    text = program(name, seed=2)
    file = tmp_path / "program"
    if kind == "text":
        file.write_text(text)
    else:
        file.write_bytes(write_artifact(shlo_jit.parse(text), "1.14.0"))
    (want,) = evaluate(shlo_jit.parse(text), X)
    exe = shlo_jit.compile(file, cache=False)
    assert isinstance(exe, Executable) and exe.memory.constants == nbytes(name)
    assert exe(X).tobytes() == want.tobytes()
    assert "packed" in exe.text("plan")


def folded(name: str) -> str:
    """A program whose product reads transposed weights, which are computed when it is compiled, and their sums."""
    m, n = SIZE
    data = np.random.default_rng(3).integers(0, 1 << DTYPES[name].bits, SIZE, np.uint8)
    return f"""func.func @main(%x: tensor<2x{n}xf32>) -> tensor<2x{m}xf32> {{
      %w = stablehlo.constant dense<"0x{data.tobytes().hex()}"> : tensor<{m}x{n}x{name}>
      %t = stablehlo.transpose %w, dims = [1, 0] : (tensor<{m}x{n}x{name}>) -> tensor<{n}x{m}x{name}>
      %c = stablehlo.convert %t : (tensor<{n}x{m}x{name}>) -> tensor<{n}x{m}xf32>
      %y = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0]
        : (tensor<2x{n}xf32>, tensor<{n}x{m}xf32>) -> tensor<2x{m}xf32>
      return %y : tensor<2x{m}xf32>
    }}"""


@pytest.mark.parametrize("name", ["ui2", "i4"])
def test_folded_weights_stay_packed_and_release_their_literal(name: str, tmp_path: Path) -> None:
    (tmp_path / "folded.mlir").write_text(folded(name))
    source = read_source(tmp_path / "folded.mlir")
    assert isinstance(source, Text)
    exe = shlo_jit.compile(tmp_path / "folded.mlir", cache=False)
    assert isinstance(exe, Executable) and exe.memory.constants == nbytes(name)
    module = parsed(source)
    (literal,) = [cut.literal for cut in source.cuts]
    assert literal.is_read
    lower(module, CompileOptions(resolve()))
    assert not literal.is_read
    x = np.random.default_rng(4).integers(-4, 5, (2, SIZE[1])).astype(np.float32)
    (want,) = evaluate(shlo_jit.parse(folded(name)), x)
    np.testing.assert_allclose(exe(x), want, rtol=1e-6)


MEGABYTES = int(os.environ.get("SHLO_JIT_PACKED_MEGABYTES", "24"))
"""Size of the constants of `test_peak_memory`. With 1024, the program's file has 4 GiB."""
MEASURED = """
import resource, sys
import numpy as np
import shlo_jit
exe = shlo_jit.compile(sys.argv[1], cache=False)
y = exe(np.ones(exe.inputs[0].shape, np.float32))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, float(y.sum()))
"""


def write_sums(path: Path, rows: int) -> float:
    """Writes a program that multiplies rows of 4-bit weights by a vector. Returns the sum of all weights."""
    rng, total = np.random.default_rng(rows), 0
    with path.open("wb") as file:
        file.write(
            f'func.func @main(%x: tensor<4096xf32>) -> tensor<{rows}xf32> {{\n%w = stablehlo.constant dense<"0x'.encode()
        )
        for at in range(0, rows, 1024):
            part = rng.integers(0, 16, (min(1024, rows - at), 4096), np.uint8)
            total += int(((part.astype(np.int8) ^ 8) - 8).sum(dtype=np.int64))
            file.write(part.tobytes().hex().encode())
        t = f"tensor<{rows}x4096xf32>"
        file.write(
            f""""> : tensor<{rows}x4096xi4>
          %c = stablehlo.convert %w : (tensor<{rows}x4096xi4>) -> {t}
          %b = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<4096xf32>) -> {t}
          %m = stablehlo.multiply %c, %b : {t}
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %y = stablehlo.reduce(%m init: %zero) applies stablehlo.add across dimensions = [1]
            : ({t}, tensor<f32>) -> tensor<{rows}xf32>
          return %y : tensor<{rows}xf32> }}""".encode()
        )
    return total


def test_peak_memory(tmp_path: Path) -> None:
    """Compiling and running a program takes its packed constants once, and what any program takes."""
    found = []
    for rows in (16, MEGABYTES * 512):
        total = write_sums(tmp_path / "sums.mlir", rows)
        run = subprocess.run(
            [sys.executable, "-c", MEASURED, str(tmp_path / "sums.mlir")], capture_output=True, text=True, check=True
        )
        peak, value = run.stdout.split()
        assert float(value) == pytest.approx(total, rel=1e-5)
        found.append(int(peak) / 1024)
    small, large = found
    assert large - small < 1.1 * MEGABYTES + 8, found
