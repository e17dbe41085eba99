"""Arguments that are given as constants: which ones, what fits, and whose memory the program reads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir import digests
from shlo_jit.options import OptionError
from shlo_jit.runtime import mapped_files
from shlo_jit.schedule import convolution, products
from shlo_jit.text import printer

RANDOM = np.random.default_rng(0)
N = 192
"""Weights of this size are constants with a digest, which programs share."""
X, W, B = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((24, N), (N, N), (N,)))
LAYER = f"""
func.func @main(%x: tensor<24x{N}xf32>, %w: tensor<{N}x{N}xf32> loc("params['w']"), %b: tensor<{N}xf32>) -> tensor<24x{N}xf32> {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<24x{N}xf32>, tensor<{N}x{N}xf32>) -> tensor<24x{N}xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<{N}xf32>) -> tensor<24x{N}xf32>
  %2 = stablehlo.add %0, %1 : tensor<24x{N}xf32>
  return %2 : tensor<24x{N}xf32>
}}
"""
VECTOR = f"""
func.func @main(%x: tensor<{N}xf32>, %w: tensor<{N}x{N}xf32>) -> tensor<{N}xf32> {{
  %0 = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<{N}x{N}xf32>, tensor<{N}xf32>) -> tensor<{N}xf32>
  return %0 : tensor<{N}xf32>
}}
"""
"""Reads its matrix in place."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "objects"))


def residents(exe: Any) -> tuple[Any, ...]:
    return exe._front.instance.loaded.constants


# ---------------------------------------------------------------------- which arguments
@pytest.mark.parametrize(
    ("constants", "left"),
    [
        ({1: W}, ["x", "b"]),
        ({np.int64(1): W, 2: B}, ["x"]),
        ({"w": W}, ["x", "b"]),
        ({"%w": W, "b": B}, ["x"]),
        ({"params['w']": W}, ["x", "b"]),
        ({0: X}, ["params['w']", "b"]),
        ({0: X, "w": W, 2: B}, []),
        ({}, ["x", "params['w']", "b"]),
    ],
)
@pytest.mark.parametrize("form", ["text", "artifact", "module"])
def test_names_and_indices(constants: dict[Any, Any], left: list[str], form: str) -> None:
    module = shlo_jit.parse(LAYER)
    source = {"text": LAYER, "artifact": module.serialize(), "module": module}[form]
    if form == "artifact":  # those that we write have neither names of values nor locations
        constants = {{"b": 2}.get(key, 1) if isinstance(key, str) else key: a for key, a in constants.items()}
    want, arrays = shlo_jit.compile(LAYER, cache=False)(X, W, B), {"x": X, "params['w']": W, "b": B}
    for _ in range(2):  # the second time from the object cache
        exe = shlo_jit.compile(source, constants=constants)
        if form != "artifact":
            assert [port.name for port in exe.inputs] == left
        assert len(exe.inputs) == len(left)
        np.testing.assert_allclose(exe(*(arrays[name] for name in left)), want, rtol=1e-4, atol=1e-4)


NAMED = """
func.func @main(%arg0: tensor<2xf32> {jax.arg_info = "x"}, %arg1: tensor<2xf32> {tf.name = "kernel"},
                %arg2: tensor<2xf32> {mhlo.parameter_name = "bias"}, %y: tensor<2xf32> loc("z"), %z: tensor<2xf32>)
    -> tensor<2xf32> {
  %0 = stablehlo.multiply %arg0, %arg1 : tensor<2xf32>
  %1 = stablehlo.add %0, %arg2 : tensor<2xf32>
  %2 = stablehlo.subtract %1, %y : tensor<2xf32>
  %3 = stablehlo.divide %2, %z : tensor<2xf32>
  return %3 : tensor<2xf32>
}
"""


