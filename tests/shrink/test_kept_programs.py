"""Programs that the compiler fails on are kept in the temporary folder for failures of any stage, or the message says
why not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shlo_jit
from shlo_jit import failed_programs, pipeline
from shlo_jit.cli import app
from shlo_jit.errors import InternalError

TEXT = """func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.tanh %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}"""


def test_an_internal_error_keeps_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*args: object, **options: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(pipeline, "plan", fail)
    errors = []
    for _ in range(2):
        with pytest.raises(InternalError) as raised:
            shlo_jit.compile(TEXT, "f", cache=False)
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
    first, where, command = errors[0].splitlines()
    assert first.startswith("shlo_jit failed on this program (KeyError: 'x') at ") and "in fail; " in first
    (path,) = tmp_path.iterdir()
    assert where == f"The program is in {path}; this makes it smaller:"
    assert command == f"  shlo-jit reduce {path} --entry f --crash -o small.mlir"
    assert shlo_jit.parse(path) == shlo_jit.parse(TEXT)
    assert path.stat().st_mode & 0o777 == 0o600
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.program == str(path)


def failing(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def fail(*args: object, **options: object) -> None:
        raise KeyError("x")

    module, _, name = place.rpartition(".")
    monkeypatch.setattr(import_module(f"shlo_jit.{module}"), name, fail)


def refusal(text: str) -> InternalError:
    """The exception of compiling and calling a program."""
    with pytest.raises(InternalError) as raised:
        shlo_jit.compile(text, cache=False)(np.ones(2, np.float32))
    return raised.value


ADD = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.add %x, %x : tensor<2xf32> return %0 : tensor<2xf32> }"
STAGES = [
    "verify.verifier.verify_module", "schedule.precompile.routines_to_precompile", "passes.core_functions", "fuse.fuse.fuse",
    "schedule.schedule.schedule", "memory.planner.plan_memory", "lower.program.lower_program",
    "codegen.optimize.optimize", "codegen.jit.load",
]  # fmt: skip


@pytest.mark.parametrize("text", [ADD, ADD.replace("<2xf32>", "<?xf32>")])
@pytest.mark.parametrize("place", [*STAGES, "specialize.refine_module"])
def test_whatever_stage_fails(place: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if place.startswith("specialize") and "?" not in text:
        return
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing(monkeypatch, place)
    error = refusal(text)
    (path,) = tmp_path.iterdir()
    assert error.program == str(path) and str(path) in str(error)
    assert str(error).startswith("shlo_jit failed on this program (KeyError: 'x') at ")
    assert str(error).count("The program is in") == 1
    monkeypatch.undo()
    assert shlo_jit.verify(path) == []


def test_programs_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing(monkeypatch, "pipeline.plan")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert str(refusal(ADD)).splitlines()[1:] == ["It could not be kept in a file: No such file or directory"]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("shlo_jit.tuning.KEPT_PROGRAM_BYTES", -1)
    error = refusal(ADD)
    assert str(error).splitlines()[1:] == ["Its constants have more than -1 MiB: it is not kept."]
    assert error.program == "" and not [*tmp_path.iterdir()]


def test_names_that_others_have_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing(monkeypatch, "pipeline.plan")
    taken = Path(refusal(ADD).program or "")
    text = taken.read_text()
    taken.unlink()
    taken.mkdir()
    path = Path(refusal(ADD).program or "")
    assert path != taken and path.read_text() == text
    assert [*taken.iterdir()] == []


def test_many_at_once_keep_one_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        paths = {*pool.map(lambda _: failed_programs._write(b"x" * 1_000_000), range(50))}
    assert paths == {str(path) for path in tmp_path.iterdir()} and len(paths) == 1


def test_the_command_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*args: object, **options: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(pipeline, "plan", fail)
    result = CliRunner().invoke(app, ["run", "--example", "mlp", "--random", "--no-cache"])
    assert result.exit_code == 1 and "Traceback" not in result.stderr
    assert result.stderr.startswith("shlo-jit: error: shlo_jit failed on this program (KeyError: 'x')")
    assert "shlo-jit reduce " in result.stderr
