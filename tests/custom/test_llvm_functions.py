"""Code in LLVM's language: bitcode and text, of scalars and of arrays, good and bad."""

from __future__ import annotations

import traceback

import llvmlite.binding as llvm
import numpy as np
import pytest
from one_call import call, chain
from printed_codes import codes
from refusing import refused

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
    assert "calls-non-op" in codes(exe.text("schedule"))
    a = (X + Y).astype(np.float64)
    np.testing.assert_array_equal(exe(X, Y), (a * a + Y).astype(np.float32) * X)


def test_arrays_and_status():
    exe = compiled(call(["1xf32"], ["1xf32"]), ARRAYS, elementwise=False)
    assert exe(np.ones(1, np.float32))[0] == 2
    with pytest.raises(ExecutionError, match=r"'f' \(line 2, @g.*status 7"):
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


ITSELF = """define float @expf(float %a) {
  %c = fcmp olt float %a, 0.0
  br i1 %c, label %less, label %more
less:
  ret float 1.0
more:
  %b = fsub float %a, 1.0
  %m = call float @expf(float %b)
  %r = fmul float %m, %a
  ret float %r
}
define float @g(float %a, float %b) {
  %m = call float @expf(float %a)
  ret float %m
}
"""


def test_functions_that_call_themselves_are_not_those_of_libm():
    exe = compiled(call(["3xf32"] * 2, ["3xf32"]), ITSELF)
    assert "recursive-function" in codes(exe.text("schedule"))
    x = np.array([-1, 2, 2.5], np.float32)
    np.testing.assert_array_equal(exe(x, x), [1, 0, 2.5 * 1.5 * 0.5])


@pytest.mark.parametrize("convention", ["fastcc", "coldcc", "cc 10"])
@pytest.mark.parametrize("source", [NUMBERS, MULTIPLY_ADD])
def test_conventions_of_calls(source, convention):
    made = compiled(chain(), source.replace("define float", f"define {convention} float"))
    np.testing.assert_array_equal(made(X, Y), compiled(chain(), source)(X, Y))


def test_kernels_with_a_convention_of_their_own():
    exe = compiled(
        call(["1xf32"], ["1xf32"]), ARRAYS.replace("define i32", "define internal fastcc i32"), elementwise=False
    )
    assert exe(np.ones(1, np.float32))[0] == 2


DIVISION = """@kept = internal global i32 0
define i32 @g(i32 %a, i32 %b) {
  %q = sdiv i32 %a, %b
  store volatile i32 %q, ptr @kept
  ret i32 %q
}
"""


@pytest.mark.parametrize("source", [DIVISION, DIVISION.replace("  store volatile i32 %q, ptr @kept\n", "")])
def test_divisions_that_cannot_be_done_do_not_end_the_process(source):
    exe = compiled(call(["4xi32"] * 2, ["4xi32"]), source)
    x, y = np.array([1, -(2**31), 5, 7], np.int32), np.array([0, -1, 2, 0], np.int32)
    np.testing.assert_array_equal(exe(x, y), [-1, -(2**31), 2, -1])


def test_truth_values_as_signed_numbers():
    source = "define float @g(i1 %a) {\n  %r = sitofp i1 %a to float\n  ret float %r\n}"
    got = compiled(call(["2xi1"], ["2xf32"]), source)(np.array([False, True]))
    np.testing.assert_array_equal(got, [0, -1])
    assert not np.signbit(got[0])


def test_floats_that_llvm_has_no_type_for_are_bits():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    source = "define i8 @g(i8 %a) {\n  %r = add i8 %a, 1\n  ret i8 %r\n}"
    x = np.array([1, 2, -3], ml_dtypes.float8_e4m3fn)
    got = compiled(call(["3xf8E4M3FN"], ["3xf8E4M3FN"]), source)(x)
    np.testing.assert_array_equal(got.view(np.uint8), x.view(np.uint8) + 1)


FOR_ANOTHER = """define float @g(float %a, float %b) #0 {
  %c = fadd float %a, %b
  %d = fmul float %c, %b
  ret float %d
}
attributes #0 = { "target-cpu"="skylake-avx512" "target-features"="+avx512f" }
"""
WIDE = """define i32 @g(ptr %operands, ptr %results) #0 {
  %from = load ptr, ptr %operands
  %x = load <16 x float>, ptr %from
  %y = call <16 x float> @llvm.x86.avx512.sqrt.ps.512(<16 x float> %x, i32 4)
  %to = load ptr, ptr %results
  store <16 x float> %y, ptr %to
  ret i32 0
}
declare <16 x float> @llvm.x86.avx512.sqrt.ps.512(<16 x float>, i32)
attributes #0 = { "target-features"="+avx512f" }
"""


