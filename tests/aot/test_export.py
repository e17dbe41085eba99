"""Libraries: files, headers, symbols, and that they compute what compiled programs do."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from building import (
    AFFINE,
    AFFINE_HOST,
    CUSTOM,
    Host,
    affine_arguments,
    build,
    chain,
    exported,
    inputs,
    needs_cc,
    run,
    same,
)

import shlo_jit
from shlo_jit import examples

needs_cxx = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
needs_readelf = pytest.mark.skipif(shutil.which("readelf") is None, reason="no binutils")


# ---------------------------------------------------------------------- the same results
@pytest.mark.parametrize("ending", [".so", ".o"])
@pytest.mark.parametrize("name", examples.names())
def test_same_bits_as_compiled(name: str, ending: str, tmp_path: Path) -> None:
    loaded = shlo_jit.load(exported(examples.path(name), tmp_path, ending))
    compiled = shlo_jit.compile(examples.path(name))
    arguments = inputs(compiled)
    assert same(loaded(*arguments), compiled(*arguments))
    assert (loaded.inputs, loaded.outputs) == (compiled.inputs, compiled.outputs)
    assert loaded.memory.constants == compiled.memory.constants


@pytest.mark.parametrize("weights", ["embedded", "file"])
@pytest.mark.parametrize("ending", [".so", ".o"])
def test_weights(weights: str, ending: str, tmp_path: Path) -> None:
    path = exported(chain(160), tmp_path, ending, weights=weights)
    assert (tmp_path / "model.weights").exists() == (weights == "file")
    loaded, compiled = shlo_jit.load(path), shlo_jit.compile(chain(160))
    assert same(loaded(*inputs(loaded)), compiled(*inputs(loaded)))
    assert loaded.memory.constants == 2 * 160 * 160 * 4


@pytest.mark.parametrize("threads", [True, False])
def test_threads(threads: bool, tmp_path: Path) -> None:
    path = exported(chain(320), tmp_path, threads=threads)
    compiled = shlo_jit.compile(chain(320), threads=1)
    time.sleep(0.1)  # a joined thread may still be listed for a moment
    before = len(os.listdir("/proc/self/task"))
    for count in (1, 3):
        loaded = shlo_jit.load(path, threads=count)
        assert len(os.listdir("/proc/self/task")) == before + (count - 1) * threads
        assert same(loaded(*inputs(loaded)), compiled(*inputs(loaded)))
        del loaded
        gc.collect()
        assert len(os.listdir("/proc/self/task")) == before


def test_several_targets(tmp_path: Path) -> None:
    path = exported(chain(160), tmp_path, target="x86-64-v2,x86-64-v3")
    loaded = shlo_jit.load(path)
    best = shlo_jit.compile(chain(160), target="x86-64-v3")
    assert same(loaded(*inputs(loaded)), best(*inputs(loaded)))


def test_several_functions(tmp_path: Path) -> None:
    text = """
    func.func @double(%x: tensor<3xf32>) -> tensor<3xf32> {
      %y = stablehlo.add %x, %x : tensor<3xf32>
      return %y : tensor<3xf32>
    }
    func.func @create(%x: tensor<2xi32>, %y: tensor<2xi32>) -> tensor<2xi32> {
      %z = stablehlo.multiply %x, %y : tensor<2xi32>
      return %z : tensor<2xi32>
    }
    """
    path = exported(text, tmp_path, entry=["double", "create"])
    x = np.array([3, 4], np.int32)
    assert shlo_jit.load(path, "double")(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    assert shlo_jit.load(path, entry="create")(x, x).tolist() == [9, 16]
    header = (tmp_path / "model.h").read_text()
    assert "model_double(" in header
    assert "model_create_(" in header  # `create` is a function of the interface
    with pytest.raises(shlo_jit.LibraryError, match=r"@main.*@double, @create"):
        shlo_jit.load(path)


def test_random_state_is_the_instances(tmp_path: Path) -> None:
    text = """
    func.func @main() -> tensor<4xf32> {
      %a = stablehlo.constant dense<0.0> : tensor<f32>
      %b = stablehlo.constant dense<1.0> : tensor<f32>
      %n = stablehlo.constant dense<4> : tensor<1xi64>
      %r = stablehlo.rng %a, %b, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
      return %r : tensor<4xf32>
    }
    """
    path = exported(text, tmp_path)
    first, second = shlo_jit.load(path), shlo_jit.load(path)
    one, two = first(), first()
    assert not same(one, two)
    assert same(second(), one)
    assert same(shlo_jit.compile(text)(), one)


def test_lapack(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    text = """
    func.func @main(%a: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<i32>) {
      %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a) {mhlo.backend_config = {uplo = 76 : ui8}}
        : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<i32>)
      return %0#0, %0#1 : tensor<8x8xf32>, tensor<i32>
    }
    """
    r = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    spd = r @ r.T + np.eye(8, dtype=np.float32)
    for ending in (".so", ".o"):
        path = exported(text, tmp_path, ending)
        assert same(shlo_jit.load(path)(spd), shlo_jit.compile(text)(spd))
    assert "-llapack" in (tmp_path / "model.h").read_text()


def test_donated_arguments(tmp_path: Path) -> None:
    text = """
    func.func @main(%cache: tensor<1000xf32>, %x: tensor<1xf32>, %at: tensor<i32>) -> tensor<1000xf32> {
      %0 = stablehlo.dynamic_update_slice %cache, %x, %at
        : (tensor<1000xf32>, tensor<1xf32>, tensor<i32>) -> tensor<1000xf32>
      return %0 : tensor<1000xf32>
    }
    """
    loaded = shlo_jit.load(exported(text, tmp_path, donate=[0]))
    cache = np.zeros(1000, np.float32)
    result = loaded(cache, np.ones(1, np.float32), np.int32(7))
    assert np.shares_memory(result, cache)
    assert result[7] == 1 == result.sum()
    header = (tmp_path / "model.h").read_text()
    assert re.search(r"\n    float \*cache,|, float \*cache,", header)
    assert "the same pointer as cache" in header


# ---------------------------------------------------------------------- custom calls
@pytest.mark.parametrize("ending", [".so", ".o"])
def test_custom_calls_in_python(ending: str, tmp_path: Path) -> None:
    path = exported(CUSTOM, tmp_path, ending, custom_calls=["my.op", "other"])
    calls = {"my.op": lambda x: x + 1, "other": lambda x, factor: x * factor}
    x = np.arange(4, dtype=np.float32)
    assert shlo_jit.load(path, custom_calls=calls)(x).tolist() == [3, 6, 9, 12]

    def fails(x):
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError, match="no"):
        shlo_jit.load(path, custom_calls={**calls, "other": fails})(x)
    with pytest.raises(shlo_jit.ExecutionError, match=r"'my.op'.*registered"):
        shlo_jit.load(path)


@needs_cc
def test_custom_calls_in_c(tmp_path: Path) -> None:
    exported(CUSTOM, tmp_path, ".a", custom_calls=["my.op", "other"])
    (tmp_path / "main.c").write_text(CUSTOM_HOST)
    run([build(tmp_path / "main.c", tmp_path / "main", tmp_path / "model.a")])


CUSTOM_HOST = """
#include "model.h"