@pytest.mark.parametrize(
    ("key", "index"),
    [("x", 0), ("arg0", 0), ("kernel", 1), ("%arg1", 1), ("bias", 2), ("%y", 3), ("y", 3), ("%z", 4)],
)
def test_names_in_attributes_and_locations(key: str, index: int) -> None:
    arrays = [np.array([i + 1.0, 2 * i + 3], np.float32) for i in range(5)]
    want = shlo_jit.compile(NAMED)(*arrays)
    exe = shlo_jit.compile(NAMED, constants={key: arrays.pop(index)})
    np.testing.assert_array_equal(exe(*arrays), want)


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("constants", "kind", "code", "words"),
    [
        ({3: W}, ValueError, "argument.name", ["no argument 3", "0 (x)", "1 (params['w'])", "2 (b)"]),
        ({-1: W}, ValueError, "argument.name", ["no argument -1"]),
        ({"v": W}, ValueError, "argument.name", ["no argument 'v'", "0 (x)"]),
        ({"params['v']": W}, ValueError, "argument.name", ["did you mean 'params['w']'"]),
        ({1: W, "w": W}, ValueError, "argument.name", ["argument 1", "twice", "1 and 'w'"]),
        ({"w": W[1:]}, ValueError, "argument.shape", ["argument 1 (params['w'])", "192,192", "191,192"]),
        ({"w": 1.0}, ValueError, "argument.shape", ["the number 1.0"]),
        ({"w": W.astype(np.float64)}, TypeError, "argument.dtype", ["float32[192,192]", "float64[192,192]", "astype"]),
        ({"w": W.astype(">f8")}, TypeError, "argument.dtype", ["float64[192,192]"]),
        ({"w": np.full((N, N), None)}, TypeError, "argument.dtype", ["object[192,192]"]),
        ({"w": [[1.0]]}, TypeError, "argument.kind", ["got list", "numpy.asarray"]),
        ({"w": "w.npy"}, TypeError, "argument.kind", ["numpy.load"]),
        ({"w": np.ma.masked_array(W, W > 0)}, TypeError, "argument.kind", ["masked", "filled"]),
        ({True: W}, TypeError, "option.kind", ["index or name", "True"]),
        ({None: W}, TypeError, "option.kind", ["index or name", "None"]),
        ([W], TypeError, "option.kind", ["dictionary", "list"]),
    ],
)
def test_refusals(constants: Any, kind: type[Exception], code: str, words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        shlo_jit.compile(LAYER, constants=constants)
    assert caught.value.code == code  # type: ignore[attr-defined]
    assert str(caught.value).startswith("constants: ")
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_name_of_two_arguments_is_ambiguous() -> None:
    with pytest.raises(ValueError, match=r"'z' is the name of several arguments: 3 \(%y\), 4 \(%z\); use the index"):
        shlo_jit.compile(NAMED, constants={"z": np.ones(2, np.float32)})


def test_tuples_are_refused_and_tokens_do_not_count() -> None:
    text = """
    func.func @main(%t: !stablehlo.token, %p: tuple<tensor<2xf32>, tensor<3xf32>>, %y: tensor<2xf32>) -> tensor<2xf32> {
      %a = stablehlo.get_tuple_element %p[0] : (tuple<tensor<2xf32>, tensor<3xf32>>) -> tensor<2xf32>
      %0 = stablehlo.subtract %a, %y : tensor<2xf32>
      return %0 : tensor<2xf32>
    }
    """
    y = np.ones(2, np.float32)
    for key in (2, "y"):
        exe = shlo_jit.compile(text, constants={key: y})
        np.testing.assert_array_equal(exe(3 * y, np.ones(3, np.float32)), 2 * y)
    for key in (0, 1, "p"):
        with pytest.raises(TypeError, match="is of type tuple"):
            shlo_jit.compile(text, constants={key: y})


def test_indices_of_donated_arguments_are_those_of_the_program() -> None:
    text = """
    func.func @main(%x: tensor<4096xf32>, %w: tensor<4096xf32>, %y: tensor<4096xf32>) -> tensor<4096xf32> {
      %0 = stablehlo.add %x, %w : tensor<4096xf32>
      %1 = stablehlo.add %0, %y : tensor<4096xf32>
      return %1 : tensor<4096xf32>
    }
    """
    ones = np.ones(4096, np.float32)
    for key in (1, "w"):
        exe = shlo_jit.compile(text, constants={key: ones}, donate=[2])
        x, y = ones.copy(), ones.copy()
        assert exe(x, y) is y
        np.testing.assert_array_equal(y, 3 * ones)
        with pytest.raises(OptionError, match=r"argument 1 \(w\) is a constant"):
            shlo_jit.compile(text, constants={key: ones}, donate=[1, 2])
    aliased = text.replace("%w: tensor<4096xf32>", "%w: tensor<4096xf32> {tf.aliasing_output = 0 : i32}")
    exe = shlo_jit.compile(aliased, constants={"w": ones}, donate="program")
    np.testing.assert_array_equal(exe(ones, ones), 3 * ones)
    np.testing.assert_array_equal(ones, 1)


# ---------------------------------------------------------------------- kinds of arrays
@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(W),
        np.ascontiguousarray(W.T).T,
        np.repeat(W, 2, axis=0)[::2],
        W[::-1, ::-1][::-1, ::-1],
        W.astype(">f4"),
        np.frombuffer(W.tobytes(), np.float32).reshape(N, N),
        np.frombuffer(b"." + W.tobytes(), np.uint8)[1:].view(np.float32).reshape(N, N),
        np.ma.masked_array(W),
    ],
    ids="fortran transposed strided reversed big-endian bytes misaligned unmasked".split(),
)
def test_layouts(array: np.ndarray) -> None:
    exe = shlo_jit.compile(LAYER, constants={"w": array, "b": B})
    np.testing.assert_array_equal(exe(X), shlo_jit.compile(LAYER, constants={"w": W, "b": B}, cache=False)(X))