def test_the_machine_is_the_programs_and_not_the_functions():
    np.testing.assert_array_equal(compiled(chain(), FOR_ANOTHER)(X, Y), compiled(chain(), NUMBERS)(X, Y))
    code = shlo_jit.LLVMFunction(WIDE, "g")
    with refused(UnsupportedError, ("llvm-fails", "llvm-rejects")):
        shlo_jit.compile(call(["16xf32"], ["16xf32"]), custom_calls={"f": code}, target="x86-64-v2")


def test_names_in_quotes_and_texts_that_look_like_code():
    source = '@s = private constant [10 x i8] c"an alias \\00"\n' + MULTIPLY_ADD.replace("@g(", '@"a name"(')
    exe = shlo_jit.compile(chain(), custom_calls={"f": shlo_jit.LLVMFunction(source, "a name", elementwise=True)})
    np.testing.assert_array_equal(exe(X, Y), compiled(chain(), MULTIPLY_ADD)(X, Y))


BAD = {
    "": "no-such-function",
    "no code": "llvm-rejects",
    NUMBERS.replace("%d\n}", "%e\n}"): "llvm-rejects",
    NUMBERS.replace("ret float %d", "ret float %d, !x"): "llvm-rejects",
    "declare float @g(float, float)": "function-without-body",
    'target triple = "aarch64-unknown-linux-gnu"\n' + NUMBERS: "other-target",
    'target datalayout = "E-m:e"\n' + NUMBERS: "other-data-layout",
    'target datalayout = "e-p:32:32"\n' + NUMBERS: "other-data-layout",
    NUMBERS.replace("float %b)", "double %b)").replace("%b\n", "%a\n"): "signature-mismatch",
    'module asm "hlt"\n' + NUMBERS: "unusable-definition",
    "@v = thread_local global i32 0\n" + NUMBERS: "unusable-definition",
    "@v = external global float\n" + NUMBERS.replace("%a, %b", "%a, %a"): "undefined-variable",
    MULTIPLY_ADD.replace("llvm.fma.f32", "getpid"): "unknown-callee",
    "define float @g(float %a, float %b) {\n  %v = insertelement <vscale x 4 x float> undef, float %a, i32 0\n"
    "  %r = extractelement <vscale x 4 x float> %v, i32 0\n  ret float %r\n}": "unusable-definition",
    "define float @g(float %a, float %b) {\n  %w = fpext float %a to fp128\n  %v = fmul fp128 %w, %w\n"
    "  %r = fptrunc fp128 %v to float\n  ret float %r\n}": "unknown-callee",
}  # fmt: skip


@pytest.mark.parametrize("source", BAD)
def test_bad_text(source):
    with refused(UnsupportedError, BAD[source], (3, 8)):
        compiled(chain(), source)


@pytest.mark.parametrize("cut", [0, 3, 4, 40, 300, -5])
def test_damaged_bitcode(cut):
    data = llvm.parse_assembly(NUMBERS).as_bitcode()
    with refused(UnsupportedError, ("llvm-fails", "llvm-rejects"), (3, 8)):
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
    with refused(UnsupportedError, ("llvm-fails", "llvm-rejects")):
        compiled(chain(), source)


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="bitcode"):
        shlo_jit.LLVMFunction(3, "g")
    with pytest.raises(TypeError, match="name of a function"):
        shlo_jit.LLVMFunction("", "")


def test_an_error_that_is_kept_keeps_nothing_of_llvm():
    """LLVM objects have to be freed in order, which the garbage collector does not guarantee."""
    with pytest.raises(UnsupportedError) as caught:
        compiled(chain(), "no code")
    errors = [caught.value]
    while (before := errors[-1].__context__) is not None:
        errors.append(before)
    frames = [frame for e in errors for frame, _ in traceback.walk_tb(e.__traceback__)]
    kept = [v for frame in frames for v in frame.f_locals.values() if type(v).__module__.startswith("llvmlite")]
    assert kept == []
