"""`shlo-jit reduce`, with a compiler that is wrong on purpose."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shlo_jit
from shlo_jit import examples, pipeline
from shlo_jit.cli import app
from shlo_jit.errors import InternalError
from shlo_jit.shrink.copies import ops_of

ROOT = Path(shlo_jit.__file__).parents[1]
BROKEN = """
import os, signal
from shlo_jit import passes
from shlo_jit.ir.core import walk
from shlo_jit.text.printer import print_op

def broken(function, context):
    if any(op.name == "stablehlo.{op}" for op in walk(function.block())):
        {how}
    return function

passes.PASSES = (passes.Pass(broken), *passes.PASSES)
"""
WRONG = 'from shlo_jit import parse; return parse(print_op(function).replace("stablehlo.tanh", "stablehlo.negate")).function("main")'


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Break the compiler of the processes that are started."""

    def make(op: str, how: str) -> None:
        (tmp_path / "sitecustomize.py").write_text(BROKEN.format(op=op, how=how))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
        monkeypatch.setenv("TMPDIR", str(tmp_path))

    return make


def reduce(*args: str, status: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["reduce", *args])
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout, result.stderr


@pytest.mark.parametrize(
    ("how", "said"),
    [("raise KeyError(1)", "fails: InternalError: KeyError in passes"), ("os.kill(os.getpid(), signal.SIGSEGV)", "fails: ended by SIGSEGV")],
)  # fmt: skip
def test_crash(broken, how: str, said: str, tmp_path: Path) -> None:
    broken("tanh", how)
    text, summary = reduce("--example", "mlp", "--crash")
    (op,) = ops_of(shlo_jit.parse(text))
    assert op.name == "stablehlo.tanh" and op.result.tensor.size == 1
    assert summary.startswith(said) and "programs tried" in summary
    assert all(len(line) <= 80 for line in summary.splitlines())
    left = {path.name for path in tmp_path.iterdir()} - {"sitecustomize.py", "__pycache__"}
    assert left == set()


def test_wrong(broken, tmp_path: Path) -> None:
    broken("tanh", WRONG)
    target = tmp_path / "small.mlir"
    text, summary = reduce("--example", "mlp", "--wrong", "--seed", "3", "-o", str(target))
    assert text == f"wrote {target}\n"
    assert [op.name for op in ops_of(shlo_jit.parse(target))] == ["stablehlo.tanh"]
    assert "fails: a result differs" in summary


def test_a_command(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(examples.path("mlp").read_text())
    text, _ = reduce(str(path), "--test", "grep -q stablehlo.maximum {}", "--jobs", "3")
    assert [op.name for op in ops_of(shlo_jit.parse(text))] == ["stablehlo.maximum"]
    said = reduce(str(path), "--test", "grep -q stablehlo.sine {}", status=1)[1]
    assert said == f"{path}: does not fail in that way\n"
    assert reduce(str(path), "--test", "sleep 60 # {}", "--time-out", "0.2", status=1)[1] == said


def test_mistakes() -> None:
    for args, message in (
        ([], "give one of --test CMD, --crash, --wrong"),
        (["--crash", "--wrong"], "give one of --test CMD, --crash, --wrong"),
        (["--test", "true"], "--test: the command has no {}, which the file's name is put for"),
        (["--crash", "--entry", "other"], "no function @other"),
    ):
        assert reduce("--example", "mlp", *args, status=2)[1] == f"shlo-jit: error: {message}\n"


# ---------------------------------------------------------------------- programs that fail are kept
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
    assert first == "shlo_jit failed on this program (KeyError: 'x'); please report it"
    (path,) = tmp_path.iterdir()
    assert where == f"The program is in {path}; this makes it smaller:"
    assert command == f"  shlo-jit reduce {path} --entry f --crash -o small.mlir"
    assert shlo_jit.parse(path) == shlo_jit.parse(TEXT)
    assert path.stat().st_mode & 0o777 == 0o600
    assert isinstance(raised.value.__cause__, KeyError)
    monkeypatch.setattr("shlo_jit.tuning.KEPT_PROGRAM_BYTES", -1)
    with pytest.raises(InternalError) as raised:
        shlo_jit.compile(TEXT, "f", cache=False)
    assert str(raised.value) == first


def test_the_command_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*args: object, **options: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(pipeline, "plan", fail)
    result = CliRunner().invoke(app, ["run", "--example", "mlp", "--random", "--no-cache"])
    assert result.exit_code == 1 and "Traceback" not in result.stderr
    assert result.stderr.startswith("shlo-jit: error: shlo_jit failed on this program (KeyError: 'x')")
    assert "shlo-jit reduce " in result.stderr


def test_made_up_arguments_have_their_types() -> None:
    import ml_dtypes

    from shlo_jit.reference.made_up import made_up

    generator = np.random.default_rng(0)
    for dtype in (np.bool_, np.uint8, np.int64, np.float16, np.complex64, ml_dtypes.bfloat16, ml_dtypes.int4):
        made = made_up(generator, (3, 4), np.dtype(dtype))
        assert made.dtype == dtype and made.shape == (3, 4)
