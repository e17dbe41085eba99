"""The guard over LLVM text: written files, and what counts as a difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.llvm_text import main, without_names

PROGRAM = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = stablehlo.{} %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}}"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `old`, `same` and `new`: texts of a program, of the same again, and of another with its name."""
    monkeypatch.setattr("benchmarks.cases.select", list)
    for folder, op in (("old", "sine"), ("same", "sine"), ("new", "cosine")):
        file = tmp_path / folder / "p.mlir"
        file.parent.mkdir()
        file.write_text(PROGRAM.format(op))
        assert main(["write", str(tmp_path / folder), str(file), "--target", "x86-64-v3"]) == 0
    return tmp_path


def test_the_same_program_has_the_same_text(written: Path) -> None:
    assert main(["compare", str(written / "old"), str(written / "same")]) == 0


def test_another_program_is_listed(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(written / "old"), str(written / "new")]) == 1
    assert "file p:" in capsys.readouterr().out


def test_a_missing_text_is_a_difference(written: Path) -> None:
    (written / "same" / "file p.ll").unlink()
    assert main(["compare", str(written / "old"), str(written / "same")]) == 1


def test_a_refused_program_is_written_as_its_message(written: Path) -> None:
    bad = written / "bad.mlir"
    bad.write_text(PROGRAM.format("sinus"))
    assert main(["write", str(written / "refused"), str(bad), "--target", "x86-64-v3"]) == 0
    assert "sinus" in (written / "refused" / "file bad.ll").read_text()


def test_renamed_values_are_equal_without_names() -> None:
    text = "a:\n  %x = fadd float %y, %y\n  br label %a\n"
    renamed = text.replace("x", "sum").replace("a:", "body:").replace("%a", "%body").replace("%y", "%in")
    assert without_names(text) == without_names(renamed)
    assert without_names(text) != without_names(text.replace("%y, %y", "%y, %x"))