int32_t my_op(void **operands, void **results) {
  for (int i = 0; i < 4; i++) ((float *)results[0])[i] = ((float *)operands[0])[i] + 1;
  return 0;
}

static int refuse;

int32_t other(void **operands, void **results) {
  for (int i = 0; i < 4; i++) ((float *)results[0])[i] = ((float *)operands[0])[i] * 3;
  return refuse;
}

static int32_t by_number(void *context, int64_t number, void *const *operands, void *const *results) {
  ++*(int *)context;
  for (int i = 0; i < 4; i++) ((float *)results[0])[i] = ((const float *)operands[0])[i] + (float)number;
  return 0;
}

int main(void) {
  model_instance *instance;
  float x[4] = {0, 1, 2, 3}, y[4];
  int count = 0;
  if (model_create(&instance, 0) || model_failed_call(instance) != -1) return 1;
  if (model_main(instance, x, y) || y[0] != 3 || y[3] != 12) return 2;
  refuse = 5;
  if (model_main(instance, x, y) != SHLO_CALL_FAILED || model_failed_call(instance) != 1) return 3;
  model_set_callback(instance, by_number, &count);
  if (model_main(instance, x, y) || y[0] != 1 || y[3] != 4 || count != 2) return 4;
  model_set_callback(instance, 0, 0);
  refuse = 0;
  if (model_main(instance, x, y) || y[3] != 12) return 5;
  model_destroy(instance);
  return 0;
}
"""


# ---------------------------------------------------------------------- C
@needs_cc
@pytest.mark.parametrize("ending", [".so", ".o", ".a"])
def test_c_program(ending: str, tmp_path: Path) -> None:
    library = exported(AFFINE, tmp_path, ending)
    (tmp_path / "main.c").write_text(AFFINE_HOST)
    run([build(tmp_path / "main.c", tmp_path / "main", library, f"-Wl,-rpath,{tmp_path}")])


@needs_cxx
def test_header_is_cpp(tmp_path: Path) -> None:
    library = exported(AFFINE, tmp_path, ".a")
    (tmp_path / "main.cc").write_text(AFFINE_HOST)
    run([build(tmp_path / "main.cc", tmp_path / "main", library, "-Wpedantic", compiler="c++")])


@needs_cc
def test_two_libraries_in_one_program(tmp_path: Path) -> None:
    exported(chain(64), tmp_path, ".a", name="model", target="x86-64-v3")
    shlo_jit.export(AFFINE, tmp_path / "other.a", header=tmp_path / "other.h", target="x86-64-v2")
    (tmp_path / "main.c").write_text("""
