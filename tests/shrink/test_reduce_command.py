"""`shlo-jit reduce`, with an intentionally broken compiler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shlo_jit
from shlo_jit import examples
from shlo_jit.cli import app
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
HANGS = """if not any(op.name == "stablehlo.dot_general" for op in walk(function.block())):
            open({path!r}, "w").close(); import time; time.sleep(900)
        raise KeyError(1)"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Breaks the compiler in the started processes."""

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
@pytest.mark.sampled(8)
def test_crash(broken, how: str, said: str, tmp_path: Path) -> None:
    broken("tanh", how)
    text, summary = reduce("--example", "mlp", "--crash")
    (op,) = ops_of(shlo_jit.parse(text))
    assert op.name == "stablehlo.tanh" and op.result.tensor.size == 1
    assert summary.startswith(said) and "programs tried" in summary
    assert all(len(line) <= 80 for line in summary.splitlines())
    left = {path.name for path in tmp_path.iterdir()} - {"sitecustomize.py", "__pycache__"}
    assert left == set()


@pytest.mark.slow
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
    assert said == f"{path}: does not fail as required: the command ended with status 1\n"
    said = reduce(str(path), "--test", "sleep 60 # {}", "--time-out", "0.2", status=1)[1]
    assert said == f"{path}: does not fail as required: the command took longer than 0.2 s (--time-out)\n"


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("is_crash", [False, True])
def test_result_so_far_is_kept_on_interruption(is_crash: bool, broken, tmp_path: Path) -> None:
    """Sends Ctrl-C while a program is tried that never ends."""
    hangs, small = tmp_path / "hangs", tmp_path / "small.mlir"
    test = ["--test", f"grep -q tanh {{}} && {{ grep -q dot_general {{}} || {{ touch {hangs}; sleep 900; }}; }}"]
    if is_crash:
        broken("tanh", HANGS.format(path=str(hangs)))
        test = ["--crash"]
    command = [sys.executable, "-m", "shlo_jit", "reduce", "--example", "mlp", *test, "--time-out", "900", "-o"]
    with subprocess.Popen([*command, str(small)], stderr=subprocess.PIPE, text=True) as process:
        while not hangs.exists():
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 0 and "interrupted" in said
    assert {"stablehlo.tanh", "stablehlo.dot_general"} <= {op.name for op in ops_of(shlo_jit.parse(small))}


def test_mistakes() -> None:
    for args, message in (
        ([], "give one of --test CMD, --crash, --wrong"),
        (["--crash", "--wrong"], "give one of --test CMD, --crash, --wrong"),
        (["--test", "true"], "--test: expected {} in the command, which is replaced by the file's name"),
        (["--crash", "--entry", "other"], "no function @other; the program has @main"),
    ):
        assert reduce("--example", "mlp", *args, status=2)[1] == f"shlo-jit: error: {message}\n"


def test_random_arguments_have_their_types() -> None:
    import ml_dtypes

    from shlo_jit.reference.random_argument import random_argument

    generator = np.random.default_rng(0)
    for dtype in (np.bool_, np.uint8, np.int64, np.float16, np.complex64, ml_dtypes.bfloat16, ml_dtypes.int4):
        made = random_argument(generator, (3, 4), np.dtype(dtype))
        assert made.dtype == dtype and made.shape == (3, 4)
