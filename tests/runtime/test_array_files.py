"""Files of arrays: what they contain, and that they are mapped."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir import digests
from shlo_jit.runtime import known_files, mapped_files
from shlo_jit.runtime.array_files import mapped_arrays

ARRAYS = {
    "w": np.arange(15, dtype=np.float32).reshape(3, 5),
    "empty": np.zeros((0, 3), np.int32),
    "scalar": np.array(2.5),
    "odd": np.arange(7, dtype=np.int8),
    "flags": np.array([True, False, True]),
}
SMALL = {
    "b": np.array([1.5, -2], ml_dtypes.bfloat16),
    "f": np.array([1.5, -2], ml_dtypes.float8_e4m3fn),
}


def base(array: np.ndarray) -> Any:
    while isinstance(array, np.ndarray):
        array = array.base
    return type(array).__name__


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "NPZ"])
def test_arrays_come_back(suffix: str, tmp_path: Path) -> None:
    found: dict[str, np.ndarray] = {}
    if suffix == "npy":
        for name, array in ARRAYS.items():
            np.save(tmp_path / f"{name}.npy", array)
            found |= mapped_arrays(tmp_path / f"{name}.npy")
    elif suffix == "safetensors":
        safetensors.numpy.save_file(ARRAYS | SMALL, tmp_path / "a.safetensors")
        found = mapped_arrays(str(tmp_path / "a.safetensors"))
    else:
        np.savez(tmp_path / "a.npz", **ARRAYS)
        (tmp_path / "a.npz").rename(tmp_path / f"b.{suffix}")
        found = mapped_arrays(tmp_path / f"b.{suffix}")
    want = ARRAYS | (SMALL if suffix == "safetensors" else {})
    assert found.keys() == want.keys()
    for name, array in want.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
        assert not found[name].flags.writeable
        assert (base(found[name]) == "mmap") == (suffix in ("npy", "safetensors"))


def test_raw_bytes_have_the_type_of_their_argument(tmp_path: Path) -> None:
    """numpy.save does not know the types of ml_dtypes."""
    text = "func.func @main(%x: tensor<2xbf16>) -> tensor<2xbf16> {\n  return %x : tensor<2xbf16>\n}"
    np.save(tmp_path / "x.npy", SMALL["b"])
    found = shlo_jit.compile(text, constants=mapped_arrays(tmp_path / "x.npy"))()
    assert found.tobytes() == SMALL["b"].tobytes()
    with pytest.raises(TypeError, match="argument 0"):
        shlo_jit.compile(text.replace("bf16", "f32"), constants=mapped_arrays(tmp_path / "x.npy"))


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors"])
@pytest.mark.parametrize("data", [b"", b"x", b"\x80\x04]\x94.", b"\xff" * 64, b"PK\x03\x04" + b"." * 50])
def test_damaged_files_are_refused(suffix: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"a\.{suffix}: not a"):
        mapped_arrays(path)
    with pytest.raises(OSError, match="No such file"):
        mapped_arrays(tmp_path / f"b.{suffix}")


def test_objects_are_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="not a .npy file of numbers"):
        mapped_arrays(tmp_path / "a.npy")


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **ARRAYS)
    for suffix, words in [("npy", "name it .npz"), ("pt", "ends in .npy, .npz, .safetensors")]:
        (tmp_path / f"a.{suffix}").write_bytes((tmp_path / "a.npz").read_bytes())
        with pytest.raises(ValueError, match=words):
            mapped_arrays(tmp_path / f"a.{suffix}")


def test_packed_elements_are_refused(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}'
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(ValueError, match="w has elements of type F4; expected one of BOOL"):
        mapped_arrays(tmp_path / "a.safetensors")


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    safetensors.numpy.save_file(ARRAYS, tmp_path / "a.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"need the library safetensors \(pip install safetensors, or shlo_jit"):
        mapped_arrays(tmp_path / "a.safetensors")


def test_weights_of_a_safetensors_file_are_read_in_place(tmp_path: Path) -> None:
    n = 192
    text = f"""
    func.func @main(%x: tensor<{n}xf32>, %w: tensor<{n}x{n}xf32>, %v: tensor<{n}x{n}xf32>) -> tensor<{n}xf32> {{
      %0 = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<{n}x{n}xf32>, tensor<{n}xf32>) -> tensor<{n}xf32>
      %1 = stablehlo.dot_general %v, %0, contracting_dims = [1] x [0] : (tensor<{n}x{n}xf32>, tensor<{n}xf32>) -> tensor<{n}xf32>
      return %1 : tensor<{n}xf32>
    }}
    """
    w, v = np.random.default_rng(0).standard_normal((2, n, n), np.float32)
    safetensors.numpy.save_file({"odd": np.ones(1, np.float32), "w": w, "v": v}, tmp_path / "a.safetensors")
    arrays = mapped_arrays(tmp_path / "a.safetensors")
    del arrays["odd"]
    exe = shlo_jit.compile(text, constants=arrays)
    addresses = {a.__array_interface__["data"][0] for a in arrays.values()}
    assert {r.address for r in exe._front.instance.loaded.constants} == addresses  # type: ignore[union-attr]
    x = np.ones(n, np.float32)
    np.testing.assert_allclose(exe(x), v @ (w @ x), rtol=1e-3, atol=1e-3)


N = 192
VECTOR = f"""
func.func @main(%x: tensor<{N}xf32>, %w: tensor<{N}x{N}xf32>) -> tensor<{N}xf32> {{
  %0 = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<{N}x{N}xf32>, tensor<{N}xf32>) -> tensor<{N}xf32>
  return %0 : tensor<{N}xf32>
}}
"""
WEIGHTS = np.random.default_rng(0).standard_normal((N, N)).astype(np.float32)
ONES = np.ones(N, np.float32)


@pytest.fixture
def hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the arrays that are hashed. Files count as settled, and as large."""
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "objects"))
    monkeypatch.setattr(mapped_files, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(known_files, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "KNOWN_FILE_BYTES", 0)
    sizes: list[int] = []
    content_digest = digests.content_digest
    monkeypatch.setattr(digests, "content_digest", lambda data: sizes.append(data.nbytes) or content_digest(data))
    return sizes


def write(path: Path, weights: np.ndarray) -> None:
    if path.suffix == ".npy":
        np.save(path, weights)
    else:
        safetensors.numpy.save_file({"w": weights, "small": np.ones(3, np.float32)}, path)


def compiled(path: Path, text: str = VECTOR, **options: Any) -> Any:
    return shlo_jit.compile(text, constants={"w": mapped_arrays(path)["w"]}, **options)


@pytest.mark.parametrize("name", ["w.npy", "w.safetensors"])
def test_later_processes_do_not_read_an_unchanged_file(name: str, tmp_path: Path, hashed: list[int]) -> None:
    write(tmp_path / name, WEIGHTS)
    want = compiled(tmp_path / name)(ONES)
    assert hashed.count(WEIGHTS.nbytes) == 1
    np.testing.assert_array_equal(compiled(tmp_path / name)(ONES), want)
    assert hashed.count(WEIGHTS.nbytes) == 1
    compiled(tmp_path / name, VECTOR.replace("%0", "%1"))  # the bytes are read, and so they are verified
    assert hashed.count(WEIGHTS.nbytes) == 2
    compiled(tmp_path / name, cache=False)
    assert hashed.count(WEIGHTS.nbytes) == 3


@pytest.mark.parametrize("name", ["w.npy", "w.safetensors"])
@pytest.mark.parametrize("how", ["written again", "another file", "another file, mapped before"])
def test_a_changed_file_is_read_again(name: str, how: str, tmp_path: Path, hashed: list[int]) -> None:
    write(tmp_path / name, WEIGHTS)
    compiled(tmp_path / name)
    before = mapped_arrays(tmp_path / name)["w"]
    if how != "written again":
        (tmp_path / name).unlink()
    write(tmp_path / name, 2 * WEIGHTS)
    want = shlo_jit.compile(VECTOR, constants={"w": 2 * WEIGHTS}, cache=False)(ONES)
    np.testing.assert_array_equal(compiled(tmp_path / name)(ONES), want)
    if how == "another file, mapped before":  # the memory has the bytes of the file that was there
        np.testing.assert_array_equal(2 * shlo_jit.compile(VECTOR, constants={"w": before})(ONES), want)
    np.testing.assert_array_equal(compiled(tmp_path / name)(ONES), want)


def test_a_change_that_the_times_do_not_show_is_noticed(
    tmp_path: Path, hashed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "w.npy", WEIGHTS)
    before = mapped_files.FileStatus.of(str(tmp_path / "w.npy"), os.stat(tmp_path / "w.npy"))
    compiled(tmp_path / "w.npy")
    write(tmp_path / "w.npy", 2 * WEIGHTS)
    monkeypatch.setattr(mapped_files.FileStatus, "of", lambda path, status: before)
    with pytest.raises(OSError, match="its time of modification has not"):
        compiled(tmp_path / "w.npy", VECTOR.replace("%0", "%1"))
    want = shlo_jit.compile(VECTOR, constants={"w": 2 * WEIGHTS}, cache=False)(ONES)
    np.testing.assert_array_equal(compiled(tmp_path / "w.npy", VECTOR.replace("%0", "%1"))(ONES), want)