#include "model.h"
#include "other.h"
int main(void) {
  model_instance *a;
  other_instance *b;
  int status = model_create(&a, 0) || other_create(&b, 0);
  model_destroy(a);
  other_destroy(b);
  return status;
}
""")
    run([build(tmp_path / "main.c", tmp_path / "main", tmp_path / "model.a", tmp_path / "other.a", "-lm", "-lpthread")])


@needs_cc
def test_generic_interface(tmp_path: Path) -> None:
    """A host that does not know the program, with the system's memory and with its own."""
    path = exported(chain(160), tmp_path)
    host, compiled = Host(tmp_path, tmp_path / "model.h"), shlo_jit.compile(chain(160))
    arguments = inputs(compiled)
    for environment in ({}, {"HOST_MEMORY": "1"}):
        got = host.call(path, "model", arguments, compiled.outputs, calls=3, **environment)
        assert same(got, compiled(*arguments))


@needs_cc
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_no_leak_and_no_wrong_access(tmp_path: Path) -> None:
    path = exported(chain(96), tmp_path, target="x86-64-v3")  # valgrind does not support AVX-512
    host, compiled = Host(tmp_path, tmp_path / "model.h"), shlo_jit.compile(chain(96), target="x86-64-v3")
    arguments = inputs(compiled)
    valgrind = ["valgrind", "-q", "--leak-check=full", "--error-exitcode=9"]
    got = host.call(path, "model", arguments, compiled.outputs, calls=2, under=valgrind, HOST_ROUNDS="2")
    assert same(got, compiled(*arguments))


@needs_cc
def test_loading_and_unloading(tmp_path: Path) -> None:
    """Loads and unloads a thousand times: threads and memory are released (otherwise the host would run out of
    them)."""
    path = exported(chain(160), tmp_path, weights="file")
    compiled = shlo_jit.compile(chain(160))
    host = Host(tmp_path, tmp_path / "model.h")
    got = host.call(path, "model", inputs(compiled), compiled.outputs, threads=4, HOST_ROUNDS="1000")
    assert same(got, compiled(*inputs(compiled)))


ALLOCATING = ("malloc", "calloc", "free", "mmap", "munmap", "madvise", "pthread_create", "open", "sched_getaffinity")
COUNTING_HOST = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>

int counting, count;
{wrappers}

