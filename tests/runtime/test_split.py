"""Large modules split into parts: the parts form the same program, in the JIT and in a shared library."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from programs import TARGET, pointer, port, program

from shlo_jit import tuning
from shlo_jit.codegen import abi
from shlo_jit.codegen.background import Background
from shlo_jit.codegen.objects import compile_program
from shlo_jit.codegen.program import Program
from shlo_jit.codegen.split import split
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.runtime import routines
from shlo_jit.runtime.build import build, from_cache, load
from shlo_jit.runtime.instance import record_type


def chain(kernels: int, n: int = 16) -> Program:
    """Returns z = x + 1 + 1 + ..., one kernel each, by way of a helper that is inlined, a table and a parallel task."""
    m = ModuleText(TARGET)
    m.define_global("one", "internal constant [1 x float] [float 1.0], align 4")
    b = m.function("plus", [("ptr", "p")], "float", attributes="alwaysinline nounwind")
    b.ret(b.fadd(b.load("float", b.params[0]), b.load("float", V("ptr", "@one"))))
    for k in range(kernels):
        b = m.function(f"k{k}", [("ptr", "frame"), ("i64", "index"), ("i64", "worker")], attributes="nounwind")
        at = b.element(pointer(b, b.params[0], 0), "float", b.params[1])
        b.store(b.call("float", "plus", [at], declare=False), at)
        b.ret()
    b = m.function(abi.ENTRY, abi.PARAMETERS, "i32", linkage="external")
    args, results, _, _, instance = b.params
    b.memcpy(pointer(b, results, 0), pointer(b, args, 0), 4 * n)
    for k in range(kernels):
        task = V("ptr", f"@k{k}")
        b.call("void", "shlo_parallel", [task, results, i64(n), abi.load(b, instance, "threads")])
    b.ret(i32(0))
    return program(m, [port("x", (n,))], [port("z", (n,))])


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(tuning, "SPLIT_TEXT_BYTES", 1000)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_parts_make_the_program(parts, cache):
    p = chain(40)
    assert len(split(p.text, parts)) == parts
    compiled = compile_program(p, TARGET, parts=parts)
    assert len(compiled.objects) == parts
    exe = load(compiled, TARGET, threads=2)
    np.testing.assert_array_equal(exe(np.arange(16, dtype=np.float32)), np.arange(16) + 40)


def test_parts_come_back_from_the_cache(cache, monkeypatch):
    with Background(2) as background:
        build(chain(40), TARGET, key="k", cache=cache, starting=routines.Starting(TARGET, cache, background, 3))
    np.testing.assert_array_equal(from_cache("k", TARGET, cache=cache)(np.zeros(16, np.float32)), np.full(16, 40))


def test_what_cannot_be_cut_stays_whole():
    text = chain(40).text
    assert split(text, 1) == [text]
    variable = "@state = internal global i32 0\n" + text
    assert split(variable, 4) == [variable]
    assert split(text[:900], 4) == [text[:900]]
    strange = text + "\ndefine strange\n}\n"
    assert split(strange, 4) == [strange]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_parts_link_into_a_shared_library(tmp_path):
    from shlo_jit.codegen.objects import compile_routine
    from shlo_jit.kernels.threads.pool import THREADS

    compiled = compile_program(chain(40), TARGET, parts=3)
    objects = [*compiled.objects, *compile_routine(THREADS, TARGET).objects]
    files = []
    for i, code in enumerate(objects):
        files.append(tmp_path / f"{i}.o")
        files[-1].write_bytes(code)
    library = tmp_path / "lib.so"
    command = [
        "cc",
        "-shared",
        "-Wl,-z,defs",
        "-Wl,-z,nodelete",
        "-o",
        str(library),
        *map(str, files),
        "-lpthread",
        "-lm",
    ]
    subprocess.run(command, check=True)
    main = ctypes.CDLL(str(library)).shlo_main
    x, z, instance = np.arange(16, dtype=np.float32), np.empty(16, np.float32), record_type(0)(threads=2)
    tables = [(ctypes.c_void_p * 1)(a.ctypes.data) for a in (x, z)]
    assert main(*tables, None, None, ctypes.byref(instance)) == abi.Status.OK
    np.testing.assert_array_equal(z, x + 40)
