"""Artifacts are accepted wherever texts are: their first bytes identify them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shlo_jit
from shlo_jit.bytecode import reader
from shlo_jit.cli.command import app

TEXT = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.negate %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
DYNAMIC = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.negate %x : tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
WRONG = """func.func @main(%x: tensor<2xf32>) -> tensor<3xf32> {
  %0 = stablehlo.negate %x : tensor<2xf32>
  %1 = "stablehlo.abs"(%0) : (tensor<2xf32>) -> tensor<3xf32> loc("layer"("model.py":12:3))
  return %1 : tensor<3xf32>
}
"""
ARTIFACT = shlo_jit.parse(TEXT).serialize()
X = np.array([1, 2], np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "model.mlirbc"
    found.write_bytes(ARTIFACT)
    return found


def exported(artifact: bytes) -> bytes:
    """Returns an artifact as written by `jax.export`: a flatbuffer whose field 13 is the artifact."""
    fields = struct.pack("<HH14H", 4 + 2 * 14, 8, *([0] * 13), 4)
    table = struct.pack("<iI", len(fields), 4)
    return struct.pack("<I", 4 + len(fields)) + fields + table + struct.pack("<I", len(artifact)) + artifact


def test_paths_bytes_and_what_jax_exports(path: Path) -> None:
    module = shlo_jit.parse(TEXT)
    for source in (path, str(path), ARTIFACT, bytearray(ARTIFACT), memoryview(ARTIFACT), exported(ARTIFACT)):
        assert shlo_jit.parse(source) == module
        assert shlo_jit.verify(source) == []
        np.testing.assert_array_equal(shlo_jit.compile(source)(X), -X)


def test_flatbuffers_of_something_else(path: Path) -> None:
    whole = exported(ARTIFACT)
    assert shlo_jit.parse(whole + b"more") == shlo_jit.parse(TEXT)
    for other in (whole[:60], exported(b"abc"), struct.pack("<II", 4, 1 << 31), b"\0" * 40):
        with pytest.raises(shlo_jit.ParseError):
            shlo_jit.parse(other)


def test_the_object_cache_knows_artifacts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached artifact is not even read."""
    shlo_jit.compile(ARTIFACT)

    def refuse(*given: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(reader, "read_artifact", refuse)
    np.testing.assert_array_equal(shlo_jit.compile(ARTIFACT)(X), -X)
    with pytest.raises(shlo_jit.InternalError, match="read again"):
        shlo_jit.compile(shlo_jit.parse(TEXT.replace("negate", "abs")).serialize())


def test_unknown_dimensions() -> None:
    artifact = shlo_jit.parse(DYNAMIC).serialize()
    made = shlo_jit.compile(artifact)
    for n in (2, 5):
        np.testing.assert_array_equal(made(np.ones(n, np.float32)), -np.ones(n, np.float32))
    assert shlo_jit.refine(artifact, [(4,)]) == shlo_jit.refine(DYNAMIC, [(4,)])


def test_unranked_types_are_unknown_too() -> None:
    from shlo_jit.sources import may_be_unknown, read_source

    unranked = shlo_jit.parse("func.func private @f(tensor<*xf32>)").serialize()
    assert may_be_unknown(read_source(unranked))
    assert not may_be_unknown(read_source(ARTIFACT))


def test_export(path: Path, tmp_path: Path) -> None:
    shlo_jit.export(path, tmp_path / "model.o")
    np.testing.assert_array_equal(shlo_jit.load(tmp_path / "model.o")(X), -X)


def test_stages_of_a_compiled_artifact() -> None:
    assert "stablehlo.negate" in shlo_jit.compile(ARTIFACT).text("module")
    assert "negate" in shlo_jit.compile(ARTIFACT).text("plan")


# ---------------------------------------------------------------------- diagnostics
def test_a_diagnostic_shows_the_printed_line_and_the_location() -> None:
    (found,) = shlo_jit.verify(shlo_jit.parse(WRONG).serialize())
    module = shlo_jit.parse(shlo_jit.parse(WRONG).serialize())
    assert (found.file, found.op) == ("<bytes>", "stablehlo.abs")
    assert 'stablehlo.abs"' in found.source_line or "stablehlo.abs %" in found.source_line
    assert found.source_line.endswith('loc("layer"("model.py":12:3))')
    assert "stablehlo.abs" in str(module).splitlines()[found.line - 1]
    with pytest.raises(shlo_jit.VerifyError) as caught:
        shlo_jit.compile(shlo_jit.parse(WRONG).serialize())
    assert caught.value.line == found.line


def test_compiling_prints_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is created when a position is requested; compiling does not print a program."""
    from shlo_jit.bytecode import printed

    monkeypatch.setattr(printed, "_marked", lambda module: pytest.fail("printed"))
    shlo_jit.compile(ARTIFACT, cache=False)


def test_large_literals_are_not_printed_for_a_diagnostic() -> None:
    numbers = np.arange(1000, dtype=np.float32).tobytes().hex()
    text = f"""func.func @main() -> tensor<3xf32> {{
  %0 = stablehlo.constant dense<"0x{numbers}"> : tensor<1000xf32>
  %1 = "stablehlo.abs"(%0) : (tensor<1000xf32>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}}
"""
    module = shlo_jit.parse(shlo_jit.parse(text).serialize())
    (found,) = shlo_jit.verify(module)
    assert (found.op, found.line) == ("stablehlo.abs", 4)
    assert len(module.source.text) < 400


# ---------------------------------------------------------------------- the command
def invoke(*args: str, status: int = 0, stdin: bytes | None = None) -> str:
    result = CliRunner().invoke(app, list(args), input=stdin)
    assert result.exit_code == status, (result.output, result.exception)
    return result.output


def test_run_and_show(path: Path) -> None:
    assert "@main" in invoke("run", str(path), "--random")
    assert "@main" in invoke("run", "-", "--random", stdin=ARTIFACT)
    assert "stablehlo.negate" in invoke("show", str(path), "--stage", "module")
    assert invoke("verify", str(path)) == f"{path}: valid\n"
    assert "same" in invoke("run", str(path), "--random", "--check")


def test_convert(path: Path, tmp_path: Path) -> None:
    text, again = tmp_path / "model.mlir", tmp_path / "again.bin"
    assert invoke("convert", str(path), "-o", str(text)).startswith(f"wrote {text}: ")
    assert shlo_jit.parse(text) == shlo_jit.parse(TEXT)
    invoke("convert", str(text), "-o", str(again), "--version", "1.0.0")
    assert again.read_bytes().startswith(b"ML\xefR\x0dStableHLO_v1.0.0\0")
    assert shlo_jit.parse(again) == shlo_jit.parse(TEXT)
    assert invoke("convert", "-", "-o", "-", stdin=ARTIFACT) == str(shlo_jit.parse(ARTIFACT))


def test_convert_refuses(path: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.mlirbc"
    assert "got 3.0.0" in invoke("convert", str(path), "-o", str(output), "--version", "3.0.0", status=2)
    tan = tmp_path / "tan.mlir"
    tan.write_text(TEXT.replace("negate", "tan"))
    shown = invoke("convert", str(tan), "-o", str(output), "--version", "1.0.0", status=1)
    assert f"{tan}:2:8: error: stablehlo.tan " in shown
    assert not output.exists()


def test_a_damaged_file(path: Path) -> None:
    path.write_bytes(ARTIFACT[:100])
    assert f"{path}: error: the file is cut off after 100 bytes" in invoke("run", str(path), "--random", status=1)
