"""The page on adding ops: its code adds ops that parse, verify, fuse and compute the right results."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir.types import DTYPES
from shlo_jit.lower.elements.reducers import reducer_of
from shlo_jit.reference.interpreter import evaluate

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "adding_an_op.md"
FLOATS = ("f8E5M2", "f8E4M3FN", "bf16", "f16", "f32", "f64")
INTEGERS = ("i1", "i4", "i8", "ui8", "i32", "ui64")


def programs() -> list[str]:
    """The page's programs in order."""
    return re.findall(r"```mlir\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a copy of the package, with the page's code appended to the files that it names."""
    made = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "shlo_jit", made / "shlo_jit", ignore=shutil.ignore_patterns("__pycache__"))
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
        name = re.match(r"# (shlo_jit/\S+\.py)\n", code)
        assert name is not None, code
        with (made / name[1]).open("a", encoding="utf-8") as file:
            file.write(f"\n\n{code}")
    return made


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of a small range, including all special numbers of small types."""
    d, rng = DTYPES[dtype], np.random.default_rng(5)
    if d.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if d.is_integer:
        return rng.integers(0, 256, shape, np.uint8).astype(np.int8).astype(d.numpy)
    return (rng.standard_normal(shape) * 4).astype(d.numpy)


def same(program: str, dtype: str) -> list[str]:
    """Asserts that the compiled program has the bits of the reference; returns the titles of its steps."""
    text = program.replace("E>", f"{dtype}>")
    exe = shlo_jit.compile(text, cache=False)
    arguments = [numbers(i.shape, dtype) for i in exe.inputs]
    (want,) = evaluate(shlo_jit.parse(text), *arguments)
    np.testing.assert_array_equal(np.asarray(exe(*arguments)).view(np.uint8), np.asarray(want).view(np.uint8), text)
    return re.findall(r"^ +\d+ (\w+)", exe.text("plan"), re.M)


def elementwise() -> None:
    softsign = programs()[0]
    for dtype in FLOATS:
        assert same(softsign, dtype) == ["loop"], dtype
    wrong = '%0 = "chlo.softsign"(%x) : (tensor<4xf32>) -> tensor<5xf32>\nreturn'
    (found,) = shlo_jit.verify(f"func.func @main(%x: tensor<4xf32>) {{\n{wrong}\n}}")
    assert (found.op, found.label) == ("chlo.softsign", "C1") and found.rule


def reducer() -> None:
    xnor = programs()[1]
    for dtype in INTEGERS:
        assert same(xnor, dtype) == ["reduce"], dtype
        function = shlo_jit.parse(xnor.replace("E>", f"{dtype}>")).function("main")
        assert function is not None
        simple = reducer_of(function.block().ops[0]).simple
        assert simple is not None and simple.name == "stablehlo.xnor"
    assert "xor <" in shlo_jit.compile(xnor.replace("E>", "i32>"), cache=False).text("llvm")


def index_map() -> None:
    diagonal = programs()[2]
    for dtype in (*FLOATS, *INTEGERS):
        assert same(diagonal, dtype) == ["loop"], dtype


def kernel() -> None:
    trace = programs()[3]
    x = np.arange(-4, 5, dtype=np.float32).reshape(3, 3)
    assert shlo_jit.compile(trace, cache=False)(x) == 0


@pytest.mark.parametrize("check", ["elementwise", "reducer", "index_map", "kernel"])
@pytest.mark.sampled(3)
def test_the_code_of_the_page(check: str, package: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(package), str(Path(__file__).parent)])
    environment = os.environ | {"PYTHONPATH": path, "SHLO_JIT_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", f"import test_adding_an_op as page\npage.{check}()"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
