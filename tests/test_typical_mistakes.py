"""Typical mistakes, and the suggestions of the messages: each row has a code, a location and required words of its hint.

The sentences may change; codes, locations and suggestions may not. Files of other formats are in `test_sources.py`,
words on the command line in `test_cli.py`, targets in `test_targets.py`.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shlo_jit
from shlo_jit.errors import StableHLOError, UsageError
from shlo_jit.ops import OPS
from shlo_jit.ops.name_hints import NAMES, RECIPES, hint_for
from shlo_jit.suggest import closest, distance

HEAD = "func.func @main(%x: T, %i: tensor<i32>) -> T {\n"

# A line of a function, its second one: the line, its code, the column, and words of the hint. `T` is tensor<2x3xf32>.
LINES = [
    # ---- names of other libraries, and typing errors
    ("%0 = stablehlo.exp %x : T", "syntax.unknown_op", 6, "'stablehlo.exponential'"),
    ("%0 = stablehlo.mul %x, %x : T", "syntax.unknown_op", 6, "'stablehlo.multiply'"),
    ("%0 = stablehlo.sub %x, %x : T", "syntax.unknown_op", 6, "'stablehlo.subtract'"),
    ("%0 = stablehlo.max %x, %x : T", "syntax.unknown_op", 6, "'stablehlo.maximum'"),
    ("%0 = stablehlo.min %x, %x : T", "syntax.unknown_op", 6, "'stablehlo.minimum'"),
    ("%0 = stablehlo.div %x, %x : T", "syntax.unknown_op", 6, "'stablehlo.divide'"),
    ("%0 = stablehlo.pow %x, %x : T", "syntax.unknown_op", 6, "'stablehlo.power'"),
    ("%0 = stablehlo.neg %x : T", "syntax.unknown_op", 6, "'stablehlo.negate'"),
    ("%0 = stablehlo.matmul %x, %x : T", "syntax.unknown_op", 6, "'stablehlo.dot_general'"),
    ("%0 = stablehlo.where %i, %x, %x : T", "syntax.unknown_op", 6, "'stablehlo.select'"),
    ("%0 = stablehlo.astype %x : (T) -> T", "syntax.unknown_op", 6, "'stablehlo.convert'"),
    ("%0 = stablehlo.relu %x : T", "syntax.unknown_op", 6, "stablehlo.maximum"),
    ("%0 = stablehlo.softmax %x : T", "syntax.unknown_op", 6, "stablehlo.exponential"),
    ("%0 = stablehlo.tahn %x : T", "syntax.unknown_op", 6, "'stablehlo.tanh'"),
    ("%0 = stablehlo.brodcast_in_dim %i, dims = [] : (T) -> T", "syntax.unknown_op", 6, "'stablehlo.broadcast_in_dim'"),
    ("%0 = stablehlo.erf %x : T", "syntax.unknown_op", 6, "'chlo.erf'"),
    ("%0 = chlo.exp %x : T", "syntax.unknown_op", 6, "'stablehlo.exponential'"),
    ("%0 = dot_general %x, %x : T", "syntax.unknown_op", 6, "'stablehlo.dot_general'"),
    ('%0 = "stablehlo.mul"(%x, %x) : (T, T) -> T', "verify.unknown", 6, "'stablehlo.multiply'"),
    ("%0 = math.exp %x : T", "unsupported.dialect", 6, "'stablehlo.exponential'"),
    ("%0 = arith.addf %x, %x : T", "unsupported.dialect", 6, "'stablehlo.add'"),
    ("%0 = linalg.matmul ins(%x, %x : T, T) outs(%x : T) -> T", "file.other_dialect", 6, "export the model as StableHLO"),
    ('%0 = "torch.aten.relu"(%x) : (T) -> T', "unsupported.dialect", 6, "torch-mlir-opt"),
    ("%0 = stablehlo.custom_call @my_scale(%x) : (T) -> T", "unsupported.custom_call", 6, "custom_calls={'my_scale': f}"),
    # ---- types
    ("%0 = stablehlo.add %x, %x", "syntax.missing_type", 26, "write : tensor<2x3xf32>"),
    ("%0 = stablehlo.tanh %x", "syntax.missing_type", 23, "write : tensor<2x3xf32>"),
    ("%0 = stablehlo.reshape %x : tensor<6xf32>", "syntax.missing_type", 29, "(tensor<2x3xf32>) -> tensor<6xf32>"),
    ("%0 = stablehlo.abs %x : tensor<2x3xfloat32>", "syntax.tensor_type", 36, "tensor<2x3xf32>"),
    ("%0 = stablehlo.abs %x : tensor<2x3xdouble>", "syntax.tensor_type", 36, "tensor<2x3xf64>"),
    ("%0 = stablehlo.abs %x : tensor<2x3xint32>", "syntax.tensor_type", 36, "tensor<2x3xi32>"),
    ("%0 = stablehlo.abs %x : tensor<2x3xuint8>", "syntax.tensor_type", 36, "tensor<2x3xui8>"),
    ("%0 = stablehlo.abs %x : tensor<2x3xbool>", "syntax.tensor_type", 36, "tensor<2x3xi1>"),
    ("%0 = stablehlo.abs %x : tensor<2x3f32>", "syntax.tensor_type", 34, "tensor<2x3xf32>"),
    ("%0 = stablehlo.abs %x : tensor<2,3,f32>", "syntax.tensor_type", 32, "tensor<2x3xf32>"),
    ("%0 = stablehlo.abs %x : tensor<2x3, f32>", "syntax.tensor_type", 34, "tensor<2x3xf32>"),
    ("%0 = stablehlo.abs %x : tensor<f32x2x3>", "syntax.tensor_type", 32, "tensor<2x3xf32>"),
    ("%0 = stablehlo.abs %x : tensor<-1x3xf32>", "syntax.tensor_type", 32, "tensor<?x3xf32>"),
    ("%0 = stablehlo.abs %x : tensor<Nonex3xf32>", "syntax.tensor_type", 32, "tensor<?x3xf32>"),
    ("%0 = stablehlo.abs %x : tensor[2x3xf32]", "syntax.tensor_type", 31, "tensor<2x3xf32>"),
    ("%0 = stablehlo.abs %x : Tensor<2x3xf32>", "syntax.unknown_type", 25, "tensor<2x3xf32>"),
    ("%0 = stablehlo.abs %x : tensr<2x3xf32>", "syntax.unknown_type", 25, "tensor<2x3xf32>"),
    ("%0 = stablehlo.abs %x : 2x3xf32", "syntax.unknown_type", 25, "tensor<2x3xf32>"),
    ("%0 = stablehlo.abs %x : f32[2,3]", "syntax.type_mismatch", 20, "tensor<2x3xf32>"),
    ("%0 = stablehlo.add %x, %i : T", "syntax.type_mismatch", 24, "tensor<i32>"),
    ("%0 = stablehlo.convert %x : (tensor<2x3xf16>) -> T", "syntax.type_mismatch", 24, "stablehlo.convert"),
    ("%0 = stablehlo.compare LT, %x, %x : (T, T) -> T", "verify.type", 6, "tensor<2x3xi1>"),
    ("%0 = stablehlo.transpose %x, dims = [1, 0] : (T) -> T", "verify.transpose.C3", 6, "tensor<3x2xf32>"),
    # ---- a wrong type that shows where the value is used
    ("%0 = stablehlo.reshape %x : (T) -> tensor<5xf32>", "verify.reshape.C2", 6, ""),
    ("%0 = stablehlo.convert %x : (T) -> tensor<2x3xf16>", "syntax.type_mismatch", (3, 10), "in line 2"),
    # ---- literals
    ("%0 = stablehlo.constant 1.0 : tensor<f32>", "syntax.literal", 31, "dense<1.0> : tensor<f32>"),
    ("%0 = stablehlo.constant dense<1.0> : f32", "syntax.literal", 25, "dense<1.0> : tensor<f32>"),
    ("%0 = stablehlo.constant dense<1> : T", "syntax.literal", 31, "1.0"),
    ("%0 = stablehlo.constant dense<1.0> : tensor<2xi32>", "syntax.literal", 31, "write 1,"),
    ("%0 = stablehlo.constant dense<True> : tensor<i1>", "syntax.literal", 31, "true"),
    ("%0 = stablehlo.constant dense<nan> : T", "syntax.literal", 31, "0x7FC00000"),
    ("%0 = stablehlo.constant dense<-inf> : T", "syntax.literal", 31, "0xFF800000"),
    ("%0 = stablehlo.constant dense<1e5> : T", "syntax.literal", 31, "1.0e5"),
    ("%0 = stablehlo.constant dense<.5> : T", "syntax.literal", 31, "0.5"),
    # ---- names of values
    ("%0 = stablehlo.add %x, %X : T", "syntax.undefined_value", 24, "'%x'"),
    ("%0 = stablehlo.add %x, %missing : T", "syntax.undefined_value", 24, "%x, %i"),
    ("%0 = stablehlo.add x, x : T", "syntax.value_name", 20, "%x"),
    ("y = stablehlo.add %x, %x : T", "syntax.value_name", 1, "%y ="),
    ("%0 stablehlo.add %x, %x : T", "syntax.value_name", 4, "="),
    ("%x = stablehlo.abs %x : T", "syntax.redefined_value", 1, "%x_1"),
    # ---- punctuation
    ("%0 = stablehlo.add(%x, %x) : T", "syntax.operand", 19, "stablehlo.add %x, %y : tensor<2xf32>"),
    ("%0 = stablehlo.add %x %x : T", "syntax.operand", 23, ","),
    ("%0 = stablehlo.add %x, 1.0 : T", "syntax.operand", 24, "stablehlo.constant"),
    ("%0 = stablehlo.abs %x : T;", "syntax.character", 40, "remove the ';'"),
    ("%0 = stablehlo.abs %x : T  # a comment", "syntax.character", 42, "//"),
    ("%0 = “stablehlo.abs”(%x) : (T) -> T", "syntax.character", 6, 'straight double quotes: "'),
    ("%0 = 'stablehlo.abs'(%x) : (T) -> T", "syntax.character", 6, '"stablehlo.add"'),
    ("%0 =\u00a0stablehlo.abs %x : T", "syntax.character", 5, "U+00A0"),
    # ---- attributes
    ("%0 = stablehlo.compare lt, %x, %x : (T, T) -> T", "syntax.word", 24, "LT"),
    ("%0 = stablehlo.compare <=, %x, %x : (T, T) -> T", "syntax.word", 24, "LE"),
    ("%0 = stablehlo.transpose %x, perm = [1, 0] : (T) -> T", "syntax.clause", 30, "dims = [1, 0]"),
    ("%0 = stablehlo.transpose %x, dims = 1, 0 : (T) -> T", "syntax.clause", 37, "[1, 0]"),
    ("%0 = stablehlo.iota 0 : T", "syntax.clause", 21, "dim = 0"),
    ("%0 = stablehlo.dot_general %x, %x : (T, T) -> T", "syntax.clause", 35, "contracting_dims = [1] x [0]"),
    ('%0 = "stablehlo.transpose"(%x) {perm = array<i64: 1, 0>} : (T) -> T', "verify.attribute", 6, "write permutation"),
    ('%0 = "stablehlo.transpose"(%x) {permutation = [1, 0]} : (T) -> T', "verify.attribute", 6,
     "permutation = array<i64: 1, 0>"),
]  # fmt: skip

# Whole programs: the text, its code, line and column, and words of the hint.
PROGRAMS = [
    ("func @main(%x: T) -> T {\n  return %x : T\n}", "syntax.function", (1, 1), "func.func @main"),
    ("def main(%x: T) -> T {\n  return %x : T\n}", "syntax.function", (1, 1), "func.func @main"),
    ("func.func main(%x: T) -> T {\n  return %x : T\n}", "syntax.function", (1, 11), "@main"),
    ("func.func @main(%x: T) {\n  return %x : T\n}", "verify.type", (2, 3), "@main(...) -> tensor<2x3xf32>"),
    ("func.func @main(%x: T) : T {\n  return %x : T\n}", "syntax.function", (1, 38), "->"),
    ("func.func @main(%x: T) -> T, T {\n  return %x, %x : T, T\n}", "syntax.function", (1, 56), "-> ("),
    ("func.func @main(x: T) -> T {\n  return %x : T\n}", "syntax.unknown_type", (1, 17), "%x"),
    ("func.func @main(%x T) -> T {\n  return %x : T\n}", "syntax.function", (1, 20), ":"),
    ("func.func @main(T %x) -> T {\n  return %x : T\n}", "syntax.function", (1, 33), "%x: tensor"),
    ("func.func @main(%x: f32[2,3]) -> T {\n  return %x : T\n}", "syntax.unknown_type", (1, 24), "tensor<2x3xf32>"),
    ("func.func @main(%x: T) -> T {\n  return %x\n}", "syntax.missing_type", (2, 12), ": tensor<2x3xf32>"),
    ("func.func @main(%x: T) -> T {\n  %0 = stablehlo.tanh %x : T\n}", "verify.terminator", (2, 8),
     "return %0 : tensor<2x3xf32>"),
    ("func.func @main(%x: T) -> T {\n}", "verify.terminator", (1, 1), "return"),
    ("func.func @main(%x: T) -> T {\n  return %x : T\n}\n}", "syntax.brackets", (4, 1), "'}'"),
    ("func.func @main(%x: T) -> T {\n  return %x : T", "syntax.end_of_text", (2, 30), "complete"),
    ("func.func @forward(%x: T) -> T {\n  return %x : T\n}", "program.entry", (0, 0), "entry='forward'"),
    ("module {}", "program.entry", (0, 0), "func.func @main"),
    ("/* a comment */\nfunc.func @main(%x: T) -> T {\n  return %x : T\n}", "syntax.character", (1, 1), "//"),
    ("vhlo.func_v1 @main(%x: !vhlo.tensor_v1<2x!vhlo.f32_v1>) { }", "file.other_dialect", (1, 1),
     "--vhlo-legalize-to-stablehlo"),
    ("import jax\nprint(jax.jit(f).lower(x).as_text())\n", "file.python", (1, 1), "lower(...).as_text()"),
    ("HloModule jit_f\n\nENTRY main { ROOT p = f32[2] parameter(0) }\n", "file.hlo_text", (1, 1), "xla-translate"),
    (HEAD + "  %c = stablehlo.constant dense<0.0> : tensor<f32>\n  %0 = stablehlo.add %x, %c : T\n  return %0 : T\n}",
     "syntax.type_mismatch", (3, 26), "stablehlo.broadcast_in_dim"),
    (HEAD + "  %c = stablehlo.constant dense<0.0> : tensor<f32>\n"
     "  %0 = stablehlo.reduce(%x, %c) applies stablehlo.add across dimensions = [0] : (T, tensor<f32>) -> tensor<3xf32>\n"
     "  return %x : T\n}", "syntax.clause", (3, 27), "init"),
    (HEAD + "  %c = stablehlo.constant dense<0.0> : tensor<f32>\n"
     "  %0 = stablehlo.reduce(%x init: %c) across dimensions = [0] : (T, tensor<f32>) -> tensor<3xf32>\n"
     "    reducer(%a: tensor<f32>, %b: tensor<f32>) {\n    %s = stablehlo.add %a, %b : tensor<f32>\n  }\n"
     "  return %x : T\n}", "verify.region", (3, 8), "stablehlo.return %s : tensor<f32>"),
    (HEAD + "  %c = stablehlo.constant dense<0.0> : tensor<f32>\n"
     "  %0 = stablehlo.reduce(%x init: %c) across dimensions = [0] : (T, tensor<f32>) -> tensor<3xf32>\n"
     "    reducer(%a: tensor<f32>, %b: tensor<f32>) {\n    return %a : tensor<f32>\n  }\n"
     "  return %x : T\n}", "verify.region", (3, 8), "stablehlo.return instead of return"),
]  # fmt: skip


def check(text: str, code: str, place: tuple[int, int], hint: str) -> None:
    with pytest.raises(StableHLOError) as caught:
        shlo_jit.compile(text, cache=False)
    found = caught.value.diagnostics[0]
    assert (found.code, (found.line, found.column)) == (code, place), str(found)
    assert hint in found.hint, str(found)
    assert not hint or found.hint in str(found)


@pytest.mark.parametrize(("line", "code", "place", "hint"), LINES, ids=[row[0][:50] for row in LINES])
def test_lines(line: str, code: str, place: int | tuple[int, int], hint: str) -> None:
    text = re.sub(r"\bT\b", "tensor<2x3xf32>", f"{HEAD}  {line}\n  return %0 : T\n}}")
    check(text, code, place if isinstance(place, tuple) else (2, place + 2), hint)


@pytest.mark.parametrize(("text", "code", "place", "hint"), PROGRAMS, ids=[row[0][:40] for row in PROGRAMS])
def test_programs(text: str, code: str, place: tuple[int, int], hint: str) -> None:
    check(re.sub(r"\bT\b", "tensor<2x3xf32>", text), code, place, hint)


def test_there_are_enough() -> None:
    assert len(LINES) + len(PROGRAMS) >= 100


# ---------------------------------------------------------------------- arrays
ADD = """func.func @main(%x: tensor<2x3xf32>, %n: tensor<3xi32>) -> tensor<2x3xf32> {
  return %x : tensor<2x3xf32>
}"""
X, N = np.ones((2, 3), np.float32), np.ones(3, np.int32)
BF16 = ml_dtypes.bfloat16
CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str, str]] = [
    ((X.astype(np.float64), N), {}, "argument.dtype", ".astype(np.float32)"),
    ((X.astype(BF16), N), {}, "argument.dtype", ".astype(np.float32)"),
    ((X, N.astype(np.int64)), {}, "argument.dtype", ".astype(np.int32)"),
    ((X > 0, N), {}, "argument.dtype", ".astype(np.float32)"),
    ((X.astype(str), N), {}, "argument.dtype", "array of numbers"),
    ((X.T, N), {}, "argument.shape", ".T"),
    ((X.reshape(6), N), {}, "argument.shape", ".reshape((2, 3))"),
    ((X[None], N), {}, "argument.shape", ".reshape((2, 3))"),
    ((X[0], N), {}, "argument.shape", "np.broadcast_to(x, (2, 3))"),
    ((np.ones((5, 3), np.float32), N), {}, "argument.shape", "unknown dimensions"),
    ((1.0, N), {}, "argument.shape", "np.full((2, 3), 1.0, np.float32)"),
    ((X.tolist(), N), {}, "argument.kind", "numpy.asarray(x, np.float32)"),
    (((X, X), N), {}, "argument.kind", "exe(*arguments)"),
    ((None, N), {}, "argument.kind", "pass an array"),
    (("x.npy", N), {}, "argument.kind", "numpy.load"),
    (({"x": X}, N), {}, "argument.kind", "exe(**arguments)"),
    ((N, X), {}, "argument.order", "x, n"),
    ((X,), {}, "argument.count", "n"),
    ((X, N, N), {}, "argument.count", ""),
    ((X,), {"m": N}, "argument.name", ""),
    ((), {"x": X, "N": N}, "argument.name", "'n'"),
    ((X, N), {"x": X}, "argument.name", "by position or by name"),
    ((X,), {"x": X}, "argument.name", "by position or by name"),
]


@pytest.fixture(scope="module")
def exe() -> Any:
    return shlo_jit.compile(ADD)


@pytest.mark.parametrize(("args", "named", "code", "hint"), CALLS)
def test_arrays(exe: Any, args: tuple[Any, ...], named: dict[str, Any], code: str, hint: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        exe(*args, **named)
    assert isinstance(caught.value, UsageError), repr(caught.value)
    assert caught.value.code == code and hint in caught.value.hint, repr(caught.value)
    assert caught.value.hint in str(caught.value)


def test_arrays_that_are_taken(exe: Any) -> None:
    """Strided, read-only and byte-swapped arrays, and results of other calls, are accepted."""
    wide = np.ones((2, 6), np.float32)
    frozen = X.copy()
    frozen.flags.writeable = False
    for array in (wide[:, ::2], np.asfortranarray(X), frozen, X.astype(">f4"), exe(X, N)):
        np.testing.assert_array_equal(exe(array, N), X)


# ---------------------------------------------------------------------- options
OPTIONS = [
    ({"target": "x86-64-v9"}, "option.target", "x86-64-v4"),
    ({"target": "x86_64-v3"}, "option.target", "x86-64-v3"),
    ({"target": "haswel"}, "option.target", "'haswell'"),
    ({"target": "arm64"}, "option.target", "'aarch64'"),
    ({"target": "cpu"}, "option.target", "'native'"),
    ({"target": "gpu"}, "option.target", "only CPUs"),
    ({"dynamic": "symbol"}, "option.value", "'symbolic'"),
    ({"transport": "process", "num_partitions": 2}, "option.value", "'processes'"),
    ({"threads": "4"}, "option.value", "threads=4"),
    ({"threads": 0}, "option.value", ""),
    ({"donate": 0}, "option.kind", "donate=[0]"),
    ({"cache": "no"}, "option.kind", ""),
    ({"entry": 3}, "option.kind", ""),
    ({"custom_calls": [len]}, "option.kind", 'custom_calls={"name": function}'),
]


@pytest.mark.parametrize(("options", "code", "hint"), OPTIONS)
def test_options(options: dict[str, Any], code: str, hint: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        shlo_jit.compile(ADD, **options)
    assert isinstance(caught.value, UsageError), repr(caught.value)
    assert caught.value.code == code and hint in caught.value.hint, repr(caught.value)


# ---------------------------------------------------------------------- suggestions
def test_other_names_are_no_ops_and_mean_ops() -> None:
    for name, op in NAMES.items():
        assert op in OPS, name
        assert f"stablehlo.{name}" not in OPS, name
    for name, recipe in RECIPES.items():
        assert f"stablehlo.{name}" not in OPS and name not in NAMES, name
        assert all(op in OPS for op in re.findall(r"\b(?:stablehlo|chlo)\.\w+", recipe)), name


def test_typing_errors_of_every_op_find_it() -> None:
    """Two letters exchanged, one omitted, one doubled: the hint is the op itself, or one that is equally similar."""
    for op in OPS:
        dialect, _, name = op.rpartition(".")
        if dialect not in ("stablehlo", "chlo") or len(name) < 6:
            continue
        middle = len(name) // 2
        wrong = [name[:middle] + name[middle + 1 :], name[: middle + 1] + name[middle:]]
        if name[middle] != name[middle - 1]:
            wrong.append(name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :])
        for word in wrong:
            if f"{dialect}.{word}" in OPS:
                continue
            meant = hint_for(f"{dialect}.{word}").removeprefix("did you mean '").removesuffix("'?")
            assert meant in OPS and distance(word, meant.rpartition(".")[2]) <= distance(word, name), (op, word, meant)


@pytest.mark.parametrize(
    ("a", "b", "errors"), [("tahn", "tanh", 1), ("abc", "abc", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("ca", "abc", 3)]
)  # fmt: skip
def test_distances(a: str, b: str, errors: int) -> None:
    assert distance(a, b) == distance(b, a) == errors


def test_nothing_is_suggested_for_what_is_far_from_all() -> None:
    assert closest("xyzzy", OPS) == "" and hint_for("stablehlo.xyzzy") == ""
    assert closest("dimension", ["dimensions", "permutation"]) == "dimensions"
    assert closest("plan", ["module", "plan", "asm"]) == "plan"


# ---------------------------------------------------------------------- terminals
def test_excerpts_have_no_control_characters() -> None:
    text = "func.func @main() {\n  \x1b[31m\x07%0 = foo \x9b\u202e\n}"
    (found,) = shlo_jit.verify(text)
    shown = str(found)
    assert not {c for c in shown if ord(c) < 32 and c != "\n"} | {c for c in shown if c in "\x9b\u202e"}
    assert found.source_line == text.splitlines()[1]
    excerpt, carets = shown.splitlines()[1:3]
    assert excerpt[2:].index("\u241b") == carets[2:].index("^") == found.column - 1


def test_long_lines_are_cut_around_the_place() -> None:
    blanks = " " * 5000
    (found,) = shlo_jit.verify(f"func.func @main() {{{blanks}%0 = stablehlo.abs %y : tensor<f32>{blanks}}}")
    _, excerpt, carets, *_ = str(found).splitlines()
    assert len(excerpt) < 180 and excerpt.startswith("  ...") and excerpt.endswith("...")
    assert excerpt[carets.index("^") :].startswith("%y")


def test_nothing_of_a_binary_line_is_shown() -> None:
    (found,) = shlo_jit.verify(b"func.func @main() {\n" + bytes(range(128, 256)))
    assert str(found).count("\n") == 0