@pytest.mark.parametrize("name", "bf16 f16 f8E4M3FN f8E5M2 f4E2M1FN i2 i4 ui4 i8 ui64 i1 complex<f64>".split())
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 5), (300, 301)])
def test_element_types(name: str, shape: tuple[int, ...]) -> None:
    dtype = shlo_jit.infer("abs", [f"tensor<{name}>"])[0].storage.numpy if name == "f16" else None
    dtype = dtype or {"bf16": ml_dtypes.bfloat16, "i1": bool, "ui64": np.uint64, "i8": np.int8}.get(name)
    small = {"f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f4E2M1FN": "float4_e2m1fn"}
    small |= {"i2": "int2", "i4": "int4", "ui4": "uint4"}
    dtype = dtype or (np.complex128 if name == "complex<f64>" else getattr(ml_dtypes, small[name]))
    type = f"tensor<{''.join(f'{n}x' for n in shape)}{name}>"
    text = f"func.func @main(%x: {type}) -> {type} {{\n  return %x : {type}\n}}"
    array = RANDOM.integers(0, 2, shape).astype(dtype)
    found = shlo_jit.compile(text, constants={"x": array})()
    assert found.dtype == array.dtype and found.tobytes() == array.tobytes()
    assert not np.shares_memory(found, array)


def test_numbers_and_splats() -> None:
    text = """
    func.func @main(%x: tensor<1000x1000xf32>, %w: tensor<1000x1000xf32>, %s: tensor<f32>) -> tensor<1000x1000xf32> {
      %0 = stablehlo.add %x, %w : tensor<1000x1000xf32>
      %1 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<1000x1000xf32>
      %2 = stablehlo.multiply %0, %1 : tensor<1000x1000xf32>
      return %2 : tensor<1000x1000xf32>
    }
    """
    ones = np.ones((1000, 1000), np.float32)
    exe = shlo_jit.compile(text, constants={"w": np.broadcast_to(np.float32(1.5), ones.shape), "s": 2})
    np.testing.assert_array_equal(exe(ones), 5 * ones)
    assert exe.memory.constants < 1000
    with pytest.raises(ValueError, match="out of range"):
        shlo_jit.compile(text, constants={"s": 1e60})
    # numbers that are equal to Python are different constants
    halves = [
        shlo_jit.compile(text, constants={"s": s, "w": ones})(ones)[0, 0] for s in (0.0, -0.0, True, np.float32(3))
    ]
    assert [str(x) for x in halves] == ["0.0", "-0.0", "2.0", "6.0"]


