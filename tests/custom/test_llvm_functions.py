"""Code in LLVM's language: bitcode and text, of numbers and of arrays, good and bad."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest
from one_call import call, chain

import shlo_jit
from shlo_jit.errors import ExecutionError, UnsupportedError

NUMBERS = """define float @g(float %a, float %b) {
  %c = fadd float %a, %b
  %d = fmul float %c, %b
  ret float %d
}
"""
MULTIPLY_ADD = """define float @g(float %a, float %b) {
  %d = call float @llvm.fma.f32(float %a, float %a, float %b)
  ret float %d
}
declare float @llvm.fma.f32(float, float, float)
"""
ARRAYS = """define i32 @g(ptr %operands, ptr %results) {
  %from = load ptr, ptr %operands
  %x = load float, ptr %from
  %to = load ptr, ptr %results
  %y = fadd float %x, 1.0
  store float %y, ptr %to
  %wrong = fcmp ogt float %x, 3.0
  %status = select i1 %wrong, i32 7, i32 0
  ret i32 %status
}
"""
X, Y = np.linspace(-2, 2, 1000, dtype=np.float32), np.linspace(3, 4, 1000, dtype=np.float32)


def compiled(text, source, *, elementwise=True):
    code = shlo_jit.LLVMFunction(source, "g", elementwise=elementwise)
    return shlo_jit.compile(text, custom_calls={"f": code})


@pytest.mark.parametrize("as_bitcode", [False, True])
def test_numbers_are_fused(as_bitcode):
    source = llvm.parse_assembly(NUMBERS).as_bitcode() if as_bitcode else NUMBERS
    exe = compiled(chain(), source)
    assert exe.text("plan").startswith("1 step: 1 loop")
    np.testing.assert_array_equal(exe(X, Y), ((X + Y) + Y) * Y * X)


def test_what_is_no_op_is_a_loop():
    exe = compiled(chain(), MULTIPLY_ADD)
    assert "it calls llvm.fma.f32, which is no op" in exe.text("schedule")
    a = (X + Y).astype(np.float64)
    np.testing.assert_array_equal(exe(X, Y), (a * a + Y).astype(np.float32) * X)


def test_arrays_and_status():
    exe = compiled(call(["1xf32"], ["1xf32"]), ARRAYS, elementwise=False)
    assert exe(np.ones(1, np.float32))[0] == 2
    with pytest.raises(ExecutionError, match=r"custom call 'f' \(line 2, @g \(LLVM\)\) failed with status 7"):
        exe(np.full(1, 4, np.float32))


def test_several_results_and_types():
    source = """define { i32, i1 } @g(i32 %a, double %b) {
      %n = fptosi double %b to i32
      %s = add i32 %a, %n
      %t = icmp ult i32 %s, %a
      %v = insertvalue { i32, i1 } undef, i32 %s, 0
      %w = insertvalue { i32, i1 } %v, i1 %t, 1
      ret { i32, i1 } %w
    }"""
    exe = compiled(call(["3xi32", "3xf64"], ["3xi32", "3xi1"]), source)
    s, t = exe(np.array([1, -1, 5], np.int32), np.array([1.5, 1.0, -3.0]))
    np.testing.assert_array_equal(s, [2, 0, 2])
    np.testing.assert_array_equal(t, [False, True, True])


def test_variables_of_the_code_last():
    source = """@count = internal global i32 0
    define void @g(ptr %operands, ptr %results) {
      %n = load i32, ptr @count
      %m = add i32 %n, 1
      store i32 %m, ptr @count
      %to = load ptr, ptr %results
      store i32 %m, ptr %to
      ret void
    }"""
    exe = compiled(call(["1xi32"], ["1xi32"]), source, elementwise=False)
    x = np.zeros(1, np.int32)
    assert [int(exe(x)[0]) for _ in range(3)] == [1, 2, 3]


BAD = {
    "": "there is no function of that name in it",
    "no code": "LLVM refuses it",
    NUMBERS.replace("%d\n}", "%e\n}"): "use of undefined value '%e'",
    NUMBERS.replace("ret float %d", "ret float %d, !x"): "LLVM refuses it",
    "declare float @g(float, float)": "that function has no body",
    'target triple = "aarch64-unknown-linux-gnu"\n' + NUMBERS: "it is for aarch64-unknown-linux-gnu",
    'target datalayout = "E-m:e"\n' + NUMBERS: "endianness E",
    'target datalayout = "e-p:32:32"\n' + NUMBERS: "data layout",
    NUMBERS.replace("float %b)", "double %b)").replace("%b\n", "%a\n"): r"it is float \(float, double\)",
    'module asm "hlt"\n' + NUMBERS: "it has module asm",
    "@v = thread_local global i32 0\n" + NUMBERS: "variables of threads",
    "@v = external global float\n" + NUMBERS.replace("%a, %b", "%a, %a"): "no definition of the variable v",
    MULTIPLY_ADD.replace("llvm.fma.f32", "getpid"): "it calls getpid",
}  # fmt: skip


@pytest.mark.parametrize("source", BAD)
def test_bad_text(source):
    with pytest.raises(UnsupportedError, match=BAD[source]):
        compiled(chain(), source)


@pytest.mark.parametrize("cut", [0, 3, 4, 40, 300, -5])
def test_damaged_bitcode(cut):
    data = llvm.parse_assembly(NUMBERS).as_bitcode()
    with pytest.raises(UnsupportedError, match="LLVM "):
        compiled(chain(), data[:cut])


def test_random_damage_to_bitcode_never_ends_the_process():
    data = llvm.parse_assembly(NUMBERS).as_bitcode()
    rng = np.random.default_rng(3)
    for _ in range(12):
        damaged = np.frombuffer(data, np.uint8).copy()
        damaged[rng.integers(0, len(data), 4)] = rng.integers(0, 256, 4)
        try:
            compiled(chain(), damaged.tobytes())
        except UnsupportedError:
            continue


def test_code_without_instructions_for_it_is_refused():
    source = (
        'define float @g(float %a, float %b) {\n  call void asm sideeffect "no such thing", ""()\n  ret float %a\n}'
    )
    with pytest.raises(UnsupportedError, match="LLVM fails on it|LLVM refuses it"):
        compiled(chain(), source)


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="text or the bytes of bitcode"):
        shlo_jit.LLVMFunction(3, "g")
    with pytest.raises(TypeError, match="name of a function"):
        shlo_jit.LLVMFunction("", "")
