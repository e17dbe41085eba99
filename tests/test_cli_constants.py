"""The option --constants: files of the three kinds, for every command that has it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

import shlo_jit
from shlo_jit.cli import app

X, W, B = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((4, 64), (64, 32), (32,)))
LAYER = """
func.func @main(%x: tensor<4x64xf32>, %w: tensor<64x32xf32>, %b: tensor<32xf32>) -> tensor<4x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<32xf32>) -> tensor<4x32xf32>
  %2 = stablehlo.add %0, %1 : tensor<4x32xf32>
  return %2 : tensor<4x32xf32>
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "objects"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layer.mlir").write_text(LAYER)
    for name, array in {"x": X, "w": W, "b": B, "a=b:c": W}.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "two.npz", w=W, b=B)
    safetensors.numpy.save_file({"w": W, "b": B}, tmp_path / "two.safetensors")
    safetensors.numpy.save_file({"l.0.weight": W, "l.0.bias": B, "n": np.ones(1)}, tmp_path / "model.safetensors")
    return tmp_path


def call(*args: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, [*args])
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.parametrize(
    "texts",
    [
        ["two.npz"],
        ["two.safetensors"],
        ["w.npy", "b.npy"],
        ["w=model.safetensors:l.0.weight", "%b=model.safetensors:l.0.bias"],
        ["1=w.npy", "2=two.npz:b"],
        ["w=a=b:c.npy", "b.npy"],
    ],
)
def test_run(texts: list[str], folder: Path) -> None:
    options = [part for text in texts for part in ("--constants", text)]
    call("run", "layer.mlir", "--input", "x.npy", *options, "--output-dir", "out", "--check", "--repeat", "1")
    want = shlo_jit.compile(LAYER, constants={"w": W, "b": B})(X)
    np.testing.assert_array_equal(np.load(folder / "out" / "output0.npy"), want)
    printed = json.loads(call("run", "layer.mlir", "--input", "x.npy", *options, "--repeat", "1", "--json"))
    assert [row["name"] for row in printed["inputs"]] == ["x"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("none.npz", "cannot read none.npz: No such file"),
        ("w=none.npz:w", "cannot read none.npz: No such file"),
        ("layer.mlir", "ends in .npy, .npz, .safetensors"),
        ("x=two.npz", "has 2 entries: write x=two.npz:ENTRY"),
        ("w=two.npz:v", "two.npz has no entry 'v'; it has w, b"),
        ("w=model.safetensors:l.0.wieght", "did you mean 'l.0.weight'?"),
        ("model.safetensors", "there is no argument 'l.0.bias': the program has 0 (x), 1 (w), 2 (b)"),
        ("3=w.npy", "there is no argument 3"),
        ("b=w.npy", "argument 2 (b): expected float32[32], got float32[64,32]"),
    ],
)
def test_mistakes(text: str, words: str) -> None:
    assert words in call("run", "layer.mlir", "--random", "--constants", text, status=2)


def test_an_input_is_given_once() -> None:
    printed = call("run", "layer.mlir", "--random", "--constants", "w.npy", "--constants", "two.npz", status=2)
    assert "--constants two.npz: 'w' is given twice" in printed


def test_other_commands() -> None:
    assert "dot_general" in call("profile", "layer.mlir", "--random", "--repeat", "2", "--constants", "two.npz")
    plan = call("show", "layer.mlir", "--constants", "two.npz")
    assert "4x64xf32" in plan
    module = call("show", "layer.mlir", "--stage", "module", "--constants", "two.safetensors")
    assert "func.func @main(%x: tensor<4x64xf32>) ->" in module
    call("show", "layer.mlir", "--dump-dir", "stages", "--constants", "two.safetensors")
    found = json.loads(call("tune", "layer.mlir", "--random", "--seconds", "0.05", "--constants", "two.npz", "--json"))
    assert found["program"] == "layer.mlir"


def test_export(folder: Path) -> None:
    printed = call("export", "layer.mlir", "-o", "layer.so", "--constants", "two.safetensors", "--header", "layer.h")
    assert "x: f32[4, 64]" in printed and "w: f32" not in printed
    want = shlo_jit.compile(LAYER, constants={"w": W, "b": B})(X)
    np.testing.assert_array_equal(shlo_jit.load(folder / "layer.so")(X), want)
    printed = call("run", "layer.so", "--input", "x.npy", "--constants", "w.npy", status=2)
    assert "--constants: a library contains its constants" in printed


def test_export_of_several_functions(folder: Path) -> None:
    (folder / "both.mlir").write_text(LAYER + LAYER.replace("@main", "@other"))
    options = ["export", "both.mlir", "-o", "both.so", "--entry", "main", "--entry", "other"]
    printed = call(*options, "--constants", "w.npy", status=2)
    assert "several functions are exported: write @NAME:w.npy" in printed
    call(*options, "--constants", "@main:two.npz", "--constants", "@other:1=w.npy")
    main, other = (shlo_jit.load(folder / "both.so", name) for name in ("main", "other"))
    np.testing.assert_array_equal(main(X), other(X, B))


def test_export_for_several_shapes(folder: Path) -> None:
    text = """
    func.func @main(%w: tensor<?x64xf32>, %x: tensor<64x?xf32>) -> tensor<?x?xf32> {
      %0 = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<?x64xf32>, tensor<64x?xf32>) -> tensor<?x?xf32>
      return %0 : tensor<?x?xf32>
    }
    """
    (folder / "any.mlir").write_text(text)
    np.save(folder / "w.npy", W.T.copy())
    call("export", "any.mlir", "-o", "any.so", "--constants", "w.npy", "--shapes", "64x4xf32", "--shapes", "64x2xf32")
    library = shlo_jit.load(folder / "any.so")
    for n in (4, 2):
        np.testing.assert_allclose(library(X.T[:, :n].copy()), W.T @ X.T[:, :n], rtol=1e-4, atol=1e-4)
