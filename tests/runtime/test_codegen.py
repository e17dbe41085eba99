"""Generates code from LLVM text: our defects become exceptions, and marked functions get more passes."""

import numpy as np
import pytest
from programs import TARGET, binary

from shlo_jit.codegen import jit
from shlo_jit.codegen.optimize import SIMPLIFY, emit_assembly, emit_object, optimize
from shlo_jit.errors import InternalError
from shlo_jit.runtime.build import build


@pytest.mark.parametrize(
    "text",
    [
        "this is no LLVM",
        "define void @f() {\n",
        "define i32 @f() {\n ret void\n}",
        "define i32 @f(i32 %x) {\n %y = add i32 %x, %z\n ret i32 %y\n}",
        "define void @f() {\nentry:\n br label %entry\n}",
    ],
)
def test_refused_text_raises(text):
    with pytest.raises(InternalError, match="LLVM"):
        optimize(text, TARGET)


def test_refused_program_raises():
    program = binary(4)
    program.text = program.text.replace("fadd", "fnone")
    with pytest.raises(InternalError):
        build(program, TARGET, cache=False)


def test_missing_symbol_raises():
    text = "declare void @nobody_defines_this()\ndefine i32 @f() {\n call void @nobody_defines_this()\n ret i32 0\n}"
    code = emit_object(optimize(text, TARGET), TARGET)
    with pytest.raises(InternalError, match="cannot link"):
        jit.load([code], ["f"])


def test_object_that_is_none_raises():
    with pytest.raises(InternalError):
        jit.load([b"nothing"], ["f"])


LOOP = """
define i64 @f(i64 %n) MARK {
entry:
  %s = alloca [2 x i64], align 64
  store i64 0, ptr %s
  %g = getelementptr i64, ptr %s, i64 %n
  store i64 %n, ptr %g
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %v = load i64, ptr %s
  %w = mul i64 %v, %i
  %x = add i64 %w, 3
  store i64 %x, ptr %s
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, %n
  br i1 %c, label %loop, label %end
end:
  %r = load i64, ptr %s
  ret i64 %r
}
"""


def loop_body(module) -> str:
    text = str(module)
    start = text.index("loop:")
    return text[start : text.index("\n\n", start)]


def test_marked_functions_keep_values_in_registers():
    assert "store" in loop_body(optimize(LOOP.replace("MARK", ""), TARGET))
    assert "store" not in loop_body(optimize(LOOP.replace("MARK", f"nounwind {SIMPLIFY}"), TARGET))
    assert "store" not in loop_body(optimize(LOOP.replace("MARK", ""), TARGET, level=2))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_levels(level):
    exe = build(binary(5), TARGET, cache=False, level=level)
    np.testing.assert_array_equal(exe(np.ones(5, np.float32), np.ones(5, np.float32)), np.full(5, 2))


def test_assembly():
    assert "shlo_main" in emit_assembly(optimize(binary(4).text, TARGET), TARGET)
