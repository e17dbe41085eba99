"""The command `tune`, and the places that take its schedule: other commands, functions under `jit`, and libraries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from modelled_bench import ModelledBench
from typer.testing import CliRunner

import shlo_jit
from shlo_jit import builder
from shlo_jit.autotune.bench import Variant
from shlo_jit.cli import app

TEXT = """func.func @main(%x: tensor<100x300xf32>) -> tensor<100x300xf32> {
  %e = stablehlo.exponential %x : tensor<100x300xf32>
  %s = stablehlo.reverse %e, dims = [0] : tensor<100x300xf32>
  %y = stablehlo.add %e, %s : tensor<100x300xf32>
  return %y : tensor<100x300xf32>
}
"""
SECONDS = "0.5"
X = np.random.default_rng(0).normal(size=(100, 300)).astype(np.float32)


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.mlir"
    path.write_text(TEXT)
    return str(path)


def invoke(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout if status == 0 else result.stderr


def test_tune_prints_what_was_won_and_saves_it(modelled: type[ModelledBench], program: str, tmp_path: Path) -> None:
    saved, arrays = tmp_path / "schedule.json", tmp_path / "x.npy"
    np.save(arrays, X)
    lines = invoke("tune", program, "--input", str(arrays), "--seconds", SECONDS, "--save", str(saved)).splitlines()
    assert any("times as fast" in line and "schedules tried" in line for line in lines)
    assert any(line.split()[:2] == ["0", "loop"] and line.split()[2] == "2" for line in lines)
    assert lines[-2:] == ["stored in the object cache: --schedule tuned uses it", f"wrote {saved}"]
    moves = json.loads(invoke("show", program, "--stage", "moves", "--schedule", str(saved)))
    assert json.loads(invoke("show", program, "--stage", "moves", "--schedule", "tuned")) == moves
    assert json.loads(invoke("show", program, "--stage", "moves")) != moves
    assert "1 tuned schedules" in invoke("cache", "info")


def test_tune_as_json(modelled: type[ModelledBench], program: str) -> None:
    found = json.loads(invoke("tune", program, "--random", "--seconds", SECONDS, "--threads", "2", "--json"))
    assert found["ratio"] > 1 and found["threads"] == 2 and found["is_stored"] and found["program"] == program
    assert [step["label"] for step in found["steps"]] == ["0", "1"] and set(found["schedule"]) <= {"0", "1"}
    assert all(step["before_us"] > step["after_us"] for step in found["steps"] if step["label"] in found["schedule"])


def test_interrupting_keeps_what_was_won(
    modelled: type[ModelledBench], program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, is_interrupted = ModelledBench.run, []

    def interrupting(bench: ModelledBench, variant: Variant) -> dict[str, float]:
        if bench._time > 0.15 and not is_interrupted:
            is_interrupted.append(True)
            raise KeyboardInterrupt
        return run(bench, variant)

    monkeypatch.setattr(ModelledBench, "run", interrupting)
    printed = invoke("tune", program, "--random", "--seconds", "60")
    assert is_interrupted and "interrupted: this is what was won until then" in printed
    assert "times as fast" in printed and "stored in the object cache" in printed


def test_mistakes_of_the_command(program: str, tmp_path: Path) -> None:
    assert "--random" in invoke("tune", program, status=2)
    assert "no such file" in invoke("tune", str(tmp_path / "no.mlir"), "--random", status=2)
    assert "cannot read tune" in invoke("run", program, "--random", "--schedule", "tune", status=2)


def test_functions_under_jit_take_schedules(modelled: type[ModelledBench]) -> None:
    def f(x: builder.Handle) -> builder.Handle:
        return builder.exp(x) * 2.0

    program = shlo_jit.jit(f).lower(X)
    result = shlo_jit.tune(program, X, seconds=0.5)
    assert result.schedule
    for schedule in ("tuned", result.schedule):
        compiled = shlo_jit.jit(f, schedule=schedule)
        assert json.loads(compiled.compile(X).text("moves")) == json.loads(result.executable.text("moves"))
        np.testing.assert_array_equal(compiled(X), shlo_jit.jit(f)(X))


def test_functions_under_jit_of_jax_take_schedules() -> None:
    jax = pytest.importorskip("jax")
    import shlo_jit.jax

    def f(x: jax.Array) -> jax.Array:
        return jax.numpy.exp(x) * 2

    want = shlo_jit.jax.jit(f)(X)
    np.testing.assert_array_equal(shlo_jit.jax.jit(f, schedule={"0": []})(X), want)
    np.testing.assert_array_equal(shlo_jit.jax.jit(f, schedule="tuned")(X), want)
    with pytest.raises(ValueError, match="step 9"):
        shlo_jit.jax.jit(f, schedule={"9": []})(X)


def test_libraries_take_schedules(program: str, tmp_path: Path) -> None:
    library, saved = tmp_path / "p.o", tmp_path / "s.json"
    moves = json.loads(shlo_jit.compile(TEXT).text("moves"))
    moves["0"] = [move for move in moves["0"] if move["move"] == "reorder"]
    saved.write_text(json.dumps(moves))
    invoke("export", program, "-o", str(library), "--schedule", str(saved))
    exe = shlo_jit.load(library)
    np.testing.assert_array_equal(exe(X), shlo_jit.compile(TEXT)(X))
    shlo_jit.export(TEXT, tmp_path / "q.o")
    assert library.read_bytes() != (tmp_path / "q.o").read_bytes()
    with pytest.raises(ValueError, match="step 7"):
        shlo_jit.export(TEXT, library, schedule={"7": []})
    with pytest.raises(ValueError, match="for this machine"):
        shlo_jit.export(TEXT, library, schedule="tuned")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="several functions"):
        shlo_jit.export(TEXT + TEXT.replace("@main", "@g"), library, entry=("main", "g"), schedule=moves)