def test_booleans_have_one_byte_pattern() -> None:
    text = "func.func @main(%x: tensor<4xi1>) -> tensor<4xi1> {\n  return %x : tensor<4xi1>\n}"
    array = np.frombuffer(bytes([0, 1, 2, 255]), np.uint8).view(bool)
    assert shlo_jit.compile(text, constants={0: array})().tobytes() == bytes([0, 1, 1, 1])


# ---------------------------------------------------------------------- memory and sharing
def test_later_changes_of_an_array_have_no_effect() -> None:
    for flag in (True, False):
        array = W.copy()
        view = array.view()
        view.flags.writeable = flag
        exe = shlo_jit.compile(VECTOR, constants={"w": view})
        before = exe(X[0])
        array[...] = 0
        np.testing.assert_array_equal(exe(X[0]), before)
        np.testing.assert_allclose(before, W @ X[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(shlo_jit.compile(VECTOR, constants={"w": array})(X[0]), 0)
        assert exe.text("lowered")


def sealed() -> np.ndarray:
    array = W.copy()
    array.flags.writeable = False
    return array


def mapped(path: Path, array: np.ndarray = W, offset: int = 0) -> np.ndarray:
    """Returns a mapped array that begins `offset` bytes after a page."""
    path.write_bytes(bytes(offset) + array.tobytes())
    return np.memmap(path, array.dtype, "r", offset, array.shape)


@pytest.mark.parametrize("kind", ["sealed", "bytes", "mapped", "mapped at 8", "part of a mapped file"])
def test_memory_that_nobody_changes_is_read_in_place(kind: str, tmp_path: Path) -> None:
    array = {
        "sealed": sealed,
        "bytes": lambda: np.frombuffer(W.tobytes(), np.float32).reshape(N, N),
        "mapped": lambda: mapped(tmp_path / "w"),
        "mapped at 8": lambda: mapped(tmp_path / "w", offset=8),
        "part of a mapped file": lambda: mapped(tmp_path / "w", np.concatenate([B[None], W, W]))[1 : N + 1],
    }[kind]()
    exe = shlo_jit.compile(VECTOR, constants={"w": array})
    again = shlo_jit.compile(VECTOR, constants={"w": array})
    other = shlo_jit.compile(VECTOR.replace("dot_general %w, %x", "dot_general %w, %x "), constants={1: array})
    for found in (exe, again, other):
        assert {r.address for r in residents(found)} == {array.__array_interface__["data"][0]}
        np.testing.assert_allclose(found(X[0]), W @ X[0], rtol=1e-4, atol=1e-4)
    assert not [*Path(os.environ["SHLO_JIT_CACHE_DIR"]).glob("constant-*")]


def test_a_writable_mapped_file_is_copied(tmp_path: Path) -> None:
    mapped(tmp_path / "w")
    array = np.memmap(tmp_path / "w", np.float32, "r+", 0, W.shape)
    exe = shlo_jit.compile(VECTOR, constants={"w": array})
    array[...] = 0
    np.testing.assert_allclose(exe(X[0]), W @ X[0], rtol=1e-4, atol=1e-4)


PROCESS = """
import numpy as np, shlo_jit
def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024
n = 4096
text = f'''func.func @main(%x: tensor<{n}xf32>, %w: tensor<{n}x{n}xf32>) -> tensor<{n}xf32> {{
  %0 = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<{n}x{n}xf32>, tensor<{n}xf32>) -> tensor<{n}xf32>
  return %0 : tensor<{n}xf32>
}}'''
small = text.replace(str(n), "64")
shlo_jit.compile(small, constants={"w": np.ones((64, 64), np.float32)}, threads=1)
before = anonymous()
array = np.load("FILE", mmap_mode="r")
exe = shlo_jit.compile(text, constants={"w": array}, threads=1)
exe(np.ones(n, np.float32))
print(anonymous() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the memory of a process from /proc")
def test_resident_memory_does_not_grow_by_a_mapped_file(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.ones((4096, 4096), np.float32))
    for _ in range(2):  # compiled, and from the object cache
        found = subprocess.run(
            [sys.executable, "-c", PROCESS.replace("FILE", str(tmp_path / "w.npy"))],
            capture_output=True,
            text=True,
            check=True,
        )
        assert float(found.stdout) < 32, "the file has 64 MiB"


def test_weights_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    pack = products.prepack
    monkeypatch.setattr(products, "prepack", lambda *args: packed.append(1) or pack(*args))
    array = W + 2  # no other program has packed them
    array.flags.writeable = False
    exes = [shlo_jit.compile(LAYER, constants={"w": array})]
    exes.append(shlo_jit.compile(LAYER, constants={"w": array.copy(), "b": B}))
    exes.append(shlo_jit.compile(LAYER.replace("24x", "32x"), constants={1: array}))
    exes.append(shlo_jit.compile(LAYER, constants={"w": array}))
    assert len(packed) == 1
    assert len({r for exe in exes for r in residents(exe) if r.data.nbytes >= W.nbytes}) == 1
    del exes
    gc.collect()
    shlo_jit.compile(LAYER.replace("24x", "40x"), constants={1: array})
    assert len(packed) == 2


def test_text_and_given_arrays_share_constants() -> None:
    literal = f'%w = stablehlo.constant dense<"0x{W.tobytes().hex()}"> : tensor<{N}x{N}xf32>'
    text = VECTOR.replace(f", %w: tensor<{N}x{N}xf32>", "").replace("%0 =", f"{literal}\n  %0 =")
    first, second = shlo_jit.compile(text), shlo_jit.compile(VECTOR, constants={"w": W})
    assert residents(first) == residents(second)
    lowered = [exe.text("lowered") for exe in (first, second)]
    assert lowered[0] == lowered[1]


def test_bytes_are_hashed_once_and_never_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hashed: list[int] = []
    content_digest = digests.content_digest
    monkeypatch.setattr(digests, "content_digest", lambda data: hashed.append(data.nbytes) or content_digest(data))
    printed: list[Any] = []
    print_module = printer.print_module
    monkeypatch.setattr(printer, "print_module", lambda module: printed.append(1) or print_module(module))
    array = mapped(tmp_path / "w")
    os.utime(tmp_path / "w", (1e9, 1e9))
    monkeypatch.setattr(mapped_files, "SETTLED_SECONDS", 0.0)
    for text in (LAYER, LAYER.replace("24x", "32x"), VECTOR):
        shlo_jit.compile(text, constants={"w": array})
    assert hashed.count(W.nbytes) == 1
    assert not printed


# ---------------------------------------------------------------------- the object cache
def test_the_key_changes_with_the_bytes() -> None:
    results = []
    for value in (1, 2, 1):
        exe = shlo_jit.compile(VECTOR, constants={"w": np.full((N, N), value, np.float32)})
        results.append(exe(np.ones(N, np.float32))[0])
    assert results == [N, 2 * N, N]


@pytest.mark.parametrize("settled", [0.0, 2.0])
@pytest.mark.parametrize("text", [VECTOR, LAYER])
def test_a_changed_file_has_new_constants(
    settled: float, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within one mapping, and while an older program still reads it."""
    monkeypatch.setattr(mapped_files, "SETTLED_SECONDS", settled)
    array = mapped(tmp_path / "w", W)
    arguments = (X[0],) if text is VECTOR else (X, B)
    first = shlo_jit.compile(text, constants={"w": array})
    want = first(*arguments)
    with open(tmp_path / "w", "r+b") as file:
        file.write((2 * W).tobytes())
    os.utime(tmp_path / "w", ns=(10**18, 10**18))
    second = shlo_jit.compile(text, constants={"w": array})
    both = shlo_jit.compile(text, constants={"w": 2 * W}, cache=False)(*arguments)
    np.testing.assert_array_equal(second(*arguments), both)
    # the digest of the old bytes does not lead to the memory, which has new ones
    old = shlo_jit.compile(text, constants={"w": W})
    np.testing.assert_array_equal(old(*arguments), want)


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = W + 1  # no other program has packed them
    array = mapped(tmp_path / "w", weights)
    pack = products.prepack

    def packed(*args: Any) -> np.ndarray:
        os.utime(tmp_path / "w", (1e9, 1e9))
        return pack(*args)

    monkeypatch.setattr(products, "prepack", packed)
    with pytest.raises(OSError, match="has changed while it was compiled") as caught:
        shlo_jit.compile(LAYER, constants={"w": array})
    assert caught.value.filename == str(tmp_path / "w")
    monkeypatch.undo()
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "objects"))
    assert not [*(tmp_path / "objects").glob("constant-*")]
    os.remove(tmp_path / "w")  # the memory stays
    exe = shlo_jit.compile(LAYER, constants={"w": array, "b": B})
    np.testing.assert_allclose(exe(X), X @ weights + B, rtol=1e-3, atol=1e-3)


