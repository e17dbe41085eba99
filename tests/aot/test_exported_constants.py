"""Arguments that are given as constants of libraries, and of programs that several processes run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shlo_jit

N = 192
X, W, B = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((24, N), (N, N), (N,)))
LAYER = f"""
func.func @main(%x: tensor<24x{N}xf32>, %w: tensor<{N}x{N}xf32>, %b: tensor<{N}xf32>) -> tensor<24x{N}xf32> {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<24x{N}xf32>, tensor<{N}x{N}xf32>) -> tensor<24x{N}xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<{N}xf32>) -> tensor<24x{N}xf32>
  %2 = stablehlo.add %0, %1 : tensor<24x{N}xf32>
  return %2 : tensor<24x{N}xf32>
}}
func.func @twice(%x: tensor<24x{N}xf32>, %w: tensor<{N}x{N}xf32>, %b: tensor<{N}xf32>) -> tensor<24x{N}xf32> {{
  %0 = call @main(%x, %w, %b) : (tensor<24x{N}xf32>, tensor<{N}x{N}xf32>, tensor<{N}xf32>) -> tensor<24x{N}xf32>
  %1 = call @main(%0, %w, %b) : (tensor<24x{N}xf32>, tensor<{N}x{N}xf32>, tensor<{N}xf32>) -> tensor<24x{N}xf32>
  return %1 : tensor<24x{N}xf32>
}}
"""


@pytest.mark.parametrize("weights", ["embedded", "file"])
def test_the_library_contains_the_constants(weights: str, tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", W)
    array = np.load(tmp_path / "w.npy", mmap_mode="r")
    path = tmp_path / "layer.so"
    found = shlo_jit.export(LAYER, path, constants={"w": array, 2: B}, weights=weights, header=tmp_path / "layer.h")
    (tmp_path / "w.npy").unlink()
    kept = path if found.weights is None else found.weights
    assert kept.stat().st_size > W.nbytes
    library = shlo_jit.load(path)
    assert [port.name for port in library.inputs] == ["x"]
    want = shlo_jit.compile(LAYER, constants={"w": W, "b": B})(X)
    np.testing.assert_array_equal(library(X), want)
    assert "const float *w" not in (tmp_path / "layer.h").read_text()


def test_constants_of_several_functions(tmp_path: Path) -> None:
    given: dict[str, Any] = {"twice": {"w": W, "b": B}, "main": {"w": W}}
    shlo_jit.export(LAYER, tmp_path / "both.so", entry=["main", "twice"], constants=given, donate=[0])
    main, twice = (shlo_jit.load(tmp_path / "both.so", name) for name in ("main", "twice"))
    assert ([p.name for p in main.inputs], [p.name for p in twice.inputs]) == (["x", "b"], ["x"])
    once = main(X.copy(), B)
    np.testing.assert_allclose(once, X @ W + B, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(twice(X.copy()), once @ W + B, rtol=1e-3, atol=1e-2)
    # the weights of both are packed in the same way, and stored once
    assert (tmp_path / "both.so").stat().st_size < 1.8 * W.nbytes


def test_donated_arguments_are_those_of_the_program(tmp_path: Path) -> None:
    shlo_jit.export(LAYER, tmp_path / "a.so", constants={0: X}, donate=[2])
    found = shlo_jit.load(tmp_path / "a.so")(W, B)
    np.testing.assert_allclose(found, X @ W + B, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match=r"argument 2 \(b\) is a constant"):
        shlo_jit.export(LAYER, tmp_path / "a.so", constants={"b": B}, donate=[2])


def test_constants_of_sized_functions(tmp_path: Path) -> None:
    text = LAYER.partition("func.func @twice")[0].replace("24x", "?x")
    text = text.replace("%1 = stablehlo.broadcast_in_dim", "%unused = stablehlo.broadcast_in_dim")
    text = text.replace(
        f"tensor<{N}xf32>) -> tensor<?x{N}xf32>\n  %2", f"tensor<{N}xf32>) -> tensor<{N}x{N}xf32>\n  %2"
    )
    text = text.replace("%0, %1 :", "%0, %0 :")
    shlo_jit.export(text, tmp_path / "sized.so", constants={"w": W, "b": B}, shapes=[[(24, N)], [(8, N)]])
    library = shlo_jit.load(tmp_path / "sized.so")
    for x in (X, X[:8]):
        np.testing.assert_allclose(library(x), 2 * (x @ W), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("constants", "words"),
    [
        ({"w": W}, "dictionary of constants by function"),
        ({"third": {"w": W}}, "@third is not exported; expected one of @main, @twice"),
        ({"main": {"v": W}}, "no argument 'v'"),
        ({"main": {"w": W[1:]}}, r"argument 1 \(w\): expected"),
    ],
)
def test_refusals_of_an_export(constants: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        shlo_jit.export(LAYER, tmp_path / "a.so", entry=["main", "twice"], constants=constants)
    assert not [*tmp_path.glob("a*")]


GLOBAL = """
module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2]>
  func.func @main(%x: tensor<8xf32>, %w: tensor<8xf32>) -> tensor<8xf32> {
    %0 = sdy.manual_computation(%x, %w) in_shardings=[<@mesh, [{"a"}]>, <@mesh, [{"a"}]>] out_shardings=[<@mesh, [{"a"}]>] manual_axes={"a"} (%a: tensor<4xf32>, %b: tensor<4xf32>) {
      %1 = stablehlo.subtract %a, %b : tensor<4xf32>
      sdy.return %1 : tensor<4xf32>
    } : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""


def test_constants_of_programs_of_several_processes() -> None:
    x, w = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32)[::-1] ** 2
    with shlo_jit.compile(GLOBAL, constants={"w": w}, transport="threads") as exe:
        np.testing.assert_array_equal(exe(x), x - w)
    with shlo_jit.compile(LAYER, constants={"w": W, "b": B}, num_partitions=2, transport="threads") as exe:
        for found in exe([(X,), (X,)]):
            np.testing.assert_allclose(found, X @ W + B, rtol=1e-3, atol=1e-3)