int main(void) {{
  static _Alignas(64) float x[320 * 320], y[320], z[320 * 320];
  model_instance *instance;
  shlo_options options = {{.bytes = sizeof options, .threads = 3}};
  if (model_create(&instance, &options)) return 1;
  counting = 1;
  for (int i = 0; i < 3; i++)
    if (model_main(instance, x, y, z)) return 2;
  counting = 0;
  int during_calls = count;
  counting = 1;
  model_destroy(instance);
  return during_calls ? 3 : count ? 0 : 4; /* the wrappers do count */
}}
"""
WRAPPER = """
long __real_{0}(long, long, long, long, long, long);
long __wrap_{0}(long a, long b, long c, long d, long e, long f);
long __wrap_{0}(long a, long b, long c, long d, long e, long f) {{
  count += counting;
  return __real_{0}(a, b, c, d, e, f);
}}
"""


@needs_cc
def test_a_call_allocates_nothing(tmp_path: Path) -> None:
    """Calls allocate neither memory nor threads, from the first one on."""
    library = exported(chain(320), tmp_path, ".a")
    wrappers = "".join(WRAPPER.format(name) for name in ALLOCATING)
    (tmp_path / "main.c").write_text(COUNTING_HOST.format(wrappers=wrappers))
    flags = [f"-Wl,--wrap={name}" for name in ALLOCATING]
    run([build(tmp_path / "main.c", tmp_path / "main", library, *flags, "-lm", "-lpthread")])


# ---------------------------------------------------------------------- what is in the file
@needs_readelf
def test_symbols_and_needs(tmp_path: Path) -> None:
    path = exported(chain(320), tmp_path, name="net")
    symbols = run(["nm", "-D", "--defined-only", path]).stdout.split("\n")
    names = {line.split()[-1] for line in symbols if line}
    header = (tmp_path / "model.h").read_text()
    assert names and all(name.startswith("net_") for name in names)
    assert names - {"net_set_symbol", "net_set_callback", "net_failed_call"} == {
        n for n in re.findall(r"\b(net_\w+)\(", header)
    }
    dynamic = run(["readelf", "-d", path]).stdout
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    assert set(needed) <= {"libc.so.6", "libm.so.6"}
    assert "INIT" not in dynamic  # nothing runs when the library is loaded
    assert "TEXTREL" not in dynamic


@needs_readelf
def test_stripped_library_still_loads(tmp_path: Path) -> None:
    path = exported(AFFINE, tmp_path)
    run(["strip", path])
    assert shlo_jit.load(path)(*affine_arguments())[0].tolist() == [1, 3, 5, 7]


@pytest.mark.skipif(shutil.which("ld") is None, reason="no linker")
def test_bare_object_needs_nothing(tmp_path: Path) -> None:
    """A host without an operating system: `ld` resolves everything without any library."""
    path = exported(AFFINE, tmp_path, ".o", target="x86_64-none:x86-64-v2")
    run(["ld", "-shared", "--no-undefined", path, "-o", tmp_path / "bare.so"])


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_text("before")
    with pytest.raises(shlo_jit.StableHLOError):
        shlo_jit.export("func.func @main() -> tensor<f32> { }", path)
    with pytest.raises(shlo_jit.ExportError, match="no-such-linker"):
        shlo_jit.export(AFFINE, path, linker="no-such-linker")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        shlo_jit.export(AFFINE, path, header=tmp_path / "nowhere" / "model.h")
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["model.so"]


# ---------------------------------------------------------------------- statuses
def c_library(path: Path, name: str = "model") -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for function in ("create", "set_threads", "main", "call"):
        getattr(library, f"{name}_{function}").restype = ctypes.c_int32
    status_text = getattr(library, f"{name}_status_text")
    status_text.restype = ctypes.c_char_p
    getattr(library, f"{name}_memory_bytes").restype = ctypes.c_uint64
    return library


def test_statuses(tmp_path: Path) -> None:
    library = c_library(exported(AFFINE, tmp_path))
    pointer = ctypes.c_void_p()
    assert library.model_create(None, None) == 6
    assert library.model_create(ctypes.byref(pointer), None) == 0
    x, w = (np.ascontiguousarray(a) for a in affine_arguments())
    y, i = np.zeros(5, np.float32), np.zeros(1, np.int32)
    at = [ctypes.c_void_p(a.ctypes.data) for a in (x, w, y, i)]
    assert library.model_main(pointer, *at) == 0
    assert library.model_main(None, *at) == 6
    assert library.model_main(pointer, None, *at[1:]) == 6
    assert library.model_main(pointer, *at[:2], ctypes.c_void_p(y.ctypes.data + 2), at[3]) == 6
    assert library.model_call(pointer, 1, None, None) == 7
    assert library.model_call(pointer, 0, None, None) == 6
    assert library.model_set_threads(pointer, 0) == library.model_set_threads(pointer, 1025) == 7
    assert library.model_memory_bytes(0) == library.model_memory_bytes(1025) == 0 < library.model_memory_bytes(1024)
    other = ctypes.c_void_p()
    for nbytes, threads, status in (
        (0, 0, 0),
        (48, 1, 0),
        (1000, 1, 0),
        (8, 1, 7),
        (47, 1, 7),
        (48, -1, 7),
        (0, 1025, 7),
    ):
        options = struct.pack("<Ii40x", nbytes, threads)
        assert library.model_create(ctypes.byref(other), options) == status
        library.model_destroy(other)
    assert library.model_set_threads(pointer, 5) == 0
    assert library.model_status_text(6).startswith(b"a pointer is null")
    assert library.model_status_text(-1) == library.model_status_text(99) == b"unknown status"
    library.model_destroy(pointer)
    library.model_destroy(None)


def test_a_file_of_weights_is_mapped_once(tmp_path: Path) -> None:
    """Also for functions that are loaded one after the other; it is unmapped with the last of them."""
    path = exported(chain(160), tmp_path, weights="file")
    weights = os.path.realpath(tmp_path / "model.weights")

    def mappings() -> int:
        return sum(line.endswith(weights) for line in Path("/proc/self/maps").read_text().splitlines())

    loaded = [shlo_jit.load(path, threads=threads) for threads in (1, 2)]
    assert mappings() == 1
    want = loaded[0](*inputs(loaded[0]))
    del loaded[0]
    gc.collect()
    assert mappings() == 1 and same(loaded[0](*inputs(loaded[0])), want)
    loaded.clear()
    gc.collect()
    assert mappings() == 0


def test_weights_that_are_not_ours(tmp_path: Path) -> None:
    path = exported(chain(160), tmp_path, weights="file")
    weights = tmp_path / "model.weights"
    data = weights.read_bytes()
    for wrong in (b"", data[:-1], data + b"\0", data[:40] + bytes([data[40] ^ 1]) + data[41:]):
        weights.write_bytes(wrong)
        with pytest.raises(shlo_jit.LibraryError, match="exported"):
            shlo_jit.load(path)
    weights.rename(tmp_path / "elsewhere")
    with pytest.raises(shlo_jit.LibraryError, match=r"cannot be read \(/.*/model.weights\)"):
        shlo_jit.load(path)
    (tmp_path / "elsewhere").write_bytes(data)
    loaded = shlo_jit.load(path, weights=tmp_path / "elsewhere")
    assert same(loaded(*inputs(loaded)), shlo_jit.compile(chain(160))(*inputs(loaded)))


def test_progress(tmp_path: Path) -> None:
    heard = []
    exported(chain(160), tmp_path, progress=lambda *words: heard.append(words))
    total = 2 * 160 * 160 * 4
    assert [what for what, _, _ in heard] == ["lowering @main for native", "generating code", *["writing weights"] * 2,
                                              "linking"]  # fmt: skip
    assert heard[-2][1:] == (total, total)


def test_python_is_not_needed(tmp_path: Path) -> None:
    """Another Python calls the library by ctypes, without shlo_jit."""
    path = exported(AFFINE, tmp_path)
    code = f"""
import ctypes, sys
library = ctypes.CDLL({str(path)!r})
instance, x, w, y, i = ctypes.c_void_p(), (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 16)(), (ctypes.c_float * 4)(), ctypes.c_int32()
status = library.model_create(ctypes.byref(instance), None) or library.model_main(instance, x, w, y, ctypes.byref(i))
library.model_destroy(instance)
assert "shlo_jit" not in sys.modules and "numpy" not in sys.modules
sys.exit(status or list(y) != [1, 2, 3, 4] or i.value != 7)
"""
    assert subprocess.run([sys.executable, "-I", "-c", code], check=False).returncode == 0