def test_constants_do_not_stay_in_memory() -> None:
    array = sealed()
    exe = shlo_jit.compile(LAYER, constants={"w": array})
    kept = residents(exe)[0].data.nbytes
    assert kept >= W.nbytes
    digest = digests.digest(array)
    del exe, array
    gc.collect()
    from shlo_jit.runtime import constants

    assert digest not in constants._brought and digest not in constants._residents


def test_kernels_of_convolutions_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    func.func @main(%x: tensor<BATCHx16x16x64xf32>, %k: tensor<3x3x64x64xf32>) -> tensor<BATCHx16x16x64xf32> {
      %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<BATCHx16x16x64xf32>, tensor<3x3x64x64xf32>) -> tensor<BATCHx16x16x64xf32>
      return %0 : tensor<BATCHx16x16x64xf32>
    }
    """
    packed: list[int] = []
    pack = convolution.prepack_kernel
    monkeypatch.setattr(convolution, "prepack_kernel", lambda *args: packed.append(1) or pack(*args))
    x = RANDOM.integers(-4, 4, (2, 16, 16, 64)).astype(np.float32)
    kernel = RANDOM.integers(-4, 4, (3, 3, 64, 64)).astype(np.float32)
    want = shlo_jit.compile(text.replace("BATCH", "2"), cache=False)(x, kernel)
    assert not packed
    exes = [shlo_jit.compile(text.replace("BATCH", n), constants={"k": kernel}) for n in ("2", "1", "2")]
    for exe, part in zip(exes, (x, x[:1], x), strict=True):
        np.testing.assert_array_equal(exe(part), want[: len(part)])
    assert len(packed) == 1


def test_folded_scales_are_computed_from_given_weights() -> None:
    text = f"""
    func.func @main(%x: tensor<24x{N}xf32>, %w: tensor<{N}x{N}xf32>, %s: tensor<{N}xf32>) -> tensor<24x{N}xf32> {{
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<24x{N}xf32>, tensor<{N}x{N}xf32>) -> tensor<24x{N}xf32>
      %1 = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<{N}xf32>) -> tensor<24x{N}xf32>
      %2 = stablehlo.multiply %0, %1 : tensor<24x{N}xf32>
      return %2 : tensor<24x{N}xf32>
    }}
    """
    scales = np.exp2(RANDOM.integers(-3, 3, N)).astype(np.float32)  # exact
    exe = shlo_jit.compile(text, constants={"w": W, "s": scales}, fold_scales=True)
    assert "multiply" not in exe.text("core")  # type: ignore[call-arg]
    np.testing.assert_array_equal(exe(X), shlo_jit.compile(text, cache=False)(X, W, scales))
